//! Where an experiment runs.

use std::fmt;

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
    /// A machine that QEMU makes up, with Mayfly at EL2 or a Linux and its KVM on it: counted in instructions.
    Metal,
}

impl Backend {
    /// Every backend, in the order of reports.
    pub const ALL: [Self; 3] = [Self::Machine, Self::Kvm, Self::Metal];

    /// The name used on the command line and in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Kvm => "kvm",
            Self::Metal => "metal",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
