//! A processor's own part of the machine: its affinity, its redistributor, and what other processors want of it.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use mayfly_arm64::gic::Redistributor;
use mayfly_arm64::processor::Processor;
use mayfly_arm64::virtual_gic::Shape;
use mayfly_arm64::{common, context, cpu, gic, switch, timer, tlb};
use mayfly_vm::platform::tlb::Vmid;

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

/// A VMID that a processor is to stop naming, plus 1; 0 for none. The caller of [`vacate`] sets it, the processor
/// clears it.
static VACATES: [AtomicU32; MAX] = [const { AtomicU32::new(0) }; MAX];

/// Makes a processor name no root under `vmid` ([`Tlb::vacate`](mayfly_vm::platform::tlb::Tlb::vacate)).
///
/// The other processor does so when it next looks for interrupts. That takes a bounded time, because code that spins at
/// EL2 with interrupts masked waits for no thread; and a caller that waits here goes on serving such requests itself.
pub(crate) fn vacate(number: usize, vmid: Vmid) {
    if !tlb::walks_out_of_guests() || number >= cpus::count() as usize {
        return;
    }
    if number == cpu::number() {
        return shared::get().empty.replace(vmid);
    }
    let wanted = u32::from(vmid.0) + 1;
    let word = &VACATES[number];
    // Release: the processor that takes it sees what was written before.
    while word.compare_exchange(0, wanted, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        serve_others();
        mayfly_arm64::spin::relax();
    }
    kick(number);
    while word.load(Ordering::Acquire) == wanted {
        serve_others();
        mayfly_arm64::spin::relax();
    }
}

/// Does what other processors want of this one.
pub(crate) fn serve_others() {
    let word = &VACATES[cpu::number()];
    let wanted = word.load(Ordering::Acquire);
    if let Some(vmid) = wanted.checked_sub(1) {
        shared::get().empty.replace(Vmid(vmid as u16));
        word.store(0, Ordering::Release);
    }
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
