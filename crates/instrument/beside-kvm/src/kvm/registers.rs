//! The registers of a vCPU, which another one goes on with: those that Mayfly has for each vCPU
//! (`crates/metal/arm64/src/vcpu.rs`), and no others.

use std::mem::offset_of;

use anyhow::Context;
use kvm_bindings::{
    KVM_ARM_VCPU_PSCI_0_2, KVM_REG_ARM_CORE, KVM_REG_ARM64, KVM_REG_ARM64_SYSREG, KVM_REG_SIZE_U32,
    KVM_REG_SIZE_U64, KVM_REG_SIZE_U128, kvm_regs, kvm_vcpu_init,
};
use mayfly_kvm::{Vcpu, Vm};

/// System registers, as `MRS` encodes them: those of EL1 and EL0 that are a guest's alone. The last three are the virtual
/// timer: its counter, and then what is compared with that, as KVM names them.
const SYSTEM: [[u64; 5]; 23] = [
    [3, 0, 1, 0, 0],  // SCTLR_EL1
    [3, 0, 1, 0, 2],  // CPACR_EL1
    [3, 0, 2, 0, 0],  // TTBR0_EL1
    [3, 0, 2, 0, 1],  // TTBR1_EL1
    [3, 0, 2, 0, 2],  // TCR_EL1
    [3, 0, 5, 2, 0],  // ESR_EL1
    [3, 0, 5, 1, 0],  // AFSR0_EL1
    [3, 0, 5, 1, 1],  // AFSR1_EL1
    [3, 0, 6, 0, 0],  // FAR_EL1
    [3, 0, 10, 2, 0], // MAIR_EL1
    [3, 0, 10, 3, 0], // AMAIR_EL1
    [3, 0, 12, 0, 0], // VBAR_EL1
    [3, 0, 13, 0, 1], // CONTEXTIDR_EL1
    [3, 0, 14, 1, 0], // CNTKCTL_EL1
    [3, 0, 7, 4, 0],  // PAR_EL1
    [3, 3, 13, 0, 2], // TPIDR_EL0
    [3, 3, 13, 0, 3], // TPIDRRO_EL0
    [3, 0, 13, 0, 4], // TPIDR_EL1
    [3, 2, 0, 0, 0],  // CSSELR_EL1
    [2, 0, 0, 2, 2],  // MDSCR_EL1
    [3, 3, 14, 3, 2], // KVM_REG_ARM_TIMER_CNT
    [3, 3, 14, 0, 2], // KVM_REG_ARM_TIMER_CVAL
    [3, 3, 14, 3, 1], // KVM_REG_ARM_TIMER_CTL
];

/// KVM's name of a register, and its bytes.
type Named = (u64, usize);

/// All of them: the general ones, those of floating point, and the system registers.
fn all() -> impl Iterator<Item = Named> {
    let general = (0..31).map(|number| offset_of!(kvm_regs, regs.regs) + 8 * number);
    let others = [
        offset_of!(kvm_regs, regs.sp),
        offset_of!(kvm_regs, regs.pc),
        offset_of!(kvm_regs, regs.pstate),
        offset_of!(kvm_regs, sp_el1),
        offset_of!(kvm_regs, elr_el1),
        // Of EL1.
        offset_of!(kvm_regs, spsr),
    ];
    let words = general.chain(others).map(|offset| core(offset, KVM_REG_SIZE_U64, 8));
    let vectors = (0..32).map(|number| offset_of!(kvm_regs, fp_regs.vregs) + 16 * number);
    let vectors = vectors.map(|offset| core(offset, KVM_REG_SIZE_U128, 16));
    let control = [offset_of!(kvm_regs, fp_regs.fpsr), offset_of!(kvm_regs, fp_regs.fpcr)];
    let control = control.into_iter().map(|offset| core(offset, KVM_REG_SIZE_U32, 4));
    let system = SYSTEM.into_iter().map(|[op0, op1, crn, crm, op2]| {
        let number = op0 << 14 | op1 << 11 | crn << 7 | crm << 3 | op2;
        (KVM_REG_ARM64 | KVM_REG_SIZE_U64 | u64::from(KVM_REG_ARM64_SYSREG) | number, 8)
    });
    words.chain(vectors).chain(control).chain(system)
}

/// The register that is so far into [`kvm_regs`].
const fn core(offset: usize, size: u64, bytes: usize) -> Named {
    let number = (offset / size_of::<u32>()) as u64;
    (KVM_REG_ARM64 | size | KVM_REG_ARM_CORE as u64 | number, bytes)
}

/// What a vCPU is.
pub(super) struct Registers {
    target: kvm_vcpu_init,
    values: Vec<(Named, [u8; 16])>,
}

impl Registers {
    /// Reads those of a vCPU that is between two instructions.
    pub(super) fn of(vm: &Vm, vcpu: &Vcpu) -> anyhow::Result<Self> {
        let mut target = kvm_vcpu_init::default();
        vm.fd().get_preferred_target(&mut target).context("KVM_ARM_PREFERRED_TARGET")?;
        target.features[0] |= 1 << KVM_ARM_VCPU_PSCI_0_2;
        let read = |named: Named| {
            let mut value = [0; 16];
            let read = vcpu.fd().get_one_reg(named.0, &mut value[..named.1]);
            read.with_context(|| format!("KVM_GET_ONE_REG of {:#x}", named.0))?;
            Ok((named, value))
        };
        Ok(Self { target, values: all().map(read).collect::<anyhow::Result<_>>()? })
    }

    /// Has KVM know what a vCPU is that was just made: it has no registers before that.
    pub(super) fn initialize(&self, vcpu: &Vcpu) -> anyhow::Result<()> {
        vcpu.fd().vcpu_init(&self.target).context("KVM_ARM_VCPU_INIT")
    }

    /// Has a vCPU that is between two instructions be the same.
    pub(super) fn set(&self, vcpu: &Vcpu) -> anyhow::Result<()> {
        for ((name, bytes), value) in &self.values {
            let set = vcpu.fd().set_one_reg(*name, &value[..*bytes]);
            set.with_context(|| format!("KVM_SET_ONE_REG of {name:#x}"))?;
        }
        Ok(())
    }
}
