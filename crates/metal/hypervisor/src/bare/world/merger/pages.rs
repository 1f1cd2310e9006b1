//! The pages of the VMs that have joined, as [`mayfly_merge`] sees them. A page's number says whose it is.

use alloc::sync::Arc;

use mayfly_merge::{Group, Host, Looked, Merged, Sums};
use mayfly_vm::platform::address::Pfn;

use super::group::Groups;
use crate::bare::threads;
use crate::bare::world::memory::{GuestMemory, Packing, shelf, words};

/// Where the number of a run is in the number of a page.
const NUMBER_SHIFT: u32 = 32;

/// A run that has joined.
pub(super) struct Joined {
    pub(super) memory: Arc<GuestMemory>,
    pub(super) group: Group,
    /// Which of its pages are moved next.
    pub(super) packing: Packing,
    /// Nothing of its memory is used now.
    pub(super) is_held: bool,
}

/// The first page of a run of that number.
pub(super) const fn first_page(number: usize) -> u64 {
    (number as u64) << NUMBER_SHIFT
}

/// The pages of those that have joined.
pub(super) struct Pages<'a> {
    pub(super) joined: &'a [Option<Joined>],
    pub(super) groups: &'a Groups,
    pub(super) sums: &'a Sums,
}

impl Pages<'_> {
    /// The memory of a page, unless it is held, and the page's number in it.
    fn find(&self, page: u64) -> Option<(&GuestMemory, u64)> {
        let joined = self.joined.get((page >> NUMBER_SHIFT) as usize)?.as_ref()?;
        let number = page & (first_page(1) - 1);
        (!joined.is_held).then_some((&*joined.memory, number))
    }
}

impl Host for Pages<'_> {
    fn look(&self, page: u64) -> Option<Looked> {
        let (memory, page) = self.find(page)?;
        let (frame, shared, sum) = memory.look_at(page, self.sums)?;
        Some(Looked { frame, shared, sum })
    }

    fn is_merged(&self, page: u64) -> bool {
        self.find(page).is_some_and(|(memory, page)| memory.is_shared(page))
    }

    fn frame(&self, page: u64) -> Option<Pfn> {
        let (memory, page) = self.find(page)?;
        memory.frame_of(page)
    }

    fn holds(&self, page: u64, frame: Pfn) -> bool {
        self.find(page).is_some_and(|(memory, page)| memory.holds(page, frame))
    }

    fn equal(&self, page: u64, other: u64) -> bool {
        let both = self.find(page).zip(self.find(other));
        both.is_some_and(|((memory, page), other)| memory.is_equal(page, other))
    }

    fn references(&self, frame: Pfn) -> u64 {
        shelf::references(frame)
    }

    fn close(&self, group: Group, page: u64, frame: Pfn, sum: u64) -> Option<Pfn> {
        let (memory, page) = self.find(page)?;
        let stable = self.groups.take(group)?;
        // What is in the new frame stays as it is. Whether the page still holds the same is found out where it is shared.
        let is_equal = memory.copy_to(page, frame, stable) && self.sums.of(words(stable)) == sum;
        self.pause();
        if is_equal && memory.share(page, stable) == Merged::Now {
            return Some(stable);
        }
        shelf::put(stable);
        None
    }

    fn merge(&self, first: u64, with: &[Pfn], became: &mut dyn FnMut(Merged)) {
        for (page, &with) in (first..).zip(with) {
            let found = self.find(page);
            became(found.map_or(Merged::No, |(memory, page)| memory.share(page, with)));
        }
    }

    fn put(&self, frame: Pfn) {
        shelf::put(frame);
    }

    fn while_settled(&self, then: &mut dyn FnMut()) {
        // Called where frames are looked for that nobody but the merger has.
        shelf::all_seen();
        then();
    }

    fn pause(&self) {
        threads::interrupts::look();
    }
}
