//! Frames that pages of several memories share, and how many have each.
//!
//! A *shelf* is a chunk: 16 frames side by side. The first has a number for each of the others, and 15 of them can be shared. So
//! whoever has a frame finds its number, without a lock and without memory for it.
//!
//! A number counts the references to its frame, one of each page that has it and one of the merger. The number of the
//! shelf itself counts the frames that have any, and one for the merger as long as it puts frames there. Whoever takes the last
//! one frees the shelf: that may be a VM that ends long after the merger has given it up.
//!
//! *Order.* A reference is given up after no CPU of the VM uses the frame: after [`Vm::copy_on_write`], or when the VM has no
//! tables any more. Threads of the hypervisor may just be reading it, so the last one waits for [their
//! moments](crate::bare::processor::in_use) before the frame may be another's. Only the merger puts frames on a shelf, and it has
//! a reference itself where it gives one to a page.
//!
//! [`Vm::copy_on_write`]: mayfly_vm::Vm::copy_on_write

use core::ptr::with_exposed_provenance;
use core::sync::atomic::{AtomicU32, Ordering};

use mayfly_hypervisor::chunks::{CHUNK, CHUNK_ORDER};
use mayfly_vm::platform::address::{PAGE_SHIFT, Pfn};

use super::super::platform::World;
use crate::bare::processor::frames::free;
use crate::bare::processor::in_use;

/// A frame that nobody has.
const NONE: u32 = 0;
/// A frame whose last reference is gone, and which somebody may be reading. Each reference counts from here.
const LEAVING: u32 = 1;

/// How often one reference was left to a frame: that of the merger, if it has one.
static LEFT: AtomicU32 = AtomicU32::new(0);

/// Where numbers begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shelf(u64);

impl Shelf {
    /// An empty one, of the share of `world`, which is guaranteed a chunk more for it. None, if it cannot be.
    pub(crate) fn try_new(world: &World) -> Option<Self> {
        let share = world.share()?;
        // Never borrowed: what is shared is not taken away from those who share it.
        let first = if share.allow(1) { world.frames(CHUNK_ORDER as u32) } else { None };
        let shelf = Self(first?.get());
        shelf.frames().store(1, Ordering::Relaxed);
        Some(shelf)
    }

    /// That of a frame.
    fn of(frame: Pfn) -> Self {
        Self(frame.get() / CHUNK * CHUNK)
    }

    fn number(self, at: u64) -> &'static AtomicU32 {
        let numbers = with_exposed_provenance::<AtomicU32>((self.0 << PAGE_SHIFT) as usize);
        // SAFETY: the first frame of the chunk has zeroes and what was stored here, and is there as long as the shelf is: the
        // caller has a reference to it, or to a frame of it.
        unsafe { &*numbers.add(at as usize) }
    }

    fn frames(self) -> &'static AtomicU32 {
        self.number(0)
    }

    /// A frame with a reference for the merger, to be written before others have it; none, if it is full.
    pub(crate) fn take(self) -> Option<Pfn> {
        let at = (1..CHUNK).find(|&at| self.number(at).load(Ordering::Acquire) == NONE)?;
        self.number(at).store(LEAVING + 1, Ordering::Relaxed);
        self.frames().fetch_add(1, Ordering::Relaxed);
        Some(Pfn::new(self.0 + at))
    }

    /// Whether no frame of it has a reference.
    pub(crate) fn is_empty(self) -> bool {
        self.frames().load(Ordering::Acquire) == 1
    }

    /// The merger puts nothing there any more.
    pub(crate) fn give_up(self) {
        if self.frames().fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: it was given for that order, and nobody has a frame of it.
            unsafe { free(Pfn::new(self.0), CHUNK_ORDER as u32) };
        }
    }
}

/// How many references there are to a frame of a shelf, of which the caller has one.
pub(crate) fn references(frame: Pfn) -> u64 {
    u64::from(number_of(frame).load(Ordering::Relaxed) - LEAVING)
}

/// How many frames the merger alone may have, that it has not [looked](all_seen) for.
pub(crate) fn left() -> u64 {
    LEFT.load(Ordering::Relaxed).into()
}

/// The merger is about to look for the frames that it alone has.
pub(crate) fn all_seen() {
    // An acquire, which pairs with the release in `put`: what is not counted from here on is seen. And nothing is looked at before.
    LEFT.swap(0, Ordering::AcqRel);
}

/// One more.
pub(super) fn get(frame: Pfn) {
    number_of(frame).fetch_add(1, Ordering::Relaxed);
}

/// Gives up a reference. The caller uses no frame as of [`in_use::begin`].
pub(crate) fn put(frame: Pfn) {
    // Release, and acquire of the last: what was read of it, was read before.
    match number_of(frame).fetch_sub(1, Ordering::AcqRel) - LEAVING {
        1 => {
            in_use::wait_for_others();
            number_of(frame).store(NONE, Ordering::Release);
            Shelf::of(frame).give_up();
        }
        2 => {
            LEFT.fetch_add(1, Ordering::Release);
        }
        _ => {}
    }
}

fn number_of(frame: Pfn) -> &'static AtomicU32 {
    let shelf = Shelf::of(frame);
    shelf.number(frame.get() - shelf.0)
}
