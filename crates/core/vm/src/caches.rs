//! Cache maintenance for guests that go past the caches.
//!
//! On Arm a vCPU whose stage-1 MMU is off reads and writes memory past the caches. So do other vCPUs where their stage
//! 1 says so, unless the format forces write-back ([`ArmFwb`](mayfly_stage2::ArmFwb)). Then a line in a cache and
//! memory can hold different bytes, and three things can go wrong:
//!
//! - **H1**: the host has written to a frame, through the caches. A vCPU reads memory behind the dirty line, and finds
//!   old contents, or another guest's.
//! - **H2**: a vCPU has written to memory. A line that was filled before, or that a processor has filled by itself, is
//!   still in a cache. When that vCPU, or another, then reads through the caches, it finds the old line.
//! - **H3**: a vCPU has written through the caches, and turns them off. It reads memory behind its own dirty line.
//!
//! KVM answers the latter two by cleaning and invalidating everything that is mapped whenever a vCPU turns its caches
//! on (`stage2_flush_vm` in `arch/arm64/kvm/mmu.c`). Here the VM maintains only what was written.
//!
//! # The protocol
//!
//! vCPUs whose caches are on run on the main root ([`Role::MAIN`]). vCPUs whose caches are off run on a root of their
//! own ([`Role::MARKED`]), whose leaves are read-only until they are written.
//!
//! - *A fault* \[clean\]: the VM cleans what it is about to map before the entry can be found, unless this VM has it
//!   mapped already. **H1**: a vCPU that reads past the caches does so through an entry, and by then the host's lines
//!   are in memory.
//! - *A first write past the caches* \[mark\]: the fault maps the page alone (a block is split), writable and marked as
//!   written, in one store. The mark in the entry is the record. At no moment may the page be written without being
//!   marked.
//! - *A flush*, of some range: \[take\] takes each mark, together with the right to write, by one compare-exchange;
//!   \[forget\] the TLBs forget that right; \[flush\] the frames are cleaned and invalidated; \[join\] every flush that
//!   was begun before is over. **H2**: what was written before \[take\] is in memory, and no line hides it. The order
//!   matters. A write through a TLB that has not forgotten yet is in memory before the lines go. If the lines were
//!   dropped first, a line could be filled again before that write, and no later step would look for it. After
//!   \[forget\], a write faults, and marks the page again: so the page is armed again for the vCPUs whose caches are
//!   still off.
//! - *Caches on*: a flush of everything; then the vCPU takes the main root.
//! - *Caches off*: an invalidation of everything is announced, what is marked is flushed, everything is zapped from the
//!   root of vCPUs whose caches are off, and the announcement ends. Then the vCPU takes that root, and finds nothing
//!   there. **H3**: what the vCPU reads next is mapped for it by a fault, which cleans it \[clean\], even if another
//!   root maps it: from the first time on, a mapping on the main root no longer proves that the frame is clean.
//! - *Set and way*: a vCPU that operates by set and way with its caches on wants its lines in memory. The VM does the
//!   same as for *off*, but the vCPU stays on the main root, and is watched from then on for turning its caches off.
//!   While they are off, the operation does nothing: what the vCPU wants in memory was brought there when the caches
//!   were turned off, and what it wants dropped will be dropped when they are turned on. (KVM has the same rule:
//!   `kvm_set_way_flush`.) Where nothing has been mapped since the last time, nothing is done: a loop over all sets and
//!   ways costs one flush, and then a load each.
//! - *The host* takes a page away, moves it, or looks at it in order to merge it: it reads the page through its caches,
//!   which is H2 with the host as the reader. So what is marked of the page is flushed first, inside the invalidation
//!   that was announced, so that no new mark comes. The same happens to a single page that loses rights in an
//!   invalidation that took none, and where a slot is deleted or moved. A slot that moves by less than its length has
//!   two pages at one place until it is zapped: where one of them comes to be in another frame, what is marked there is
//!   flushed first, because the entry that goes may be the other's. It does not happen when the whole address space
//!   goes, or when the VM is destroyed: the guest's memory is not read after that, and a frame's next owner writes to
//!   the frame before it reads it.
//! - *A dirty log* is harvested by a caller that then reads the pages, also by its caches: H2 again. What is marked of
//!   the pages harvested is flushed before they are write-protected. Where a log is switched on, what is marked of the
//!   slot is flushed, because what was written before is in no log, and is copied first. A write after the flush
//!   faults, and is in the log.
//!
//! # Instruction caches
//!
//! A line of an instruction cache holds what its frame held when the line was fetched. What the guest writes and then
//! executes, the guest invalidates itself, as on hardware. What the host writes, to a frame from which this guest or
//! another has executed, the VM has to invalidate: \[fetch\], before an entry that allows execution can be found,
//! unless this VM has the frame mapped there executable already. It invalidates the lines of the frames, or all lines
//! where they are found by virtual address ([`InstructionCaches`]). It does so after the data are cleaned, because the
//! cleaned data are what is fetched then.
//!
//! Before the entry is early enough, though a processor fetches ahead at any time. It fetches ahead by a translation
//! that allows execution (DDI 0487: from what is execute-never nothing is fetched, not even speculatively). And the
//! frame has no such translation between the last one's invalidation, for which the host has waited before it wrote,
//! and this entry. If another VM or another root has the frame mapped executable meanwhile, no code of the host writes
//! to it.
//!
//! A page that was mapped without the right, and now gains it, does not count as known here, though it was cleaned. Nor
//! does the new frame of a page that is replaced in place: the bytes are the same, but a line that is tagged by
//! physical address may be a line of the frame's former contents.
//!
//! A fault that has dropped lines too early is refused in the same way as one that has cleaned too early.
//! [`Base::flush`](crate::Base::flush) separates two vCPUs that share a CPU; it covers instruction caches.
//!
//! # When they race
//!
//! *Two flushes at once.* A mark belongs to one flush or the other, since it is taken by compare-exchange. The flush
//! that finds the mark gone must not go on before the other has flushed the page. So a flush is a section of an SRCU
//! domain of its own (*flushes*), begun before the first mark is taken. After the section, \[join\] waits for a grace
//! period of that domain. A flush that finds an entry without its mark has read the entry from the compare-exchange, or
//! from something later. So the section of the flush that made that exchange had begun, and is waited for. A flush
//! waits for TLBs and for frozen entries, whose holders wait for TLBs. No CPU that waits for anything here is in a
//! guest, so this ends.
//!
//! *A flush and a first write.* The fault's store may come before the flush visits the entry; then the mark is taken.
//! Or the store comes after the visit; then the write was not ordered before the flush began. (If the guest had ordered
//! it, by a flag that the other vCPU has read, the store would come before the write, the write before the flag, and
//! the flag before the exit.) The mark stays, for the flush before which the write is ordered.
//!
//! *A flush and a fault in flight.* A fault that puts a mark during the flush puts it in the entry, whichever flushes
//! have passed there. No mark is lost, and none is taken without a flush.
//!
//! *Caches off, and a fault that has cleaned too early.* vCPU A writes through the caches and turns them off. vCPU B,
//! whose caches are off already, has cleaned the page before A wrote, and maps it after A has zapped. The announcement
//! refuses that fault: the fault samples the sequence before it cleans, and asks afterwards.
//!
//! *Nothing mapped.* A fault sets *mapped*, executes **\[arm\]** `fence(SeqCst)`, looks whether lines may have been
//! left behind, and cleans. A vCPU that turns its caches off says that lines may be left behind, executes
//! **\[disarm\]** `fence(SeqCst)`, and looks at *mapped*. This is store buffering. Either the fault learns that it has
//! to clean, and does so after the lines were written. Or the vCPU finds *mapped*, and what the fault maps is zapped,
//! or the fault is refused. *Mapped* is taken back when everything is zapped, and not before, because another vCPU may
//! go on at once where it finds nothing mapped. It is taken back inside the announcement, because every fault that has
//! set it by then is refused, and sets it again. The same holds where all roots are replaced inside an announcement of
//! everything. There, what is not *mapped* has no marks, and is not flushed: a fault that has mapped something before the
//! announcement has set *mapped* before that.
//!
//! *All roots replaced.* Marks are taken from the old roots too, as long as those are leaving: by the call that deletes
//! the slot, when every vCPU has left them and before they go, or by any flush before that.
//!
//! # Which orders what
//!
//! | | pairs with | for |
//! | --- | --- | --- |
//! | \[mark\] the release of the entry's store | \[take\] the acquire of its load | a write that was ordered before finds its mark there |
//! | \[take\] then \[forget\], an invalidation that is complete | the guest's walk | no write through the old entry after \[flush\] (`stage2`'s `litmus/S2+forget+flush`) |
//! | *flushes*: section | *flushes*: grace period | \[join\] |
//! | \[arm\] fence | \[disarm\] fence | what is mapped past the caches was cleaned after the last vCPU to turn its own off |
//! | `sequence`: \[install\] | `sequence`: \[announce\] | a fault that cleaned too early is refused |
//!
//! # What it costs
//!
//! A [`Caches::Coherent`] VM pays a predictable branch at a fault. Any other VM pays: a clean for each page that it
//! maps for the first time; a fault for each page written with caches off, at the first write and at the first write
//! after each flush; and a flush of exactly those pages. In a coherent format a VM does nothing for data, whatever its
//! `Caches`.

