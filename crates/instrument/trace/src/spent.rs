//! How time was spent: on a processor, runnable, or asleep, and in what.

use std::fmt;

use mayfly_record::units::duration;
use serde::{Deserialize, Serialize};

/// How time was spent, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// On a processor.
    pub ran: u64,
    /// Runnable, and not on a processor.
    pub queued: u64,
    /// Asleep in a page fault.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub fault: u64,
    /// Asleep in reading or writing a file, a pipe or a socket.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub file: u64,
    /// Asleep in waiting for a lock, of the program's own or of the kernel's.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub lock: u64,
    /// Asleep in anything else.
    pub slept: u64,
    /// Of this it is not known.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub unseen: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_nothing(time: &u64) -> bool {
    *time == 0
}

/// Less than this share of a stretch has no words, as one part of so many.
const LITTLE: u64 = 20;

impl Spent {
    pub(crate) fn whole(&self) -> u64 {
        self.ran + self.queued + self.fault + self.file + self.lock + self.slept + self.unseen
    }

    /// Neither on a processor nor runnable.
    pub(crate) fn asleep(&self) -> u64 {
        self.fault + self.file + self.lock + self.slept
    }

    #[must_use]
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            ran: self.ran + other.ran,
            queued: self.queued + other.queued,
            fault: self.fault + other.fault,
            file: self.file + other.file,
            lock: self.lock + other.lock,
            slept: self.slept + other.slept,
            unseen: self.unseen + other.unseen,
        }
    }

    /// Whether the thread ran for most of the time that is known.
    pub(crate) fn mostly_ran(&self) -> bool {
        2 * self.ran >= self.whole() - self.unseen
    }

    /// Whether next to all of it was spent on a processor.
    pub(crate) fn is_its_own(&self) -> bool {
        (self.whole() - self.ran) * LITTLE < self.whole()
    }
}

/// All that it did not run, in words; nothing where it did.
impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("runnable", self.queued),
            ("in page faults", self.fault),
            ("in files, pipes and sockets", self.file),
            ("waiting for locks", self.lock),
            ("asleep", self.slept),
            ("not seen", self.unseen),
        ];
        let parts = parts.iter().filter(|(_, time)| *time > 0 && time * LITTLE >= self.whole());
        let parts: Vec<String> =
            parts.map(|(what, time)| format!("{what} {}", duration(*time))).collect();
        f.write_str(&parts.join(", "))
    }
}
