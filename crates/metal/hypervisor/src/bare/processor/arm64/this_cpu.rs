//! A processor's own part of the machine: its affinity, its redistributor, and what other processors want of it.

use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_arm64::gic::Redistributor;
use mayfly_arm64::processor::Processor;
use mayfly_arm64::virtual_gic::Shape;
use mayfly_arm64::{common, context, cpu, gic, switch, timer, tlb};
use mayfly_vm::platform::tlb::Vmid;
use mayfly_vm::platform::vacate::{Asked, ask_all};

pub(crate) use super::pl011::use_at as use_serial_port;
use super::shared;
use crate::bare::processor::cpus::{self, MAX};
use crate::bare::processor::once::Once;

/// The affinity of each processor.
static AFFINITIES: [AtomicU64; MAX] = [const { AtomicU64::new(0) }; MAX];
static REDISTRIBUTORS: [Once<Redistributor>; MAX] = [const { Once::new() }; MAX];

/// Interrupts processor `number`: it looks for new work.
pub(crate) fn kick(number: usize) {
    gic::kick(affinity(number));
}

/// The affinity of processor `number`.
pub(crate) fn affinity(number: usize) -> u64 {
    AFFINITIES[number].load(Ordering::Relaxed)
}

/// This processor's redistributor.
pub(crate) fn redistributor() -> Option<Redistributor> {
    REDISTRIBUTORS[cpu::number()].get().copied()
}

/// What processors ask of each other ([`vacate`](mayfly_vm::platform::vacate)).
static ASKED: [Asked; MAX] = [const { Asked::new() }; MAX];

/// Makes this processor name no root under `vmid` ([`Tlb::vacate`](mayfly_vm::platform::tlb::Tlb::vacate)).
pub(crate) fn vacate_here(vmid: Vmid) {
    if tlb::walks_out_of_guests() {
        shared::get().empty.replace(vmid);
    }
}

/// Makes each of `numbers` name none ([`Tlb::vacate_all`](mayfly_vm::platform::tlb::Tlb::vacate_all)).
///
/// Each processor does so when it next looks for interrupts. That takes a bounded time, because code that spins at EL2 with
/// interrupts masked waits for no thread; and a caller that waits here goes on serving such requests itself.
pub(crate) fn vacate_all(numbers: &mut dyn Iterator<Item = u32>, vmid: Vmid) {
    if !tlb::walks_out_of_guests() {
        return;
    }
    let interrupt = |number| {
        if number as usize != cpu::number() {
            kick(number as usize);
        }
    };
    let meanwhile = || {
        serve_others();
        mayfly_arm64::spin::relax();
    };
    ask_all(&ASKED[..cpus::count() as usize], numbers, vmid, interrupt, meanwhile);
}

/// Does what other processors want of this one.
pub(crate) fn serve_others() {
    ASKED[cpu::number()].heed(|vmid| shared::get().empty.replace(vmid));
}

/// What a processor says of itself when it has come. The first processor takes account of it.
pub(crate) struct Traits {
    processor: Processor,
    shape: Shape,
}

impl Traits {
    /// They are those of the first processor.
    pub(crate) fn note_first(&self) {
        common::note(true, &self.processor);
        shared::note_shape(self.shape);
    }

    /// They are those of another one.
    pub(crate) fn note(&self) {
        common::note(false, &self.processor);
        shared::note_shape(self.shape);
    }
}

/// This processor has come, and its number is `number`: it takes interrupts, which are masked. What other processors use
/// is not changed.
///
/// # Errors
///
/// What the processor has not.
pub(crate) fn arrive(number: usize) -> Result<Traits, &'static str> {
    // SAFETY: each processor has a number of its own, given before anything else.
    unsafe {
        cpu::set_number(number);
        switch::set_vectors();
    }
    if cpu::keeps_host_layout() {
        return Err("its HCR_EL2.E2H cannot be cleared");
    }
    let affinity = cpu::affinity();
    let redistributor = shared::gic().redistributor(affinity).ok_or("it has no redistributor")?;
    redistributor.prepare().map_err(|_| "it has no system registers for interrupts")?;
    let traits = Traits { processor: common::read(), shape: Shape::read() };
    if !shared::fits(traits.shape) {
        return Err("its virtual interrupt controller has other priorities than the first CPU's");
    }
    AFFINITIES[number].store(affinity, Ordering::Relaxed);
    REDISTRIBUTORS[number].set(redistributor);
    Ok(traits)
}

/// Prepares it to run guests, when it is known what they are confined by.
pub(crate) fn confine() {
    let shared = shared::get();
    // SAFETY: at EL2, whose E2H the first instructions cleared; the format is the same on all processors; no guest has
    // run here.
    unsafe {
        cpu::prepare(shared.vtcr);
        timer::stop_guests();
    }
    context::clear_debug();
    shared.empty.load();
    shared.interface.clear();
}
