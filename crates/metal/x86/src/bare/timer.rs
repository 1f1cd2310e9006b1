//! The time: the time-stamp counter, whose rate is measured by the PC's interval timer; and alarms, by the local APIC's timer,
//! whose rate is measured likewise. A processor has two: one of the program's, and one of the guest that is in it.

use core::arch::x86_64::_rdtsc;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_vm::platform::time::Instant;
use x86_64::instructions::port::Port;

use super::apic;
use super::cpu::block;
use crate::machine::clock::Rate;

/// Ticks a second of the interval timer.
const INTERVAL_HERTZ: u64 = 1_193_182;
/// For how many of its ticks the others are measured: 20 ms.
const MEASURED: u16 = 23_864;
/// How often the three are looked at for one moment: the one counts that took least.
const LOOKS: usize = 9;
/// Ticks of the time-stamp counter after which an interval timer that has not counted is not there: a few seconds.
const PATIENCE: u64 = 20_000_000_000;

const GATE: u16 = 0x61;
const COMMAND: u16 = 0x43;
const CHANNEL_2: u16 = 0x42;

static TSC_HERTZ: AtomicU64 = AtomicU64::new(1);
static APIC_HERTZ: AtomicU64 = AtomicU64::new(1);
/// No time.
pub const NEVER: u64 = u64::MAX;

/// The interval timer does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the interval timer at port 0x40 does not count: the time cannot be measured")]
pub struct NoTimer;

/// The time-stamp counter.
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: every CPU of 64 bits has it.
    unsafe { _rdtsc() }
}

/// How fast it counts.
pub fn rate() -> Rate {
    Rate::new(NonZeroU64::new(TSC_HERTZ.load(Ordering::Relaxed)).unwrap_or(NonZeroU64::MIN))
}

fn out(port: u16, value: u8) {
    // SAFETY: the interval timer's ports, and the gate of its channel 2.
    unsafe { Port::<u8>::new(port).write(value) }
}

fn inp(port: u16) -> u8 {
    // SAFETY: as above.
    unsafe { Port::<u8>::new(port).read() }
}

/// One moment.
#[derive(Clone, Copy)]
struct Moment {
    tsc: u64,
    interval: u16,
    apic: u32,
    took: u64,
}

impl Moment {
    fn now() -> Self {
        let look = || {
            let before = ticks();
            out(COMMAND, 0x80);
            let interval = u16::from(inp(CHANNEL_2)) | u16::from(inp(CHANNEL_2)) << 8;
            let apic = apic::count();
            let after = ticks();
            Self { tsc: before + (after - before) / 2, interval, apic, took: after - before }
        };
        let mut best = look();
        for _ in 1..LOOKS {
            let now = look();
            if now.took < best.took {
                best = now;
            }
        }
        best
    }
}

/// Measures both rates.
///
/// # Errors
///
/// There is nothing to measure them by.
pub fn prepare() -> Result<(), NoTimer> {
    // Its gate open, its speaker off; channel 2, both bytes, a rate generator, from 65,536.
    out(GATE, inp(GATE) & !2 | 1);
    out(COMMAND, 0xb4);
    out(CHANNEL_2, 0);
    out(CHANNEL_2, 0);
    apic::count_down(u32::MAX);
    let first = Moment::now();
    let last = loop {
        let now = Moment::now();
        // It counts down.
        if first.interval.wrapping_sub(now.interval) >= MEASURED {
            break now;
        }
        if now.tsc - first.tsc > PATIENCE {
            return Err(NoTimer);
        }
    };
    apic::count_down(0);
    let passed = u64::from(first.interval.wrapping_sub(last.interval));
    let hertz = |ticks: u64| (ticks * INTERVAL_HERTZ / passed).max(1);
    TSC_HERTZ.store(hertz(last.tsc - first.tsc), Ordering::Relaxed);
    APIC_HERTZ.store(hertz(u64::from(first.apic.wrapping_sub(last.apic))), Ordering::Relaxed);
    Ok(())
}

/// Ticks in a second.
#[inline]
pub fn frequency() -> u64 {
    TSC_HERTZ.load(Ordering::Relaxed)
}

/// As [`ticks`].
#[inline]
pub fn about_now() -> u64 {
    ticks()
}

/// The moment of so many ticks.
pub fn instant(ticks: u64) -> Instant {
    Instant::from_nanos(rate().nanoseconds(ticks))
}

/// The ticks at which `instant` has come.
pub fn ticks_at(instant: Instant) -> u64 {
    rate().ticks(instant.as_nanos())
}

const OWN: usize = 0;
const GUEST: usize = 1;

/// Has an interrupt come to this processor when the time-stamp counter is `at`, or soon behind that; or never.
#[inline]
pub fn set_alarm(at: Option<u64>) {
    set(OWN, at.unwrap_or(NEVER));
}

/// The same for the guest that is in the processor.
#[inline]
pub fn set_guest_alarm(at: u64) {
    set(GUEST, at);
}

fn set(which: usize, at: u64) {
    let alarms = &block().alarms;
    let first = || alarms.each_ref().map(|alarm| alarm.load(Ordering::Relaxed)).into_iter().min();
    let before = first();
    alarms[which].store(at, Ordering::Relaxed);
    // What the timer is set for has not passed as long as it has not [come](has_come).
    if before != first() {
        arm();
    }
}

/// Sets the timer for the first of both.
fn arm() {
    let alarms = block().alarms.each_ref().map(|alarm| alarm.load(Ordering::Relaxed));
    let at = alarms[OWN].min(alarms[GUEST]);
    if at == NEVER {
        return apic::count_down(0);
    }
    let (tsc, apic) = (TSC_HERTZ.load(Ordering::Relaxed), APIC_HERTZ.load(Ordering::Relaxed));
    let count = u128::from(at.saturating_sub(ticks())) * u128::from(apic) / u128::from(tsc) + 1;
    // One that is too far away comes early, and is set again.
    apic::count_down(u32::try_from(count).unwrap_or(u32::MAX));
}

/// The timer has come. Whether it is the program's alarm; the guest's is over, if it is that.
pub fn has_come() -> bool {
    let (alarms, now) = (&block().alarms, ticks());
    if alarms[GUEST].load(Ordering::Relaxed) <= now {
        alarms[GUEST].store(NEVER, Ordering::Relaxed);
    }
    let is_own = alarms[OWN].load(Ordering::Relaxed) <= now;
    if is_own {
        alarms[OWN].store(NEVER, Ordering::Relaxed);
    }
    arm();
    is_own
}