mod unknown;
mod upkeep;

use core::ops::Range;

use mayfly_memslot::Gfn;
use mayfly_platform::Op;
use mayfly_platform::address::Pfn;
use mayfly_platform::cache::InstructionCaches;
use mayfly_platform::sync::{Ordering, fence};
use mayfly_srcu::Section;
use mayfly_stage2::{Grant, MemoryType, Permissions, Role, Root, Slice, Tables};

pub use upkeep::{CacheTraps, Caches, GuestCaches};
pub(crate) use upkeep::{Upkeep, VcpuCaches};

use upkeep::Tracking;

use crate::vm::{Inner, Vm};
use crate::{CacheOp, Error, World};

/// Frames that are maintained between two points where the embedder may take interrupts: 256 KiB.
const PIECE: u64 = 64;

impl<W: World> Vm<W> {
    /// Cleans and invalidates all that is mapped at this moment, once for each root that maps it: what KVM does where
    /// a vCPU turns its caches on or off, or operates by set and way (`stage2_flush_vm`). For users of
    /// [`Caches::Reported`].
    pub fn clean_invalidate_mapped(&self) {
        let vm = self.inner();
        let all = Gfn::new(0)..Gfn::new(u64::MAX);
        vm.stage2.each_mapped(all, vm.slice, |first, count| {
            vm.in_pieces(count, |from, count| {
                vm.cache.clean_invalidate(Pfn::new(first.get() + from), count);
            });
        });
    }
}

