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
            "its VMM has several VMs, and their statistics files do not say whose they are"
                .to_owned(),
        );
    }
    let taken = |what: &'static str| move |error| format!("{what}: {error}");
    let pid = Pid::from_raw(holder.pid).ok_or("it is gone")?;
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
    use super::*;

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
