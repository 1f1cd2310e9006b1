//! Memory of a VM that is forked while it runs: what it has becomes an image, and the VM goes on over that as its forks do.
//!
//! *When.* All vCPUs of the VM are out of their guest, and its roots are [empty ones](mayfly_vm::Vm::invalidate_all): no CPU
//! uses what was mapped, no fault maps anything, and what was written past the caches is in memory. The threads that write to
//! the memory wait: those of its vCPUs, that of its devices, and whoever brings it a frame from the network. So for a moment
//! one thread alone uses the memory, and has it be another one.
//!
//! *What becomes an image.* There are two ways, and the first is taken where it can be:
//!
//! 1. *The image is used again.* The memory has an image already, of an earlier fork, and all forks of that are gone: nobody
//!    else has the image, so it may be written. The pages that the VM has written since then are copied down into the image,
//!    and their frames are free. The memory begins anew over the same image.
//! 2. *The layer is left.* The words of the memory are those of a new image from then on, and the memory begins with empty
//!    ones. That is an exchange of two values, whatever they say. The image is one more that lies behind the memory.
//!
//! So a VM that is forked again and again, each fork of which ends before the next is made, has one image at any time. The
//! first way takes a copy for each page that was written since the last fork. Each of these pages was copied once already, in a
//! fault that took longer, when it was first written. So forks in a row cost the VM less than twice what its writes have cost.
//! Where forks overlap, images pile up, to [`MOST_LAYERS`](super::image) at most. As soon as no fork of the topmost one is left, it is
//! used again, and takes up those behind it that nobody else has.
//!
//! *Whose the frames are.* A frame stays with the share that it was taken from. Where the layer is left, the image has the
//! share that the memory had, of which exactly what it uses is guaranteed from then on, and the memory takes its frames from
//! another one, which is guaranteed what the VM is. Where the image is used again, its share takes the frames that it needs
//! more, and is guaranteed them before a page is copied. The memory's own share has nothing then, and the VM keeps its
//! guarantee.

use alloc::sync::Arc;
use core::mem;
use core::sync::atomic::{Ordering, fence};

use mayfly_hypervisor::chunks::chunks;
use mayfly_vm::HostFault;
use mayfly_vm::platform::address::{PAGE_SHIFT, PAGE_SIZE};

use super::super::arch::copy;
use super::clean::strike_out;
use super::going_back::{BEFORE_SHIFT, Freed, LAST_SHIFT, NUMBER};
use super::{BLOCK, BLOCK_SHIFT, FRAME, GuestMemory, KIND, PAGES, TABLE, entry};
use crate::bare::threads;

impl GuestMemory {
    /// Whether it has an image.
    pub(crate) fn is_over_any(&self) -> bool {
        self.image.is_some()
    }

    /// Its image, if it has one.
    pub(crate) fn image(&self) -> Option<Arc<Self>> {
        self.image.clone()
    }

    /// Whether it has an image that nobody else has. Then nobody will, as long as it is not forked.
    pub(crate) fn is_alone_over_image(&self) -> bool {
        self.image.as_ref().is_some_and(is_alone)
    }

    /// Whether `image` is what lies right behind it.
    pub(crate) fn is_over(&self, image: &Arc<Self>) -> bool {
        self.image.as_ref().is_some_and(|its| Arc::ptr_eq(its, image))
    }

    /// Has what it has be `image`, which had nothing, and from whose world it takes its frames from now on. It is over that
    /// image then.
    ///
    /// # Safety
    ///
    /// No other thread uses the memory or the image, unless to ask for how many frames they have. No CPU uses what was mapped
    /// of the memory, and no caller writes to the image afterwards.
    pub(crate) unsafe fn leave(&self, image: &Arc<Self>) {
        // SAFETY: as the caller promises.
        let (own, left) = unsafe { (&mut *self.layer.get(), &mut *image.layer.get()) };
        mem::swap(own, left);
        own.image = Some(Arc::clone(image));
        let frames = self.frames.swap(0, Ordering::Relaxed);
        image.frames.store(frames, Ordering::Relaxed);
    }

    /// Has its image, which it [has alone](GuestMemory::is_alone_over_image), guaranteed what it takes to have the pages of
    /// this memory. Returns how many chunks that are, where it cannot be.
    pub(crate) fn admit_to_image(&self) -> Result<(), u64> {
        let Some(image) = self.image.as_deref() else { return Ok(()) };
        // Its tables are among them; a block has none here, and one there.
        let frames = self.frames() + self.merged();
        let more = chunks(frames + frames.div_ceil(PAGES), 0);
        let share = image.world.share();
        share.filter(|share| !share.allow(more)).map_or(Ok(()), |_| Err(more))
    }

