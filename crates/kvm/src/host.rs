//! The host's KVM: opening it, and the facts about it that a measurement depends on.

use std::ffi::CString;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use kvm_ioctls::Cap;

use crate::Error;

/// The version of KVM's API since Linux 2.6.22.
const API_VERSION: i32 = kvm_bindings::KVM_API_VERSION.cast_signed();

/// What the VM's life needs of KVM.
const NEEDED: [(Cap, &str); 4] = [
    (Cap::UserMemory, "KVM_CAP_USER_MEMORY"),
    (Cap::Irqchip, "KVM_CAP_IRQCHIP"),
    (Cap::Ioeventfd, "KVM_CAP_IOEVENTFD"),
    (Cap::MpState, "KVM_CAP_MP_STATE"),
];

/// An open KVM device.
#[derive(Debug)]
pub struct Kvm {
    fd: kvm_ioctls::Kvm,
}

impl Kvm {
    /// Opens /dev/kvm.
    ///
    /// # Errors
    /// [`Error::UnsupportedArch`], [`Error::NoDevice`], [`Error::NoPermission`], [`Error::Open`],
    /// [`Error::ApiVersion`], [`Error::MissingCapability`].
    pub fn open() -> Result<Self, Error> {
        Self::open_at(Path::new("/dev/kvm"))
    }

    /// Opens the KVM device at `path`.
    ///
    /// # Errors
    /// As [`Kvm::open`]; [`Error::Call`] with `KVM_GET_API_VERSION` for a device that is not KVM's.
    pub fn open_at(path: &Path) -> Result<Self, Error> {
        if cfg!(not(any(target_arch = "x86_64", target_arch = "aarch64"))) {
            return Err(Error::UnsupportedArch("x86-64 and arm64"));
        }
        // A name with a NUL in it names nothing.
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Error::NoDevice(path.to_owned()))?;
        let fd = kvm_ioctls::Kvm::new_with_path(name)
            .map_err(|error| Error::from_open(path, error.errno()))?;
        match fd.get_api_version() {
            API_VERSION => {}
            -1 => return Err(Error::ioctl("KVM_GET_API_VERSION")(kvm_ioctls::Error::last())),
            version => return Err(Error::ApiVersion(version)),
        }
        match NEEDED.into_iter().find(|(cap, _)| !fd.check_extension(*cap)) {
            Some((_, name)) => Err(Error::MissingCapability(name)),
            None => Ok(Self { fd }),
        }
    }

    /// What is known about this KVM.
    pub fn facts(&self) -> Facts {
        Facts::read(Path::new("/sys/module"))
    }

    pub(crate) fn fd(&self) -> &kvm_ioctls::Kvm {
        &self.fd
    }
}

/// What a reader of measurements on this KVM should know about it. `None` is "cannot be told from
/// here".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The version of KVM's API: 12.
    pub api_version: i32,
    /// The module that gives KVM its hardware: `kvm_intel`, `kvm_amd`, `kvm_pvm`.
    pub vendor: Option<&'static str>,
    /// Whether the first vCPU of a VM with an in-kernel interrupt controller adds a memslot of
    /// KVM's own, and so waits for a grace period as [`crate::Vm::set_memory_region`] does.
    pub vcpu_adds_memslot: Option<bool>,
}

impl Facts {
    /// What the modules and parameters under `sys_module` (`/sys/module`) tell of a KVM that
    /// [`Kvm::open`] accepted.
    pub fn read(sys_module: &Path) -> Self {
        let parameter = |module: &str, name: &str| -> Option<bool> {
            let value =
                fs::read_to_string(sys_module.join(module).join("parameters").join(name)).ok()?;
            match value.trim() {
                "Y" | "1" => Some(true),
                "N" | "0" => Some(false),
                _ => None,
            }
        };
        let mut loaded = ["kvm_intel", "kvm_amd", "kvm_pvm"]
            .into_iter()
            .filter(|module| sys_module.join(module).is_dir());
        // Built into the kernel, both of Intel's and AMD's are there, and which of them is in use
        // cannot be seen.
        let vendor = loaded.next().filter(|_| loaded.next().is_none());
        let vcpu_adds_memslot = match vendor {
            // vmx_vcpu_create(): the APIC access page where the CPU virtualises APIC accesses, and
            // the real-mode identity map where EPT is there without unrestricted guest.
            Some("kvm_intel") => {
                let access_page = parameter("kvm_intel", "flexpriority");
                let ept = parameter("kvm_intel", "ept");
                let unrestricted = parameter("kvm_intel", "unrestricted_guest");
                either(access_page, both(ept, unrestricted.map(|unrestricted| !unrestricted)))
            }
            // avic_init_backing_page(): the APIC access page where AVIC is on.
            Some("kvm_amd") => parameter("kvm_amd", "avic"),
            // pvm_vcpu_create(): its virtual APIC is software alone.
            Some("kvm_pvm") => Some(false),
            _ => None,
        };
        Self { api_version: API_VERSION, vendor, vcpu_adds_memslot }
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vendor = self.vendor.unwrap_or("unknown vendor module");
        let memslot = match self.vcpu_adds_memslot {
            Some(true) => "yes",
            Some(false) => "no",
            None => "unknown",
        };
        write!(
            f,
            "API {}, {vendor}, internal memslot at vCPU creation: {memslot}",
            self.api_version
        )
    }
}

/// a or b, where one of them may be unknown.
fn either(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

/// a and b, where one of them may be unknown.
fn both(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    either(a.map(|a| !a), b.map(|b| !b)).map(|neither| !neither)
}
