//! EL1 without a boot: a table of stage 1 and exception vectors in guest memory, and registers with which a guest need
//! but turn its MMU and its caches on, or finds them on.
//!
//! Bits and layouts are those of the Arm Architecture Reference Manual (DDI 0487), chapters D8 (translation) and D24
//! (registers).

use crate::{Error, GuestMemory};

pub(crate) const GIB: u64 = 1 << 30;

/// GiB that a table translates.
pub(crate) const GIBS: u64 = 512;

/// Where the table lies: 512 descriptors of level 1, 1 GiB each, which is all that 39 bits can say.
pub(crate) const TABLE: u64 = 0x1000;

/// Where the vectors lie that exceptions take; the code comes after their 2 KiB.
pub(crate) const VECTORS: u64 = TABLE + 0x1000;
pub(crate) const CODE: u64 = VECTORS + 0x800;

/// The first guest physical address that is left free.
pub(crate) const FREE: u64 = VECTORS + 0x1000;

/// Where the vector of a synchronous exception from EL1 with `SP_EL1` is, from [`VECTORS`] on.
const SYNCHRONOUS: u64 = 0x200;

/// Valid, a block, accessed.
const BLOCK: u64 = 1 | 1 << 10;
/// Memory: attribute 0 of `MAIR_EL1`, inner shareable.
const NORMAL: u64 = BLOCK | 0b11 << 8;
/// Attribute 1 of `MAIR_EL1`, never executed.
const DEVICE: u64 = BLOCK | 1 << 2 | 0b11 << 53;

/// Maps virtual addresses to the same physical ones, in blocks of 1 GiB: the first `gibs` as write-back memory, and that
/// which begins at `device` as a device's. Puts the code where guests begin, and `fault` where exceptions go.
pub(crate) fn install(
    memory: &GuestMemory,
    gibs: u64,
    device: u64,
    code: &[u32],
    fault: &[u32],
) -> Result<(), Error> {
    let block = |gib| match gib * GIB {
        address if gib < gibs => address | NORMAL,
        address if address == device => address | DEVICE,
        _ => 0,
    };
    let table: Vec<u8> = (0..GIBS).map(block).flat_map(u64::to_le_bytes).collect();
    memory.write(TABLE as usize, &table)?;
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    memory.write((VECTORS + SYNCHRONOUS) as usize, &words(fault))?;
    memory.write(CODE as usize, &words(code))
}

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::{Caches, enter, forces_write_back, reset};