    /// Its image, which was [admitted](GuestMemory::admit_to_image) to have its pages, is guaranteed what it uses.
    pub(crate) fn settle_image(&self) {
        if let Some(share) = self.image.as_deref().and_then(|image| image.world.share()) {
            share.keep();
        }
    }

    /// Has its image, which was [admitted](GuestMemory::admit_to_image), be what it is itself: it has no frames of its own
    /// then. Images behind that one which nobody else has are taken up, as far as they can be guaranteed what that takes.
    ///
    /// # Errors
    ///
    /// [`HostFault::OutOfMemory`], which does not happen to an image that was admitted. Pages that are in both by then are the
    /// same in both.
    ///
    /// # Safety
    ///
    /// As [`GuestMemory::leave`], of all images that it has alone; and it [has one](GuestMemory::is_alone_over_image).
    pub(crate) unsafe fn sink(&self) -> Result<(), HostFault> {
        // SAFETY: as the caller promises.
        let mut done = unsafe { self.sink_one() };
        while done.is_ok()
            && let Some(image) = self.image.as_deref()
            && image.is_alone_over_image()
            && image.admit_to_image().is_ok()
        {
            // SAFETY: as the caller promises: nobody else has it.
            done = unsafe { image.sink_one() };
            if done.is_ok() {
                // It has nothing any more, and others may have it for long.
                self.settle_image();
                let lower = image.image.clone();
                // SAFETY: as the caller promises.
                let layer = unsafe { &mut *self.layer.get() };
                drop(mem::replace(&mut layer.image, lower));
            }
        }
        self.settle_image();
        done
    }

    /// Copies its pages down into its image, and has none then.
    ///
    /// # Safety
    ///
    /// As [`GuestMemory::sink`].
    unsafe fn sink_one(&self) -> Result<(), HostFault> {
        let Some(image) = self.image.as_deref() else { return Ok(()) };
        let _giving = image.giving.lock(&*image.world);
        let (mut from, mut freed) = (0, Freed::new(&self.frames, || ()));
        while let Some(number) = self.given.next(from) {
            let value = self.words[number].load(Ordering::Relaxed);
            if value & KIND == BLOCK {
                for page in 0..PAGES {
                    image.overwrite(number, page, (value >> PAGE_SHIFT) + page)?;
                }
            }
            let mut last = if value & KIND == TABLE { value >> LAST_SHIFT & NUMBER } else { 0 };
            while let Some(page) = last.checked_sub(1) {
                let said = entry(value, page).load(Ordering::Relaxed);
                image.overwrite(number, page, said & FRAME)?;
                last = said >> BEFORE_SHIFT;
            }
            for page in self.merged_in(value) {
                image.overwrite(
                    number,
                    page,
                    entry(value, page).load(Ordering::Relaxed) & FRAME,
                )?;
            }
            // SAFETY: as the caller promises, nothing uses them.
            unsafe { self.empty(number, &mut freed) };
            self.given.remove(number);
            from = number + 1;
        }
        Ok(())
    }

    /// Has page `page` of word `number` have the bytes of `frame`, in a frame of its own. Under the lock.
    fn overwrite(&self, number: usize, page: u64, frame: u64) -> Result<(), HostFault> {
        let address = (number as u64) << BLOCK_SHIFT | page << PAGE_SHIFT;
        let own = if let Some(found) = Self::look(&self.words[number], page) {
            strike_out(&self.words[number], page);
            Self::page_in(found, address)
        } else {
            let table = self.table(address)?;
            let given = self.world.frames(0).ok_or(HostFault::OutOfMemory)?;
            self.frames.fetch_add(1, Ordering::Relaxed);
            self.put(address, table, given);
            given
        };
        // SAFETY: the caller promises that nobody else uses either of them.
        unsafe { copy::bytes(frame * PAGE_SIZE, own.get() * PAGE_SIZE, PAGE_SIZE as usize) };
        threads::preemption_point();
        Ok(())
    }
}

/// Whether nobody else has this. Acquire: what others have done with it is over.
fn is_alone(image: &Arc<GuestMemory>) -> bool {
    let is_alone = Arc::strong_count(image) == 1;
    fence(Ordering::Acquire);
    is_alone
}
