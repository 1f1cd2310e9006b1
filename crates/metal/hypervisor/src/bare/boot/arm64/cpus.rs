//! The other processors: started one after the other by PSCI of the firmware, and then all at once.
//!
//! A processor that comes up takes its interrupts, says what it is, and waits. The first one takes account of what each
//! has said. When all have come, or were given up, it is known what all of them can do, and the first one chooses how
//! guests are confined. Then each prepares the rest, and is up. A processor that was given up, or that was stuck and goes
//! on later, has changed nothing that others use, and stops.

use alloc::boxed::Box;
use core::sync::atomic::Ordering;

use mayfly_arm64::{cache, cpu, spin, timer};
use mayfly_hypervisor::arrival::{Arrival, Outcome};
use mayfly_hypervisor::tree::Tree;
use smccc::Smc;

use crate::bare::boot::arriving::{ARRIVED, come_up, is_up};
use crate::bare::processor::once::Once;
use crate::bare::processor::this_cpu::Traits;
use crate::bare::processor::{cpus, this_cpu};
use crate::bare::threads;
use crate::bare::threads::console::say;

/// How long a processor may take to come up, in seconds: the firmware of a large machine needs some tens of
/// milliseconds, and an emulator on a busy machine seconds.
const PATIENCE: u64 = 10;

/// What a processor other than the first begins with. It reads the first two words with its caches off.
#[repr(C)]
pub(super) struct Start {
    stack: u64,
    table: u64,
    number: usize,
    arrival: Arrival,
    /// What it has said of itself, when it is ready.
    traits: Once<Traits>,
}

unsafe extern "C" {
    /// The first instruction of processors other than the first, with the address of a [`Start`] in x0.
    fn secondary_start();
}

/// Prepares the rest of this processor, when it is known what all can do, and counts it as up.
pub(super) fn prepare() {
    this_cpu::confine();
    is_up();
}

/// Starts the others, one after the other: those that come are numbered without a gap.
pub(super) fn start_others(machine: &Tree, table: u64) {
    let here = cpu::affinity();
    let others = machine.cpus.iter().filter(|&&affinity| affinity != here);
    for (place, &affinity) in others.clone().enumerate() {
        let number = ARRIVED.load(Ordering::Relaxed);
        if number as usize == cpus::MAX {
            let left = others.clone().count() - place;
            say!("mayfly: {left} CPUs are not used: there are more than {}", cpus::MAX);
            return;
        }
        let Some(stack) = threads::Stack::of_system() else {
            say!("mayfly: there is no memory to start CPU {affinity:#x}");
            return;
        };
        let stack = stack.top();
        let (number, arrival, traits) = (number as usize, Arrival::new(), Once::new());
        let start: &_ = Box::leak(Box::new(Start { stack, table, number, arrival, traits }));
        let address = core::ptr::from_ref(start).addr() as u64;
        cache::clean_bytes(address, size_of::<Start>() as u64);
        let entry = secondary_start as *const () as u64;
        if let Err(error) = smccc::psci::cpu_on::<Smc>(affinity, entry, address) {
            say!("mayfly: CPU {affinity:#x} does not start: PSCI CPU_ON: {error}");
            continue;
        }
        let end = timer::ticks() + PATIENCE * timer::frequency();
        let outcome = start.arrival.wait(|| {
            spin::relax();
            timer::ticks() < end
        });
        match outcome {
            Outcome::Ready => {
                start.traits.get().expect("a processor that is ready has said what it is").note();
                ARRIVED.store(number as u32 + 1, Ordering::Relaxed);
            }
            // It has printed why.
            Outcome::Refused => {}
            Outcome::Absent => {
                say!("mayfly: CPU {affinity:#x} is not used: it has not come in {PATIENCE} s");
            }
            Outcome::Stuck => {
                // Its number is its own still.
                say!("mayfly: CPU {affinity:#x} stopped as it came up: no other is started");
                return;
            }
        }
    }
}

/// What a processor other than the first does first in Rust.
pub(super) extern "C" fn secondary(start: &'static Start) -> ! {
    let arrive = || match this_cpu::arrive(start.number) {
        Ok(traits) => {
            start.traits.set(traits);
            true
        }
        Err(why) => {
            say!("mayfly: CPU {:#x} is not used: {why}", cpu::affinity());
            false
        }
    };
    come_up(&start.arrival, arrive, prepare, stop)
}

fn stop() -> ! {
    loop {
        spin::wait_for_interrupt();
    }
}
