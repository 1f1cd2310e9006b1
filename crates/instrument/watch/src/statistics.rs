//! Statistics files that a VMM holds open itself.
//!
//! Asked through a descriptor of a VM that was taken from its VMM, KVM gives none (EIO): a VM is its maker's. But a file
//! that the VMM has got can be taken, and read. It keeps the VM alive while it is open, so it is closed at once.

use std::os::fd::AsFd;

use mayfly_kvm::Statistics;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::counters::Counters;
use crate::vms::Holder;

/// The sum over a process's files. They say nothing of which VM they are of, so it must have no more than one.
///
/// # Errors
/// Why there is none, in a few words.
pub(crate) fn of(holder: &Holder) -> Result<Counters, String> {
    if holder.statistics.is_empty() {
        return Err("its VMM holds no statistics file open".to_owned());
    }
    if holder.vms.len() > 1 {
        return Err(
            "its VMM has several VMs, and a statistics file does not say which VM it is of"
                .to_owned(),
        );
    }
    let taken = |what: &'static str| move |error| format!("{what}: {error}");
    let pid = Pid::from_raw(holder.pid).ok_or("its process has ended")?;
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(taken("pidfd_open"))?;
    let mut counters = Counters::new();
    for fd in &holder.statistics {
        let file =
            pidfd_getfd(&process, *fd, PidfdGetfdFlags::empty()).map_err(taken("pidfd_getfd"))?;
        let read = Statistics::read(file.as_fd()).map_err(|error| error.to_string())?;
        for (name, number) in read.iter() {
            let sum = counters.entry(name.to_owned()).or_default();
            *sum = sum.saturating_add(number);
        }
    }
    Ok(counters)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Write, stderr};
    use std::os::fd::AsRawFd;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    /// A statistics file with one number in it, by KVM's layout.
    fn file(name: &str, number: u64) -> File {
        const NAME: u32 = 16;
        let mut file = File::from(memfd_create("statistics", MemfdFlags::CLOEXEC).unwrap());
        // Flags, and where the file's id, its descriptors and its numbers begin.
        for word in [0, NAME, 1, 24, 24 + NAME, 24 + NAME + 16 + NAME] {
            file.write_all(&word.to_ne_bytes()).unwrap();
        }
        file.write_all(&[0; NAME as usize]).unwrap();
        // It only grows, by ones, and is one value, the first.
        let descriptor: [u16; 8] = [0, 0, 0, 1, 0, 0, 0, 0];
        for half in descriptor {
            file.write_all(&half.to_ne_bytes()).unwrap();
        }
        write!(file, "{name:\0<16}").unwrap();
        file.write_all(&number.to_ne_bytes()).unwrap();
        file
    }

    #[test]
    fn what_several_files_count_is_added_up() {
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let mut files = vec![file("exits", 40), file("exits", 2), file("io_exits", 7)];
        for sum in [42, u64::MAX] {
            let statistics = files.iter().map(AsRawFd::as_raw_fd).collect();
            let counted = of(&Holder { pid: me, vms: vec![5], statistics, ..Holder::default() });
            if let Err(why) = &counted
                && why.starts_with("pidfd")
            {
                let _ = writeln!(stderr(), "not run: {why}");
                return;
            }
            let expected = [("exits".to_owned(), sum), ("io_exits".to_owned(), 7)];
            assert_eq!(counted.unwrap(), expected.into());
            files.push(file("exits", u64::MAX));
        }
    }

    #[test]
    fn what_is_missing_is_said() {
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let holder = Holder { pid: me, vms: vec![5], ..Holder::default() };
        assert!(of(&holder).unwrap_err().contains("holds no statistics file"));
        let several = Holder { vms: vec![5, 6], statistics: vec![7], ..holder.clone() };
        assert!(of(&several).unwrap_err().contains("several VMs"));
        // Standard input is no such file, whatever it is.
        let other = Holder { statistics: vec![0], ..holder };
        assert!(of(&other).is_err());
    }
}
