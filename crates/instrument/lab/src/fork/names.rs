//! What the experiment's parts are called, and what it takes where nothing is set.

use crate::experiment::Request;
use crate::params::Size;

pub(super) const NAME: &str = "fork";

pub(super) const COPY: &str = "copy";
pub(super) const MAP_PRIVATE: &str = "map-private";
pub(super) const USERFAULT: &str = "userfault";
pub(super) const PREFETCH: &str = "prefetch";

pub(super) const FORK: &str = "fork";
pub(super) const REGISTERS: &str = "registers";
pub(super) const FIRST_EXIT: &str = "first_exit";
pub(super) const DESTROY: &str = "destroy";
pub(super) const PARENT: &str = "parent_1000";
pub(super) const IN_TURN: &str = "in_turn";
pub(super) const AT_ONCE: &str = "at_once";
pub(super) const ALL_AT_ONCE: &str = "all_at_once";

/// Pages that a request writes, and what is measured of it.
pub(super) struct Pages {
    pub(super) count: usize,
    /// From the beginning of the fork until its answer.
    pub(super) answer: &'static str,
    /// The request alone.
    pub(super) request: &'static str,
    /// What takes back what it has written.
    pub(super) reset: &'static str,
    /// KiB that the fork has of its own after it.
    pub(super) own: &'static str,
    /// Faults of its guest.
    pub(super) faults: &'static str,
    /// Faults of its guest when it writes the same again after the reset.
    pub(super) faults_again: &'static str,
}

pub(super) const REQUESTS: [Pages; 3] = [
    Pages {
        count: 50,
        answer: "answer_50",
        request: "request_50",
        reset: "reset_50",
        own: "own_kib_50",
        faults: "faults_50",
        faults_again: "faults_again_50",
    },
    Pages {
        count: 500,
        answer: "answer_500",
        request: "request_500",
        reset: "reset_500",
        own: "own_kib_500",
        faults: "faults_500",
        faults_again: "faults_again_500",
    },
    Pages {
        count: 5000,
        answer: "answer_5000",
        request: "request_5000",
        reset: "reset_5000",
        own: "own_kib_5000",
        faults: "faults_5000",
        faults_again: "faults_again_5000",
    },
];

/// KiB that a fork has of its own before it runs.
pub(super) const OWN_IDLE: &str = "own_kib_idle";
/// Forks that there were at once.
pub(super) const FORKS_AT_ONCE: &str = "forks_at_once";

/// Bytes of the most memory that forks which share none have at once.
pub(super) const MOST_UNSHARED: usize = 1 << 30;

const ROUNDS: u32 = 10;
const FORKS: u32 = 100;
pub(super) const MEMORY: Size = Size::blocks(32);

/// Pages of the largest request.
pub(super) fn largest() -> usize {
    REQUESTS.iter().map(|pages| pages.count).max().unwrap_or(0)
}

/// How often each design goes through all requests.
pub(super) fn rounds(request: &Request<'_>) -> u32 {
    request.params.rounds.unwrap_or(ROUNDS)
}

/// How many forks there are, beside one alone: one number after another.
pub(super) fn forks(request: &Request<'_>) -> Vec<u32> {
    request.params.forks_or(&[FORKS]).into_iter().filter(|&forks| forks > 1).collect()
}

/// The most forks that there are at once.
pub(super) fn most_forks(request: &Request<'_>) -> u32 {
    forks(request).into_iter().max().unwrap_or(1)
}
