//! Taking rights and marks away, and leaving the mappings.

use core::ops::Range;

use mayfly_platform::address::Gfn;

use crate::flush::{Changing, Flush};
use crate::range::{At, Budget, Run, Slice, Visitor};
use crate::root::Root;
use crate::{Entry, Format, Leaf, Stage2, State};

impl<F: Format> Stage2<F> {
    /// Write-protects `gfns` in every root, slice by slice. When this returns no CPU writes there without a fault. A
    /// block that extends beyond the range is split, so that the guest goes on writing beside the range. Without memory
    /// for a table the block is protected as a whole.
    ///
    /// `each` is called with the first frame, and the number of frames, of each leaf that was writable.
    ///
    /// Needs no announcement: every frame stays where it is. A fault that is under way may map a page to be written
    /// right after. There are two ways to prevent that. A caller that takes marks out of a dirty log
    /// [refuses](Stage2::refuse_faults) earlier faults; later faults put the marks there again. A caller that takes the
    /// right away for the host is inside an invalidation.
    pub fn write_protect(&self, gfns: Range<Gfn>, slice: Slice, mut each: impl FnMut(Gfn, u64)) {
        self.in_slices(gfns, |root, left| root.write_protect_slice(left, slice, &mut each));
    }

    /// Clears the accessed marks of `gfns` in every root, slice by slice. `each` is called for each leaf that had a
    /// mark. Needs no announcement: only a mark is taken away, which the next access puts there again.
    pub fn age(&self, gfns: Range<Gfn>, slice: Slice, mut each: impl FnMut(Gfn, u64)) {
        self.in_slices(gfns, |root, left| root.age_slice(left, slice, &mut each));
    }
}

impl<F: Format> Root<F> {
    /// Write-protects what is left of `range`, one slice of it. Returns whether all is done; no CPU writes through the
    /// old entries when this returns (`litmus/S2+forget+flush`). `each` is called for each leaf that was writable, with
    /// its first frame.
    ///
    /// A writable block that juts out is split; where there is no memory for that, it is protected as a whole.
    fn write_protect_slice(
        &self,
        range: &mut Range<Gfn>,
        slice: Slice,
        each: &mut impl FnMut(Gfn, u64),
    ) -> bool {
        let _section = self.space().srcu.read_lock();
        let (changing, from) = (Changing::begin(self), range.start);
        let mut protect = WriteProtect { flush: Flush::new(), entries: 0, each };
        let done = self.visit(range, &mut Budget::new(slice, self.mmu()), &mut protect);
        changing.finish(protect.flush, from..range.start);
        self.charge_entries(protect.entries);
        done
    }

    /// Clears the accessed mark in what is left of `range`, one slice of it. Returns whether all is done. `each` is
    /// called for each leaf that had the mark.
    ///
    /// TLBs are left alone, as Linux does: an access through an entry that is still in one may go unnoticed until it
    /// leaves it.
    pub(crate) fn age_slice(
        &self,
        range: &mut Range<Gfn>,
        slice: Slice,
        each: &mut dyn FnMut(Gfn, u64),
    ) -> bool {
        let _section = self.space().srcu.read_lock();
        let mut age = Age { entries: 0, each };
        let done = self.visit(range, &mut Budget::new(slice, self.mmu()), &mut age);
        self.charge_entries(age.entries);
        done
    }
}

struct WriteProtect<'a, E> {
    flush: Flush,
    entries: u64,
    each: &'a mut E,
}

impl<F: Format, E: FnMut(Gfn, u64)> Visitor<F> for WriteProtect<'_, E> {
    fn leaf(&mut self, root: &Root<F>, at: &At<'_, F>) -> bool {
        let Some(new) = at.entry.without_write(at.level) else { return true };
        if !at.whole && root.split_at(at) {
            return false;
        }
        let done = at.cell.replace(at.entry, new);
        if done {
            self.entries += 1;
            self.flush.add(at.gfn, at.level);
            (self.each)(at.gfn, at.level.pages());
        }
        done
    }

    fn leaves(&mut self, run: &Run<'_>) -> u32 {
        let mut count = 0;
        // How many were writable; and from where to where they are.
        let (mut changed, mut first, mut end) = (0_u32, 0, 0);
        while count < run.count {
            let cell = run.cell::<F>(count);
            let entry = cell.load();
            if entry.state(run.level) != State::Leaf {
                break;
            }
            if let Some(new) = entry.without_write(run.level) {
                if !cell.replace(entry, new) {
                    break;
                }
                if changed == 0 {
                    first = count;
                }
                (changed, end) = (changed + 1, count + 1);
                (self.each)(run.gfn_of(count), run.level.pages());
            }
            count += 1;
        }
        if changed > 0 {
            self.flush.add_run(run.gfn_of(first), run.level, end - first);
            self.entries += u64::from(changed);
        }
        count
    }
}

struct Age<'a> {
    entries: u64,
    each: &'a mut dyn FnMut(Gfn, u64),
}

impl<F: Format> Visitor<F> for Age<'_> {
    fn leaf(&mut self, _root: &Root<F>, at: &At<'_, F>) -> bool {
        let leaf = at.entry.to_leaf(at.level);
        if !leaf.accessed {
            return true;
        }
        let aged = Entry::leaf(at.level, &Leaf { accessed: false, ..leaf });
        let done = at.cell.replace(at.entry, aged);
        if done {
            self.entries += 1;
            (self.each)(at.gfn, at.level.pages());
        }
        done
    }
}
