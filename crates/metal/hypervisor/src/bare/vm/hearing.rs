//! The VM of a memory that begins as an image: it hears of pages that get another frame, and of those that go back.

use core::ops::Range;

use mayfly_vm::memslot::Hva;
use mayfly_vm::platform::address::PAGE_SIZE;
use mayfly_vm::{Change, PageChange, Protection, Reason, Vm};

use super::format::{Kinds, TableFormat};
use crate::bare::world::memory::Hears;

/// The VM of a memory that begins as an image.
pub(crate) struct Hearing<F: TableFormat>(pub(crate) Vm<Kinds<F>>);

impl<F: TableFormat> Hears for Hearing<F> {
    unsafe fn replace(
        &self,
        page: Hva,
        change: &PageChange,
        copy: &mut dyn FnMut(),
        found: &mut dyn FnMut(),
    ) {
        let takes_nothing = Change {
            reason: Reason::CopyOnWrite,
            old: Protection::ReadOnly,
            new: Protection::ReadOnly,
        };
        let announced = self.0.invalidate_start(page, PAGE_SIZE, takes_nothing);
        copy();
        let closed = PageChange { protection: Protection::ReadOnly, ..*change };
        // SAFETY: as the caller promises.
        let was_mapped = unsafe { self.0.change_pte(&announced, page, &closed) };
        // Now no vCPU has the old frame, and none has written to the new one.
        found();
        if was_mapped {
            let opened = PageChange { old: change.new, ..*change };
            // SAFETY: as the caller promises.
            unsafe { self.0.change_pte(&announced, page, &opened) };
        }
    }

    fn take_back(
        &self,
        pages: Range<u64>,
        next: &dyn Fn(u64) -> Range<u64>,
        gone: &mut dyn FnMut(),
    ) {
        let (first, bytes) = (pages.start, (pages.end - pages.start) * PAGE_SIZE);
        let next = |page: u64| {
            let Range { start, end } = next(first.saturating_add(page));
            start - first..end - first
        };
        let announced = self.0.invalidate_picked(Hva::new(first * PAGE_SIZE), bytes, next);
        gone();
        drop(announced);
    }
}
