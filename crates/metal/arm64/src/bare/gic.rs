//! The physical interrupt controller, a `GICv3` (IHI 0069), as EL2 uses it.
//!
//! All interrupts are group 1. An interrupt ends in two steps (`EOImode`). Its priority drops when EL2 has seen it
//! ([`acknowledge`]). It becomes inactive when it has been served ([`deactivate`]); the guest does that for its
//! timers.

use core::arch::asm;
use core::ops::Range;
use core::ptr::with_exposed_provenance_mut;

use crate::controls::Controls;

/// The software interrupt by which one processor makes another look for new work.
pub const KICK: u32 = 0;
/// The private interrupt that says that list registers have run empty.
pub const MAINTENANCE: u32 = 25;
/// The private interrupt of the performance counters, on the processor and in a guest.
pub const COUNTERS: u32 = 23;
/// Numbers from here on are no interrupts; 1023 is none.
const SPECIAL: u32 = 1020;

const FRAME: usize = 0x1_0000;
const GICD_CTLR: usize = 0;
const GICD_IGROUPR: usize = 0x80;
const GICD_ISENABLER: usize = 0x100;
const GICD_ICENABLER: usize = 0x180;
const GICD_ISACTIVER: usize = 0x300;
const GICD_ICACTIVER: usize = 0x380;
const GICD_IPRIORITYR: usize = 0x400;
const GICD_ICFGR: usize = 0xc00;
const GICD_IROUTER: usize = 0x6000;
const GICR_TYPER: usize = 8;
const GICR_WAKER: usize = 0x14;

const CTLR_ENABLE_GROUP_1A: u32 = 2;
const CTLR_ARE: u32 = 1 << 4;
const CTLR_RWP: u32 = 1 << 31;
const WAKER_SLEEPS: u32 = 2;
const WAKER_CHILDREN_ASLEEP: u32 = 4;
const TYPER_LAST: u64 = 1 << 4;
const TYPER_VLPIS: u64 = 1 << 1;
const PRIORITY: u32 = 0xa0a0_a0a0;

/// Where the controller is.
#[derive(Clone, Copy, Debug)]
pub struct Gic {
    distributor: usize,
    redistributors: &'static [Range<u64>],
}

impl Gic {
    /// The controller whose distributor and regions of redistributors are at these addresses.
    ///
    /// # Safety
    ///
    /// They are, mapped as device memory, and nothing else uses them.
    pub const unsafe fn new(distributor: usize, redistributors: &'static [Range<u64>]) -> Self {
        Self { distributor, redistributors }
    }

    /// Sets up the distributor: everything off, everything group 1. Once.
    pub fn prepare(self) {
        let this = self.distributor;
        write(this + GICD_CTLR, 0);
        self.settle();
        let interrupts = ((read(this + 4) & 31) as usize + 1) * 32;
        for at in (32..interrupts.min(1020)).step_by(32) {
            write(this + GICD_ICENABLER + at / 8, u32::MAX);
            write(this + GICD_ICACTIVER + at / 8, u32::MAX);
            write(this + GICD_IGROUPR + at / 8, u32::MAX);
            (0..32).step_by(4).for_each(|byte| write(this + GICD_IPRIORITYR + at + byte, PRIORITY));
        }
        self.settle();
        write(this + GICD_CTLR, CTLR_ARE | CTLR_ENABLE_GROUP_1A);
        self.settle();
    }

    fn settle(self) {
        while read(self.distributor + GICD_CTLR) & CTLR_RWP != 0 {}
    }

    /// Sets whether shared interrupt `number`, which is not enabled yet, comes by an edge, and not by a level.
    pub fn set_edge(self, number: u32, is_edge: bool) {
        let register = self.distributor + GICD_ICFGR + number as usize / 16 * 4;
        let bit = 2 << (number % 16 * 2);
        let others = read(register) & !bit;
        write(register, others | if is_edge { bit } else { 0 });
    }

    /// Has shared interrupt `number` come to the processor with `affinity`.
    pub fn enable_shared(self, number: u32, affinity: u64) {
        let (word, bit) = (number as usize / 32 * 4, 1 << (number % 32));
        write64(self.distributor + GICD_IROUTER + 8 * number as usize, affinity);
        write(self.distributor + GICD_ISENABLER + word, bit);
    }

    /// Has shared interrupt `number` come no more. One that is active stays so until it is [deactivated](deactivate).
    pub fn disable_shared(self, number: u32) {
        let (word, bit) = (number as usize / 32 * 4, 1 << (number % 32));
        write(self.distributor + GICD_ICENABLER + word, bit);
    }

    /// This processor's redistributor, if there is one.
    pub fn redistributor(self, affinity: u64) -> Option<Redistributor> {
        let wanted = (affinity >> 8 & 0xff00_0000) | (affinity & 0x00ff_ffff);
        self.redistributors.iter().find_map(|region| Self::in_region(region, wanted))
    }

    /// The redistributor of affinity `wanted`, as `GICR_TYPER` has it, if it is in `region`.
    fn in_region(region: &Range<u64>, wanted: u64) -> Option<Redistributor> {
        let mut at = region.start as usize;
        while at + 2 * FRAME <= region.end as usize {
            let typer = read64(at + GICR_TYPER);
            if typer >> 32 == wanted {
                return Some(Redistributor(at));
            }
            // The last of its region.
            if typer & TYPER_LAST != 0 {
                return None;
            }
            at += if typer & TYPER_VLPIS != 0 { 4 * FRAME } else { 2 * FRAME };
        }
        None
    }
}

