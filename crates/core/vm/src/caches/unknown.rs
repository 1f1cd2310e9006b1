//! Which frames of a page or block are not known to be clean, before it is mapped.

use mayfly_memslot::Gfn;
use mayfly_platform::address::Pfn;
use mayfly_srcu::Section;
use mayfly_stage2::{Format, Level, Permissions, Root};

use super::PIECE;
use crate::World;
use crate::vm::Inner;

impl<W: World> Inner<W> {
    /// Tells `work` of the frames from `pfn` on that none of `roots` maps at the same place with such rights, first and
    /// number: those that follow each other together. They are to be mapped as the leaf of `level` at `first`.
    ///
    /// Takes a step for each entry that a walk to them ends at, and not for each page; and goes through pages of one table
    /// that one of `roots` maps so without a walk to each.
    #[expect(clippy::too_many_arguments, reason = "where, what, and beside what")]
    pub(super) fn each_unknown(
        &self,
        first: Gfn,
        level: Level,
        pfn: Pfn,
        roots: [Option<&Root<W::Format>>; 2],
        rights: Permissions,
        section: &impl Section,
        work: &mut dyn FnMut(Pfn, u64),
    ) {
        let mut run = |from: u64, to: u64| {
            if from < to {
                work(Pfn::new(pfn.get() + from), to - from);
            }
        };
        let (mut page, mut from, mut steps) = (0, 0, 0);
        while page < level.pages() {
            let (gfn, wanted) = (Gfn::new(first.get() + page), Pfn::new(pfn.get() + page));
            let left = level.pages() - page;
            let (is_known, pages) = alike(gfn, wanted, left, roots, rights, section);
            if is_known {
                run(from, page);
                from = page + pages;
            }
            page += pages;
            // Pages of one table are looked at one by one.
            steps += if is_known && pages <= PIECE { pages } else { 1 };
            if steps >= PIECE {
                steps = 0;
                self.platform.preemption_point();
            }
        }
        run(from, page);
    }
}

/// Whether one of `roots` maps `gfn` to frame `pfn` with such rights; and of how many pages, from there on and `left` at
/// most, the same can be said.
fn alike<F: Format>(
    gfn: Gfn,
    pfn: Pfn,
    left: u64,
    roots: [Option<&Root<F>>; 2],
    rights: Permissions,
    section: &impl Section,
) -> (bool, u64) {
    let mut unknown = left;
    for root in roots.into_iter().flatten() {
        let present = root.translate(gfn, section);
        let level = match present {
            Some((level, _)) => level,
            None if left == 1 => continue,
            None => root.depth(gfn, section),
        };
        let into = gfn.get() & (level.pages() - 1);
        let pages = left.min(level.pages() - into);
        if present.is_some_and(|(_, leaf)| {
            leaf.pfn.get() + into == pfn.get() && leaf.permissions.contains(rights)
        }) {
            let is_page = level == Level::PAGE && left > 1;
            // It may be another's by now.
            let beside =
                if is_page { root.maps_to(gfn, pfn, left.min(PIECE), rights, section) } else { 0 };
            return (true, pages.max(beside));
        }
        unknown = unknown.min(pages);
    }
    (false, unknown)
}