impl<W: World> Inner<W> {
    /// The guest of a vCPU, which is outside now, has done `op`. Returns whether that has been seen to.
    pub(crate) fn change_caches(&self, caches: &mut VcpuCaches, op: CacheOp) -> bool {
        let was_on = caches.on;
        match op {
            CacheOp::On => (caches.on, caches.watched) = (true, false),
            CacheOp::Off => caches.on = false,
            CacheOp::SetWay => caches.watched = true,
        }
        self.upkeep.settle(caches);
        if let Some(tracking) = &self.upkeep.tracking {
            match (was_on, op) {
                (false, CacheOp::On) => self.flush_written(Gfn::new(0)..Gfn::new(u64::MAX)),
                (true, CacheOp::Off | CacheOp::SetWay) => self.empty_past_caches(tracking),
                _ => {}
            }
        }
        self.upkeep.mode == Caches::Tracked
    }

    /// Has what was written past the caches in `gfns` seen through them: a *flush*. What is marked after this has
    /// begun, and was not ordered before it, may stay so.
    ///
    /// Waits for TLBs, and for flushes under way. Not from inside one.
    pub(crate) fn flush_written(&self, gfns: Range<Gfn>) {
        self.flush_written_those(gfns, |_| true);
    }

    /// As [`Inner::flush_written`], of what is meant, as `meant` says of some frames whether any is.
    pub(crate) fn flush_written_those(&self, gfns: Range<Gfn>, meant: impl Fn(Range<Gfn>) -> bool) {
        self.flush_written_by(self.slice, gfns, meant, || ());
    }