/// A processor's own part of the controller. Only that processor uses it.
#[derive(Clone, Copy, Debug)]
pub struct Redistributor(usize);

impl Redistributor {
    /// Wakes it, and has EL2's private interrupts come in: this processor's part, and its interface.
    ///
    /// # Errors
    ///
    /// When the processor has no system registers for interrupts.
    pub fn prepare(self) -> Result<(), NoSystemRegisters> {
        write(self.0 + GICR_WAKER, read(self.0 + GICR_WAKER) & !WAKER_SLEEPS);
        while read(self.0 + GICR_WAKER) & WAKER_CHILDREN_ASLEEP != 0 {}
        let private = self.0 + FRAME;
        write(private + GICD_ICENABLER, u32::MAX);
        write(private + GICD_ICACTIVER, u32::MAX);
        write(private + GICD_IGROUPR, u32::MAX);
        (0..32).step_by(4).for_each(|byte| write(private + GICD_IPRIORITYR + byte, PRIORITY));
        let timers =
            [super::timer::EL2_TIMER, super::timer::VIRTUAL_TIMER, super::timer::PHYSICAL_TIMER];
        let wanted = [KICK, MAINTENANCE, COUNTERS]
            .iter()
            .chain(&timers)
            .fold(0, |all, number| all | 1 << number);
        write(private + GICD_ISENABLER, wanted);
        // SAFETY: the interface of this processor, whose interrupts are masked. `ICC_SRE_EL2`: system registers, and
        // EL1 cannot choose others.
        unsafe {
            crate::write_register!("icc_sre_el2", Controls::of(super::cpu::ids()).icc_sre);
            asm!("isb", options(nostack));
        }
        if crate::read_register!("icc_sre_el2") & 1 == 0 {
            return Err(NoSystemRegisters);
        }
        // SAFETY: as above. `ICC_CTLR_EL1.EOImode`. Every priority comes in, group 1 alone.
        unsafe {
            crate::write_register!("icc_ctlr_el1", 2_u64);
            crate::write_register!("icc_pmr_el1", 0xff_u64);
            crate::write_register!("icc_bpr1_el1", 0_u64);
            crate::write_register!("icc_igrpen1_el1", 1_u64);
            asm!("isb", options(nostack));
        }
        Ok(())
    }

    /// Whether private interrupt `number` is active.
    pub fn is_active(self, number: u32) -> bool {
        read(self.0 + FRAME + GICD_ISACTIVER) >> (number % 32) & 1 == 1
    }

    /// Sets whether private interrupt `number` is active: while it is, it does not come again.
    pub fn set_active(self, number: u32, active: bool) {
        let register = if active { GICD_ISACTIVER } else { GICD_ICACTIVER };
        write(self.0 + FRAME + register, 1 << (number % 32));
    }
}

/// The processor has no system registers for interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSystemRegisters;

/// Takes the interrupt that is pending for this processor, if one is: it is active from now on, and others of its
/// priority may come.
pub fn acknowledge() -> Option<u32> {
    let number = crate::read_register!("icc_iar1_el1") as u32;
    if number >= SPECIAL {
        return None;
    }
    // SAFETY: drops the priority that the read has raised. What was written before the interrupt was sent is seen.
    unsafe {
        asm!("dsb sy", options(nostack));
        crate::write_register!("icc_eoir1_el1", u64::from(number));
        asm!("isb", options(nostack));
    }
    Some(number)
}

/// Says that interrupt `number` has been dealt with.
pub fn deactivate(number: u32) {
    // SAFETY: it may come again.
    unsafe {
        crate::write_register!("icc_dir_el1", u64::from(number));
        asm!("isb", options(nostack));
    }
}

/// Interrupts the processor with `affinity` by software interrupt [`KICK`]. It sees what was written before.
pub fn kick(affinity: u64) {
    let (aff0, aff1) = (affinity & 0xff, affinity >> 8 & 0xff);
    let (aff2, aff3) = (affinity >> 16 & 0xff, affinity >> 32 & 0xff);
    let value = 1 << (aff0 & 15)
        | aff1 << 16
        | u64::from(KICK) << 24
        | aff2 << 32
        | (aff0 >> 4) << 44
        | aff3 << 48;
    // SAFETY: sends an interrupt, to another or to this one.
    unsafe {
        asm!("dsb ishst", options(nostack));
        crate::write_register!("icc_sgi1r_el1", value);
        asm!("isb", options(nostack));
    }
}

fn read(address: usize) -> u32 {
    // SAFETY: a register of the controller, which `Gic::new` was promised.
    unsafe { with_exposed_provenance_mut::<u32>(address).read_volatile() }
}

fn write(address: usize, value: u32) {
    // SAFETY: as above.
    unsafe { with_exposed_provenance_mut::<u32>(address).write_volatile(value) };
}

fn read64(address: usize) -> u64 {
    // SAFETY: as above.
    unsafe { with_exposed_provenance_mut::<u64>(address).read_volatile() }
}

fn write64(address: usize, value: u64) {
    // SAFETY: as above.
    unsafe { with_exposed_provenance_mut::<u64>(address).write_volatile(value) };
}
