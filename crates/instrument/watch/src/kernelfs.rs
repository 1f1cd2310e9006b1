//! File systems of the kernel, whether they are mounted or not.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// A directory in one.
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    /// Keeps it mounted, in no directory: it goes with this.
    _mount: Option<OwnedFd>,
}

impl Directory {
    /// Finds directory `wanted` in one of the places where it may be mounted, or mounts `kind` for this process alone,
    /// read-only.
    ///
    /// # Errors
    /// This user may not, or the kernel has none; or there is no such directory in it.
    pub(crate) fn find(kind: &str, places: &[&str], wanted: &str) -> io::Result<Self> {
        let mounted = places.iter().map(|place| Path::new(place).join(wanted));
        if let Some(path) = mounted.into_iter().find(|path| fs::read_dir(path).is_ok()) {
            return Ok(Self { path, _mount: None });
        }
        let mount = mounted_for_us(kind)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd())).join(wanted);
        fs::read_dir(&path)?;
        Ok(Self { path, _mount: Some(mount) })
    }

    #[cfg(test)]
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path, _mount: None }
    }
}

fn mounted_for_us(kind: &str) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let read_only = MountAttrFlags::MOUNT_ATTR_RDONLY;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, read_only)?)
}
