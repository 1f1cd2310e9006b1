//! KVM's ways to log what a guest writes.

use std::fmt;
use std::str::FromStr;

/// A way, which a VMM chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The start write-protects all. A write to a block unmaps it, and maps its page.
    WriteProtect,
    /// The same, and the start splits all blocks (`KVM_CAP_ARM_EAGER_SPLIT_CHUNK_SIZE`).
    EagerSplit,
    /// The start sets all bits of the bitmap, and pages are write-protected when their bits are taken out
    /// (`KVM_DIRTY_LOG_INITIALLY_SET`).
    InitiallySet,
    /// Written pages go to a ring of their vCPU (`KVM_CAP_DIRTY_LOG_RING_ACQ_REL`); the start write-protects all.
    Ring,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::WriteProtect, Self::EagerSplit, Self::InitiallySet, Self::Ring];

    /// The name in records and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WriteProtect => "write-protect",
            Self::EagerSplit => "eager-split",
            Self::InitiallySet => "initially-set",
            Self::Ring => "ring",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Way {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|way| way.name() == text);
        found.ok_or("accepted are write-protect, eager-split, initially-set, ring")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_found_by_its_name() {
        for way in Way::ALL {
            assert_eq!(way.to_string().parse(), Ok(way));
            let accepted = "".parse::<Way>().unwrap_err();
            assert!(accepted.contains(way.name()), "{accepted}");
        }
    }
}
