//! Opening KVM, and the errors that a user meets there.

use std::path::{Path, PathBuf};

use mayfly_kvm::{Error, Kvm};
use rustix::io::Errno;

#[test]
fn a_path_where_nothing_is_gives_no_device() {
    let path = Path::new("/nonexistent/kvm");
    assert_eq!(open_error(path), where_opened(Error::NoDevice(path.to_owned())));
}

#[test]
fn a_device_that_is_not_kvms_is_named_by_the_ioctl_that_it_does_not_know() {
    let unknown = Error::Call { call: "KVM_GET_API_VERSION", errno: Errno::NOTTY.raw_os_error() };
    assert_eq!(open_error(Path::new("/dev/null")), where_opened(unknown));
}

#[test]
fn errnos_of_opening_are_told_apart_in_one_line_each() {
    let path = PathBuf::from("/dev/kvm");
    let from = |errno: Errno| Error::from_open(&path, errno.raw_os_error());
    for errno in [Errno::NOENT, Errno::NODEV, Errno::NXIO] {
        assert_eq!(from(errno), Error::NoDevice(path.clone()));
    }
    for errno in [Errno::ACCESS, Errno::PERM] {
        assert!(matches!(from(errno), Error::NoPermission { path: of, .. } if of == path));
    }
    let other = from(Errno::MFILE);
    assert_eq!(other.errno(), Some(Errno::MFILE.raw_os_error()));
    let refused = from(Errno::ACCESS).to_string();
    assert!(refused.starts_with("/dev/kvm: permission denied; it"), "{refused}");
    let all = [
        from(Errno::NOENT),
        other,
        Error::UnsupportedArch("x86-64"),
        Error::ApiVersion(11),
        Error::MissingCapability("KVM_CAP_IOEVENTFD"),
        Error::Call { call: "KVM_CREATE_VM", errno: Errno::BUSY.raw_os_error() },
    ];
    for error in all {
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
}

fn open_error(path: &Path) -> Error {
    Kvm::open_at(path).unwrap_err()
}

/// `error`, where the crate gets as far as the device.
fn where_opened(error: Error) -> Error {
    let known = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
    if known { error } else { Error::UnsupportedArch("x86-64 and arm64") }
}
