//! Something on a host that a VM waits for.

use serde::{Deserialize, Serialize};

/// What was found. Its names stay: they stand in JSON and in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// A call waits for a grace period that another has armed.
    GracePeriod,
    /// With a full irqchip, no order of a VM's start is without such a wait.
    NoGoodOrder,
    /// `KVM_CREATE_VM` takes longer than a tick.
    SlowCreate,
    /// The first `KVM_RUN` of a VM takes longer than a tick more than the second.
    SlowFirstRun,
    /// Closing a VM takes longer than a tick.
    SlowClose,
    /// Guest memory in pages of 4 KiB takes twice as long, or longer, to be touched first as in huge pages.
    SmallPages,
}

impl Code {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::GracePeriod,
        Self::NoGoodOrder,
        Self::SlowCreate,
        Self::SlowFirstRun,
        Self::SlowClose,
        Self::SmallPages,
    ];

    /// As it stands in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::GracePeriod => "grace-period",
            Self::NoGoodOrder => "no-good-order",
            Self::SlowCreate => "slow-create",
            Self::SlowFirstRun => "slow-first-run",
            Self::SlowClose => "slow-close",
            Self::SmallPages => "small-pages",
        }
    }
}

/// What a VM waits for on a host, why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What it is.
    pub code: Code,
    /// What waits, and how long, in a sentence.
    pub what: String,
    /// The cause, as far as it is known.
    pub why: String,
    /// What to do about it.
    pub change: String,
    /// What that gains, as it was measured here. Absent where measuring it would change the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<String>,
    /// The same in numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gains: Vec<Gain>,
    /// How long the wait is, in nanoseconds.
    pub wait_ns: u64,
}

/// How long something takes as it is, and with the remedy: medians of VMs that were made here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gain {
    /// What takes so long. These names stay, too.
    pub of: String,
    /// As it is, in nanoseconds.
    pub before_ns: u64,
    /// With the remedy, in nanoseconds.
    pub after_ns: u64,
}

impl Gain {
    pub(crate) fn of(of: &str, [before_ns, after_ns]: [u64; 2]) -> Self {
        Self { of: of.to_owned(), before_ns, after_ns }
    }
}