    /// As [`Inner::flush_written`], where hardly anything is marked: a slice may look at more entries, and there is a point
    /// where the embedder may take interrupts after each of the few that are.
    pub(crate) fn flush_few_written(&self, gfns: Range<Gfn>) {
        let slice = Slice { entries: self.slice.entries.saturating_mul(8), ..self.slice };
        self.flush_written_by(slice, gfns, |_| true, || self.platform.preemption_point());
    }

    fn flush_written_by(
        &self,
        slice: Slice,
        gfns: Range<Gfn>,
        meant: impl Fn(Range<Gfn>) -> bool,
        after: impl Fn(),
    ) {
        let Some(tracking) = &self.upkeep.tracking else { return };
        {
            let _flush = tracking.flushes.read_lock();
            // [take], [forget]
            self.stage2.take_written_those(gfns, slice, meant, |first, count| {
                // [flush]
                self.in_pieces(count, |from, count| {
                    self.cache.clean_invalidate(Pfn::new(first.get() + from), count);
                });
                self.platform.charge(Op::Flushed(count));
                after();
            });
        }
        // [join]
        tracking.flushes.synchronize_expedited();
    }

    /// Has everything cleaned before it is next read past the caches.
    fn empty_past_caches(&self, tracking: &Tracking) {
        tracking.left_behind.store(true, Ordering::Relaxed);
        // [disarm]
        fence(Ordering::SeqCst);
        // Acquire, pairing with the release below: what others have zapped no CPU uses any more.
        if !tracking.mapped.load(Ordering::Acquire) {
            return;
        }
        let all = Gfn::new(0)..Gfn::new(u64::MAX);
        let invalidation = self.stage2.begin_invalidation(&all);
        self.flush_written(all.clone());
        self.stage2.zap_role(Role::MARKED, &invalidation, all, Tables::Free, self.slice);
        // Not before, since others rely on it; and before the end, so that a fault that is not refused sets it after
        // this.
        tracking.mapped.store(false, Ordering::Release);
        drop(invalidation);
    }

    /// Whether anything may be mapped to be accessed past the caches, inside an announcement of everything.
    pub(crate) fn may_have_past_caches(&self) -> bool {
        let tracking = self.upkeep.tracking.as_ref();
        tracking.is_some_and(|tracking| tracking.mapped.load(Ordering::Acquire))
    }

    /// Nothing is mapped to be accessed past the caches any more, inside an announcement of everything.
    pub(crate) fn has_nothing_past_caches(&self) {
        if let Some(tracking) = &self.upkeep.tracking {
            tracking.mapped.store(false, Ordering::Release);
        }
    }

    /// Whether what is mapped in `root` is maintained.
    #[inline]
    pub(crate) fn maintains_maps(&self) -> bool {
        self.upkeep.maps
    }

