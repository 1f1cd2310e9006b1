//! What one process has, of what the times of KVM's calls depend on.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use crate::vms::{find, program};

/// A process, looked at once. Each part may be hidden from this user, and the process may end meanwhile.
#[derive(Debug)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// What the kernel calls it, without control characters.
    pub program: String,
    /// How many mappings it has (`/proc/PID/maps`).
    pub mappings: io::Result<u64>,
    /// What it has open of KVM's.
    pub open: io::Result<Open>,
}

/// What a process has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// VMs. What is open twice is one.
    pub vms: u64,
    /// Different numbers of vCPUs. If there is one VM, that is how many it has.
    pub vcpus: u64,
    /// Eventfds, of which some may be ioeventfds and irqfds.
    pub eventfds: u64,
}

impl Process {
    /// Looks at a process.
    pub fn look(pid: i32) -> Self {
        Self {
            pid,
            program: program(Path::new(&format!("/proc/{pid}"))),
            mappings: mappings(pid),
            open: open(pid),
        }
    }
}

/// Counts lines, however many there are.
fn mappings(pid: i32) -> io::Result<u64> {
    let maps = BufReader::new(File::open(format!("/proc/{pid}/maps"))?);
    match maps.split(b'\n').try_fold(0, |count, line| line.map(|_| count + 1))? {
        0 => Err(io::Error::other("it has none: it has ended, or is the kernel's")),
        lines => Ok(lines),
    }
}

fn open(pid: i32) -> io::Result<Open> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))?;
    let is_eventfd =
        |path| fs::read_link(path).is_ok_and(|to| to.as_os_str() == "anon_inode:[eventfd]");
    let eventfds = entries.flatten().filter(|entry| is_eventfd(entry.path())).count() as u64;
    let holder = find(Some(pid)).holders.into_iter().next().unwrap_or_default();
    Ok(Open { vms: holder.vms.len() as u64, vcpus: holder.vcpus.len() as u64, eventfds })
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn this_process_has_mappings_and_what_is_gone_has_not() {
        let me = Process::look(std::process::id().cast_signed());
        assert!(me.mappings.unwrap() > 5 && !me.program.is_empty());
        assert_eq!(me.open.unwrap().vms, 0);
        let gone = Process::look(i32::MAX);
        assert_eq!(gone.mappings.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(gone.open.unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_process_that_has_ended_is_not_one_without_mappings() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id().cast_signed();
        // Until it is waited for, its number is its own.
        let status = || fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        while !status().contains("\nState:\tZ") {
            std::thread::yield_now();
        }
        let said = Process::look(pid).mappings.unwrap_err().to_string();
        child.wait().unwrap();
        assert!(said.contains("it has ended"), "{said}");
    }
}
