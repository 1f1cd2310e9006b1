//! The thread that merges, within its part of a processor.

use core::sync::atomic::Ordering;

use mayfly_hypervisor::needs::PAGES_A_FIND;
use mayfly_merge::{Limits, Pace};

use super::All;
use crate::bare::processor::timer;
use crate::bare::threads;
use crate::bare::world::memory::shelf;

const LIMITS: Limits = Limits {
    max_page_sharing: 1 << 31,
    pages_to_merge: 1,
    pages_a_find: PAGES_A_FIND,
    most_passes: 8,
    pages_a_look: 16,
};

/// Looks at pages between two rests, after which some pages are packed.
const LOOKS: u32 = 64;

/// Of frames that nobody but the merger may have, it looks for so many, and for one in so many of its own, before the pass over all pages
/// is over.
const MANY: u64 = 256;
const ONE_IN: u64 = 16;

/// What the thread does.
pub(super) fn main(all: &'static All) {
    loop {
        let seen = all.joined.load(Ordering::Acquire);
        let (before, _) = all.account.spent();
        let has_looked = (0..LOOKS).all(|_| {
            let has_looked = look(all);
            threads::preemption_point();
            has_looked
        });
        let mut state = all.state.lock(&*all.world);
        let many = MANY.max(state.merger.stable_frames() / ONE_IN);
        if shelf::left() >= if has_looked { many } else { 1 } {
            state.tidy(&all.sums);
        }
        if has_looked {
            state.pack();
        }
        let has_members = state.has_members();
        drop(state);
        let (spent, now) = all.account.spent();
        let pace = Pace::try_new(all.part.load(Ordering::Relaxed) * Pace::WHOLE / 100);
        let deadline = match pace {
            Some(pace) if has_looked => now.saturating_add(pace.rest(spent - before)),
            // It takes no part. Pages part all the same, and memory goes, and frames are left that nobody shares any more.
            _ if has_members => now.saturating_add(timer::frequency()),
            // Until somebody has joined.
            _ => u64::MAX,
        };
        threads::wait(&all.joined, seen, deadline);
    }
}

/// Looks at the next page. Returns whether there is one.
fn look(all: &All) -> bool {
    if all.part.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let mut state = all.state.lock(&*all.world);
    let (merger, pages) = state.split(&all.sums);
    let before = merger.full_scans();
    let has_looked = merger.scan(&pages, &LIMITS, 1) > 0;
    if merger.full_scans() != before {
        state.groups.tidy();
    }
    has_looked
}
