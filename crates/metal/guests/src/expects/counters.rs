//! The performance counters: that of cycles, that of software increments, one that counts the overflows of another, and
//! their interrupt.

use crate::interrupts::{CLEAR_ENABLE, SET_ENABLE, SET_PENDING, private, taken_times};
use crate::machine::{get, holds, open, pass, read32, set, soon, wait_for_interrupt, write32};
use crate::overflow::INTERRUPT;

/// `PMCR_EL0`: E, P, C, LC.
const ON: u64 = 1;
const RESET: u64 = 1 << 1 | 1 << 2;
const LONG: u64 = 1 << 6;
/// LP.
const LONG_EVENTS: u64 = 1 << 7;
/// The counter of cycles, in the registers that have a bit for each counter.
const CYCLES: u64 = 1 << 31;
/// Events.
const CYCLE: u64 = 0x11;
const CHAIN: u64 = 0x1e;
/// `PMCCFILTR_EL0` and `PMEVTYPER<n>_EL0`: not at EL1.
const NOT_HERE: u64 = 1 << 31;
const ALL: u64 = 0xffff_ffff;

fn version() -> u64 {
    get!("id_aa64dfr0_el1") >> 8 & 15
}

fn reset() {
    set!("pmcr_el0", RESET | LONG);
    set!("pmcntenclr_el0", ALL);
    set!("pmintenclr_el1", ALL);
    set!("pmovsclr_el0", ALL);
}

fn is_pending() -> bool {
    read32(private() + SET_PENDING) >> INTERRUPT & 1 == 1
}

pub(crate) fn check() {
    holds!(matches!(version(), 1 | 4 | 6), "there are performance counters of ARMv8.0, 8.1 or 8.5");
    let count = get!("pmcr_el0") >> 11 & 0x1f;
    holds!((2..=6).contains(&count), "two to six of them count events");
    holds!(get!("pmceid0_el0") & (1 | 1 << CHAIN) == 1 | 1 << CHAIN, "two are counted anywhere");
    cycles();
    software();
    chained();
    interrupts();
    reset();
}

fn cycles() {
    reset();
    set!("pmccfiltr_el0", 0);
    set!("pmcntenset_el0", CYCLES);
    pass(1);
    holds!(get!("pmccntr_el0") == 0, "cycles are not counted before the counters are on");
    set!("pmcr_el0", ON | LONG);
    let first = get!("pmccntr_el0");
    holds!(soon(|| get!("pmccntr_el0") > first), "cycles are counted");
    set!("pmcr_el0", LONG);
    let kept = get!("pmccntr_el0");
    pass(1);
    holds!(kept > 0 && get!("pmccntr_el0") == kept, "and stay when the counters are off");
    set!("pmccfiltr_el0", NOT_HERE);
    set!("pmcr_el0", ON | RESET | LONG);
    pass(1);
    holds!(get!("pmccntr_el0") == 0, "cycles at EL1 are not counted where the filter says so");
    set!("pmccfiltr_el0", 0);
}

fn software() {
    reset();
    set!("pmselr_el0", 1);
    set!("pmxevtyper_el0", 0);
    set!("pmxevcntr_el0", ALL - 1);
    set!("pmcntenset_el0", 2);
    set!("pmswinc_el0", 3);
    holds!(
        get!("pmevcntr1_el0") == ALL - 1,
        "software increments nothing before the counters are on"
    );
    set!("pmcr_el0", ON | LONG);
    set!("pmswinc_el0", 3);
    set!("pmswinc_el0", 3);
    holds!(get!("pmevcntr1_el0") as u32 == 0, "software increments a counter of 32 bits");
    holds!(get!("pmovsset_el0") == 2, "its overflow is kept");
    set!("pmovsclr_el0", 2);
    holds!(get!("pmovsset_el0") == 0, "until it is cleared");
    if version() == 6 {
        set!("pmevcntr1_el0", ALL);
        set!("pmcr_el0", ON | LONG | LONG_EVENTS);
        set!("pmswinc_el0", 2);
        holds!(get!("pmevcntr1_el0") == ALL + 1, "a counter of events has 64 bits in ARMv8.5");
        holds!(get!("pmovsset_el0") == 0, "and does not overflow before them, if that is chosen");
    }
}

fn chained() {
    reset();
    set!("pmevtyper0_el0", CYCLE);
    set!("pmevtyper1_el0", CHAIN);
    set!("pmevcntr0_el0", ALL - 100);
    set!("pmcntenset_el0", 3);
    set!("pmcr_el0", ON | LONG);
    holds!(soon(|| get!("pmevcntr1_el0") == 1), "a counter counts the overflows of the one before");
    set!("pmcr_el0", LONG);
    holds!(get!("pmovsset_el0") == 1, "the one before has overflown, and it has not");
}

fn interrupts() {
    let start = || {
        reset();
        set!("pmccntr_el0", u64::MAX - 1000);
        set!("pmcntenset_el0", CYCLES);
        set!("pmcr_el0", ON | LONG);
    };
    write32(private() + CLEAR_ENABLE, 1 << INTERRUPT);
    start();
    holds!(soon(|| get!("pmovsset_el0") == CYCLES), "the counter of cycles overflows at 64 bits");
    holds!(!is_pending(), "which does not interrupt unless that is enabled");
    set!("pmintenset_el1", CYCLES);
    holds!(is_pending(), "it does once that is enabled");
    set!("pmcr_el0", LONG);
    holds!(!is_pending(), "not while the counters are off");
    set!("pmcr_el0", ON | LONG);
    holds!(is_pending(), "again once they are on");
    set!("pmovsclr_el0", CYCLES);
    holds!(!is_pending(), "and no more once the overflow is cleared");

    let before = taken_times(INTERRUPT);
    write32(private() + SET_ENABLE, 1 << INTERRUPT);
    start();
    set!("pmintenset_el1", CYCLES);
    open(|| holds!(soon(|| taken_times(INTERRUPT) == before + 1), "an overflow interrupts"));
    open(|| pass(2));
    holds!(taken_times(INTERRUPT) == before + 1, "once");
    set!("pmevtyper0_el0", CYCLE);
    set!("pmevcntr0_el0", ALL - 1000);
    set!("pmintenset_el1", 1);
    set!("pmcntenset_el0", 1);
    open(|| holds!(soon(|| taken_times(INTERRUPT) == before + 2), "that of another counter, too"));
    write32(private() + CLEAR_ENABLE, 1 << INTERRUPT);
    // It is pending, and ends the wait.
    set!("pmevcntr0_el0", ALL);
    holds!(soon(is_pending), "an interrupt is pending that was not taken");
    write32(private() + SET_ENABLE, 1 << INTERRUPT);
    wait_for_interrupt();
    open(|| holds!(soon(|| taken_times(INTERRUPT) == before + 3), "and ends a WFI"));
    write32(private() + CLEAR_ENABLE, 1 << INTERRUPT);
}
