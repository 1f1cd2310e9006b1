//! The time: the time-stamp counter, whose rate is measured by the PC's interval timer; and an alarm, by the local APIC's
//! timer, whose rate is measured likewise.

use core::arch::x86_64::_rdtsc;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_x86::machine::clock::Rate;
use x86_64::instructions::port::Port;

use super::interrupts;

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
/// When the alarm is set for, by the time-stamp counter.
static ALARM: AtomicU64 = AtomicU64::new(NEVER);

/// No time.
pub(crate) const NEVER: u64 = u64::MAX;

/// The interval timer does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the interval timer at port 0x40 does not count: the time cannot be measured")]
pub(crate) struct NoTimer;

/// The time-stamp counter.
pub(crate) fn ticks() -> u64 {
    // SAFETY: every CPU of 64 bits has it.
    unsafe { _rdtsc() }
}

/// How fast it counts.
pub(crate) fn rate() -> Rate {
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
            let apic = interrupts::count();
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
pub(crate) fn prepare() -> Result<(), NoTimer> {
    // Its gate open, its speaker off; channel 2, both bytes, a rate generator, from 65,536.
    out(GATE, inp(GATE) & !2 | 1);
    out(COMMAND, 0xb4);
    out(CHANNEL_2, 0);
    out(CHANNEL_2, 0);
    interrupts::count_down(u32::MAX);
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
    interrupts::count_down(0);
    interrupts::interrupt_by_timer();
    let passed = u64::from(first.interval.wrapping_sub(last.interval));
    let hertz = |ticks: u64| (ticks * INTERVAL_HERTZ / passed).max(1);
    TSC_HERTZ.store(hertz(last.tsc - first.tsc), Ordering::Relaxed);
    APIC_HERTZ.store(hertz(u64::from(first.apic.wrapping_sub(last.apic))), Ordering::Relaxed);
    Ok(())
}

/// Has an interrupt come when the time-stamp counter is `at`, or soon behind that. It is the only one.
pub(crate) fn set_alarm(at: u64) {
    let now = ticks();
    let before = ALARM.swap(at, Ordering::Relaxed);
    // One that is set for this, and has not come.
    if before == at && (at == NEVER || at > now) {
        return;
    }
    if at == NEVER {
        interrupts::count_down(0);
        return;
    }
    let (tsc, apic) = (TSC_HERTZ.load(Ordering::Relaxed), APIC_HERTZ.load(Ordering::Relaxed));
    let count = u128::from(at.saturating_sub(now)) * u128::from(apic) / u128::from(tsc) + 1;
    // One that is too far away comes early, and is set again.
    interrupts::count_down(u32::try_from(count).unwrap_or(u32::MAX));
}

/// The alarm has come.
pub(crate) fn alarmed() {
    ALARM.store(NEVER, Ordering::Relaxed);
}
