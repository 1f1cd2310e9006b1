//! The stacks of threads, and of the processors but the first. A stack is seen at addresses beyond those of memory: in a
//! *slot*, whose lower half is never mapped. A thread that overflows its stack comes there, and no other memory is lost.
//!
//! Memory is mapped one to one in large blocks, which no stack splits. The tables of the slots are made once, as many as
//! there can be stacks in the machine's memory ([`needs::threads_within`]): they take 0.5 % of it, and 25 MiB at most. So a
//! stack costs the writing of its entries, and at its end an invalidation of them. Its frames lie anywhere.
//!
//! Threads of VMs have less than the hypervisor's own ([`Depth`]): there are many of them, and what they call is known.

use alloc::vec::Vec;
use core::ptr::with_exposed_provenance;
use core::slice;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mayfly_hypervisor::account::ShareId;
use mayfly_hypervisor::needs;
use mayfly_vm::platform::address::{PAGE_SIZE, Pfn};

use super::arch::paging::{self, PAGE, STACKS_AT, TABLE};
use crate::bare::processor::once::Once;
use crate::bare::processor::spin::SpinLock;
use crate::bare::processor::{cpus, frames, zero};

/// The most frames of a stack: 32 KiB.
const MOST_PAGES: usize = 8;

/// How deep the stack of a thread is.
#[derive(Clone, Copy)]
pub(crate) enum Depth {
    /// That of a vCPU.
    Vcpu,
    /// That of a run, which is that of its devices.
    Run,
    /// One of the hypervisor's own.
    Own,
}

impl Depth {
    /// Its frames.
    const fn pages(self) -> usize {
        match self {
            Self::Vcpu => needs::VCPU_STACK_FRAMES as usize,
            Self::Run => needs::RUN_STACK_FRAMES as usize,
            Self::Own => MOST_PAGES,
        }
    }

    /// Its bytes.
    pub(crate) const fn bytes(self) -> u64 {
        self.pages() as u64 * PAGE_SIZE
    }

    /// The most bytes that were written on such a stack which has ended, since stacks are [measured](measure_stacks).
    pub(crate) fn deepest(self) -> u64 {
        DEEPEST[self as usize].load(Ordering::Relaxed)
    }
}

/// Stacks begin as zeroes, and are looked through at their end. Only in tests: it takes some thousand instructions.
static IS_MEASURED: AtomicBool = AtomicBool::new(false);
static DEEPEST: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// From now on measures how deep stacks become that begin and end. Returns whether it did before.
pub(crate) fn measure_stacks() -> bool {
    IS_MEASURED.swap(true, Ordering::Relaxed)
}

/// Addresses of a slot.
const SLOT: u64 = 2 * MOST_PAGES as u64 * PAGE_SIZE;

/// Entries of a table.
const ENTRIES: usize = 512;
/// Slots that one table maps.
const SLOTS: usize = ENTRIES / (2 * MOST_PAGES);

/// The frame's address in an entry.
const ADDRESS: u64 = (1 << 48) - PAGE_SIZE;

/// The stacks of processors, and of the hypervisor's own threads: the monitor, the worker, the reclaimer, and more than
/// enough others.
const OWN: usize = cpus::MAX + 64;

type Table = [AtomicU64; ENTRIES];

/// The tables of the slots.
static TABLES: Once<Vec<&'static Table>> = Once::new();
/// The number behind that of a slot which is free; 0 if none is. Its last entry says the same of the next: twice that
/// number, which is no valid entry.
static FREE: SpinLock<u32> = SpinLock::new(0);

/// A stack, of which the entries of its slot say which frames it has.
pub(crate) struct Stack {
    slot: u32,
    depth: Depth,
    is_measured: bool,
}

impl Stack {
    /// One for the hypervisor itself.
    pub(crate) fn of_system() -> Option<Self> {
        Self::try_new(ShareId::SYSTEM, Depth::Own)
    }

