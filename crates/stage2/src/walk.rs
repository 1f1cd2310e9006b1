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
        let (mut table, mut level) = (self.top(), F::TOP);
        loop {
            let entry = self.cell(table, level, gfn).load();
            match entry.state(level) {
                State::Leaf => return Some((level, entry.to_leaf(level))),
                State::Table(below) => {
                    table = below;
                    level = level.below()?;
                }
                State::Empty | State::Frozen | State::Removed => return None,
            }
        }
    }
}
