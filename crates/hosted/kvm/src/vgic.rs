//! The interrupt controller of a VM on arm64: a device of KVM's, with frames in the guest's address space.

use kvm_bindings::{
    KVM_DEV_ARM_VGIC_CTRL_INIT, KVM_DEV_ARM_VGIC_GRP_ADDR, KVM_DEV_ARM_VGIC_GRP_CTRL,
    KVM_VGIC_V2_ADDR_TYPE_CPU, KVM_VGIC_V2_ADDR_TYPE_DIST, KVM_VGIC_V3_ADDR_TYPE_DIST,
    KVM_VGIC_V3_ADDR_TYPE_REDIST, kvm_create_device, kvm_device_attr,
    kvm_device_type_KVM_DEV_TYPE_ARM_VGIC_V2, kvm_device_type_KVM_DEV_TYPE_ARM_VGIC_V3,
};
use kvm_ioctls::{DeviceFd, VmFd};
use rustix::io::Errno;

use crate::{Error, Vm};

/// A vGIC.
#[derive(Debug)]
pub(crate) struct Vgic(DeviceFd);

impl Vgic {
    /// Creates one, and says where it is.
    pub(crate) fn create(vm: &VmFd) -> Result<Self, Error> {
        let create = |type_| {
            vm.create_device(&mut kvm_create_device { type_, ..Default::default() })
                .map(Self)
                .map_err(Error::ioctl("KVM_CREATE_DEVICE"))
        };
        let at = |vgic: &Self, what: u32, address: u64| {
            vgic.set(KVM_DEV_ARM_VGIC_GRP_ADDR, what, &raw const address as u64)
        };
        match create(kvm_device_type_KVM_DEV_TYPE_ARM_VGIC_V3) {
            Ok(vgic) => {
                at(&vgic, KVM_VGIC_V3_ADDR_TYPE_DIST, Vm::DISTRIBUTOR)?;
                at(&vgic, KVM_VGIC_V3_ADDR_TYPE_REDIST, Vm::REDISTRIBUTORS)?;
                Ok(vgic)
            }
            Err(Error::Call { errno, .. }) if errno == Errno::NODEV.raw_os_error() => {
                let vgic = create(kvm_device_type_KVM_DEV_TYPE_ARM_VGIC_V2)?;
                at(&vgic, KVM_VGIC_V2_ADDR_TYPE_DIST, Vm::DISTRIBUTOR)?;
                at(&vgic, KVM_VGIC_V2_ADDR_TYPE_CPU, Vm::REDISTRIBUTORS)?;
                Ok(vgic)
            }
            Err(error) => Err(error),
        }
    }

    /// All vCPUs are there.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        self.set(KVM_DEV_ARM_VGIC_GRP_CTRL, KVM_DEV_ARM_VGIC_CTRL_INIT, 0)
    }

    /// Sets an attribute, of which `addr` is the value's address if it has one.
    fn set(&self, group: u32, attr: u32, addr: u64) -> Result<(), Error> {
        let attribute = kvm_device_attr { group, attr: attr.into(), addr, flags: 0 };
        self.0.set_device_attr(&attribute).map_err(Error::ioctl("KVM_SET_DEVICE_ATTR"))
    }
}
