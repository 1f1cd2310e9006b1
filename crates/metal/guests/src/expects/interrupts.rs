//! The interrupt controller: groups, priorities, active bits, and every size of access.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::machine::{
    get, holds, open, read8, read32, read64, set, soon, vcpu, wait_for_interrupt, write8, write32,
    write64,
};
use crate::{its, overflow, timer};

pub(crate) const DISTRIBUTOR: usize = 0x0800_0000;
pub(crate) const REDISTRIBUTORS: usize = 0x080a_0000;
pub(crate) const VCPUS: usize = 3;
/// `ICC_IAR` of no interrupt.
const SPURIOUS: u64 = 1020;

const CTLR: usize = 0;
const GROUP: usize = 0x80;
pub(crate) const SET_ENABLE: usize = 0x100;
pub(crate) const CLEAR_ENABLE: usize = 0x180;
pub(crate) const SET_PENDING: usize = 0x200;
const CLEAR_PENDING: usize = 0x280;
const SET_ACTIVE: usize = 0x300;
const CLEAR_ACTIVE: usize = 0x380;
const PRIORITY: usize = 0x400;
const ROUTE: usize = 0x6000;

/// Ends by itself: its handler clears the active bit in place of an end.
const CLEARED: u64 = 3;

/// How often each private interrupt was taken on each vCPU, in either group.
static TAKEN: [[[AtomicU32; 32]; 2]; VCPUS] =
    [const { [const { [const { AtomicU32::new(0) }; 32] }; 2] }; VCPUS];
/// The last two numbers that the first vCPU has taken: the last in the lowest byte.
static LAST: AtomicU32 = AtomicU32::new(0);

/// Where this vCPU's private interrupts are.
pub(crate) fn private() -> usize {
    REDISTRIBUTORS + 0x2_0000 * vcpu() + 0x1_0000
}

/// How often this vCPU has taken interrupt `number` of group 1.
pub(crate) fn taken_times(number: u32) -> u32 {
    TAKEN[vcpu()][1][number as usize].load(Ordering::Relaxed)
}

/// An interrupt of group `group` has come.
pub(crate) fn taken(group: u64) {
    let number = if group == 0 { get!("icc_iar0_el1") } else { get!("icc_iar1_el1") };
    if its::taken(number) {
        set!("icc_eoir1_el1", number);
        return;
    }
    if number >= SPURIOUS {
        return;
    }
    timer::quieten(number as u32);
    overflow::quieten(number as u32);
    if let Some(count) = TAKEN[vcpu()][group as usize].get(number as usize) {
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
    LAST.store(LAST.load(Ordering::Relaxed) << 8 | number as u32, Ordering::Relaxed);
    if group == 0 {
        set!("icc_eoir0_el1", number);
    } else {
        set!("icc_eoir1_el1", number);
    }
    if number == CLEARED {
        write32(private() + CLEAR_ACTIVE, 1 << CLEARED);
    }
}

/// Has this vCPU take interrupts, of both groups: everything private is of group 1, and nothing but software interrupts
/// is enabled.
pub(crate) fn enable() {
    write32(DISTRIBUTOR + CTLR, 0x13);
    let private = private();
    write32(private + GROUP, u32::MAX);
    write32(private + SET_ENABLE, 0xffff);
    (0..32).step_by(4).for_each(|place| write32(private + PRIORITY + place, 0xa0a0_a0a0));
    set!("icc_pmr_el1", 0xf8);
    set!("icc_igrpen0_el1", 1);
    set!("icc_igrpen1_el1", 1);
}

/// Interrupts this vCPU by software interrupt `number`.
fn send(number: u64) {
    set!("icc_sgi1r_el1", number << 24 | 1 << vcpu());
}

pub(crate) fn check() {
    let private = private();
    holds!(read32(private - 0x1_0000 + 0x14) == 0, "the redistributor is awake");
    send(1);
    open(|| holds!(soon(|| taken_times(1) == 1), "a software interrupt is taken"));

    write32(private + GROUP, !(1 << 2));
    send(2);
    let is_fast = || TAKEN[0][0][2].load(Ordering::Relaxed) == 1;
    open(|| holds!(soon(is_fast), "an interrupt of group 0 is a fast one"));
    write32(private + GROUP, u32::MAX);

    write8(private + PRIORITY + 5, 0x40);
    send(4);
    send(5);
    open(|| {
        let both = || LAST.load(Ordering::Relaxed) & 0xffff == 0x0504;
        holds!(soon(both), "the more urgent of two interrupts comes first");
    });

    set!("icc_ctlr_el1", 1 << 1);
    send(CLEARED);
    open(|| holds!(soon(|| taken_times(CLEARED as u32) == 1), "an interrupt is taken"));
    holds!(read32(private + SET_ACTIVE) == 0, "and is active no more once its bit is cleared");
    send(CLEARED);
    open(|| holds!(soon(|| taken_times(CLEARED as u32) == 2), "so that it comes again"));
    set!("icc_ctlr_el1", 0);

    write32(private + SET_ACTIVE, 1 << 6);
    send(6);
    open(|| holds!(taken_times(6) == 0, "an interrupt that is active is not taken"));
    let state = (read32(private + SET_PENDING), read32(private + SET_ACTIVE));
    holds!(state == (1 << 6, 1 << 6), "it is pending and active");
    write32(private + CLEAR_ACTIVE, 1 << 6);
    open(|| holds!(soon(|| taken_times(6) == 1), "and is taken when it is active no more"));

    write32(private + SET_PENDING, 1 << 7);
    write32(private + CLEAR_PENDING, 1 << 7);
    open(|| holds!(taken_times(7) == 0, "an interrupt that is pending no more is not taken"));
    write32(private + SET_PENDING, 1 << 7);
    wait_for_interrupt();
    open(|| holds!(soon(|| taken_times(7) == 1), "an interrupt that is pending ends a WFI"));
    sizes();
}

fn sizes() {
    let at = DISTRIBUTOR + PRIORITY + 32;
    write32(at, 0xffff_ffff);
    let mask = read32(at);
    holds!(mask & 0xf0f0_f0f0 == 0xf0f0_f0f0, "16 priorities at least are kept");
    write32(at, 0x1020_3040 & mask);
    write8(at + 2, 0x50);
    let bytes = [0, 1, 2, 3].map(|place| read8(at + place));
    holds!(bytes == [0x40, 0x30, 0x50, 0x10], "priorities are read and written by bytes");
    holds!(read32(at) == 0x1050_3040, "and by words");
    write64(DISTRIBUTOR + ROUTE + 8 * 32, 1);
    holds!(read64(DISTRIBUTOR + ROUTE + 8 * 32) == 1, "a route is read and written in one");
    write32(DISTRIBUTOR + ROUTE + 8 * 32, 2);
    let halves = [0, 4].map(|half| read32(DISTRIBUTOR + ROUTE + 8 * 32 + half));
    holds!(halves == [2, 0], "and by halves");
    let typer = REDISTRIBUTORS + 8;
    let halves = u64::from(read32(typer)) | u64::from(read32(typer + 4)) << 32;
    holds!(read64(typer) == halves, "a redistributor's type is read in one and by halves");
    for (name, at) in [("GICD_TYPER", DISTRIBUTOR + 4), ("GICD_IIDR", DISTRIBUTOR + 8)] {
        let before = read32(at);
        write32(at, !before);
        holds!(read32(at) == before, "{name} is only read");
    }
}
