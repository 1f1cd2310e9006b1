//! A machine, and VMs on it.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use mayfly_memslot::Hva;
use mayfly_platform::cache::{CacheCapabilities, InstructionCaches};
use mayfly_stage2::{self as stage2, Arm, Format, Level, Reclaimed, Reclaimer, Slice, Vmids};
use mayfly_vm::{Config, SlotZap, Vcpu, Vm, World};

use super::{AnyDevice, Caches, Hardware, Memory, region};

/// Concatenated root tables, break-before-make, and an accessed mark that faults: what asks most of the VM.
pub(crate) type TestFormat = Arm<40>;

pub(crate) struct Kinds<F = TestFormat>(PhantomData<F>);

impl<F: Format> World for Kinds<F> {
    type Device = AnyDevice;
    type Backing = Hva;
    type Format = F;
    type Memory = Memory;
}

pub(crate) type TestVm<F = TestFormat> = Vm<Kinds<F>>;
pub(crate) type TestVcpu<F = TestFormat> = Vcpu<Kinds<F>>;

/// More than a test uses, unless they share them.
const CPUS: u32 = 16;

pub(crate) struct Setup<F: Format = TestFormat> {
    pub(crate) hardware: Arc<Hardware>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) caches: Arc<Caches>,
    pub(crate) vmids: Vmids,
    pub(crate) reclaimer: Arc<Reclaimer<F>>,
    pub(crate) slot_zap: SlotZap,
}

impl Setup {
    /// VMs whose slots are zapped as `slot_zap` says, with 8 bits of VMID, and so many CPUs as take no guest out of
    /// another's way.
    pub(crate) fn new(slot_zap: SlotZap) -> Self {
        Self::with_vmids(slot_zap, 8)
    }

    /// A VM with a slot of `pages` pages at guest frame 0x200, behind which the host has blocks of 2 MiB; and a vCPU.
    pub(crate) fn in_blocks(pages: u64) -> (Self, TestVm, TestVcpu) {
        let setup = Self::new(SlotZap::Range);
        setup.memory.set_level(Level::MIB2);
        let vm = setup.vm();
        let vcpu = vm.create_vcpu(0).unwrap();
        vm.set_memory_region(&region(0, 0x200, pages)).unwrap();
        (setup, vm, vcpu)
    }

    pub(crate) fn with_vmids(slot_zap: SlotZap, vmid_bits: u32) -> Self {
        Self::in_format(slot_zap, vmid_bits)
    }
}

impl<F: Format> Setup<F> {
    /// As [`Setup::with_vmids`].
    pub(crate) fn in_format(slot_zap: SlotZap, vmid_bits: u32) -> Self {
        let cpus = CPUS.min((1 << vmid_bits) - 1);
        let hardware = Arc::new(Hardware::new(cpus));
        let caches = Arc::new(Caches::default());
        caches.set_capabilities(CacheCapabilities {
            instructions: InstructionCaches::Coherent,
            fgt: false,
        });
        Self {
            memory: Arc::new(Memory::new()),
            caches,
            // SAFETY: the machine's only ones.
            vmids: unsafe { Vmids::try_new(hardware.clone(), vmid_bits) }.unwrap(),
            reclaimer: Arc::new(Reclaimer::new(hardware.clone(), Reclaimer::<F>::BOUND)),
            hardware,
            slot_zap,
        }
    }

    pub(crate) fn config(&self) -> Config<Kinds<F>> {
        Config {
            srcu: mayfly_srcu::Config::default(),
            stage2: stage2::Config {
                mmu: self.hardware.clone(),
                vmids: self.vmids.clone(),
                reclaimer: self.reclaimer.clone(),
                max_frames: usize::MAX,
            },
            memory: self.memory.clone(),
            cache: self.caches.clone(),
            caches: mayfly_vm::Caches::Coherent,
            slot_zap: self.slot_zap,
            // What is counted must not depend on how busy the host is.
            slice: Slice { time: Duration::MAX, ..Slice::default() },
        }
    }

    pub(crate) fn vm(&self) -> TestVm<F> {
        Vm::create(self.config()).unwrap()
    }

    /// Reclaims as much as can be without waiting. Returns whether that was all.
    pub(crate) fn reclaim(&self) -> bool {
        loop {
            match self.reclaimer.run_slice(Slice::default()) {
                Reclaimed::All => return true,
                Reclaimed::More => {}
                Reclaimed::Waits => return false,
            }
        }
    }
}

/// A VM on a machine of its own.
pub(crate) fn vm() -> TestVm {
    Setup::new(SlotZap::Range).vm()
}
