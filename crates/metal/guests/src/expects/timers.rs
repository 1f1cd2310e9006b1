//! The virtual and the physical timer, whose interrupts are levels.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::interrupts::{CLEAR_ENABLE, SET_ENABLE, SET_PENDING, enable, private, taken_times};
use crate::machine::{holds, open, pass, read32, soon, ticks, vcpu, wait_for_interrupt, write32};
use crate::power;
use crate::timer::Timer::{Physical, Virtual};
use crate::timer::{ENABLE, MASKED, Timer};

impl Timer {
    fn bit(self) -> u32 {
        1 << self as u32
    }

    fn is_pending(self) -> bool {
        read32(private() + SET_PENDING) & self.bit() != 0
    }

    fn is_active(self) -> bool {
        read32(private() + 0x300) & self.bit() != 0
    }

    fn times(self) -> u32 {
        taken_times(self as u32)
    }

    fn set_enabled(self, enabled: bool) {
        let register = if enabled { SET_ENABLE } else { CLEAR_ENABLE };
        write32(private() + register, self.bit());
    }
}

pub(crate) fn check() {
    for timer in [Virtual, Physical] {
        registers(timer);
        line(timer);
        interrupts(timer);
    }
    beside_others();
}

fn registers(timer: Timer) {
    let name = timer.name();
    holds!(timer.control() & (ENABLE | MASKED) == 0, "{name} is off");
    timer.set_compare(0x0123_4567_89ab_cdef);
    holds!(timer.compare() == 0x0123_4567_89ab_cdef, "{name} keeps what it is compared with");
    let before = timer.count();
    timer.set_left(1000);
    let (compare, after) = (timer.compare(), timer.count());
    holds!(
        (before + 1000..=after + 1000).contains(&compare),
        "{name} compares with its count, as the guest reads it"
    );
}

/// The line of a timer whose interrupt is not enabled, as its pending bit shows it.
fn line(timer: Timer) {
    let name = timer.name();
    timer.set_enabled(false);
    let (now, before) = (timer.count(), timer.times());
    timer.set_compare(now + ticks(10_000));
    timer.set_control(ENABLE);
    pass(2);
    holds!(!timer.is_due() && !timer.is_pending(), "{name} is not due before its time");
    timer.set_compare(now - 1);
    holds!(timer.is_due() && soon(|| timer.is_pending()), "{name} is pending when it is due");
    timer.set_control(0);
    holds!(!timer.is_pending(), "{name} is not pending when it is off");
    timer.set_compare(now - 1);
    timer.set_control(ENABLE);
    holds!(soon(|| timer.is_pending()), "{name} is pending again");
    timer.set_control(0);
    timer.set_enabled(true);
    open(|| pass(2));
    holds!(timer.times() == before, "{name} does not interrupt once its line has fallen");
    timer.set_control(ENABLE | MASKED);
    holds!(timer.is_due() && !timer.is_pending(), "{name} is due and not pending while masked");
    timer.set_control(ENABLE);
    holds!(soon(|| timer.is_pending()), "{name} is pending, though interrupts are masked");
    timer.set_control(0);
    holds!(!timer.is_pending(), "{name} is not pending any more, though it was shown");
    open(|| pass(2));
    holds!(timer.times() == before, "{name} does not interrupt then");
}

fn interrupts(timer: Timer) {
    let name = timer.name();
    let before = timer.times();
    let due = timer.count() + ticks(10);
    timer.set_compare(due);
    timer.set_control(ENABLE);
    open(|| {
        holds!(soon(|| timer.times() == before + 1), "{name} interrupts");
    });
    holds!(timer.count() >= due, "{name} does not interrupt early");
    holds!(!timer.is_pending() && !timer.is_active(), "{name} has ended");
    for times in 2..5 {
        timer.set_left(ticks(5));
        timer.set_control(ENABLE);
        wait_for_interrupt();
        open(|| {
            holds!(soon(|| timer.times() == before + times), "{name} ends a WFI");
        });
        holds!(timer.left() <= 0, "{name} has nothing left");
    }
    timer.set_control(0);
    open(|| pass(12));
    holds!(timer.times() == before + 4, "{name} comes once each time");
}

/// Says what a vCPU beside the first does: its timers, by their bits, that have come.
static COME: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];

/// A vCPU's own physical timer, and its virtual one, many times, while others work.
extern "C" fn both() -> ! {
    enable();
    Physical.set_enabled(true);
    Virtual.set_enabled(true);
    let me = vcpu() as u64;
    for round in 1..=5 {
        Physical.set_compare(Physical.count() + ticks(7 + me));
        Physical.set_control(ENABLE);
        Virtual.set_left(ticks(9 + me));
        Virtual.set_control(ENABLE);
        open(|| while Physical.times() < round || Virtual.times() < round {});
        COME[me as usize].store(round, Ordering::Relaxed);
    }
    power::off()
}

/// The timers of vCPUs that share processors, and wait, come each to its own.
fn beside_others() {
    let before = [Physical.times(), Virtual.times()];
    let others = [1, 2].map(|other| power::on(other, both));
    holds!(others == [0, 0], "two more vCPUs are turned on");
    for round in 1..=5 {
        Physical.set_left(ticks(12));
        Physical.set_control(ENABLE);
        wait_for_interrupt();
        open(|| {
            let come = soon(|| Physical.times() == before[0] + round);
            holds!(come, "the physical timer ends a WFI beside vCPUs that work");
        });
    }
    let come = || COME[1].load(Ordering::Relaxed) == 5 && COME[2].load(Ordering::Relaxed) == 5;
    holds!(soon(come), "each vCPU has its own timers");
    holds!(Virtual.times() == before[1], "and the timer of no other");
    holds!(soon(|| [1, 2].iter().all(|other| power::is_off(*other))), "they are off again");
}
