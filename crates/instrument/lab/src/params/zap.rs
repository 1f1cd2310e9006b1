//! What deleting a memslot zaps.

use std::fmt;
use std::str::FromStr;

use super::named::by_name;

/// What deleting a memslot zaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zap {
    /// Every root: vCPUs begin with an empty one. KVM's default on x86.
    AllRoots,
    /// What the slot had mapped, in the roots that there are. KVM's way on arm64.
    Range,
}

impl Zap {
    /// Both, as reports list them.
    pub const ALL: [Self; 2] = [Self::AllRoots, Self::Range];

    /// The parameter's name on the command line, without the dashes, and in records.
    pub const PARAM: &'static str = "zap";

    /// The name used on the command line and in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllRoots => "all-roots",
            Self::Range => "range",
        }
    }
}

impl fmt::Display for Zap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Zap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        by_name(&Self::ALL, Self::name, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_reads_back_from_its_name_and_others_are_refused() {
        for zap in Zap::ALL {
            assert_eq!(zap.name().parse(), Ok(zap));
        }
        for text in ["", "all", "Range", "range "] {
            assert_eq!(text.parse::<Zap>(), Err("accepted are all-roots, range".to_owned()));
        }
    }
}
