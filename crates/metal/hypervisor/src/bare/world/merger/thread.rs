//! The thread that merges, within its part of a processor.

use core::sync::atomic::Ordering;

use mayfly_hypervisor::needs::PAGES_A_FIND;
use mayfly_merge::{Limits, Pace};

use super::All;
use crate::bare::processor::timer;
use crate::bare::threads;

const LIMITS: Limits =
    Limits { max_page_sharing: u64::MAX, pages_to_merge: 1, pages_a_find: PAGES_A_FIND };

/// Looks at pages between two rests.
const LOOKS: u32 = 32;

/// What the thread does.
pub(super) fn main(all: &'static All) {
    loop {
        let seen = all.joined.load(Ordering::Acquire);
        let begin = timer::ticks();
        let has_looked = (0..LOOKS).all(|_| {
            let has_looked = look(all);
            threads::preemption_point();
            has_looked
        });
        let now = timer::ticks();
        let worked = timer::instant(now).as_nanos() - timer::instant(begin).as_nanos();
        let part = all.part.load(Ordering::Relaxed);
        let pace = Pace::try_new(part * Pace::WHOLE / 100);
        let deadline = match pace.filter(|_| has_looked) {
            Some(pace) => {
                let rest = pace.rest(core::time::Duration::from_nanos(worked)).as_nanos() as u64;
                now + rest * timer::frequency() / 1_000_000_000
            }
            // Nobody has joined, or it takes no part: until that changes.
            None => u64::MAX,
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
    let (merger, pages) = state.split();
    let before = merger.full_scans();
    let has_looked = merger.scan(&pages, &LIMITS, 1) > 0;
    if merger.full_scans() != before {
        state.groups.tidy();
    }
    has_looked
}
