//! The stacks of threads, and of the processors but the first. A stack is seen at addresses beyond those of memory: in a
//! *slot*, whose lower half is never mapped. A thread that overflows its stack comes there, and no other memory is lost.
//!
//! Memory is mapped one to one in large blocks, which no stack splits. The tables of the slots are made once, as many as
//! there can be stacks in the machine's memory ([`needs::threads_within`]): they take 0.3 % of it, and 25 MiB at most. So a
//! stack costs the writing of its entries, and at its end an invalidation of them.

use alloc::vec::Vec;
use core::arch::asm;
use core::ptr::with_exposed_provenance;
use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_arm64::tlb;
use mayfly_hypervisor::account::ShareId;
use mayfly_hypervisor::needs;
use mayfly_vm::platform::address::{PAGE_SIZE, Pfn};

use crate::bare::processor::once::Once;
use crate::bare::processor::spin::SpinLock;
use crate::bare::processor::{cpus, frames};

/// A stack is `1 << STACK_ORDER` frames: 32 KiB.
pub(crate) const STACK_ORDER: u32 = 3;
const STACK_PAGES: u64 = 1 << STACK_ORDER;

/// Where the addresses of stacks begin: in the last 512 GiB of those that EL2 has.
pub(crate) const STACKS_AT: u64 = (1 << 48) - (1 << 39);
/// Addresses of a slot.
const SLOT: u64 = 2 * STACK_PAGES * PAGE_SIZE;

/// Entries of a table.
const ENTRIES: usize = 512;
/// Slots that one table maps.
const SLOTS: usize = ENTRIES / (2 * STACK_PAGES) as usize;

/// An entry that names a table.
const TABLE: u64 = 3;
/// An entry of a page: valid, RES1, inner shareable, accessed, and never executed. The index of its attributes is 0, as
/// where memory is mapped one to one.
const PAGE: u64 = 3 | 1 << 6 | 3 << 8 | 1 << 10 | 1 << 54;

/// The stacks of processors, and of the hypervisor's own threads: the monitor, the worker, the reclaimer, and more than
/// enough others.
const OWN: usize = cpus::MAX + 64;

type Table = [AtomicU64; ENTRIES];

/// The tables of the slots.
static TABLES: Once<Vec<&'static Table>> = Once::new();
/// The number behind that of a slot which is free; 0 if none is. Its first entry says the same of the next: twice that
/// number, which is no valid entry.
static FREE: SpinLock<u32> = SpinLock::new(0);

/// A stack.
pub(crate) struct Stack {
    frames: Pfn,
    slot: u32,
}

impl Stack {
    /// One for the hypervisor itself.
    pub(crate) fn of_system() -> Option<Self> {
        Self::try_new(ShareId::SYSTEM)
    }

    /// One whose frames are of a share of the machine. What is in them is not cleared: no guest has them, and nothing on a
    /// stack is read that was not written there.
    pub(crate) fn try_new(share: ShareId) -> Option<Self> {
        let frames = frames::allocate_as_is(share, STACK_ORDER)?;
        let Some(slot) = take_slot() else {
            // SAFETY: they were given just now.
            unsafe { frames::free(frames, STACK_ORDER) };
            return None;
        };
        for (entry, frame) in entries(slot).iter().zip(frames.get()..) {
            entry.store((frame * PAGE_SIZE) | PAGE, Ordering::Relaxed);
        }
        // SAFETY: entries that were not valid are seen by walks.
        unsafe { asm!("dsb ishst", "isb", options(nostack)) };
        Some(Self { frames, slot })
    }

    /// The address behind its last byte.
    pub(crate) fn top(&self) -> u64 {
        STACKS_AT + (u64::from(self.slot) + 1) * SLOT
    }

    /// Frees it.
    ///
    /// # Safety
    ///
    /// No processor is on it, and no thread goes on on it.
    pub(crate) unsafe fn free(self) {
        for entry in entries(self.slot) {
            entry.store(0, Ordering::Relaxed);
        }
        tlb::invalidate_own(self.top() - STACK_PAGES * PAGE_SIZE, STACK_PAGES);
        put_slot(self.slot);
        // SAFETY: the caller's promise; nothing maps them but memory as a whole.
        unsafe { frames::free(self.frames, STACK_ORDER) };
    }
}

fn take_slot() -> Option<u32> {
    let mut free = FREE.lock();
    let slot = free.checked_sub(1)?;
    *free = (entries(slot)[0].load(Ordering::Relaxed) >> 1) as u32;
    Some(slot)
}

/// A slot is free, of whose entries none is valid.
fn put_slot(slot: u32) {
    let mut free = FREE.lock();
    entries(slot)[0].store(u64::from(*free) << 1, Ordering::Relaxed);
    *free = slot + 1;
}

/// The entries of the upper half of a slot.
fn entries(slot: u32) -> &'static [AtomicU64] {
    let (table, place) = (slot as usize / SLOTS, slot as usize % SLOTS);
    let tables = TABLES.get().expect("stacks are prepared");
    let pages = STACK_PAGES as usize;
    &tables[table][(2 * place + 1) * pages..][..pages]
}

/// Whether an address is in the lower half of a slot, which is what a thread accesses that overflows its stack.
pub(crate) fn is_below_stack(address: u64) -> bool {
    let slots = TABLES.get().map_or(0, |tables| tables.len() * SLOTS) as u64;
    (STACKS_AT..STACKS_AT + slots * SLOT).contains(&address) && address % SLOT < SLOT / 2
}

/// Makes the tables of the slots, in EL2's tables, whose root is at `root`. Once.
///
/// # Errors
///
/// When there is too little memory, or a device is at these addresses.
pub(crate) fn prepare_stacks(root: u64) -> Result<(), &'static str> {
    const NO_MEMORY: &str = "there is too little memory for tables of stacks";
    let stacks = OWN + needs::threads_within(frames::count_free()) as usize;
    let count = stacks.div_ceil(SLOTS);
    let make = || frames::allocate(ShareId::SYSTEM, 0, || {}).map(|frame| frame.get() * PAGE_SIZE);
    let upper = make().ok_or(NO_MEMORY)?;
    let mut tables = Vec::new();
    for entry in at(upper) {
        let rest = ENTRIES.min(count - tables.len());
        if rest == 0 {
            break;
        }
        let middle = make().ok_or(NO_MEMORY)?;
        entry.store(middle | TABLE, Ordering::Relaxed);
        for entry in &at(middle)[..rest] {
            let table = make().ok_or(NO_MEMORY)?;
            entry.store(table | TABLE, Ordering::Relaxed);
            tables.push(at(table));
        }
    }
    let entry = &at(root)[(STACKS_AT >> 39) as usize];
    if entry.load(Ordering::Relaxed) != 0 {
        return Err("a device is at the addresses of stacks");
    }
    entry.store(upper | TABLE, Ordering::Relaxed);
    let slots = (tables.len() * SLOTS) as u32;
    TABLES.set(tables);
    // Lower ones are taken first.
    (0..slots).rev().for_each(put_slot);
    Ok(())
}

fn at(address: u64) -> &'static Table {
    // SAFETY: a table of EL2's, which is mapped, and stays.
    unsafe { &*with_exposed_provenance::<Table>(address as usize) }
}
