//! Memory that begins as an *image*: what the memory of another VM was when that VM was frozen, or what it was itself when it
//! was last [forked](super::leaving).
//!
//! No caller writes to an image that others have, so any number of VMs have it at the same time. A page of such a VM is the
//! image's page, to be read, until it is first written. Then it gets a frame of its own with the same bytes.
//!
//! *A copy, as vCPUs see it.* The caller that copies holds `giving`, so that pages are copied one after the other. Its VM
//! [sees to the rest](mayfly_vm::Vm::copy_on_write): no vCPU reads the image's page after another vCPU has written to the
//! copy. A vCPU that has resolved the page before that, and has not mapped it, is refused and resolves it again.
//!
//! The copying vCPU is inside a fault of its own here, which hears that the page has changed. No step waits for a reader.

use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::Ordering;

use mayfly_vm::HostFault;
use mayfly_vm::memslot::Hva;
use mayfly_vm::platform::address::{PAGE_SHIFT, PAGE_SIZE, Pfn};
use mayfly_vm::platform::cache::Cache;
use mayfly_vm::stage2::Level;

use super::super::arch::copy;
use super::clean::is_clean;
use super::{BLOCK_SHIFT, GuestMemory, PAGES, TABLE};

/// The most images that lie behind a memory, one behind the other. A page is looked for in each.
const MOST_LAYERS: usize = 8;

/// A page of an image.
pub(super) struct ImagePage {
    pub(super) page: Pfn,
    /// The largest block around it that is one in the image and for those that have it.
    pub(super) level: Level,
    /// All of the block is [clean](super::clean).
    pub(super) is_clean: bool,
}

/// The VM of a memory, which hears of pages that get another frame.
pub(crate) trait Hears: Send + Sync {
    /// Has the page at `page` be in the second of `frames` in place of the first, to be written:
    /// [`Vm::copy_on_write`](mayfly_vm::Vm::copy_on_write).
    ///
    /// # Safety
    ///
    /// As that.
    unsafe fn copy_on_write(
        &self,
        page: Hva,
        frames: (Pfn, Pfn),
        copy: &mut dyn FnMut(),
        found: &mut dyn FnMut(),
    );

    /// Announces that some of these pages go, those that `next` leads to
    /// ([`Vm::invalidate_picked`](mayfly_vm::Vm::invalidate_picked)), which counts from the first page of memory; has no CPU use
    /// what the VM has mapped of them; calls `gone`; and ends the announcement.
    fn take_back(
        &self,
        pages: Range<u64>,
        next: &dyn Fn(u64) -> Range<u64>,
        gone: &mut dyn FnMut(),
    );

    /// Has the page at `page` be in the second of `frames` in place of the first, to be read, if `shares` finds that they hold
    /// the same: in the order of [`mayfly_merge::share`]. Returns whether the VM had it mapped; nothing, if they do not.
    ///
    /// # Safety
    ///
    /// As [`Vm::change_pte`](mayfly_vm::Vm::change_pte), where they hold the same.
    unsafe fn share(&self, page: Hva, frames: (Pfn, Pfn), shares: &mut dyn Shares) -> Option<bool>;
}

/// What a memory does where a page of it comes to share a frame: as [`mayfly_merge::Steps`].
pub(crate) trait Shares {
    /// Has no thread of the hypervisor write to the page.
    fn close(&mut self);

    /// Whether both frames hold the same.
    fn compare(&mut self) -> bool;

    /// Has the common frame be found.
    fn replace(&mut self);

    /// Called before faults find the page again.
    fn end(&mut self);
}

impl GuestMemory {
    /// The same, beginning as `image`, to which no caller writes any more.
    pub(crate) fn over(mut self, image: Arc<Self>) -> Self {
        self.layer.get_mut().image = Some(image);
        self
    }

    /// The VM that it is the memory of, from now on until it is taken back. The VM has this memory, which does not own
    /// the VM: so it is to be taken back when the VM has no vCPUs any more.
    pub(crate) fn heard_by(&self, vm: Option<Arc<dyn Hears>>) {
        let before = core::mem::replace(&mut *self.hears.lock(), vm);
        drop(before);
    }

    /// The image's page behind `address`, where the memory has no frame of its own.
    pub(super) fn image_page_alone(&self, address: u64) -> Result<Option<ImagePage>, HostFault> {
        if self.image.is_none() && self.merged() == 0 {
            return Ok(None);
        }
        let word = self.word_of(address)?;
        let page = (address >> PAGE_SHIFT) % PAGES;
        if Self::look(word, page).is_some() {
            return Ok(None);
        }
        self.note_read(word, page);
        self.image_page(address)
    }

