//! The VM of a memory that begins as an image: it hears of pages that get another frame, and of those that go back.

use core::ops::Range;

use mayfly_merge::Steps;
use mayfly_vm::memslot::Hva;
use mayfly_vm::platform::address::{PAGE_SIZE, Pfn};
use mayfly_vm::stage2::Invalidation;
use mayfly_vm::{Change, PageChange, Protection, Reason, Vm};

use super::format::{Kinds, TableFormat};
use crate::bare::world::memory::{Hears, Shares};

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

    unsafe fn share(
        &self,
        page: Hva,
        (old, new): (Pfn, Pfn),
        shares: &mut dyn Shares,
    ) -> Option<bool> {
        let (protection, same_contents) = (Protection::ReadOnly, true);
        let change = PageChange { old, new, protection, same_contents };
        let mut merge =
            Merge { vm: &self.0, page, change, shares, announced: None, was_mapped: None };
        mayfly_merge::share(&mut merge);
        merge.was_mapped
    }
}

/// A page of a VM that comes to share a frame, step by step.
struct Merge<'a, F: TableFormat> {
    vm: &'a Vm<Kinds<F>>,
    page: Hva,
    /// What becomes of it, if both frames hold the same. Whoever makes this promises that it is true then.
    change: PageChange,
    shares: &'a mut dyn Shares,
    announced: Option<Invalidation<'a>>,
    /// Whether the VM had it mapped; nothing, if they do not hold the same.
    was_mapped: Option<bool>,
}

impl<F: TableFormat> Steps for Merge<'_, F> {
    fn protect(&mut self) {
        let (old, new) = (Protection::ReadWrite, Protection::ReadOnly);
        let change = Change { reason: Reason::Merge, old, new };
        self.announced = Some(self.vm.invalidate_start(self.page, PAGE_SIZE, change));
    }

    fn close(&mut self) {
        self.shares.close();
    }

    fn compare(&mut self) {
        self.was_mapped = self.shares.compare().then_some(false);
    }

    fn replace(&mut self) {
        if let (Some(_), Some(announced)) = (self.was_mapped, &self.announced) {
            self.shares.replace();
            // SAFETY: as the caller of `share` promises: they hold the same.
            let was_mapped = unsafe { self.vm.change_pte(announced, self.page, &self.change) };
            self.was_mapped = Some(was_mapped);
        }
    }

    fn end(&mut self) {
        self.shares.end();
        drop(self.announced.take());
    }
}
