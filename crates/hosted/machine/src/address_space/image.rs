//! What memory was at one moment, from which other memory begins.
//!
//! An image has a reference to each of its frames, to which nobody writes any more. Memory that begins as an image visits no
//! page of it: a page is the image's until it is written, which is a break like that of any page that shares its frame
//! (`sharing`). So the page table has the pages that were written, and no others.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_platform::address::{Hpa, Hva, PAGE_SHIFT, PAGE_SIZE, Pfn};
use mayfly_platform::memory::OutOfMemory;
use mayfly_stage2::Level;
use mayfly_vm::Protection as Rights;

use super::area::{Area, Kind};
use super::error::Error;
use super::mappings::Mappings;
use super::memory::Protection;
use super::notifier::{Change, Reason};
use super::numbers::{hva, whole_pages};
use super::pages::{Released, Store, chunks_of};
use super::space::HostSpace;
use crate::Arena;

/// What a range of memory was when it was [frozen](HostSpace::freeze). It changes no more, and is there as long as somebody
/// has it, or memory that [began](HostSpace::map_image) as it.
#[derive(Debug)]
pub struct Image {
    arena: Arc<Arena>,
    /// The frame of each page; none of those that were never touched.
    frames: Box<[Option<Pfn>]>,
}

impl Image {
    /// Its length in bytes, in whole pages.
    pub fn size(&self) -> u64 {
        (self.frames.len() as u64) << PAGE_SHIFT
    }

    /// The frame of its page `page`, if it has one. It is to be read only.
    pub fn frame(&self, page: u64) -> Option<Pfn> {
        *self.frames.get(usize::try_from(page).ok()?)?
    }

    /// The eight bytes at `offset`.
    ///
    /// # Panics
    ///
    /// If `offset` is not a multiple of eight within it.
    pub fn read_u64(&self, offset: u64) -> u64 {
        assert!(offset.is_multiple_of(8) && offset < self.size(), "no eight bytes at {offset:#x}");
        self.frame(offset >> PAGE_SHIFT).map_or(0, |frame| {
            let word = Hpa::new((frame.get() << PAGE_SHIFT) + offset % PAGE_SIZE);
            self.arena.word(word).load(Ordering::Acquire)
        })
    }

    /// Gives up its frames, in runs.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (Pfn, u64)> + use<> {
        std::mem::take(&mut self.frames).into_iter().flatten().map(|frame| (frame, 1))
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        for (frame, _) in self.take() {
            self.arena.put(frame);
        }
    }
}

impl HostSpace {
    /// Makes an image of what `range` holds. The range stays mapped: its pages are the image's until they are written again.
    /// What is in swap is brought in, and huge pages go on as pages.
    ///
    /// Visits every page of the range, and write-protects it in the VMs that have it. That is done once for an image, and
    /// not for each memory that begins as it. Whoever wants an image of a running VM has its vCPUs out of the guest
    /// meanwhile, so that their registers belong to it.
    ///
    /// # Errors
    ///
    /// As [`HostSpace::fork`], where what began as an image counts as other memory does. Nothing has changed then.
    pub fn freeze(&self, range: Range<Hva>) -> Result<Arc<Image>, Error> {
        let pages = whole_pages(&range)?;
        let _changes = self.changes();
        {
            let mappings = self.mappings.read();
            mappings.check_in_pages(&pages)?;
            mappings.bring_in_all(&pages, self.store())?;
        }
        let change = Change::protecting(range, Reason::CopyOnWrite, Rights::ReadWrite);
        let freeze = |mappings: &mut Mappings, _: Store<'_>, released: &mut Released| {
            mappings.freeze(&pages, &self.arena, released)
        };
        Ok(self.bracket(&change, freeze))
    }

    /// Maps memory that begins as `image`, at addresses of its choice. It visits no page: a page is the image's, to be read,
    /// until it is first written, and then it gets a frame of its own with the same contents.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an image whose frames are another arena's; [`Error::OutOfMemory`] where there are no addresses
    /// left.
    pub fn map_image(&self, image: &Arc<Image>, protection: Protection) -> Result<Hva, Error> {
        if !Arc::ptr_eq(&self.arena, &image.arena) {
            return Err(Error::Invalid);
        }
        let count = image.frames.len() as u64;
        let _changes = self.changes();
        let first =
            self.mappings.read().areas.gap(count, Level::MIB2.pages()).ok_or(OutOfMemory)?;
        let kind = Kind::Image { image: Arc::clone(image), origin: first };
        self.mappings.write().areas.insert(first, Area { end: first + count, protection, kind });
        Ok(hva(first))
    }
}

impl Mappings {
    /// The image's frame of `page`, if the page is the image's still.
    pub(super) fn image_frame(&self, page: u64) -> Option<Pfn> {
        let (_, area) = self.areas.find(page)?;
        self.image_frame_in(area, page)
    }

    /// The same of a page of `area`.
    pub(super) fn image_frame_in(&self, area: &Area, page: u64) -> Option<Pfn> {
        let Kind::Image { image, origin } = &area.kind else { return None };
        if self.pages.is_touched(page) { None } else { image.frame(page - origin) }
    }

    /// Has `page`, if it is the image's still, share the image's frame as pages share frames.
    pub(super) fn share_with_image(&mut self, page: u64, arena: &Arena) -> Option<Pfn> {
        let frame = self.image_frame(page)?;
        arena.get(frame);
        self.pages.make_place(page);
        self.pages.share(page, frame);
        Some(frame)
    }

    /// Has `pages` begin as the image that this returns, which gets their frames.
    fn freeze(
        &mut self,
        pages: &Range<u64>,
        arena: &Arc<Arena>,
        released: &mut Released,
    ) -> Arc<Image> {
        self.split(pages);
        let frames = pages.clone().map(|page| {
            let of_image = self.image_frame(page);
            of_image.inspect(|&frame| arena.get(frame)).or_else(|| self.pages.take(page))
        });
        let image = Arc::new(Image { frames: frames.collect(), arena: Arc::clone(arena) });
        let kind = Kind::Image { image: Arc::clone(&image), origin: pages.start };
        for before in self.areas.change_kinds(pages.clone(), &kind) {
            before.release(released);
        }
        self.areas.join(pages.clone());
        let is_within = |chunk: &Range<u64>| pages.start <= chunk.start && chunk.end <= pages.end;
        self.pages.forget(chunks_of(pages).filter(is_within));
        image
    }
}