    /// The page behind `address` that is only read, where it has no frame of its own: the one that it [shares](super::merging),
    /// or the image's. Out of line, so that a memory without either saves no registers for it.
    #[inline(never)]
    pub(super) fn image_page(&self, address: u64) -> Result<Option<ImagePage>, HostFault> {
        // One look: a page that parts meanwhile has the same bytes in its own frame.
        match Self::look_to_read(self.word_of(address)?, (address >> PAGE_SHIFT) % PAGES) {
            Some(found) => {
                let page = Self::page_in(found, address);
                Ok(Some(ImagePage { page, level: Level::PAGE, is_clean: false }))
            }
            None => self.page_of_images(address),
        }
    }

    /// The image's page behind `address`, if it has one.
    pub(super) fn page_of_images(&self, address: u64) -> Result<Option<ImagePage>, HostFault> {
        let number = (address >> BLOCK_SHIFT) as usize;
        let own = self.words.get(number).ok_or(HostFault::NotMapped)?;
        // Where one page of a block has a frame of its own, the others are no block any more.
        let mut is_parted = own.load(Ordering::Acquire) != 0;
        for word in self.images().filter_map(|image| image.words.get(number)) {
            let number = (address >> PAGE_SHIFT) % PAGES;
            if let Some(found) = Self::look_to_read(word, number) {
                let level = if is_parted { Level::PAGE } else { found.1 };
                let (page, is_clean) = (Self::page_in(found, address), is_clean(word, number));
                return Ok(Some(ImagePage { page, level, is_clean }));
            }
            is_parted |= word.load(Ordering::Acquire) != 0;
        }
        Ok(None)
    }

    /// Whether the image has anything in the 2 MiB around `address`.
    pub(super) fn image_has(&self, address: u64) -> bool {
        let number = (address >> BLOCK_SHIFT) as usize;
        let mut words = self.images().filter_map(|image| image.words.get(number));
        words.any(|word| word.load(Ordering::Acquire) != 0)
    }

    /// Its image, the image that this began as, and so on: [`MOST_LAYERS`] at most.
    pub(super) fn images(&self) -> impl Iterator<Item = &Self> {
        core::iter::successors(self.image.as_deref(), |image| image.image.as_deref())
    }

    /// Whether another memory can have this one as its image: it does not have as many as there may be itself.
    pub(crate) fn can_be_image(&self) -> bool {
        self.images().count() < MOST_LAYERS
    }

    /// Gives the page at `address` a frame of its own with the bytes of the image's page. Under the lock.
    pub(super) fn copy_page(&self, address: u64, old: Pfn) -> Result<(Pfn, Level), HostFault> {
        let table = self.table(address)?;
        // All of it is written before anybody can find it.
        let new = self.world.frame_as_is().ok_or(HostFault::OutOfMemory)?;
        self.frames.fetch_add(1, Ordering::Relaxed);
        let mut copy = || {
            // SAFETY: both are this memory's and the image's, which last as long as it; nothing uses the new one yet,
            // and no caller writes to the old one.
            unsafe {
                copy::bytes(old.get() * PAGE_SIZE, new.get() * PAGE_SIZE, PAGE_SIZE as usize);
            };
        };
        let mut found = || self.put(address, table, new);
        let hears = self.hears.lock().clone();
        let Some(vm) = hears else {
            copy();
            found();
            return Ok((new, Level::PAGE));
        };
        let page = Hva::new(address & !(PAGE_SIZE - 1));
        // SAFETY: the frame is this memory's, and behind this page from now on. No guest may write to an image's.
        unsafe { vm.copy_on_write(page, (old, new), &mut copy, &mut found) };
        Ok((new, Level::PAGE))
    }

    /// Gives the page at `address` a frame of its own that is zero but for `bytes`, in the place of the image's: before its VM
    /// begins, whose guest may read it past the caches. Waits for a frame as a write does.
    pub(crate) fn begin_page(&self, address: u64, bytes: &[u8]) -> Result<(), HostFault> {
        loop {
            match self.try_begin_page(address, bytes) {
                Err(HostFault::OutOfMemory) if self.world.wait_for_frame() => {}
                done => return done,
            }
        }
    }

    fn try_begin_page(&self, address: u64, bytes: &[u8]) -> Result<(), HostFault> {
        let _giving = self.giving.lock(&*self.world);
        let table = self.table(address)?;
        let frame = self.world.frames(0).ok_or(HostFault::OutOfMemory)?;
        self.frames.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the frame is this memory's, and nothing uses it yet.
        unsafe { copy::write(frame.get() * PAGE_SIZE + address % PAGE_SIZE, bytes) };
        self.world.clean(frame, 1);
        self.put(address, table, frame);
        Ok(())
    }

    /// The word of the table of the 2 MiB around `address`, which is no block; made if there is none. Under the lock.
    pub(super) fn table(&self, address: u64) -> Result<u64, HostFault> {
        let word = self.word_of(address)?;
        if word.load(Ordering::Relaxed) == 0 {
            let table = self.world.frames(0).ok_or(HostFault::OutOfMemory)?;
            self.frames.fetch_add(1, Ordering::Relaxed);
            word.store(table.get() << PAGE_SHIFT | TABLE, Ordering::Release);
        }
        Ok(word.load(Ordering::Relaxed))
    }
}
