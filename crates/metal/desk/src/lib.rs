//! What the thread of the console and the monitor hand each other: one request at a time, its answer, and events.
//!
//! The monitor never waits for the console: there is room for the answer to the one request, and events that nobody reads in
//! time are lost, and counted. The console takes no further request before the answer has gone out. So what the other side
//! sends beyond that waits there.
//!
//! **Order.** All is told in the order in which it was handed over: an answer after the events that were there before it,
//! and before those that come later.

#![no_std]

extern crate alloc;

mod endings;
mod events;
mod gate;

pub use endings::Endings;
pub use events::{Event, Events, Name, beginning};
pub use gate::{Gate, Inside};

/// What is to be said next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<A> {
    /// An event.
    Event(Event),
    /// A line of the answer has so many bytes. If there are more lines: the request, which is to be asked again.
    Answer(usize, Option<A>),
}

/// A line of an answer that was not taken yet.
#[derive(Debug)]
struct Answer<A> {
    len: usize,
    again: Option<A>,
    /// How many events are told before it.
    behind: usize,
}

/// What has been handed over and not been taken yet: requests are an `A`, and lines have `LINE` bytes at most. Its owner has it
/// under a lock. What a method returns to be dropped is dropped without that lock.
#[derive(Debug)]
pub struct Desk<A, const LINE: usize> {
    events: Events,
    asked: Option<A>,
    answer: Option<Answer<A>>,
    line: [u8; LINE],
    is_closed: bool,
}

impl<A, const LINE: usize> Desk<A, LINE> {
    /// An empty one, with room for so many events; nothing, if there is no memory for that.
    pub fn try_new(events: usize) -> Option<Self> {
        let events = Events::try_new(events)?;
        Some(Self { events, asked: None, answer: None, line: [0; LINE], is_closed: false })
    }

    /// Something has happened.
    pub fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    /// As [`Events::give_back`].
    pub fn give_back(&mut self, event: Event) {
        let before = self.events.count();
        self.events.give_back(event);
        if let Some(answer) = &mut self.answer {
            answer.behind += self.events.count() - before;
        }
    }

    /// The console hands the monitor a request. None before has no answer yet. Returns what is to be dropped.
    pub fn ask(&mut self, asked: A) -> Option<A> {
        if self.is_closed { Some(asked) } else { self.asked.replace(asked) }
    }

    /// Whether there is a request for the monitor.
    pub const fn has_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// The request for the monitor, which it [answers](Desk::answer).
    pub const fn take(&mut self) -> Option<A> {
        self.asked.take()
    }

    /// The monitor hands over a line of the answer, and the request, if there are more lines. Returns what is to be dropped.
    pub fn answer(&mut self, line: &[u8], again: Option<A>) -> Option<A> {
        if self.is_closed {
            return again;
        }
        let len = line.len().min(LINE);
        self.line[..len].copy_from_slice(&line[..len]);
        let answer = Answer { len, again, behind: self.events.count() };
        self.answer.replace(answer).and_then(|before| before.again)
    }

    /// What the console says next. Events stay if nobody is there to read them.
    pub fn next(&mut self, takes_events: bool, line: &mut [u8; LINE]) -> Option<Next<A>> {
        let is_first = self.answer.as_ref().is_some_and(|answer| answer.behind == 0);
        if takes_events
            && !is_first
            && let Some(event) = self.events.take()
        {
            if let Some(answer) = &mut self.answer {
                answer.behind -= 1;
            }
            return Some(Next::Event(event));
        }
        let Answer { len, again, .. } = self.answer.take()?;
        line[..len].copy_from_slice(&self.line[..len]);
        Some(Next::Answer(len, again))
    }

    /// From now on nothing is done or said. Returns what is to be dropped.
    pub fn close(&mut self) -> (Option<A>, Option<A>) {
        self.is_closed = true;
        (self.asked.take(), self.answer.take().and_then(|answer| answer.again))
    }

    /// Whether it was closed.
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }
}
