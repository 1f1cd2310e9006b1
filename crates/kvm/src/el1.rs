//! EL1 without a boot: a table of stage 1 in guest memory, and registers with which a guest need but turn its MMU and
//! its caches on.
//!
//! Bits and layouts are those of the Arm Architecture Reference Manual (DDI 0487), chapters D8 (translation) and D24
//! (registers).

use crate::{Error, GuestMemory};

const GIB: u64 = 1 << 30;

/// GiB of memory that can be mapped. The last of what a table translates is for the doorbell.
const GIBS_AT_MOST: u64 = 511;

/// The first address that no guest's memory reaches.
pub(crate) const REACH: u64 = GIBS_AT_MOST * GIB;

/// Where the table lies: 512 descriptors of level 1, 1 GiB each, which is all that 39 bits can say.
pub(crate) const TABLE: u64 = 0x1000;

/// Valid, a block, accessed.
const BLOCK: u64 = 1 | 1 << 10;
/// Memory: attribute 0 of `MAIR_EL1`, inner shareable.
const NORMAL: u64 = BLOCK | 0b11 << 8;
/// Attribute 1 of `MAIR_EL1`, never executed.
const DEVICE: u64 = BLOCK | 1 << 2 | 0b11 << 53;

/// The first address past the GiB that `memory` begins: mapped as a device's, without memory behind it.
pub(crate) fn doorbell(memory: &GuestMemory) -> u64 {
    (memory.size() as u64).next_multiple_of(GIB)
}

/// Maps virtual addresses to the same physical ones, in blocks of 1 GiB: `memory`, write-back, and the doorbell.
pub(crate) fn write_table(memory: &GuestMemory) -> Result<(), Error> {
    let doorbell = doorbell(memory);
    if doorbell > REACH {
        return Err(Error::OutOfReach { size: memory.size(), reach: REACH });
    }
    let normal = (0..doorbell / GIB).map(|gib| (gib * GIB) | NORMAL);
    let bytes: Vec<u8> = normal.chain([doorbell | DEVICE]).flat_map(u64::to_le_bytes).collect();
    memory.write(TABLE as usize, &bytes)
}

#[cfg(not(target_arch = "aarch64"))]
pub(crate) fn enter(
    _vcpu: &kvm_ioctls::VcpuFd,
    _vm: &kvm_ioctls::VmFd,
    _guest: &crate::CacheSwitch,
) -> Result<(), Error> {
    Err(Error::UnsupportedArch("arm64"))
}

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::{enter, forces_write_back};

#[cfg(not(target_arch = "aarch64"))]
pub(crate) fn forces_write_back(_kvm: &crate::Kvm) -> Option<bool> {
    None
}

/// Whether `ID_AA64MMFR2_EL1` says that stage 2 can force guests' accesses to be write-back: FWB, bits 43 to 40.
#[cfg_attr(not(any(test, target_arch = "aarch64")), expect(dead_code, reason = "arm64's"))]
fn has_fwb(mmfr2: u64) -> bool {
    mmfr2 >> 40 & 0xf != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stage_2_forces_write_back_where_its_own_field_says_so() {
        for (mmfr2, says) in
            [(0, false), (1 << 40, true), (!(0xf << 40), false), (0x1221_1011, false)]
        {
            assert_eq!(has_fwb(mmfr2), says, "{mmfr2:#x}");
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use std::mem::offset_of;

    use kvm_bindings::{
        KVM_REG_ARM_CORE, KVM_REG_ARM64, KVM_REG_ARM64_SYSREG, KVM_REG_SIZE_U64, kvm_regs,
        kvm_vcpu_init,
    };
    use kvm_ioctls::{VcpuFd, VmFd};

    use super::{TABLE, has_fwb};
    use crate::{CacheSwitch, Error, Kvm};

    /// Of KVM's, what the host has: no field of it that matters here is a guest's to choose (`ID_WRITABLE` in
    /// `arch/arm64/kvm/sys_regs.c`).
    const ID_AA64MMFR2_EL1: u64 = system(3, 0, 0, 7, 2);
    const MAIR_EL1: u64 = system(3, 0, 10, 2, 0);
    const TCR_EL1: u64 = system(3, 0, 2, 0, 2);
    const TTBR0_EL1: u64 = system(3, 0, 2, 0, 0);
    const VBAR_EL1: u64 = system(3, 0, 12, 0, 0);

    /// Attribute 0: write-back, allocating on reads and writes. Attribute 1: device, nGnRE.
    const MAIR: u64 = 0xff | 0x04 << 8;
    /// 39 bits through `TTBR0_EL1`, none through `TTBR1_EL1`; granules of 4 KiB, walked as such memory is; 40 bits out.
    const TCR: u64 = (64 - 39) | 0b01 << 8 | 0b01 << 10 | 0b11 << 12 | 1 << 23 | 0b10 << 32;

    /// What a vCPU is told of it; `None` where none can be had. The kernel shows it to nobody else.
    pub(crate) fn forces_write_back(kvm: &Kvm) -> Option<bool> {
        let vm = kvm.fd().create_vm().ok()?;
        let vcpu = vm.create_vcpu(0).ok()?;
        let mut target = kvm_vcpu_init::default();
        vm.get_preferred_target(&mut target).ok()?;
        vcpu.vcpu_init(&target).ok()?;
        let mut mmfr2 = [0; 8];
        vcpu.get_one_reg(ID_AA64MMFR2_EL1, &mut mmfr2).ok()?;
        Some(has_fwb(u64::from_le_bytes(mmfr2)))
    }

    /// Puts the vCPU at the first instruction of `guest`, out of reset: at EL1, exceptions masked, MMU and caches off.
    ///
    /// The registers of stage 1 are set from here so that KVM traps a single write of the guest's: that to `SCTLR_EL1`.
    pub(crate) fn enter(vcpu: &VcpuFd, vm: &VmFd, guest: &CacheSwitch) -> Result<(), Error> {
        let mut target = kvm_vcpu_init::default();
        vm.get_preferred_target(&mut target).map_err(Error::ioctl("KVM_ARM_PREFERRED_TARGET"))?;
        vcpu.vcpu_init(&target).map_err(Error::ioctl("KVM_ARM_VCPU_INIT"))?;
        let pc = core(offset_of!(kvm_regs, regs.pc));
        let general = (0..).map(|number| core(offset_of!(kvm_regs, regs.regs) + 8 * number));
        let system = [
            (MAIR_EL1, MAIR),
            (TCR_EL1, TCR),
            (TTBR0_EL1, TABLE),
            (VBAR_EL1, CacheSwitch::VECTORS),
        ];
        for (register, value) in
            general.zip(guest.arguments()).chain(system).chain([(pc, CacheSwitch::ENTRY)])
        {
            vcpu.set_one_reg(register, &value.to_le_bytes())
                .map_err(Error::ioctl("KVM_SET_ONE_REG"))?;
        }
        Ok(())
    }

    /// KVM's name for the register that is so far into [`kvm_regs`].
    const fn core(offset: usize) -> u64 {
        KVM_REG_ARM64
            | KVM_REG_SIZE_U64
            | KVM_REG_ARM_CORE as u64
            | (offset / size_of::<u32>()) as u64
    }

    /// KVM's name for the system register that `MRS` encodes so.
    const fn system(op0: u64, op1: u64, crn: u64, crm: u64, op2: u64) -> u64 {
        let number = op0 << 14 | op1 << 11 | crn << 7 | crm << 3 | op2;
        KVM_REG_ARM64 | KVM_REG_SIZE_U64 | KVM_REG_ARM64_SYSREG as u64 | number
    }
}
