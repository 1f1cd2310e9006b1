//! What can go wrong, each in one line that a user can act on.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::permission;

/// Why an operation on KVM failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// What was asked for is there on these architectures, and this is another one.
    #[error("this call needs KVM on {0}, and this host is {host}", host = std::env::consts::ARCH)]
    UnsupportedArch(&'static str),
    /// There is no KVM device: the module is not loaded, or the processor offers it no
    /// virtualisation.
    #[error(
        "{}: no such device; load the kvm module, or enable virtualisation in the firmware or the \
         outer hypervisor",
        .0.display()
    )]
    NoDevice(PathBuf),
    /// The KVM device is there, and this user may not open it.
    #[error("{}: permission denied; {what_helps}", path.display())]
    NoPermission {
        /// The device.
        path: PathBuf,
        /// The users that may open it, and what to do about it.
        what_helps: String,
    },
    /// The KVM device could not be opened for another reason.
    #[error("{}: {}", path.display(), describe(*errno))]
    Open {
        /// The device.
        path: PathBuf,
        /// What open(2) gave.
        errno: i32,
    },
    /// KVM speaks another version of its API than 12, the only one since Linux 2.6.22.
    #[error("KVM has API version {0}, and 12 is needed")]
    ApiVersion(i32),
    /// KVM lacks what the VM's life needs; the name is that of `KVM_CHECK_EXTENSION`.
    #[error("KVM lacks {0}")]
    MissingCapability(&'static str),
    /// A call into the kernel failed.
    #[error("{call}: {}", describe(*errno))]
    Call {
        /// The ioctl's name as in KVM's documentation, or the system call's.
        call: &'static str,
        /// What it gave.
        errno: i32,
    },
    /// An access to guest memory from the host went past its end.
    #[error(
        "guest memory has {size:#x} bytes: offset {offset:#x} is past its end, or is misaligned"
    )]
    Memory {
        /// Where the access began, in bytes.
        offset: usize,
        /// The bytes there are.
        size: usize,
    },
    /// A guest was given more memory than its code has tables for.
    #[error("guest memory has {size:#x} bytes, and the guest reaches {reach:#x}")]
    OutOfReach {
        /// The bytes there are.
        size: usize,
        /// The first address that it cannot reach.
        reach: u64,
    },
    /// Memory that is to be a guest's is not mapped in this process.
    #[error("guest memory at {gpa:#x} has no address in this process")]
    NoHostAddress {
        /// Where the guest would have had it.
        gpa: u64,
    },
    /// Ranges of guest memory overlap, are empty, or are not in order of their addresses.
    #[error("ranges of guest memory overlap, are empty, or are not in order")]
    Ranges,
    /// A vCPU came back with an exit that the payload never makes.
    #[error("the vCPU left the guest with an unexpected exit: {0}")]
    Exit(String),
}

impl Error {
    /// The errno behind the error, where there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Open { errno, .. } | Self::Call { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// What it means that opening the KVM device at `path` gave `errno`.
    pub fn from_open(path: &Path, errno: i32) -> Self {
        let path = path.to_owned();
        match Errno::from_raw_os_error(errno) {
            // A module without hardware behind it leaves the node and gives ENODEV; a node without
            // a module, ENXIO.
            Errno::NOENT | Errno::NODEV | Errno::NXIO | Errno::NOTDIR => Self::NoDevice(path),
            Errno::ACCESS | Errno::PERM => {
                Self::NoPermission { what_helps: permission::what_helps(&path), path }
            }
            _ => Self::Open { path, errno },
        }
    }

    /// Names the ioctl that failed.
    pub(crate) fn ioctl(call: &'static str) -> impl FnOnce(kvm_ioctls::Error) -> Self {
        move |error| Self::Call { call, errno: error.errno() }
    }

    /// Names what gave an [`io::Error`]: a system call, or a file.
    pub(crate) fn io(call: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Call { call, errno: error.raw_os_error().unwrap_or_default() }
    }

    /// Names the system call that failed.
    pub(crate) fn call(call: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::Call { call, errno: errno.raw_os_error() }
    }
}

/// `File exists (os error 17)`.
fn describe(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}
