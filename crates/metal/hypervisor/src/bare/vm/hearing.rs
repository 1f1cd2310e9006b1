//! The VM of a memory that begins as an image: it hears of pages that get another frame, and of those that go back.

use core::ops::Range;

use mayfly_vm::Vm;
use mayfly_vm::memslot::Hva;
use mayfly_vm::platform::address::{PAGE_SIZE, Pfn};

use super::format::{Kinds, TableFormat};
use crate::bare::world::memory::Hears;

/// The VM of a memory that begins as an image.
pub(crate) struct Hearing<F: TableFormat>(pub(crate) Vm<Kinds<F>>);

impl<F: TableFormat> Hears for Hearing<F> {
    unsafe fn copy_on_write(
        &self,
        page: Hva,
        (old, new): (Pfn, Pfn),
        copy: &mut dyn FnMut(),
        found: &mut dyn FnMut(),
    ) {
        // SAFETY: as the caller promises.
        unsafe { self.0.copy_on_write(page, old, new, copy, found) };
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
