//! Whether the host's page merger may run, and on whose memory.

use std::str::FromStr;

use mayfly_kvm::Company;

use super::named::by_name;

/// That the host's page merger (KSM) may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ksm {
    /// If it merges only this run's memory.
    Alone,
    /// Even if other processes let it merge their memory.
    Shared,
}

impl Ksm {
    /// The parameter's name on the command line, without the dashes, and in records.
    pub const PARAM: &'static str = "ksm";

    /// The name used on the command line and in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Shared => "shared",
        }
    }

    pub(crate) const fn company(self) -> Company {
        match self {
            Self::Alone => Company::None,
            Self::Shared => Company::Any,
        }
    }
}

impl FromStr for Ksm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        by_name(&[Self::Alone, Self::Shared], Self::name, text)
    }
}
