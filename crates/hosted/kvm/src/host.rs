//! The host's KVM.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use kvm_ioctls::Cap;

use crate::processor::Processor;
use crate::{Error, el1};

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
    processor: Processor,
}

impl Kvm {
    /// Opens /dev/kvm.
    ///
    /// # Errors
    /// [`Error::UnsupportedArch`], [`Error::NoDevice`], [`Error::NoPermission`], [`Error::Open`],
    /// [`Error::ApiVersion`], [`Error::MissingCapability`]; [`Error::Call`] with `KVM_GET_SUPPORTED_CPUID`.
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
            None => Ok(Self { processor: Processor::of_host(&fd)?, fd }),
        }
    }

    /// Whether guests' accesses are write-back whatever they ask for (arm64's `FEAT_S2FWB`), so that KVM need flush
    /// nothing when a vCPU turns its caches on. `None` on other architectures. Makes a VM, and ends it.
    pub fn forces_write_back(&self) -> Option<bool> {
        el1::forces_write_back(&self.fd)
    }

    /// The most vCPUs of a VM: `KVM_CAP_MAX_VCPUS`.
    pub fn most_vcpus(&self) -> u64 {
        self.fd.get_max_vcpus() as u64
    }

    /// The most memslots of a VM: `KVM_CAP_NR_MEMSLOTS`.
    pub fn most_slots(&self) -> u64 {
        self.fd.get_nr_memslots() as u64
    }

    pub(crate) fn fd(&self) -> &kvm_ioctls::Kvm {
        &self.fd
    }

    /// What vCPUs are told that they are.
    pub(crate) fn processor(&self) -> &Processor {
        &self.processor
    }
}
