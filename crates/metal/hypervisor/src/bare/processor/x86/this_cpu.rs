//! A processor's own part of the machine: its block, its APIC, and what other processors want of it.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU32, Ordering};

use mayfly_x86::bare::cpu::{self, Block};
use mayfly_x86::bare::{apic, svm, traps};
use mayfly_x86::svm::features::Features;

use super::tlb;
pub(crate) use super::tlb::{enters, has_not_flushed, invalidate, invalidate_own, leaves};
use crate::bare::processor::cpus::MAX;

/// The ID of each processor's APIC.
static APIC_IDS: [AtomicU32; MAX] = [const { AtomicU32::new(0) }; MAX];

/// Bits of an ASID, which is a VMID here: as many whole bits as there are ASIDs, and 16 at most.
pub(crate) fn asid_bits(features: Features) -> u32 {
    features.asids().ilog2().min(16)
}

/// The most processors that run guests, where they have these features: each has an ASID, and one is the host's.
pub(crate) fn most_cpus(features: Features) -> u32 {
    (MAX as u32).min((1 << asid_bits(features)) - 1)
}

/// Interrupts processor `number`: it looks for new work.
pub(crate) fn kick(number: usize) {
    apic::kick(apic_id(number));
}

/// The ID of the APIC of processor `number`.
pub(crate) fn apic_id(number: usize) -> u32 {
    APIC_IDS[number].load(Ordering::Relaxed)
}

/// Does what other processors want of this one.
#[inline]
pub(crate) fn serve_others() {
    tlb::look();
}

/// Gives this processor its number, and takes its exceptions.
///
/// # Safety
///
/// No other has that number, and nothing has asked for it yet.
pub(crate) unsafe fn begin(number: usize) {
    // SAFETY: the block is this processor's, and stays.
    unsafe { cpu::adopt(Box::leak(Box::new(Block::new(number)))) };
    traps::prepare();
}

/// Turns SVM on, and the local APIC, whose interrupts are masked. Returns what the processor has of SVM.
///
/// # Errors
///
/// What it lacks.
pub(crate) fn arrive() -> Result<Features, svm::Lacking> {
    let features = svm::features()?;
    svm::enable(features)?;
    APIC_IDS[cpu::number()].store(cpu::apic_id(), Ordering::Relaxed);
    apic::enable();
    Ok(features)
}
