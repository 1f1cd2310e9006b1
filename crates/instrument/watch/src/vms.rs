//! The VMs of a host, by the descriptors that processes have.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::named::{name, shown};
use crate::sys::is_same_file;

/// A VM, by process and descriptor.
pub(crate) type Name = (i32, i32);

/// A process that has VMs, or a part of one, open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) pid: i32,
    /// What the kernel calls it.
    pub(crate) program: String,
    /// What its command line calls its VM.
    pub(crate) name: Option<String>,
    /// Descriptors of VMs.
    pub(crate) vms: Vec<i32>,
    /// The numbers of the vCPUs that it has open, of whichever VM.
    pub(crate) vcpus: BTreeSet<u32>,
    /// Statistics files: of a VM, or of a vCPU.
    pub(crate) statistics: Vec<i32>,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Those that have a VM open, each VM in the first process that has.
    pub(crate) holders: Vec<Holder>,
    /// Processes whose descriptors this user may not see.
    pub(crate) closed: usize,
}

/// Looks at every process, or at one.
pub(crate) fn find(only: Option<i32>) -> Found {
    let pids = only.map_or_else(all, |pid| vec![pid]);
    let mut found = Found::default();
    for pid in pids {
        match holder(Path::new(&format!("/proc/{pid}")), pid) {
            Some(holder) if !holder.vms.is_empty() => found.holders.push(holder),
            // One that has ended meanwhile has nothing to hide.
            None if Path::new(&format!("/proc/{pid}")).exists() => found.closed += 1,
            Some(_) | None => {}
        }
    }
    each_once(&mut found.holders, &|one, other| is_same_file(one, other) == Some(true));
    found
}

fn all() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<i32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// What a process has open of KVM's; none where that is not to be seen.
fn holder(process: &Path, pid: i32) -> Option<Holder> {
    let mut holder = Holder { pid, ..Holder::default() };
    for entry in fs::read_dir(process.join("fd")).ok()?.flatten() {
        let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(link) = fs::read_link(entry.path()) else { continue };
        match kind(&link.to_string_lossy()) {
            Some(Kind::Vm) => holder.vms.push(fd),
            Some(Kind::Vcpu(id)) => {
                holder.vcpus.insert(id);
            }
            Some(Kind::Statistics) => holder.statistics.push(fd),
            None => {}
        }
    }
    holder.vms.sort_unstable();
    holder.statistics.sort_unstable();
    if !holder.vms.is_empty() {
        holder.program = program(process);
        holder.name = name(process);
    }
    Some(holder)
}

/// What the kernel calls the process in this directory of `/proc`. It may call itself what it likes.
pub(crate) fn program(process: &Path) -> String {
    shown(fs::read_to_string(process.join("comm")).unwrap_or_default().trim_end())
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Vm,
    Vcpu(u32),
    Statistics,
}

/// What a descriptor's link stands for.
fn kind(link: &str) -> Option<Kind> {
    let name = link.strip_prefix("anon_inode:")?;
    let name = name.trim_start_matches('[').trim_end_matches(']');
    match name {
        "kvm-vm" => Some(Kind::Vm),
        "kvm-vm-stats" => Some(Kind::Statistics),
        _ if name.starts_with("kvm-vcpu-stats:") => Some(Kind::Statistics),
        _ => name.strip_prefix("kvm-vcpu:")?.parse().ok().map(Kind::Vcpu),
    }
}

/// Takes away descriptors that stand for what another stands for: a copy in the same process, or in a child.
fn each_once(holders: &mut Vec<Holder>, is_same: &dyn Fn((i32, i32), (i32, i32)) -> bool) {
    let mut seen: Vec<(i32, i32)> = Vec::new();
    for holder in holders.iter_mut() {
        let pid = holder.pid;
        holder.vms.retain(|fd| {
            let is_known = seen.iter().any(|known| is_same(*known, (pid, *fd)));
            if !is_known {
                seen.push((pid, *fd));
            }
            !is_known
        });
    }
    holders.retain(|holder| !holder.vms.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_says_what_a_descriptor_is() {
        for (link, expected) in [
            ("anon_inode:kvm-vm", Some(Kind::Vm)),
            ("anon_inode:[kvm-vm]", Some(Kind::Vm)),
            ("anon_inode:kvm-vcpu:7", Some(Kind::Vcpu(7))),
            ("anon_inode:kvm-vcpu-stats:7", Some(Kind::Statistics)),
            ("anon_inode:[kvm-vm-stats]", Some(Kind::Statistics)),
            ("anon_inode:kvm-vcpu:x", None),
            ("anon_inode:kvm-vcpu", None),
            ("anon_inode:[eventfd]", None),
            ("/dev/kvm", None),
            ("/tmp/anon_inode:kvm-vm", None),
            ("", None),
        ] {
            assert_eq!(kind(link), expected, "{link}");
        }
    }

    #[test]
    fn a_vm_that_several_have_is_there_once_with_the_first() {
        let holder = |pid, vms: &[i32]| Holder { pid, vms: vms.to_vec(), ..Holder::default() };
        let mut holders = vec![holder(1, &[5, 6, 7]), holder(2, &[5]), holder(3, &[5, 9])];
        // 6 is a copy of 5; 2 is 1's child; 3 has a VM of its own, and one that came through a socket.
        let vm_of = |at: (i32, i32)| match at {
            (1, 5 | 6) | (2, 5) => 'a',
            (1, 7) | (3, 9) => 'b',
            _ => 'c',
        };
        each_once(&mut holders, &|one, other| vm_of(one) == vm_of(other));
        assert_eq!(holders, [holder(1, &[5, 7]), holder(3, &[5])]);
    }

    #[test]
    fn what_a_process_calls_itself_does_not_move_a_cursor() {
        let path = std::env::temp_dir().join(format!("mayfly-vms-{}", std::process::id()));
        fs::create_dir_all(path.join("fd")).unwrap();
        std::os::unix::fs::symlink("anon_inode:kvm-vm", path.join("fd/9")).unwrap();
        fs::write(path.join("comm"), "a)\x1b[2J\nb\r\n").unwrap();
        let found = holder(&path, 7);
        fs::remove_dir_all(&path).unwrap();
        let found = found.unwrap();
        assert_eq!((found.program.as_str(), found.vms), ("a)?[2J?b", vec![9]));
    }

    #[test]
    fn a_process_that_is_gone_is_not_closed() {
        let found = find(Some(i32::MAX));
        assert!(found.holders.is_empty() && found.closed == 0);
    }
}
