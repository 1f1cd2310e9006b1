//! x86-64: the time-stamp counter counts instructions, and a guest begins in 64 bits.

mod counted;
mod idle;

use std::fs::read_to_string;

use anyhow::{Context, ensure};
use kvm_bindings::{CpuId, KVM_MAX_CPUID_ENTRIES, kvm_regs, kvm_segment};
use mayfly_kvm::{GuestMemory, Kvm, Vcpu};
use mayfly_lifecycle_steps::guest::{ENTRY, x86};

pub(super) use counted::Counter;

/// Protection, paging and an FPU of this age.
const CR0: u64 = 1 | 1 << 4 | 1 << 5 | 1 << 31;
/// Tables with entries of 64 bits.
const CR4: u64 = 1 << 5;
/// Long mode, which is active.
const EFER: u64 = 1 << 8 | 1 << 10;
/// The bit that is always set. Interrupts are masked.
const FLAGS: u64 = 1 << 1;

/// Flat segments of ring 0: data, and code of 64 bits.
const DATA: kvm_segment = kvm_segment {
    base: 0,
    limit: u32::MAX,
    selector: 0x18,
    type_: 0b0011,
    present: 1,
    dpl: 0,
    db: 1,
    s: 1,
    l: 0,
    g: 1,
    avl: 0,
    unusable: 0,
    padding: 0,
};
const CODE: kvm_segment = kvm_segment { selector: 0x10, type_: 0b1011, db: 0, l: 1, ..DATA };

/// How a vCPU begins, and what it is told that it is: all that KVM supports, as VMMs tell their vCPUs.
pub(super) struct Start(CpuId);

/// The bit of leaf 1 that says that the APIC's timer has deadlines. Where APICs are the kernel's, it has them, and leaves it
/// to the VMM to say so.
const DEADLINE: u32 = 1 << 24;

const DESCRIPTORS_LIMIT: u16 = size_of_val(&x86::DESCRIPTORS) as u16 - 1;

/// What has KVM use nested paging, and its TDP MMU.
const USED: [&str; 2] =
    ["/sys/module/kvm_amd/parameters/npt", "/sys/module/kvm/parameters/tdp_mmu"];

impl Start {
    /// That of this kernel's KVM, if it is what it is to be compared as.
    pub(super) fn of(_kvm: &Kvm) -> anyhow::Result<Self> {
        for path in USED {
            let said = read_to_string(path).with_context(|| format!("cannot read {path}"))?;
            ensure!(["Y", "1"].contains(&said.trim()), "{path} says {}", said.trim());
        }
        let kvm = mayfly_kvm::kvm_ioctls::Kvm::new().context("cannot open /dev/kvm")?;
        let supported = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES);
        let mut identity = supported.context("KVM_GET_SUPPORTED_CPUID")?;
        for leaf in identity.as_mut_slice() {
            if leaf.function == 1 {
                leaf.ecx |= DEADLINE;
            }
        }
        Ok(Self(identity))
    }

    /// Has a vCPU that has not run begin so; but the others than the first wait until that one starts them.
    pub(super) fn begin(&self, vcpu: &mut Vcpu, number: u32) -> anyhow::Result<()> {
        let fd = vcpu.fd();
        fd.set_cpuid2(&self.0).context("KVM_SET_CPUID2")?;
        if number != 0 {
            return Ok(());
        }
        let mut special = fd.get_sregs().context("KVM_GET_SREGS")?;
        (special.cr0, special.cr3, special.cr4, special.efer) = (CR0, x86::TABLES, CR4, EFER);
        (special.gdt.base, special.gdt.limit) = (x86::DESCRIPTORS_AT, DESCRIPTORS_LIMIT);
        (special.cs, special.ss) = (CODE, DATA);
        (special.ds, special.es, special.fs, special.gs) = (DATA, DATA, DATA, DATA);
        fd.set_sregs(&special).context("KVM_SET_SREGS")?;
        let general = kvm_regs { rip: ENTRY, rflags: FLAGS, ..kvm_regs::default() };
        fd.set_regs(&general).context("KVM_SET_REGS")
    }
}

/// Writes the guest's code and its tables to the memory that it begins with.
pub(super) fn install(memory: &GuestMemory) -> anyhow::Result<()> {
    x86::install(|at, bytes| Ok(memory.write(usize::try_from(at)?, bytes)?))
}
