//! Looking a frame up.

use mayfly_platform::address::Gfn;
use mayfly_srcu::Section;

use crate::root::Root;
use crate::{Format, Leaf, Level, State};

impl<F: Format> Root<F> {
    /// What `gfn` is mapped to at this moment: the page or block that it lies in, and its level.
    ///
    /// Takes no lock and writes nothing. `None` where nothing is mapped, or somebody is just changing it.
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
        let (mut table, mut level) = (frames.table(self.top()), F::TOP);
        let entry = loop {
            let entry = table.cell::<F>(level.index_in::<F>(gfn)).load();
            match entry.state(level) {
                State::Leaf => break entry,
                State::Table(below) => {
                    table = frames.table(below);
                    level = level.below()?;
                }
                State::Empty | State::Frozen | State::Removed => return None,
            }
        };
        Some((level, entry.to_leaf(level)))
    }
}
