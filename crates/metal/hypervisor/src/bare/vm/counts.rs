//! How often a VM left its guest, and for what reason; and how soon a fork went on.

use core::sync::atomic::{AtomicU64, Ordering};

use super::arch::{Part, Reason};
use crate::bare::processor::timer;

/// The counts of a VM since it was created.
#[derive(Default)]
pub(crate) struct Counts {
    exits: [AtomicU64; Reason::ALL.len()],
    /// Those for which a device has answered, by device.
    answers: [AtomicU64; Part::COUNT],
    /// When the user asked for it last, in ticks.
    asked: AtomicU64,
    /// Ticks from then until a fork first entered its guest; 0 before.
    until_entered: AtomicU64,
    /// Frames that it has given back for that, where it was reset; 0 otherwise.
    gave_back: AtomicU64,
    /// Since when it stands still to be forked, in ticks; 0 when it does not.
    stands: AtomicU64,
    /// For how many ticks it has, the last time; 0 before.
    stood: AtomicU64,
}

impl Counts {
    /// Counts an exit.
    pub(crate) fn count(&self, reason: Reason) {
        self.exits[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an answer of the device at an address.
    pub(crate) fn count_answer(&self, address: u64) {
        if let Some(part) = Part::at(address) {
            self.answers[part as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The answers, by the name of the device.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Part::all().map(|(part, name)| (name, self.answers[part as usize].load(Ordering::Relaxed)))
    }

    /// The user asks for it to run; since when, in ticks.
    pub(crate) fn ask(&self, since: u64) {
        self.asked.store(since, Ordering::Relaxed);
        self.until_entered.store(0, Ordering::Relaxed);
        self.gave_back.store(0, Ordering::Relaxed);
    }

    /// It goes back to what it began as, and has given back so many frames for that.
    pub(super) fn gave_back(&self, frames: u64) {
        self.gave_back.store(frames, Ordering::Relaxed);
    }

    /// The frames that it has given back where it was reset.
    pub(crate) fn given_back(&self) -> u64 {
        self.gave_back.load(Ordering::Relaxed)
    }

    /// A vCPU of a fork is about to go on: the first that does is counted.
    pub(super) fn enters(&self) {
        let now = timer::ticks();
        let stands = self.stands.swap(0, Ordering::Relaxed);
        if stands != 0 {
            self.stood.store((now - stands).max(1), Ordering::Relaxed);
        }
        let ticks = (now - self.asked.load(Ordering::Relaxed)).max(1);
        let _ = self.until_entered.compare_exchange(0, ticks, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// It is to stand still until a vCPU of it goes on.
    pub(super) fn stand(&self) {
        self.stands.store(timer::ticks(), Ordering::Relaxed);
    }

    /// It does not stand still.
    pub(super) fn goes_on(&self) {
        self.stands.store(0, Ordering::Relaxed);
    }

    /// For how long it stood still when it was forked last: nanoseconds.
    pub(crate) fn stood(&self) -> Option<u64> {
        let ticks = self.stood.load(Ordering::Relaxed);
        (ticks != 0).then(|| timer::instant(ticks).as_nanos())
    }

    /// How long it took from the user's command until a vCPU of it, which is a fork, went on: nanoseconds.
    pub(crate) fn until_entered(&self) -> Option<u64> {
        let ticks = self.until_entered.load(Ordering::Relaxed);
        (ticks != 0).then(|| timer::instant(ticks).as_nanos())
    }

    /// The exits, by the name of the reason.
    pub(crate) fn exits(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let read = |&(reason, name): &(Reason, &'static str)| {
            (name, self.exits[reason as usize].load(Ordering::Relaxed))
        };
        Reason::ALL.iter().map(read)
    }
}
