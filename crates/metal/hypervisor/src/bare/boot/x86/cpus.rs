//! The other processors: started one after the other, and then all at once.
//!
//! A processor that comes up turns SVM on, says what it has of it, and waits. The first one looks at that. When all have come,
//! or were given up, each prepares the rest, and is up. A processor that was given up, or that was stuck and goes on later, has
//! changed nothing that others use, and stops.

use alloc::boxed::Box;
use core::ptr::{addr_of, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicPtr, Ordering};

use mayfly_hypervisor::arrival::{Arrival, Outcome};
use mayfly_x86::bare::{apic, cpu, spin, timer};
use mayfly_x86::svm::features::Features;

use super::map;
use crate::bare::boot::arriving::{ARRIVED, come_up, is_up};
use crate::bare::processor::this_cpu;
use crate::bare::threads;
use crate::bare::threads::console::say;

core::arch::global_asm!(include_str!("second.S"), options(att_syntax));

/// How long a processor may take to come up, in seconds: an emulator on a busy machine takes some.
const PATIENCE: u64 = 10;
/// How long it is left alone behind its reset, and between two start-ups, in microseconds.
const RESETS: u64 = 10_000;
const AGAIN: u64 = 1_000;

/// The page at which a processor starts, in real mode, as `second.S` has it.
const PAGE: u8 = 0x8;

/// What a processor other than the first begins with. `second.S` reads the first two words.
#[repr(C)]
struct Start {
    stack: u64,
    table: u64,
    number: usize,
    features: Features,
    arrival: Arrival,
}

/// That of the processor which is being started.
#[unsafe(export_name = "x86_start")]
static START: AtomicPtr<Start> = AtomicPtr::new(core::ptr::null_mut());

unsafe extern "C" {
    static x86_trampoline: u8;
    static x86_trampoline_end: u8;
}

/// Puts the first instructions of the other processors where these start.
///
/// # Safety
///
/// That page is mapped, and nothing else uses it.
pub(super) unsafe fn place() {
    let (start, end) = (addr_of!(x86_trampoline), addr_of!(x86_trampoline_end));
    let to = with_exposed_provenance_mut::<u8>(usize::from(PAGE) << 12);
    // SAFETY: the caller's promise; the code fits into a page.
    unsafe { to.copy_from_nonoverlapping(start, end.addr() - start.addr()) }
}

/// Prepares the rest of this processor, when it is known what all can do, and counts it as up.
pub(super) fn prepare() {
    apic::interrupt_by_timer();
    is_up();
}

/// Starts those whose APICs have these IDs, one after the other: those that come are numbered without a gap. There are `most`
/// at most, this one included. Each is to have these features of SVM.
pub(super) fn start_others(ids: &[u32], most: u32, table: u64, features: Features) {
    let here = cpu::apic_id();
    let others = ids.iter().copied().filter(|id| *id != here);
    for (place, id) in others.clone().enumerate() {
        let number = ARRIVED.load(Ordering::Relaxed);
        let left = others.clone().count() - place;
        if number >= most {
            say!("mayfly: {left} CPUs are not used: guests can run on {most} at most");
            return;
        }
        if id > u32::from(u8::MAX) {
            say!("mayfly: CPU {id:#x} is not used: its APIC's ID has more than 8 bits");
            continue;
        }
        let Some(stack) = threads::Stack::of_system() else {
            say!("mayfly: there is no memory to start CPU {id:#x}");
            return;
        };
        let stack = stack.top();
        let (number, arrival) = (number as usize, Arrival::new());
        let start = Box::leak(Box::new(Start { stack, table, number, features, arrival }));
        START.store(start, Ordering::Release);
        match come(start, id) {
            Outcome::Ready => ARRIVED.store(number as u32 + 1, Ordering::Relaxed),
            // It has printed why.
            Outcome::Refused => {}
            Outcome::Absent => {
                // It would begin as the next one, if it came then.
                say!("mayfly: CPU {id:#x} has not come in {PATIENCE} s: no other is started");
                return;
            }
            Outcome::Stuck => {
                // Its number is its own still.
                say!("mayfly: CPU {id:#x} stopped as it came up: no other is started");
                return;
            }
        }
    }
}

/// Has a processor come.
fn come(start: &Start, id: u32) -> Outcome {
    let after = |microseconds| timer::ticks() + timer::frequency() * microseconds / 1_000_000;
    let until = |end| {
        while timer::ticks() < end {
            spin::relax();
        }
    };
    apic::reset(id);
    until(after(RESETS));
    // Some need two; those that have started ignore the other.
    apic::start(id, PAGE);
    until(after(AGAIN));
    apic::start(id, PAGE);
    let end = after(PATIENCE * 1_000_000);
    start.arrival.wait(|| {
        spin::relax();
        timer::ticks() < end
    })
}

/// What a processor other than the first does first in Rust: from `second.S`.
#[unsafe(no_mangle)]
extern "C" fn x86_second(start: &'static Start) -> ! {
    let arrive = || {
        // SAFETY: the tables map all that it uses, and no-execute is on. The number is its own.
        unsafe {
            map::use_tables(start.table);
            this_cpu::begin(start.number);
        }
        match this_cpu::arrive() {
            Ok(features) if features == start.features => true,
            Ok(features) => {
                say!("mayfly: CPU {:#x} is not used: it has {features}", cpu::apic_id());
                false
            }
            Err(why) => {
                say!("mayfly: CPU {:#x} is not used: {why}", cpu::apic_id());
                false
            }
        }
    };
    come_up(&start.arrival, arrive, prepare, stop)
}

fn stop() -> ! {
    loop {
        x86_64::instructions::interrupts::disable();
        x86_64::instructions::hlt();
    }
}
