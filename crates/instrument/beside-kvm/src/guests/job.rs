//! What guests do, and the steps in which that is counted.

use super::guest::Guest;

/// What the guests of a machine do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// One boots, and powers itself off.
    Boot,
}

impl Job {
    /// All of them.
    pub(super) const ALL: [Self; 1] = [Self::Boot];

    /// The guests. The first says when phases end, and its end is that of the last phase.
    pub(super) fn guests(self) -> Vec<Guest> {
        match self {
            Self::Boot => vec![Guest {
                name: "linux",
                vcpus: 4,
                memory: 512,
                disk: 16,
                card: 1,
                arguments: "console=hvc0 quiet".to_owned(),
            }],
        }
    }

    /// The name of the phase that ends with the first guest.
    pub(super) const fn last(self) -> &'static str {
        match self {
            Self::Boot => Step::Boot.name(),
        }
    }
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// A boot.
    Boot,
}

impl Step {
    /// All of them.
    pub const ALL: [Self; 1] = [Self::Boot];

    /// The name in records, and of the phase.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Boot => "boot",
        }
    }

    /// What is done, in one line.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Boot => {
                "a VM of 4 vCPUs with a disk, a card and a virtio console is made, boots, powers itself off, and is gone"
            }
        }
    }
}
