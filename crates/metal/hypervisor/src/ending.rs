//! How a run of a VM ends, and which end takes the place of which.
//!
//! A run that is to be forked goes on, and one that is to be frozen may: where something of it cannot be kept, its vCPUs run again. So a thread of
//! it finishes what it is about, and waits for a frame as before. The same holds of a run that goes back to what it began
//! as: its threads go on with the next. A run that is over for good waits for nothing.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum End {
    /// The guest has powered the machine off.
    Off = 1,
    /// The guest restarts the machine.
    Reset,
    /// The user has ended it.
    Killed,
    /// Memory has ended, and it was the furthest above its guarantee.
    OutOfMemory,
    /// It could not begin.
    Failed,
    /// The user has frozen it, or forks it: others begin as it is. Where it is forked, it goes on.
    Frozen,
    /// The user has a fork go back to what it began as: another run of it follows.
    Back,
}

impl End {
    const ALL: [Self; 7] = [
        Self::Off,
        Self::Reset,
        Self::Killed,
        Self::OutOfMemory,
        Self::Failed,
        Self::Frozen,
        Self::Back,
    ];

    fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|end| *end as u32 == number)
    }

    /// Whether `other` takes the place of this one. [`End::Killed`] does of [`End::Reset`], after which another run would
    /// come, which the user does not want. [`End::Frozen`] gives way to all ends: a guest that turns itself off meanwhile
    /// is off. [`End::Back`] gives way to all ends but the guest's own: what the guest does meanwhile is to be gone.
    fn gives_way_to(self, other: Self) -> bool {
        match self {
            Self::Frozen => !matches!(other, Self::Frozen | Self::Back),
            Self::Back => matches!(other, Self::Killed | Self::OutOfMemory | Self::Failed),
            Self::Reset => other == Self::Killed,
            _ => false,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "has powered off",
            Self::Reset => "restarts",
            Self::Killed => "was ended",
            Self::OutOfMemory => {
                "was ended: it was the furthest above its guarantee when memory ended"
            }
            Self::Failed => "was ended: it cannot continue",
            Self::Frozen => "is frozen",
            Self::Back => "goes back to what it began as",
        })
    }
}

/// How a run ends, once it does. Any thread may say so; what a thread has written before [`mark`](Ending::mark) is seen by
/// one that finds the end by [`now`](Ending::now) (release and acquire).
#[derive(Debug, Default)]
pub struct Ending(AtomicU32);

impl Ending {
    /// From now on the run ends in this way, unless it did in one that does not give way. Returns whether it is news.
    pub fn mark(&self, end: End) -> bool {
        let set = self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |now| {
            End::of(now).is_none_or(|now| now.gives_way_to(end)).then_some(end as u32)
        });
        set.is_ok()
    }

    /// How it ends, once it does.
    pub fn now(&self) -> Option<End> {
        End::of(self.0.load(Ordering::Acquire))
    }

    /// Whether it ends for good. One that is to be frozen does not: it may go on. Nor does one that goes back.
    pub fn is_final(&self) -> bool {
        self.now().is_some_and(|end| !matches!(end, End::Frozen | End::Back))
    }

    /// It was to be frozen, and goes on. Returns whether it does: not if it ends for good.
    pub fn take_back(&self) -> bool {
        let frozen = End::Frozen as u32;
        self.0.compare_exchange(frozen, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a run is after these ends were asked for, each by what a reader of the rules would say.
    fn expected(asked: &[End]) -> Option<End> {
        let mut now = None;
        for end in asked {
            now = match (now, *end) {
                (Some(End::Frozen), End::Back) => now,
                (None | Some(End::Frozen), end) => Some(end),
                (Some(End::Reset | End::Back), End::Killed) => Some(End::Killed),
                (Some(End::Back), End::OutOfMemory | End::Failed) => Some(*end),
                (now, _) => now,
            };
        }
        now
    }

    #[test]
    fn of_three_ends_the_one_counts_that_the_rules_say() {
        for first in End::ALL {
            for second in End::ALL {
                for third in End::ALL {
                    let asked = [first, second, third];
                    let ending = Ending::default();
                    for (number, end) in asked.iter().enumerate() {
                        let (before, after) = (&asked[..number], &asked[..=number]);
                        let is_news = expected(before) != expected(after);
                        assert_eq!(ending.mark(*end), is_news, "{end:?} after {before:?}");
                        assert_eq!(ending.now(), expected(after), "{after:?}");
                        let is_final =
                            !matches!(expected(after), None | Some(End::Frozen | End::Back));
                        assert_eq!(ending.is_final(), is_final, "{after:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_run_goes_on_that_was_to_be_frozen_and_no_other() {
        for end in End::ALL {
            let ending = Ending::default();
            assert!(!ending.take_back(), "one that does not end");
            ending.mark(end);
            assert_eq!(ending.take_back(), end == End::Frozen, "{end:?}");
            assert_eq!(ending.now(), Some(end).filter(|end| *end != End::Frozen));
        }
    }
}