    /// Readies the frames of `grant` to be mapped: [clean] and \[fetch\], unless the host has said that they
    /// [are](crate::Resolved::clean). After the sequence was sampled. Returns whether all of them have become so, for whatever
    /// VM of this format they are mapped by: not where some were left as they are, because this VM has them mapped.
    ///
    /// # Errors
    ///
    /// As [`Grant::leaf`]: there may be no such frames.
    pub(crate) fn ready_to_map(
        &self,
        grant: &Grant<'_, W::Format>,
        is_clean: bool,
        section: &impl Section,
    ) -> Result<bool, Error> {
        let leaf = grant.leaf()?;
        if leaf.memory != MemoryType::WriteBack {
            return Ok(false);
        }
        let level = grant.level();
        let first = level.first(grant.gfn());
        let known = self.known_clean(grant.root(), section);
        if is_clean && self.upkeep.capabilities.instructions != InstructionCaches::Virtual {
            return Ok(false);
        }
        let unknown = |rights, work: &mut dyn FnMut(Pfn, u64)| {
            self.each_unknown(first, level, leaf.pfn, known, rights, section, work);
        };
        // What another root has is known to this VM's guest alone: lines of its own writes may be dirty still.
        let (all, mut cleaned, mut forgotten) = (level.pages(), 0, 0);
        if !self.upkeep.coherent {
            unknown(Permissions::empty(), &mut |pfn, count| {
                cleaned += count;
                self.in_pieces(count, |from, count| {
                    self.clean_to_map(Pfn::new(pfn.get() + from), count);
                });
            });
        }
        let is_cleaned = self.upkeep.coherent || cleaned == all;
        let instructions = self.upkeep.capabilities.instructions;
        if !leaf.permissions.contains(Permissions::EXECUTE) {
            return Ok(is_cleaned && instructions == InstructionCaches::Coherent);
        }
        match instructions {
            InstructionCaches::Coherent => forgotten = all,
            InstructionCaches::Physical => {
                unknown(Permissions::EXECUTE, &mut |pfn, count| {
                    forgotten += count;
                    self.forget_fetched(pfn, count);
                });
            }
            InstructionCaches::Virtual => {
                unknown(Permissions::EXECUTE, &mut |_, count| forgotten += count);
                if forgotten > 0 {
                    self.forget_all_fetched();
                }
            }
        }
        Ok(is_cleaned && forgotten == all)
    }

    /// Does something to `count` frames: has `work` do it to some from each of so many on, with points between where
    /// the embedder may take interrupts.
    pub(crate) fn in_pieces(&self, count: u64, mut work: impl FnMut(u64, u64)) {
        let mut from = 0;
        while from < count {
            let piece = PIECE.min(count - from);
            work(from, piece);
            from += piece;
            // Of fewer there are not many before the next slice.
            if piece == PIECE {
                self.platform.preemption_point();
            }
        }
    }

    /// Roots in which only clean frames are mapped, as far as readers through `root` are concerned.
    fn known_clean<'a>(
        &'a self,
        root: &'a Root<W::Format>,
        section: &'a impl Section,
    ) -> [Option<&'a Root<W::Format>>; 2] {
        let other = self.upkeep.tracking.as_ref().and_then(|tracking| {
            if root.role() == Role::MAIN {
                return self.stage2.find_root(Role::MARKED, section);
            }
            if !tracking.mapped.load(Ordering::Relaxed) {
                tracking.mapped.store(true, Ordering::Relaxed);
            }
            // [arm]
            fence(Ordering::SeqCst);
            let left_behind = tracking.left_behind.load(Ordering::Relaxed);
            if left_behind { None } else { self.stage2.find_root(Role::MAIN, section) }
        });
        [Some(root), other]
    }

    /// Readies a frame to be found by the guest where a page comes to be in it, with such rights: [clean] and
    /// \[fetch\].
    pub(crate) fn ready_replacement(&self, pfn: Pfn, permissions: Permissions) {
        if !self.upkeep.maps {
            return;
        }
        if !self.upkeep.coherent {
            self.clean_to_map(pfn, 1);
        }
        if permissions.contains(Permissions::EXECUTE) {
            match self.upkeep.capabilities.instructions {
                InstructionCaches::Coherent => {}
                InstructionCaches::Physical => self.forget_fetched(pfn, 1),
                InstructionCaches::Virtual => self.forget_all_fetched(),
            }
        }
    }

    fn clean_to_map(&self, first: Pfn, count: u64) {
        self.cache.clean(first, count);
        self.platform.charge(Op::CleanedToMap(count));
    }

    fn forget_fetched(&self, first: Pfn, count: u64) {
        self.cache.invalidate_instructions(first, count);
        self.platform.charge(Op::InstructionsForgotten(count));
    }

    fn forget_all_fetched(&self) {
        self.cache.invalidate_all_instructions();
        self.platform.charge(Op::AllInstructionsForgotten);
    }
}