#[cfg(not(target_arch = "aarch64"))]
pub(crate) fn forces_write_back(_kvm: &kvm_ioctls::Kvm) -> Option<bool> {
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
        KVM_ARM_VCPU_PSCI_0_2, KVM_REG_ARM_CORE, KVM_REG_ARM64, KVM_REG_ARM64_SYSREG,
        KVM_REG_SIZE_U64, kvm_regs, kvm_vcpu_init,
    };
    use kvm_ioctls::{VcpuFd, VmFd};

    use super::{CODE, TABLE, VECTORS, has_fwb};
    use crate::Error;

    /// Of KVM's, what the host has: no field of it that matters here is a guest's to choose (`ID_WRITABLE` in
    /// `arch/arm64/kvm/sys_regs.c`).
    const ID_AA64MMFR2_EL1: u64 = system(3, 0, 0, 7, 2);
    const SCTLR_EL1: u64 = system(3, 0, 1, 0, 0);
    const MAIR_EL1: u64 = system(3, 0, 10, 2, 0);
    const TCR_EL1: u64 = system(3, 0, 2, 0, 2);
    const TTBR0_EL1: u64 = system(3, 0, 2, 0, 0);
    const VBAR_EL1: u64 = system(3, 0, 12, 0, 0);

    /// Attribute 0: write-back, allocating on reads and writes. Attribute 1: device, nGnRE.
    const MAIR: u64 = 0xff | 0x04 << 8;
    /// 39 bits through `TTBR0_EL1`, none through `TTBR1_EL1`; granules of 4 KiB, walked as such memory is; 40 bits out.
    const TCR: u64 = (64 - 39) | 0b01 << 8 | 0b01 << 10 | 0b11 << 12 | 1 << 23 | 0b10 << 32;

    /// What a vCPU is told of it; `None` where none can be had. The kernel shows it to no other user.
    pub(crate) fn forces_write_back(kvm: &kvm_ioctls::Kvm) -> Option<bool> {
        let vm = kvm.create_vm().ok()?;
        let vcpu = vm.create_vcpu(0).ok()?;
        let mut target = kvm_vcpu_init::default();
        vm.get_preferred_target(&mut target).ok()?;
        vcpu.vcpu_init(&target).ok()?;
        let mut mmfr2 = [0; 8];
        vcpu.get_one_reg(ID_AA64MMFR2_EL1, &mut mmfr2).ok()?;
        Some(has_fwb(u64::from_le_bytes(mmfr2)))
    }

    /// Whether a guest begins with its MMU and its caches on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Caches {
        /// As out of reset.
        Off,
        /// As if it had turned them on.
        On,
    }

    /// `SCTLR_EL1`: the MMU, the caches of data and of instructions.
    const M_C_I: u64 = 1 | 1 << 2 | 1 << 12;

    /// Puts the vCPU at the first instruction of the code, out of reset: at EL1, exceptions masked, `arguments` in the
    /// registers from x0 on.
    ///
    /// The registers of stage 1 are set from here so that of a guest that turns its caches on KVM traps a single write:
    /// that to `SCTLR_EL1`.
    pub(crate) fn enter(
        vcpu: &VcpuFd,
        vm: &VmFd,
        arguments: &[u64],
        caches: Caches,
    ) -> Result<(), Error> {
        let mut target = kvm_vcpu_init::default();
        vm.get_preferred_target(&mut target).map_err(Error::ioctl("KVM_ARM_PREFERRED_TARGET"))?;
        vcpu.vcpu_init(&target).map_err(Error::ioctl("KVM_ARM_VCPU_INIT"))?;
        let set = |register, value: u64| {
            vcpu.set_one_reg(register, &value.to_le_bytes())
                .map_err(Error::ioctl("KVM_SET_ONE_REG"))
                .map(drop)
        };
        for (number, argument) in arguments.iter().enumerate() {
            set(core(offset_of!(kvm_regs, regs.regs) + 8 * number), *argument)?;
        }
        set(MAIR_EL1, MAIR)?;
        set(TCR_EL1, TCR)?;
        set(TTBR0_EL1, TABLE)?;
        set(VBAR_EL1, VECTORS)?;
        if caches == Caches::On {
            let mut sctlr = [0; 8];
            vcpu.get_one_reg(SCTLR_EL1, &mut sctlr).map_err(Error::ioctl("KVM_GET_ONE_REG"))?;
            set(SCTLR_EL1, u64::from_le_bytes(sctlr) | M_C_I)?;
        }
        set(core(offset_of!(kvm_regs, regs.pc)), CODE)
    }

    /// Puts the vCPU at `pc`, out of reset: at EL1, exceptions masked, MMU and caches off; KVM answers its PSCI calls.
    pub(crate) fn reset(vcpu: &VcpuFd, vm: &VmFd, pc: u64) -> Result<(), Error> {
        let mut target = kvm_vcpu_init::default();
        vm.get_preferred_target(&mut target).map_err(Error::ioctl("KVM_ARM_PREFERRED_TARGET"))?;
        target.features[0] |= 1 << KVM_ARM_VCPU_PSCI_0_2;
        vcpu.vcpu_init(&target).map_err(Error::ioctl("KVM_ARM_VCPU_INIT"))?;
        vcpu.set_one_reg(core(offset_of!(kvm_regs, regs.pc)), &pc.to_le_bytes())
            .map_err(Error::ioctl("KVM_SET_ONE_REG"))
            .map(drop)
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
