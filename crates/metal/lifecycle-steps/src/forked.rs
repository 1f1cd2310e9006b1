//! The lives of forks: a guest of 64 MiB is frozen, and each fork goes on as it was.
//!
//! The guest has its caches on, and is frozen between two instructions: it has been told to ask for an order again. So the
//! first instructions of a fork are those in which it does, and come out to its caller. A request is an order to write to so
//! many pages, one after the other, and is answered when the guest asks for the next.
//!
//! What the guest was is in memory that forks can have at once: on KVM, its memory is a file from the beginning, and is not
//! copied.
//!
//! Each life begins when what the one before has deferred is over ([`quiet`]). So all that a step defers counts as its own, as
//! far as it is done within the wait that follows the step.
//!
//! A step that is counted from the beginning of a fork has a fork of its own, since a wait follows each step
//! ([`Counter::done`]). Whether forks find what they should is looked at in other forks than those whose reset and end are
//! counted: on KVM, a caller that reads a page has it mapped, which costs those steps.

use crate::course::{Counter, Vcpu};
use crate::guest::{MEMORY, Order, REGION};
use crate::{Row, times};

/// Pages that have [contents](content), from [`REGION`] on. Behind them, a side may have something of its own.
pub const PAGES: u32 = ((times::FORKED_BYTES - (REGION - MEMORY) - (2 << 20)) >> 12) as u32;

/// Where the last word of a page is.
const LAST: u64 = 4096 - 8;

/// A request, and what is counted of a fork that answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// To how many pages the guest writes.
    pub pages: u32,
    /// A fork is made, and answers it.
    pub answered: Row,
    /// A fork that has run answers it.
    pub wrote: Row,
    /// It goes back.
    pub reset: Row,
    /// It answers the same again.
    pub again: Row,
    /// It is destroyed.
    pub ended: Row,
}

impl Request {
    /// All of them.
    pub const ALL: [Self; 3] = [
        Self {
            pages: 50,
            answered: Row::ForkAnswered50,
            wrote: Row::ForkWrote50,
            reset: Row::ForkReset50,
            again: Row::ForkAgain50,
            ended: Row::ForkEnded50,
        },
        Self {
            pages: 500,
            answered: Row::ForkAnswered500,
            wrote: Row::ForkWrote500,
            reset: Row::ForkReset500,
            again: Row::ForkAgain500,
            ended: Row::ForkEnded500,
        },
        Self {
            pages: 5000,
            answered: Row::ForkAnswered5000,
            wrote: Row::ForkWrote5000,
            reset: Row::ForkReset5000,
            again: Row::ForkAgain5000,
            ended: Row::ForkEnded5000,
        },
    ];
}

/// The life of a fork, by what is counted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// The first fork of the frozen guest, which is made and runs. It may have to do what the others need not.
    First,
    /// It is made.
    Made,
    /// Its registers are set.
    Registers,
    /// It is made and runs; its end.
    Ran,
    /// It is made and answers; it goes back, answers again, and ends.
    Answered(Request),
    /// A request to it, when it has run. Whether its memory is what it should be.
    Wrote(Request),
}

impl Life {
    /// All of them, in the order in which they are measured.
    pub const ALL: [Self; 10] = {
        let [few, more, many] = Request::ALL;
        [
            Self::First,
            Self::Made,
            Self::Registers,
            Self::Ran,
            Self::Answered(few),
            Self::Answered(more),
            Self::Answered(many),
            Self::Wrote(few),
            Self::Wrote(more),
            Self::Wrote(many),
        ]
    };

    /// The request that it answers.
    pub const fn request(self) -> Option<Request> {
        match self {
            Self::Answered(request) | Self::Wrote(request) => Some(request),
            _ => None,
        }
    }

    /// Pages that its guest writes: what an earlier fork of that kind has written. Of one that answers nothing, these are
    /// those of the smallest request.
    pub fn pages(self) -> u32 {
        self.request().unwrap_or(Request::ALL[0]).pages
    }

    /// Whether its memory is looked at.
    pub const fn is_checked(self) -> bool {
        matches!(self, Self::Wrote(_))
    }

    /// The row of its reset, where that is counted.
    pub const fn reset(self) -> Option<Row> {
        match self {
            Self::Answered(request) => Some(request.reset),
            _ => None,
        }
    }

    /// The row of its end, where that is counted.
    pub const fn ended(self) -> Option<Row> {
        match self {
            Self::Ran => Some(Row::ForkEnded),
            Self::Answered(request) => Some(request.ended),
            _ => None,
        }
    }
}

/// A vCPU of a fork.
pub trait Forked: Vcpu {
    /// Runs it, which goes on as the frozen one was, until it asks for an order.
    ///
    /// # Errors
    ///
    /// When it leaves the guest for another reason.
    fn go_on(&mut self) -> Result<(), Self::Error>;
}

/// Waits until what was deferred is over, and measures an empty step.
///
/// # Errors
///
/// When the counters cannot be read.
pub fn quiet<C: Counter>(counter: &mut C) -> Result<(), C::Error> {
    for _ in 0..times::QUIET {
        counter.settle();
    }
    counter.step(Row::Nothing, || Ok(()))
}

