//! Opening KVM, the errors a user meets there, and the facts told about a host.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::kvm;
use mayfly_kvm::{Error, Facts, Kvm};
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
        assert_eq!(from(errno), Error::NoPermission(path.clone()));
    }
    let other = from(Errno::MFILE);
    assert_eq!(other.errno(), Some(Errno::MFILE.raw_os_error()));
    assert_eq!(
        from(Errno::ACCESS).to_string(),
        "/dev/kvm: permission denied; add yourself to the kvm group"
    );
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

#[test]
fn this_hosts_facts_name_the_api_that_open_accepted() {
    let Some(kvm) = kvm() else { return };
    let facts = kvm.facts();
    assert_eq!(facts.api_version, 12);
    println!("{facts}");
}

#[test]
fn vmx_adds_a_memslot_at_vcpu_creation_unless_it_virtualises_no_apic_access() {
    let cases: [(&[Parameter], Option<bool>); 5] = [
        (&[("flexpriority", "Y")], Some(true)),
        (&[("flexpriority", "N"), ("ept", "Y"), ("unrestricted_guest", "Y")], Some(false)),
        (&[("flexpriority", "N"), ("ept", "Y"), ("unrestricted_guest", "N")], Some(true)),
        (&[("flexpriority", "N"), ("ept", "N")], Some(false)),
        (&[("flexpriority", "N")], None),
    ];
    for (index, (parameters, adds)) in cases.into_iter().enumerate() {
        let modules = Modules::new(&format!("vmx-{index}"));
        modules.load("kvm_intel", parameters);
        let facts = Facts::read(&modules.0);
        assert_eq!(facts.vendor, Some("kvm_intel"));
        assert_eq!(facts.vcpu_adds_memslot, adds, "{parameters:?}");
    }
}

#[test]
fn svm_adds_a_memslot_at_vcpu_creation_where_avic_is_on() {
    for (index, (avic, adds)) in
        [("Y", Some(true)), ("N", Some(false)), ("auto", None)].into_iter().enumerate()
    {
        let modules = Modules::new(&format!("svm-{index}"));
        modules.load("kvm_amd", &[("avic", avic)]);
        assert_eq!(Facts::read(&modules.0).vcpu_adds_memslot, adds, "avic={avic}");
    }
}

#[test]
fn with_no_vendor_module_or_with_two_the_facts_say_unknown() {
    let modules = Modules::new("vendors");
    let none = Facts::read(&modules.0);
    assert_eq!((none.vendor, none.vcpu_adds_memslot), (None, None));
    modules.load("kvm_intel", &[("flexpriority", "Y")]);
    modules.load("kvm_amd", &[("avic", "N")]);
    let two = Facts::read(&modules.0);
    assert_eq!((two.vendor, two.vcpu_adds_memslot), (None, None));
    assert!(two.to_string().contains("unknown"), "{two}");
}

fn open_error(path: &Path) -> Error {
    Kvm::open_at(path).unwrap_err()
}

/// `error`, where the crate gets as far as the device.
fn where_opened(error: Error) -> Error {
    let known = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
    if known { error } else { Error::UnsupportedArch("x86-64 and arm64") }
}

/// A module's parameter: its name and its value.
type Parameter<'a> = (&'a str, &'a str);

/// A directory that looks like /sys/module, removed when dropped.
struct Modules(PathBuf);

impl Modules {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mayfly-kvm-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn load(&self, module: &str, parameters: &[Parameter]) {
        let directory = self.0.join(module).join("parameters");
        fs::create_dir_all(&directory).unwrap();
        for (name, value) in parameters {
            fs::write(directory.join(name), format!("{value}\n")).unwrap();
        }
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}
