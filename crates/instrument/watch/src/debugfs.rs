//! KVM's directory in debugfs: one of each VM, `TID-FD`, by the thread that made it and the descriptor that it got.

use std::fs;
use std::io;
use std::path::Path;

use crate::counters::{Counters, is_told};
use crate::kernelfs::Directory;

/// debugfs.
pub(crate) struct Debugfs(Directory);

impl Debugfs {
    /// Finds it, or mounts it for this process alone.
    ///
    /// # Errors
    /// This user may not, or the kernel has none; or it has nothing of KVM's in it.
    pub(crate) fn find() -> io::Result<Self> {
        Directory::find("debugfs", &["/sys/kernel/debug"], "kvm").map(Self)
    }

    /// The VM that one of these threads has made, and got this descriptor for.
    pub(crate) fn vm(&self, threads: &[i32], descriptor: i32) -> Option<Counted> {
        let paths = threads.iter().map(|tid| self.0.path.join(format!("{tid}-{descriptor}")));
        paths.into_iter().find_map(|path| Counted::read(&path))
    }
}

/// What a VM's directory says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) counters: Counters,
    /// Of each vCPU, the thread that has run it last; 0 where none has, or the kernel does not say (before 5.19).
    pub(crate) vcpus: Vec<i32>,
    /// Whether the kernel refuses to have its numbers read, as a locked-down one does.
    pub(crate) is_locked: bool,
}

impl Counted {
    /// Of a directory; none where there is none.
    fn read(directory: &Path) -> Option<Self> {
        let mut counted = Self::default();
        for entry in fs::read_dir(directory).ok()?.flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if is_vcpu(&name) {
                    let thread = fs::read_to_string(entry.path().join("pid"));
                    counted
                        .vcpus
                        .push(thread.ok().and_then(|tid| tid.trim().parse().ok()).unwrap_or(0));
                }
                continue;
            }
            if !is_told(&name) {
                continue;
            }
            match fs::read_to_string(entry.path()) {
                Ok(text) => {
                    counted.counters.extend(text.trim().parse().ok().map(|count| (name, count)));
                }
                Err(error) => counted.is_locked |= error.kind() == io::ErrorKind::PermissionDenied,
            }
        }
        Some(counted)
    }
}

fn is_vcpu(name: &str) -> bool {
    name.strip_prefix("vcpu").is_some_and(|id| id.parse::<u32>().is_ok())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A VM: the thread that created it, its descriptor, and the threads that ran its vCPUs, if debugfs names them.
    type Vm<'a> = (i32, i32, &'a [Option<i32>]);

    /// What is found in a directory of KVM's with these VMs.
    pub(crate) fn with_vms<T>(name: &str, vms: &[Vm<'_>], find: impl FnOnce(Debugfs) -> T) -> T {
        let path = std::env::temp_dir().join(format!("mayfly-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        for (tid, fd, vcpus) in vms {
            for (id, thread) in vcpus.iter().enumerate() {
                let vcpu = path.join(format!("{tid}-{fd}/vcpu{id}"));
                fs::create_dir_all(&vcpu).unwrap();
                if let Some(thread) = thread {
                    fs::write(vcpu.join("pid"), format!("{thread}\n")).unwrap();
                }
            }
        }
        let found = find(Debugfs(Directory::at(path.clone())));
        fs::remove_dir_all(path).unwrap();
        found
    }

    #[test]
    fn numbers_and_vcpus_of_a_directory_are_read_and_the_rest_is_left() {
        let path = std::env::temp_dir().join(format!("mayfly-debugfs-{}", std::process::id()));
        let directory = path.join("77-12");
        for name in ["vcpu0", "vcpu1", "vcpux", "other"] {
            fs::create_dir_all(directory.join(name)).unwrap();
        }
        fs::write(directory.join("vcpu1/pid"), "79\n").unwrap();
        for (name, text) in [
            ("exits", "5\n"),
            ("io_exits", "18446744073709551615\n"),
            ("halt_exits", "1 2 3\n"),
            ("pf_taken", "7\n"),
            ("irq_exits", "nonsense"),
            ("signal_exits", "-1\n"),
            ("hypercalls", ""),
        ] {
            fs::write(directory.join(name), text).unwrap();
        }
        let debugfs = Debugfs(Directory::at(path.clone()));
        let mut counted = debugfs.vm(&[5, 77], 12).unwrap();
        counted.vcpus.sort_unstable();
        assert!(debugfs.vm(&[5], 12).is_none() && debugfs.vm(&[77], 11).is_none());
        fs::remove_dir_all(path).unwrap();
        let expected = [("exits".to_owned(), 5), ("io_exits".to_owned(), u64::MAX)];
        assert_eq!(
            counted,
            Counted { counters: expected.into(), vcpus: vec![0, 79], is_locked: false }
        );
    }
}
