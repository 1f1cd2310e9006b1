//! KVM's ways to make a dirty log, and a fork.

use std::fmt;
use std::str::FromStr;

use mayfly_lifecycle_steps::Course;

/// A way, which a VMM chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The start of a log write-protects all. A write to a block unmaps it, and maps its page.
    WriteProtect,
    /// The same, and the start splits all blocks (`KVM_CAP_ARM_EAGER_SPLIT_CHUNK_SIZE`).
    EagerSplit,
    /// The start sets all bits of the bitmap, and pages are write-protected when their bits are taken out
    /// (`KVM_DIRTY_LOG_INITIALLY_SET`).
    InitiallySet,
    /// Written pages go to a ring of their vCPU (`KVM_CAP_DIRTY_LOG_RING_ACQ_REL`); the start write-protects all.
    Ring,
    /// The memory of a fork is the snapshot's file (a memfd), mapped privately: the kernel copies a page when it is first
    /// written.
    MapPrivate,
    /// The same. The pages that an earlier fork wrote are written ahead (`MADV_POPULATE_WRITE`).
    Prefetch,
    /// All of the snapshot is copied.
    Copy,
    /// A thread of the VMM serves each fault (`userfaultfd(2)`).
    Userfault,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::WriteProtect,
        Self::EagerSplit,
        Self::InitiallySet,
        Self::Ring,
        Self::MapPrivate,
        Self::Prefetch,
        Self::Copy,
        Self::Userfault,
    ];

    /// Those of a course.
    pub fn of(course: Course) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |way| way.course() == course)
    }

    /// What is made by it.
    pub const fn course(self) -> Course {
        match self {
            Self::WriteProtect | Self::EagerSplit | Self::InitiallySet | Self::Ring => {
                Course::DirtyLog
            }
            Self::MapPrivate | Self::Prefetch | Self::Copy | Self::Userfault => Course::Fork,
        }
    }

    /// The name in records and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WriteProtect => "write-protect",
            Self::EagerSplit => "eager-split",
            Self::InitiallySet => "initially-set",
            Self::Ring => "ring",
            Self::MapPrivate => "map-private",
            Self::Prefetch => "prefetch",
            Self::Copy => "copy",
            Self::Userfault => "userfault",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|way| way.name() == text);
        found.ok_or_else(|| format!("accepted are {}", Self::ALL.map(Self::name).join(", ")))
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

    #[test]
    fn lives_have_one_way_and_the_other_courses_four() {
        let counts = Course::ALL.map(|course| Way::of(course).count());
        assert_eq!(counts, [0, 4, 4]);
    }
}
