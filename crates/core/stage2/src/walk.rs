//! Looking up a frame.

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::frames::WORDS;
use mayfly_platform::sync::Ordering;
use mayfly_srcu::Section;

use crate::level::below_of;
use crate::root::Root;
use crate::{Format, Leaf, Level, Permissions, Stage2, State};

impl<F: Format> Stage2<F> {
    /// Whether a CPU may use what page `gfn` is mapped to: whether a root maps it, another CPU is just changing its entry, or
    /// TLBs may remember what was in the entry. Inside an invalidation of the page, a no stays true until its end. Outside of
    /// one it says nothing.
    ///
    /// Takes no lock and waits for nothing.
    pub fn may_be_in_use(&self, gfn: Gfn) -> bool {
        let section = self.space().srcu.read_lock();
        self.any_root(&section, |root| root.may_use(gfn))
    }
}

impl<F: Format> Root<F> {
    /// As [`Stage2::may_be_in_use`], of this root.
    fn may_use(&self, gfn: Gfn) -> bool {
        let (mut table, mut level) = (self.top(), F::TOP);
        while Self::reaches(gfn) {
            match self.cell(table, level, gfn).load().state(level) {
                State::Table(below) => (table, level) = (below, below_of(level)),
                State::Empty => break,
                State::Leaf | State::Frozen | State::Removed => return true,
            }
        }
        // After the entry: what emptied it is counted until TLBs have forgotten, and the load of the entry has acquired that
        // it was counted. [counted]
        self.changing.load(Ordering::Acquire) > 0
    }

    /// What `gfn` is mapped to at this moment: the page or block that it lies in, and its level.
    ///
    /// Takes no lock and writes nothing. `None` where nothing is mapped, or another CPU is just changing it.
    ///
    /// # Panics
    ///
    /// If `section` is not one of the VM's domain.
    #[inline]
    pub fn translate(&self, gfn: Gfn, section: &impl Section) -> Option<(Level, Leaf)> {
        self.check(section);
        if !Self::reaches(gfn) {
            return None;
        }
        let frames = self.space().tables.linear_map();
        let mut table = frames.table(self.top());
        // As many steps as the format has levels, which the compiler lays out one behind the other.
        for level in F::TOP.down_to_pages() {
            let entry = table.cell::<F>(level.index_in::<F>(gfn)).load();
            match entry.state(level) {
                State::Leaf => return Some((level, entry.to_leaf(level))),
                State::Table(below) => table = frames.table(below),
                State::Empty | State::Frozen | State::Removed => return None,
            }
        }
        None
    }

    /// How many pages from `gfn` on, `most` at most, are mapped at this moment to the frames from `pfn` on, one after the
    /// other, with `rights`. Looks no further than the block that `gfn` lies in, or the table that has an entry for its
    /// page, so there may be more.
    ///
    /// # Panics
    ///
    /// If `section` is not one of the VM's domain.
    pub fn maps_to(
        &self,
        gfn: Gfn,
        pfn: Pfn,
        most: u64,
        rights: Permissions,
        section: &impl Section,
    ) -> u64 {
        self.check(section);
        if !Self::reaches(gfn) {
            return 0;
        }
        let frames = self.space().tables.linear_map();
        let mut table = frames.table(self.top());
        for level in F::TOP.down_to_pages() {
            let entry = table.cell::<F>(level.index_in::<F>(gfn)).load();
            match entry.state(level) {
                State::Table(below) => table = frames.table(below),
                State::Leaf if level > Level::PAGE => {
                    let (leaf, into) = (entry.to_leaf(level), gfn.get() & (level.pages() - 1));
                    let is_there =
                        leaf.pfn.get() + into == pfn.get() && leaf.permissions.contains(rights);
                    return if is_there { most.min(level.pages() - into) } else { 0 };
                }
                State::Leaf => break,
                State::Empty | State::Frozen | State::Removed => return 0,
            }
        }
        let first = Level::PAGE.index_in::<F>(gfn);
        let mut count = 0;
        while count < most && (first as u64 + count) < WORDS as u64 {
            let entry = table.cell::<F>(first + count as usize).load();
            if entry.state(Level::PAGE) != State::Leaf {
                break;
            }
            let leaf = entry.to_leaf(Level::PAGE);
            if leaf.pfn.get() != pfn.get() + count || !leaf.permissions.contains(rights) {
                break;
            }
            count += 1;
        }
        count
    }

    /// Whether what `gfn` is mapped to allows an access that needs `wanted`, when a CPU that is just changing the entry
    /// is done with it. Waits for that one entry, and for nothing else.
    ///
    /// # Panics
    ///
    /// If `section` is not one of the VM's domain.
    pub fn settles(&self, gfn: Gfn, wanted: Permissions, section: &impl Section) -> bool {
        self.check(section);
        if !Self::reaches(gfn) {
            return false;
        }
        let (mut table, mut level) = (self.top(), F::TOP);
        loop {
            let cell = self.cell(table, level, gfn);
            let entry = cell.load();
            match entry.state(level) {
                State::Leaf => {
                    let leaf = entry.to_leaf(level);
                    return leaf.accessed && leaf.permissions.contains(wanted);
                }
                State::Table(below) => (table, level) = (below, below_of(level)),
                State::Frozen => self.space().parking.wait(cell, self.mmu()),
                State::Removed => (table, level) = (self.top(), F::TOP),
                State::Empty => return false,
            }
        }
    }

    /// The level of the entry that a walk to `gfn` ends at, whatever it is: the largest leaf that is there, or fits
    /// between the tables as they are at this moment.
    ///
    /// # Panics
    ///
    /// If `section` is not one of the VM's domain.
    pub fn depth(&self, gfn: Gfn, section: &impl Section) -> Level {
        self.check(section);
        let (mut table, mut level) = (self.top(), F::TOP);
        while Self::reaches(gfn)
            && let State::Table(below) = self.cell(table, level, gfn).load().state(level)
        {
            (table, level) = (below, below_of(level));
        }
        level
    }
}
