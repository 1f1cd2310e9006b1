//! A slot as readers find it.

use core::ops::Range;

use mayfly_platform::memory::{OutOfMemory, Shared};

use crate::{Backing, DirtyBitmap, Flags, Gfn, PAGE_SHIFT, PAGE_SIZE, Region, SlotId};

/// A range of guest frames with the host memory behind it. Has at least one page, and ends at or below 2^64 bytes of
/// guest and host memory.
#[derive(Clone, Debug)]
pub struct Slot<B> {
    base: Gfn,
    pages: u64,
    backing: B,
    dirty: Option<Shared<DirtyBitmap>>,
    flags: Flags,
    id: SlotId,
}

impl<B: Backing> Slot<B> {
    /// What `region` describes, which has been checked. If it logs dirty pages it goes on with `log`, or else begins a
    /// new one.
    pub(crate) fn try_new(
        region: &Region<B>,
        log: Option<&Shared<DirtyBitmap>>,
    ) -> Result<Self, OutOfMemory> {
        let pages = region.size >> PAGE_SHIFT;
        let dirty = match log {
            _ if !region.flags.contains(Flags::LOG_DIRTY_PAGES) => None,
            Some(log) => Some(log.clone()),
            None => Some(Shared::try_new(DirtyBitmap::try_new(pages)?)?),
        };
        Ok(Self {
            base: region.gpa.gfn(),
            pages,
            backing: region.backing,
            dirty,
            flags: region.flags,
            id: region.slot,
        })
    }

    /// Which slot this is.
    pub fn id(&self) -> SlotId {
        self.id
    }

    /// Its properties.
    #[inline]
    pub fn flags(&self) -> Flags {
        self.flags
    }

    /// Its first frame.
    #[inline]
    pub fn base(&self) -> Gfn {
        self.base
    }

    /// How many frames it has; at least one.
    #[inline]
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// How long it is, in bytes.
    pub fn size(&self) -> u64 {
        self.pages << PAGE_SHIFT
    }

    /// Its frames.
    pub fn gfns(&self) -> Range<Gfn> {
        self.base..Gfn::new(self.base.get() + self.pages)
    }

    /// Where its host memory begins.
    #[inline]
    pub fn backing(&self) -> B {
        self.backing
    }

    /// Whether `gfn` is one of its frames.
    #[inline]
    pub fn contains(&self, gfn: Gfn) -> bool {
        self.page(gfn) < self.pages
    }

    /// The host memory behind frame `gfn`, if the slot has it.
    #[inline]
    pub fn backing_of(&self, gfn: Gfn) -> Option<B> {
        if self.contains(gfn) {
            self.backing.checked_add(self.page(gfn) << PAGE_SHIFT)
        } else {
            None
        }
    }

    /// Its frames that have some of the `bytes` bytes of host memory at `from`, if any.
    pub fn backed_by(&self, from: B, bytes: u64) -> Option<Range<Gfn>> {
        let (wanted, own) = (from.position(), self.backing.position());
        let first = wanted.max(own);
        let end = wanted.saturating_add(bytes).min(own + self.size());
        let gfn = |offset: u64| Gfn::new(self.base.get() + offset);
        (first < end)
            .then(|| gfn((first - own) >> PAGE_SHIFT)..gfn((end - own).div_ceil(PAGE_SIZE)))
    }

    /// The log of its dirty pages, while it has [`Flags::LOG_DIRTY_PAGES`].
    #[inline]
    pub fn dirty(&self) -> Option<&DirtyBitmap> {
        self.dirty.as_deref()
    }

    /// Records that frame `gfn` was written ([`DirtyBitmap::mark`]). No effect if the slot keeps no log, or does not
    /// have the frame.
    #[inline]
    pub fn mark_dirty(&self, gfn: Gfn) {
        if let Some(dirty) = &self.dirty {
            dirty.mark(self.page(gfn));
        }
    }

    pub(crate) fn log(&self) -> Option<&Shared<DirtyBitmap>> {
        self.dirty.as_ref()
    }

    /// The number of frame `gfn` in the slot, which is [`Slot::pages`] or more if the slot does not have it.
    #[inline]
    fn page(&self, gfn: Gfn) -> u64 {
        gfn.get().wrapping_sub(self.base.get())
    }
}
