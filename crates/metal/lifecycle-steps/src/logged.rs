//! The course of a dirty log: 256 MiB are mapped and written, the log is started, harvested, and stopped.
//!
//! The guest writes to one page in each 2 MiB first. Where memory is in blocks, this is the first write to each block. Then
//! it writes to 1 %, 10 % and all of the pages; the log is harvested after each. At the end, all pages have been written and
//! harvested, so none is writable; the log is stopped, and the guest writes once more: to every page, or to each block.

use crate::course::{Counter, Vcpu, ordered};
use crate::guest::{Order, spread};
use crate::large::Mapping;
use crate::{Row, times};

/// Pages of the memory.
pub const PAGES: u32 = (times::BYTES >> 12) as u32;

/// Blocks of the memory.
pub const BLOCKS: u32 = (times::BYTES >> 21) as u32;

/// Writes to pages that lie equally far apart, and the harvest of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The row of the writes.
    pub writes: Row,
    /// The row of the harvest.
    pub harvested: Row,
    /// From one page to the next.
    pub stride: u16,
}

impl Share {
    /// How many pages are written.
    pub const fn pages(self) -> u32 {
        PAGES.div_ceil(self.stride as u32)
    }
}

/// The rows of one [`Mapping`], in the order in which they are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The log is started.
    pub started: Row,
    /// One page in each 2 MiB, and then 1 %, 10 % and all.
    pub shares: [Share; 4],
    /// The log is stopped.
    pub stopped: Row,
    /// The writes after that.
    pub unlogged: Row,
}

impl Rows {
    /// Those of a mapping.
    pub const fn of(mapping: Mapping) -> Self {
        const fn share(writes: Row, harvested: Row, stride: u16) -> Share {
            Share { writes, harvested, stride }
        }
        match mapping {
            Mapping::Pages => Self {
                started: Row::LogStarted4k,
                shares: [
                    share(Row::LoggedFirst4k, Row::Harvested4k, 512),
                    share(Row::Logged1Of4k, Row::Harvested1Of4k, 100),
                    share(Row::Logged10Of4k, Row::Harvested10Of4k, 10),
                    share(Row::Logged100Of4k, Row::Harvested100Of4k, 1),
                ],
                stopped: Row::LogStopped4k,
                unlogged: Row::Unlogged4k,
            },
            Mapping::Blocks => Self {
                started: Row::LogStarted2m,
                shares: [
                    share(Row::LoggedFirst2m, Row::Harvested2m, 512),
                    share(Row::Logged1Of2m, Row::Harvested1Of2m, 100),
                    share(Row::Logged10Of2m, Row::Harvested10Of2m, 10),
                    share(Row::Logged100Of2m, Row::Harvested100Of2m, 1),
                ],
                stopped: Row::LogStopped2m,
                unlogged: Row::Unlogged2m,
            },
        }
    }

    /// All of them, in order.
    pub fn all(self) -> impl Iterator<Item = Row> {
        let shares = self.shares.into_iter().flat_map(|share| [share.writes, share.harvested]);
        [self.started].into_iter().chain(shares).chain([self.stopped, self.unlogged])
    }
}

/// The dirty log of the slot that a guest writes to.
pub trait Log<V> {
    /// Why a call failed.
    type Error;

    /// Starts it.
    ///
    /// # Errors
    ///
    /// Why it failed.
    fn start(&mut self) -> Result<(), Self::Error>;

    /// Names the pages that were written, and takes them out of the log. The vCPU does not run meanwhile.
    ///
    /// # Errors
    ///
    /// Why it failed.
    fn harvest(&mut self, vcpu: &mut V) -> Result<(), Self::Error>;

    /// How many pages the last harvest has named, and what the vCPU had to be helped with before. Not measured.
    fn named(&mut self, vcpu: &mut V) -> u32;

    /// Whether it names all pages at first, written or not.
    fn begins_full(&self) -> bool {
        false
    }

    /// Stops it; puts blocks in place again, where that is done by a call.
    ///
    /// # Errors
    ///
    /// Why it failed.
    fn stop(&mut self) -> Result<(), Self::Error>;

    /// What to say if a harvest has not named what was written.
    fn has_lost(&self, share: Share, named: u32) -> Self::Error;
}

/// Measures the course of a log. The guest's caches are on, and the vCPU has asked for an order.
///
/// # Errors
///
/// Those of the vCPU, the counter and the log; and [`Log::has_lost`].
pub fn logged<E, V: Vcpu<Error = E>>(
    mapping: Mapping,
    vcpu: &mut V,
    counter: &mut impl Counter<Error = E>,
    log: &mut impl Log<V, Error = E>,
) -> Result<(), E> {
    ordered(vcpu, counter, Row::MmioUser, Order::Ask, 1)?;
    vcpu.obey(Order::Pages, PAGES)?;
    // Until what the making of the VM has deferred is over.
    for _ in 0..times::QUIET {
        counter.settle();
    }

    let rows = Rows::of(mapping);
    counter.step(rows.started, || log.start())?;
    for (share, number) in rows.shares.into_iter().zip(0..) {
        let begun = counter.now()?;
        vcpu.obey_answer(spread(share.pages(), share.stride))?;
        counter.done(share.writes, share.pages(), &begun)?;
        counter.step(share.harvested, || log.harvest(vcpu))?;
        let named = log.named(vcpu);
        let written = if number == 0 && log.begins_full() { PAGES } else { share.pages() };
        if named != written {
            return Err(log.has_lost(share, named));
        }
    }
    counter.step(rows.stopped, || log.stop())?;
    let (order, touches) = match mapping {
        Mapping::Pages => (Order::Pages, PAGES),
        Mapping::Blocks => (Order::Blocks, BLOCKS),
    };
    ordered(vcpu, counter, rows.unlogged, order, touches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Architecture, Course};

    #[test]
    fn each_row_of_the_course_is_measured_once() {
        let all = Mapping::ALL.into_iter().flat_map(|mapping| Rows::of(mapping).all());
        let both = [Row::Nothing, Row::MmioUser].into_iter().chain(all);
        let mut rows: std::vec::Vec<_> = both.collect();
        rows.sort_unstable();
        assert!(rows.into_iter().eq(Row::of(Course::DirtyLog, Architecture::Arm64)));
    }

    #[test]
    fn writes_ask_once_and_calls_do_not() {
        for rows in Mapping::ALL.map(Rows::of) {
            let calls = rows.shares.iter().map(|share| share.harvested);
            assert!(calls.chain([rows.started, rows.stopped]).all(|row| row.asks() == 0));
            let writes = rows.shares.iter().map(|share| share.writes);
            assert!(writes.chain([rows.unlogged]).all(|row| row.asks() == 1));
        }
    }

    #[test]
    fn shares_are_of_the_whole_memory() {
        for rows in Mapping::ALL.map(Rows::of) {
            assert_eq!(rows.shares.map(Share::pages), [BLOCKS, 656, 6554, PAGES]);
            let last = |share: Share| (share.pages() - 1) * u32::from(share.stride);
            assert!(rows.shares.into_iter().all(|share| last(share) < PAGES));
        }
    }
}
