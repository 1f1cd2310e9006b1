//! PSCI.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::machine::{call, end, has_word, holds, soon, ticks, wait_for_interrupt};
use crate::timer::ENABLE;
use crate::timer::Timer::Virtual;

unsafe extern "C" {
    /// Where vCPUs other than the first begin, with the address of a function in x0 (`entry.rs`).
    fn secondary();
}

const NOT_SUPPORTED: u64 = (-1_i64).cast_unsigned();
const INVALID_PARAMETERS: u64 = (-2_i64).cast_unsigned();
const ALREADY_ON: u64 = (-4_i64).cast_unsigned();
const INVALID_ADDRESS: u64 = (-9_i64).cast_unsigned();

const VERSION: u64 = 0x8400_0000;
const CPU_SUSPEND: u64 = 0xc400_0001;
const CPU_OFF: u64 = 0x8400_0002;
const CPU_ON: u64 = 0xc400_0003;
const AFFINITY_INFO: u64 = 0xc400_0004;
const FEATURES: u64 = 0x8400_000a;
const SYSTEM_RESET2: u64 = 0xc400_0012;
const MEM_PROTECT: u64 = 0x8400_0013;

/// Turns vCPU `other` on, to do `work`. What the call returns.
pub(crate) fn on(other: u64, work: extern "C" fn() -> !) -> u64 {
    call(CPU_ON, [other, secondary as *const () as u64, work as *const () as u64])
}

/// Turns this vCPU off.
pub(crate) fn off() -> ! {
    call(CPU_OFF, [0; 3]);
    loop {
        wait_for_interrupt();
    }
}

/// Whether vCPU `other` is off.
pub(crate) fn is_off(other: u64) -> bool {
    call(AFFINITY_INFO, [other, 0, 0]) == 1
}

static BEGUN: AtomicU32 = AtomicU32::new(0);

extern "C" fn begins() -> ! {
    BEGUN.store(BEGUN.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    off()
}

pub(crate) fn check() {
    holds!(call(VERSION, [0; 3]) == 0x1_0001, "PSCI is 1.1");
    holds!(call(1337, [0; 3]) == NOT_SUPPORTED, "a call that there is not is refused");
    holds!(call(AFFINITY_INFO, [0, 0, 0]) == 0, "the first vCPU is on");
    holds!(is_off(1), "the second one is off");
    holds!(call(AFFINITY_INFO, [0, 1, 0]) == 0, "its cluster is on");
    holds!(call(AFFINITY_INFO, [9, 0, 0]) == INVALID_PARAMETERS, "there is no tenth one");
    holds!(on(0, begins) == ALREADY_ON, "the first one is on already");
    holds!(call(CPU_ON, [1, 0x10, 0]) == INVALID_ADDRESS, "no vCPU begins outside of memory");
    for times in 1..=20 {
        let done = on(1, begins) == 0
            && soon(|| BEGUN.load(Ordering::Relaxed) == times)
            && soon(|| is_off(1));
        holds!(done, "the second one goes on and off");
    }
    for (name, function) in
        [("CPU_SUSPEND", CPU_SUSPEND), ("SYSTEM_RESET2", SYSTEM_RESET2), ("itself", FEATURES)]
    {
        holds!(call(FEATURES, [function, 0, 0]) == 0, "PSCI_FEATURES has {name}");
    }
    holds!(call(SYSTEM_RESET2, [1, 0, 0]) == INVALID_PARAMETERS, "a cold reset 2 is refused");
    holds!(call(MEM_PROTECT, [1, 0, 0]) == NOT_SUPPORTED, "memory is not protected");
    holds!(call(CPU_SUSPEND, [1 << 31, 0, 0]) == INVALID_PARAMETERS, "no such state");
    suspends(0, "standby");
    suspends(1 << 16, "a state without power");
}

/// Suspends this vCPU, whose interrupts are masked, until its timer is due.
fn suspends(state: u64, name: &str) {
    Virtual.set_compare(Virtual.count() + ticks(5));
    Virtual.set_control(ENABLE);
    let (mut result, mut times) = (0, 0);
    // A suspended core may go on early.
    while result == 0 && !Virtual.is_due() && times < 10 {
        result = call(CPU_SUSPEND, [state, secondary as *const () as u64, 0]);
        times += 1;
    }
    let is_due = Virtual.is_due();
    Virtual.set_control(0);
    holds!(
        result == 0 && is_due,
        "CPU_SUSPEND to {name} goes on behind the call, when a timer is due"
    );
}

/// Resets the machine, if the device tree has that word. The next run does so again.
pub(crate) fn reset_if_asked(tree: usize) {
    if has_word(tree, b"guest=resets") {
        call(SYSTEM_RESET2, [0; 3]);
        holds!(false, "SYSTEM_RESET2 does not return");
        end()
    }
}
