//! What guests rely on when they turn their caches on and off: scenarios, each played on a machine whose
//! [`Oracle`](crate::cache::Oracle) does the worst that caches may.
//!
//! A guest in a scenario says what each of its reads has to find: the last value that was written there, by whom and in
//! whatever state of caches, where hypervisor and architecture together promise that. So a read that finds another has
//! found a hole in the [`Rule`] by which caches are maintained.

mod play;
mod played;
mod races;
mod rule;
mod stage;
mod suite;

pub use play::Scenario;
pub use played::{Failure, Played, Stale};
pub use rule::{ForcedFormat, Maintained, Rule, TableFormat, Tracked};

impl Scenario {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        suite::SCENARIOS.into_iter().chain(races::SCENARIOS)
    }
}
