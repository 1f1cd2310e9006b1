//! What has happened, and whether that is enough.

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a soak counts, and how much of it there has to be in a round.
macro_rules! counted {
    ($($(#[$doc:meta])* $what:ident: $quota:expr,)*) => {
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum What { $($(#[$doc])* $what),* }

        const QUOTAS: [(What, u64); [$(What::$what),*].len()] = [$((What::$what, $quota)),*];
    };
}

/// Rounds among which the quotas of a soak are divided.
pub(crate) const ROUNDS: u64 = 6;

/// 10^4 in six rounds.
const SOME: u64 = 10_000_u64.div_ceil(ROUNDS);
const MANY: u64 = 1_000_000_u64.div_ceil(ROUNDS);

counted! {
    /// A guest read a page of which it was certain what it holds.
    ReadChecked: MANY,
    /// A guest's access needed the hypervisor.
    Faulted: SOME,
    SlotCreated: SOME,
    SlotDeleted: SOME,
    SlotMoved: SOME,
    LogSwitched: SOME,
    LogHarvested: SOME,
    /// Host memory was unmapped under a slot, and other memory mapped there.
    Remapped: SOME,
    /// Host memory was moved away from under a slot, and back.
    Moved: SOME / 4,
    /// Host memory was made read-only under a slot, and writable again.
    Protected: SOME,
    SwappedOut: SOME,
    Migrated: SOME,
    /// A page came to share a frame, because another held the same.
    Merged: SOME,
    /// Pages came to share their frames with a copy, which went again.
    Forked: SOME / 4,
    Aged: SOME,
    VcpuCreated: SOME,
    /// A vCPU came out because it was kicked.
    Kicked: SOME,
    /// A VM was created, run and destroyed.
    VmLived: SOME,
}

/// By what the quotas are divided: `MAYFLY_SOAK_SHARE=4` has a quarter of them be enough.
static SHARE: LazyLock<u64> = LazyLock::new(|| {
    std::env::var("MAYFLY_SOAK_SHARE").map_or(1, |share| match share.parse() {
        Ok(share @ 1..=SOME) => share,
        _ => panic!("MAYFLY_SOAK_SHARE is a number from 1 to {SOME}"),
    })
});

/// Counts, each with a quota.
#[derive(Default)]
pub(crate) struct Tally {
    counts: [AtomicU64; QUOTAS.len()],
    ended: AtomicBool,
}

impl Tally {
    pub(crate) fn add(&self, what: What, count: u64) {
        self.counts[what as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Adds what another has.
    pub(crate) fn add_all(&self, other: &Self) {
        for ((what, _), count) in QUOTAS.iter().zip(&other.counts) {
            self.add(*what, count.load(Ordering::Relaxed));
        }
    }

    /// Whether every quota is met, `times` times.
    pub(crate) fn is_met(&self, times: u64) -> bool {
        let share = *SHARE;
        let met = |((_, quota), count): (&(What, u64), &AtomicU64)| {
            count.load(Ordering::Relaxed) >= quota.div_ceil(share) * times
        };
        QUOTAS.iter().zip(&self.counts).all(met)
    }

    /// Whether the threads are to end.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || self.is_met(1)
    }

    /// Ends the round before its time.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = QUOTAS.iter().zip(&self.counts).map(|((what, _), count)| (what, count));
        f.debug_map().entries(counts).finish()
    }
}
