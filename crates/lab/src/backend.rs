//! Where an experiment runs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Where an experiment runs: what executes the life of a VM.
///
/// Ordered as reports show them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// The software machine: an ordinary process, any Linux.
    Machine,
    /// The running kernel's KVM, through `/dev/kvm`.
    Kvm,
}

impl Backend {
    /// Every backend, in the order of reports.
    pub const ALL: [Self; 2] = [Self::Machine, Self::Kvm];

    /// The name used on the command line and in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Kvm => "kvm",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Which backends the user asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// The machine, and KVM where it can be opened; where it cannot, a skipped row says why.
    #[default]
    Auto,
    /// This backend alone. Asking for KVM where it cannot be opened is an error.
    Only(Backend),
}

impl BackendChoice {
    /// Whether `backend` is among those asked for.
    pub fn includes(self, backend: Backend) -> bool {
        match self {
            Self::Auto => true,
            Self::Only(only) => only == backend,
        }
    }
}

impl FromStr for BackendChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "machine" => Ok(Self::Only(Backend::Machine)),
            "kvm" => Ok(Self::Only(Backend::Kvm)),
            _ => Err("accepted are auto, machine, kvm".to_owned()),
        }
    }
}
