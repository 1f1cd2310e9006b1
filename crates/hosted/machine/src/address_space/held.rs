//! Frames that pages have left, and that a VM may still read in place of the new ones.
//!
//! A merge gives a page another frame of the same contents, and lets VMs owe their TLBs the invalidation
//! ([`Notifier::change_ptes_owing`]). The old frame is held here until every VM has paid: with its reference, so that it
//! is neither free nor anybody's own, to be written. How many there are is bounded by what VMs may owe, and by a quarter
//! more, since they are looked through only when so many have come; when the merger has nothing to do, all is paid.
//!
//! [`Notifier::change_ptes_owing`]: super::Notifier::change_ptes_owing

use std::collections::VecDeque;
use std::sync::Mutex;

use mayfly_platform::address::Pfn;
use mayfly_stage2::Owed;

use crate::Arena;
use crate::lock::lock;

/// What was replaced by one change.
#[derive(Debug)]
struct Old {
    frames: Vec<Pfn>,
    /// Newer than that of those before, for each VM.
    owed: Vec<Owed>,
}

impl Old {
    fn is_paid(&self) -> bool {
        self.owed.iter().all(Owed::is_paid)
    }

    fn release(self, arena: &Arena) {
        drop(self.owed);
        for frame in self.frames {
            arena.put(frame);
        }
    }
}

/// The fewest that have come when all are looked through again.
const FEWEST: usize = 8;

/// What is held. No thread waits while it has the lock.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<Olds>);

#[derive(Debug, Default)]
struct Olds {
    /// The oldest first.
    all: VecDeque<Old>,
    /// How many have come since all were looked through.
    come: usize,
}

impl Olds {
    fn take_paid(&mut self) -> Vec<Old> {
        self.come = 0;
        let (paid, open) = self.all.drain(..).partition(Old::is_paid);
        self.all = open;
        Vec::from(paid)
    }
}

impl Held {
    /// Gives up a reference to each of `frames` as soon as what is `owed` for them is paid.
    pub(super) fn hold(&self, arena: &Arena, frames: Vec<Pfn>, mut owed: Vec<Owed>) {
        owed.retain(|owed| !owed.is_paid());
        if owed.is_empty() {
            return Old { frames, owed }.release(arena);
        }
        let paid = {
            let mut held = lock(&self.0);
            held.all.push_back(Old { frames, owed });
            held.come += 1;
            // To look at each takes a look at all that its VM owes: not at every page that is merged.
            let is_time = held.come >= FEWEST.max(held.all.len() / 4);
            if is_time { held.take_paid() } else { Vec::new() }
        };
        release(paid, arena);
    }

    /// Gives up the frames for which all is paid.
    pub(super) fn release_paid(&self, arena: &Arena) {
        let paid = lock(&self.0).take_paid();
        release(paid, arena);
    }

    /// Has everything paid, and gives the frames up. Waits for TLBs.
    pub(super) fn settle(&self, arena: &Arena) {
        let Olds { mut all, .. } = std::mem::take(&mut *lock(&self.0));
        // Who pays the last of a VM's debts pays those before with it.
        while let Some(old) = all.pop_back() {
            old.release(arena);
        }
    }
}

fn release(paid: Vec<Old>, arena: &Arena) {
    for old in paid {
        old.release(arena);
    }
}