    /// One whose frames are of a share of the machine. What is in them is not cleared: no guest has them, and nothing on a
    /// stack is read that was not written there.
    pub(crate) fn try_new(share: ShareId, depth: Depth) -> Option<Self> {
        let mut room = [0; MOST_PAGES];
        let frames = &mut room[..depth.pages()];
        if !frames::allocate_all_as_is(share, frames) {
            return None;
        }
        let Some(slot) = take_slot() else {
            // SAFETY: they were given just now.
            unsafe { frames::free_all(frames) };
            return None;
        };
        let is_measured = IS_MEASURED.load(Ordering::Relaxed);
        for (entry, frame) in entries(slot, frames.len()).iter().zip(&*frames) {
            if is_measured {
                // SAFETY: it is the caller's alone, and mapped.
                unsafe { zero::frames(Pfn::new(*frame), 1) };
            }
            entry.store((frame * PAGE_SIZE) | PAGE, Ordering::Relaxed);
        }
        paging::are_written();
        Some(Self { slot, depth, is_measured })
    }

    /// The address behind its last byte.
    pub(crate) fn top(&self) -> u64 {
        STACKS_AT + (u64::from(self.slot) + 1) * SLOT
    }

    /// How many bytes of it are behind the first that is not zero.
    fn written(&self) -> u64 {
        let bottom = (self.top() - self.depth.bytes()) as usize;
        // SAFETY: it is mapped, and no thread is on it.
        let words = unsafe {
            slice::from_raw_parts(
                with_exposed_provenance::<u64>(bottom),
                self.depth.pages() * ENTRIES,
            )
        };
        (words.len() - words.iter().take_while(|word| **word == 0).count()) as u64
            * size_of::<u64>() as u64
    }

    /// Frees it.
    ///
    /// # Safety
    ///
    /// No processor is on it, and no thread goes on on it.
    pub(crate) unsafe fn free(self) {
        let pages = self.depth.pages();
        if self.is_measured {
            DEEPEST[self.depth as usize].fetch_max(self.written(), Ordering::Relaxed);
        }
        let mut frames = [0; MOST_PAGES];
        for (entry, frame) in entries(self.slot, pages).iter().zip(&mut frames) {
            *frame = (entry.swap(0, Ordering::Relaxed) & ADDRESS) / PAGE_SIZE;
        }
        paging::invalidate(self.top() - pages as u64 * PAGE_SIZE, pages as u64);
        put_slot(self.slot);
        // SAFETY: the caller's promise; nothing maps them but memory as a whole.
        unsafe { frames::free_all(&frames[..pages]) };
    }
}

fn take_slot() -> Option<u32> {
    let mut free = FREE.lock();
    let slot = free.checked_sub(1)?;
    *free = (next_free(slot).load(Ordering::Relaxed) >> 1) as u32;
    Some(slot)
}

/// A slot is free, of whose entries none is valid.
fn put_slot(slot: u32) {
    let mut free = FREE.lock();
    next_free(slot).store(u64::from(*free) << 1, Ordering::Relaxed);
    *free = slot + 1;
}

/// The entries of the last `pages` of a slot.
fn entries(slot: u32, pages: usize) -> &'static [AtomicU64] {
    let (table, place) = (slot as usize / SLOTS, slot as usize % SLOTS);
    let tables = TABLES.get().expect("stacks are prepared");
    &tables[table][2 * MOST_PAGES * (place + 1) - pages..][..pages]
}

/// The entry of a free slot that says which is the next: its last, which each stack has.
fn next_free(slot: u32) -> &'static AtomicU64 {
    &entries(slot, 1)[0]
}

/// Whether an address is in a slot: one that is not mapped is what a thread accesses that overflows its stack.
pub(crate) fn is_in_slot(address: u64) -> bool {
    let slots = TABLES.get().map_or(0, |tables| tables.len() * SLOTS) as u64;
    (STACKS_AT..STACKS_AT + slots * SLOT).contains(&address)
}

/// Makes the tables of the slots, in the program's own tables, whose root is at `root`. Once.
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
    // SAFETY: a table of the program's own, which is mapped, and stays.
    unsafe { &*with_exposed_provenance::<Table>(address as usize) }
}
