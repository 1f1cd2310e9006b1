//! Caches, as [`Cache`] asks for them: memory is mapped one to one, so that a frame is where its number says.

use core::arch::asm;

use mayfly_vm::platform::address::{PAGE_SIZE, Pfn};
use mayfly_vm::platform::cache::{Cache, CacheCapabilities, InstructionCaches};

/// The caches of all processors, which are of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caches;

fn ctr() -> u64 {
    crate::read_register!("ctr_el0")
}

/// The smallest line of data caches, in bytes.
fn data_line() -> u64 {
    4 << (ctr() >> 16 & 15)
}

fn instruction_line() -> u64 {
    4 << (ctr() & 15)
}

fn lines(first: Pfn, count: u64, line: u64) -> impl Iterator<Item = u64> {
    let start = first.get() * PAGE_SIZE;
    (0..count * PAGE_SIZE / line).map(move |number| start + number * line)
}

/// Cleans what is at these addresses to the point of coherency, for a processor that has its caches off.
pub fn clean_bytes(start: u64, bytes: u64) {
    let line = data_line();
    let first = start & !(line - 1);
    for at in (first..start + bytes).step_by(line as usize) {
        // SAFETY: writes back what is mapped there; nothing is dropped.
        unsafe { asm!("dc cvac, {}", in(reg) at, options(nostack)) };
    }
    // SAFETY: a barrier.
    unsafe { asm!("dsb sy", options(nostack)) };
}

impl Cache for Caches {
    fn capabilities(&self) -> CacheCapabilities {
        let ctr = ctr();
        let instructions = match (ctr >> 29 & 1, ctr >> 14 & 3) {
            (1, _) => InstructionCaches::Coherent,
            (_, 3) => InstructionCaches::Physical,
            _ => InstructionCaches::Virtual,
        };
        // HFGWTR_EL2 is not used.
        CacheCapabilities { instructions, fgt: false }
    }

    fn clean(&self, first: Pfn, count: u64) {
        clean_bytes(first.get() * PAGE_SIZE, count * PAGE_SIZE);
    }

    fn clean_invalidate(&self, first: Pfn, count: u64) {
        for at in lines(first, count, data_line()) {
            // SAFETY: writes back what is mapped there, so nothing is lost by dropping it.
            unsafe { asm!("dc civac, {}", in(reg) at, options(nostack)) };
        }
        // SAFETY: a barrier.
        unsafe { asm!("dsb sy", options(nostack)) };
    }

    fn invalidate_instructions(&self, first: Pfn, count: u64) {
        for at in lines(first, count, instruction_line()) {
            // SAFETY: instructions are fetched again.
            unsafe { asm!("ic ivau, {}", in(reg) at, options(nostack)) };
        }
        // SAFETY: barriers.
        unsafe { asm!("dsb ish", "isb", options(nostack)) };
    }

    fn invalidate_all_instructions(&self) {
        // SAFETY: instructions are fetched again.
        unsafe { asm!("ic ialluis", "dsb ish", "isb", options(nostack)) };
    }
}
