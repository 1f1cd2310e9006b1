//! The formats: encodings against values worked out from the manuals, and what holds in all of them.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

mod arm;
mod arm_choice;
mod arm_registers;
mod break_before_make;
mod ept;
mod npt;
mod riscv;
mod round_trip;
mod shape;

use mayfly_platform::address::Pfn;
use mayfly_stage2::{Entry, Format, Leaf, Level, MemoryType, Permissions};

const READ: Permissions = Permissions::READ;
const READ_WRITE: Permissions = Permissions::READ.union(Permissions::WRITE);
const READ_EXECUTE: Permissions = Permissions::READ.union(Permissions::EXECUTE);
const ALL: Permissions = Permissions::all();

/// A leaf's bits, written out: frame, permissions, memory, accessed, dirty.
fn bits<F: Format>(
    level: Level,
    pfn: u64,
    permissions: Permissions,
    memory: MemoryType,
    accessed: bool,
    dirty: bool,
) -> u64 {
    let pfn = Pfn::new(pfn);
    let leaf = Leaf { pfn, permissions, memory, accessed, dirty, written: false };
    Entry::<F>::leaf(level, &leaf).bits()
}

/// The bits of the table in a frame.
fn table<F: Format>(pfn: u64) -> u64 {
    Entry::<F>::table(Pfn::new(pfn)).bits()
}