/// Counts the life of a fork that was just made, up to its reset. `begun` is when it was begun, or its registers where these
/// are counted alone.
///
/// # Errors
///
/// Those of the vCPU and the counter.
pub fn begins<E, C: Counter<Error = E>>(
    life: Life,
    begun: &C::Moment,
    vcpu: &mut impl Forked<Error = E>,
    counter: &mut C,
) -> Result<(), E> {
    match life {
        Life::First => {
            vcpu.go_on()?;
            counter.done(Row::ForkRanFirst, 1, begun)
        }
        Life::Made => counter.done(Row::ForkMade, 1, begun),
        Life::Registers => counter.done(Row::ForkRegisters, 1, begun),
        Life::Ran => {
            vcpu.go_on()?;
            counter.done(Row::ForkRan, 1, begun)
        }
        Life::Answered(request) => {
            vcpu.go_on()?;
            vcpu.obey(Order::Pages, request.pages)?;
            counter.done(request.answered, 1, begun)
        }
        Life::Wrote(request) => {
            vcpu.go_on()?;
            let begun = counter.now()?;
            vcpu.obey(Order::Pages, request.pages)?;
            counter.done(request.wrote, 1, &begun)
        }
    }
}

/// Has a fork that has gone back answer its request again.
///
/// # Errors
///
/// Those of the vCPU and the counter.
pub fn answers_again<E, C: Counter<Error = E>>(
    life: Life,
    request: Request,
    vcpu: &mut impl Forked<Error = E>,
    counter: &mut C,
) -> Result<(), E> {
    let begun = counter.now()?;
    vcpu.go_on()?;
    vcpu.obey(Order::Pages, request.pages)?;
    match life {
        Life::Answered(_) => counter.done(request.again, 1, &begun),
        _ => Ok(()),
    }
}

/// What the first and the last word of each page are when the guest is frozen.
pub const fn content(page: u32) -> u64 {
    0xfeed_0000_0000_0000 | page as u64
}

/// Writes the contents of the pages. `write` takes the distance from [`MEMORY`], and the bytes.
///
/// # Errors
///
/// That of `write`.
pub fn fill<E>(mut write: impl FnMut(u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
    for (page, at) in places() {
        for at in [at, at + LAST] {
            write(at, &content(page).to_le_bytes())?;
        }
    }
    Ok(())
}

/// How many pages are not as they have to be, where a request has written to the first `written` pages. `read` takes the
/// distance from [`MEMORY`] of a word.
///
/// # Errors
///
/// That of `read`.
pub fn count_wrong<E>(written: u32, mut read: impl FnMut(u64) -> Result<u64, E>) -> Result<u32, E> {
    let mut wrong = 0;
    for (page, at) in places() {
        // The guest writes how many pages are left, with this one.
        let first = if page < written { (written - page).into() } else { content(page) };
        wrong += u32::from(read(at)? != first || read(at + LAST)? != content(page));
    }
    Ok(wrong)
}

/// The pages, and where they are.
fn places() -> impl Iterator<Item = (u32, u64)> {
    (0..PAGES).zip((REGION - MEMORY..).step_by(4096))
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;
    use crate::{Architecture, Course};

    #[test]
    fn each_row_of_forks_is_measured_in_one_life() {
        let requests = Request::ALL.into_iter();
        let of_request =
            requests.flat_map(|it| [it.answered, it.wrote, it.reset, it.again, it.ended]);
        let others = [
            Row::Nothing,
            Row::MmioUser,
            Row::ForkFrozen,
            Row::ForkRanFirst,
            Row::ForkMade,
            Row::ForkRegisters,
            Row::ForkRan,
            Row::ForkEnded,
        ];
        let mut rows: Vec<_> = of_request.chain(others).collect();
        rows.sort_unstable();
        assert!(rows.into_iter().eq(Row::of(Course::Fork, Architecture::Arm64)));
    }

    #[test]
    fn rows_are_named_after_the_pages_of_their_request() {
        for request in Request::ALL {
            let Request { pages, answered, wrote, reset, again, ended } = request;
            for row in [answered, wrote, reset, again, ended] {
                assert!(row.name().ends_with(&std::format!("-{pages}")), "{}", row.name());
            }
            assert!(pages < PAGES);
            assert_eq!([answered, wrote, reset, again, ended].map(Row::asks), [2, 1, 0, 2, 0]);
        }
    }

    #[test]
    fn pages_that_are_not_as_they_have_to_be_are_counted() {
        let mut memory = vec![0_u8; (REGION - MEMORY) as usize + (PAGES as usize) * 4096];
        fill(|at, bytes| {
            memory[at as usize..at as usize + 8].copy_from_slice(bytes);
            Ok::<_, ()>(())
        })
        .unwrap();
        let count = |memory: &[u8], written| {
            let read = |at: u64| {
                let bytes = memory[at as usize..].first_chunk().unwrap();
                Ok::<_, ()>(u64::from_le_bytes(*bytes))
            };
            count_wrong(written, read).unwrap()
        };
        assert_eq!((count(&memory, 0), count(&memory, 50)), (0, 50));
        let first = (REGION - MEMORY) as usize;
        for page in 0..50 {
            memory[first + 4096 * page..][..8].copy_from_slice(&(50 - page as u64).to_le_bytes());
        }
        assert_eq!((count(&memory, 0), count(&memory, 50)), (50, 0));
        // A page whose rest was not copied.
        memory[first + 4096 * 50 - 1] ^= 1;
        assert_eq!(count(&memory, 50), 1);
    }
}
