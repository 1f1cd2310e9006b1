//! A vCPU's line: the number it is active under, and the generation it is in.

use core::fmt;

use mayfly_platform::memory::Shared;
use mayfly_platform::sync::{AtomicBool, AtomicU64, CacheLine, Ordering, fence};
use mayfly_platform::tlb::Vmid;

use super::tag::{Tag, VmidTag};
use super::{AllVmidsActive, Vmids};

/// A line, on a cache line of its own, and whether some vCPU has it.
pub(super) struct Record(CacheLine<Leased>);

struct Leased {
    line: Line,
    leased: AtomicBool,
}

impl Record {
    pub(super) fn leased(generation: u64) -> Self {
        let line = Line(AtomicU64::new(generation * Tag::GENERATION));
        Self(CacheLine(Leased { line, leased: AtomicBool::new(true) }))
    }

    /// Whether it was free, and is the caller's now. Called under the lock on all records.
    pub(super) fn lease(&self) -> bool {
        // Acquire, pairing with the release in `ActiveVmid::drop`.
        let free = !self.0.leased.load(Ordering::Acquire);
        if free {
            self.0.leased.store(true, Ordering::Relaxed);
        }
        free
    }

    #[inline]
    pub(super) fn line(&self) -> &Line {
        &self.0.line
    }
}

/// The generation that a vCPU is in, and the number that it is active under or 0: a [`Tag`].
pub(super) struct Line(AtomicU64);

impl Line {
    /// Relaxed: the line is the vCPU's own, and what a roll-over did is acquired with the generation.
    #[inline]
    fn load(&self) -> Tag {
        Tag(self.0.load(Ordering::Relaxed))
    }

    /// Activates `tag`, unless a roll-over has visited since the line was `seen`.
    #[inline]
    fn activate(&self, seen: Tag, tag: Tag) -> bool {
        // Release, pairing with the acquire of a roll-over: what the vCPU did under another number, and the claim of
        // this one, happened before.
        self.0.compare_exchange(seen.0, tag.0, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn deactivate(&self) {
        // Release, as above.
        self.0.fetch_and(!Tag::NUMBER, Ordering::Release);
    }

    /// A roll-over's visit: moves the line to the next generation, and returns what it is active under.
    pub(super) fn next_generation(&self) -> Option<Vmid> {
        Tag(self.0.fetch_add(Tag::GENERATION, Ordering::AcqRel)).number()
    }
}

/// A vCPU's right to run under a VMID. It may move between threads.
pub struct ActiveVmid {
    vmids: Vmids,
    record: Shared<Record>,
}

impl ActiveVmid {
    pub(super) fn new(vmids: Vmids, record: Shared<Record>) -> Self {
        Self { vmids, record }
    }

    /// The VMID to run under on the root that `tag` is of: before each entry into the guest, and valid until
    /// [`ActiveVmid::deactivate`], or until another root is activated. The root is not retired meanwhile.
    ///
    /// Reads two cache lines, the root's and this vCPU's, and writes only the latter, where it does not show this root
    /// yet. A root that has no VMID of this generation gets one; in a roll-over, that waits until all TLBs are
    /// invalidated, so the caller is not in a guest, and not waited for by invalidations ([`Tlb::complete`]).
    ///
    /// Walks that the vCPU makes afterwards find every change to the root's tables whose author saw no VMID to
    /// invalidate ([`Vmids::assigned`]).
    ///
    /// # Errors
    ///
    /// [`AllVmidsActive`]; no root is active then.
    ///
    /// [`Tlb::complete`]: mayfly_platform::tlb::Tlb::complete
    #[inline]
    pub fn activate(&mut self, tag: &VmidTag) -> Result<Vmid, AllVmidsActive> {
        match self.try_activate(self.line().load(), tag.load()) {
            Some(number) => Ok(number),
            None => self.activate_renewed(tag),
        }
    }

    /// Gives up the VMID that [`ActiveVmid::activate`] gave. The CPU has left the guest, and translates by the root no
    /// more, not even speculatively.
    #[inline]
    pub fn deactivate(&mut self) {
        self.line().deactivate();
    }

    #[inline]
    fn try_activate(&self, seen: Tag, tag: Tag) -> Option<Vmid> {
        if seen != tag {
            if seen.generation() != tag.generation() || !self.line().activate(seen, tag) {
                return None;
            }
            // [enter]
            fence(Ordering::SeqCst);
        }
        tag.number()
    }

    #[cold]
    fn activate_renewed(&self, tag: &VmidTag) -> Result<Vmid, AllVmidsActive> {
        // The number that the vCPU comes from is none to keep in a roll-over of its own making.
        self.line().deactivate();
        loop {
            let seen = self.line().load();
            let present = tag.load();
            if let Some(number) = self.try_activate(seen, present) {
                return Ok(number);
            }
            if seen.generation() != present.generation() {
                self.vmids.renew(seen.generation(), tag, present)?;
            }
        }
    }

    #[inline]
    fn line(&self) -> &Line {
        self.record.line()
    }
}

impl Drop for ActiveVmid {
    fn drop(&mut self) {
        self.line().deactivate();
        self.record.0.leased.store(false, Ordering::Release);
    }
}

impl fmt::Debug for ActiveVmid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line().load();
        f.debug_struct("ActiveVmid")
            .field("active", &line.number())
            .field("generation", &line.generation())
            .finish_non_exhaustive()
    }
}
