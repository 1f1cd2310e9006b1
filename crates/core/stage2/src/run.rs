//! Mapping many pages at once.

use core::ops::Range;

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_srcu::Section;

use crate::cell::Cell;
use crate::format::{nameable, out_of_range};
use crate::level::below_of;
use crate::map::Attempt;
use crate::root::Root;
use crate::sequence::Seen;
use crate::{Entry, Error, Format, Leaf, Level, Mapped, Permissions, State};

impl<F: Format> Root<F> {
    /// Maps `gfns`, in leaves of `level`, to frames that follow each other from `leaf`'s on; what is mapped already,
    /// and allows as much, stays. Otherwise as [`Grant::map`](crate::Grant::map), to which it comes down for what is not
    /// missing by the table.
    ///
    /// Where a whole table is missing, it is filled before any CPU can find it, and installed with one entry.
    ///
    /// # Errors
    ///
    /// As [`Grant::map`](crate::Grant::map); what was mapped before the error stays mapped.
    ///
    /// # Panics
    ///
    /// If `section` is not one of the VM's domain.
    ///
    /// # Safety
    ///
    /// As [`Root::grant`], of each of these pages and its frame.
    ///
    /// ```compile_fail,E0133
    /// #![forbid(unsafe_code)]
    /// use mayfly_platform::address::{Gfn, Pfn};
    /// use mayfly_srcu::Section;
    /// use mayfly_stage2::{Ept, Leaf, Level, Permissions, Root, Seen};
    ///
    /// fn map_anything(root: &Root<Ept>, seen: Seen, section: &impl Section) {
    ///     let leaf = Leaf::new(Pfn::new(1), Permissions::READ);
    ///     let _ = root.map_run(Gfn::new(0)..Gfn::new(1), Level::PAGE, &leaf, seen, section);
    /// }
    /// ```
    pub unsafe fn map_run(
        &self,
        gfns: Range<Gfn>,
        level: Level,
        leaf: &Leaf,
        seen: Seen,
        section: &impl Section,
    ) -> Result<Mapped, Error> {
        self.check(section);
        let count = gfns.end.get().saturating_sub(gfns.start.get());
        let mut numbers = [gfns.start.get(), count, leaf.pfn.get()].into_iter();
        let aligned = numbers.all(|number| level.is_aligned(number));
        if count == 0 || level > F::LARGEST_BLOCK || !aligned {
            return Err(Error::Misaligned { pfn: leaf.pfn });
        }
        if !nameable::<F>(leaf.pfn, count) {
            return Err(out_of_range::<F>(leaf.pfn));
        }
        Self::span(Gfn::new(gfns.end.get() - 1), Level::PAGE)?;
        let mut gfn = gfns.start;
        while gfn < gfns.end {
            let offset = gfn.get() - gfns.start.get();
            let leaf = Leaf { pfn: Pfn::new(leaf.pfn.get() + offset), ..*leaf };
            let above = level.above();
            let next = Gfn::new(gfn.get() + above.pages());
            let whole = above <= F::TOP && above.is_aligned(gfn.get()) && next <= gfns.end;
            if whole && self.map_table(gfn, level, &leaf, seen)? {
                gfn = next;
                continue;
            }
            // SAFETY: part of what the caller promises of all.
            let grant = unsafe { self.grant(gfn, level, leaf, seen, section) };
            match grant.map()? {
                Mapped::Installed | Mapped::Relaxed | Mapped::Already => {
                    gfn = Gfn::new(gfn.get() + level.pages());
                }
                other => return Ok(other),
            }
        }
        Ok(Mapped::Installed)
    }

    /// Installs a whole table of leaves at `gfn`, if there is none. Returns whether it did.
    fn map_table(&self, gfn: Gfn, level: Level, leaf: &Leaf, seen: Seen) -> Result<bool, Error> {
        let above = level.above();
        let gfns = Self::span(gfn, above)?;
        let Some(cell) = self.cell_at(gfn, above, &gfns, seen)? else { return Ok(false) };
        let table = self.allocate_table()?;
        if leaf.permissions.contains(Permissions::WRITE) {
            self.pay_to_write(&gfns, leaf.pfn);
        }
        self.space().tables.fill(table, |index| {
            let pfn = Pfn::new(leaf.pfn.get() + index as u64 * level.pages());
            Entry::<F>::leaf(level, &Leaf { pfn, ..*leaf })
        });
        Ok(self.hangs(cell, above, table, &gfns, seen))
    }

    /// Hangs `table` in the place of an empty entry of `level`, or frees it. Returns whether it hangs.
    fn hangs(
        &self,
        cell: Cell<'_, F>,
        level: Level,
        table: Pfn,
        gfns: &Range<Gfn>,
        seen: Seen,
    ) -> bool {
        let attempt = self.hang(cell, level, table, gfns, seen);
        let hung = matches!(attempt, Attempt::Done(Mapped::Installed));
        if !hung {
            self.free_table(table);
        }
        hung
    }

    /// The cell of `level` for `gfn`, with the tables on the way made; `None` where it cannot be had at once, or is not
    /// empty.
    fn cell_at(
        &self,
        gfn: Gfn,
        level: Level,
        gfns: &Range<Gfn>,
        seen: Seen,
    ) -> Result<Option<Cell<'_, F>>, Error> {
        let (mut table, mut at) = (self.top(), F::TOP);
        loop {
            let cell = self.cell(table, at, gfn);
            let entry = cell.load();
            match entry.state(at) {
                State::Empty if at == level => return Ok(Some(cell)),
                State::Table(below) if at > level => (table, at) = (below, below_of(at)),
                State::Empty => {
                    let new = self.allocate_table()?;
                    if !self.hangs(cell, at, new, gfns, seen) {
                        return Ok(None);
                    }
                }
                _ => return Ok(None),
            }
        }
    }
}
