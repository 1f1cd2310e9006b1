//! What the thread of the console and the monitor hand each other: one request at a time, its answer, and events.
//!
//! The monitor never waits for the console: there is room for the answer to the one request, and events that nobody reads in
//! time are lost, and counted. The console takes no further request before the answer has gone out. So what the other side
//! sends beyond that waits there.

use super::events::{Event, Events};
use super::lines::LONGEST;
use super::request::Request;

/// The bytes of a line, with its end.
pub type LineBytes = [u8; LONGEST + 1];

/// A request for the monitor.
#[derive(Debug, PartialEq, Eq)]
pub struct Asked {
    /// What is to be done.
    pub request: Request,
    /// For a request with an answer of several lines: after which VM the next line is. VMs have numbers from 1 on.
    pub after: u64,
}

/// What is to be said next.
#[derive(Debug)]
pub enum Next {
    /// An event.
    Event(Event),
    /// A line of the answer has so many bytes. If there are more lines: the request, which is to be asked again.
    Answer(usize, Option<Asked>),
}

/// What has been handed over and not been taken yet. Its owner has it under a lock. What a method returns to be dropped is
/// dropped without that lock.
#[derive(Debug)]
pub struct Desk {
    events: Events,
    asked: Option<Asked>,
    answer: Option<(usize, Option<Asked>)>,
    line: LineBytes,
    /// What was said last was an event: an answer comes before the next.
    was_event: bool,
    is_closed: bool,
}

impl Desk {
    /// An empty one, with room for so many events; nothing, if there is no memory for that.
    pub fn try_new(events: usize) -> Option<Self> {
        Some(Self {
            events: Events::try_new(events)?,
            asked: None,
            answer: None,
            line: [0; LONGEST + 1],
            was_event: false,
            is_closed: false,
        })
    }

    /// Something has happened.
    pub fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    /// As [`Events::give_back`].
    pub fn give_back(&mut self, event: Event) {
        self.events.give_back(event);
    }

    /// The console hands the monitor a request. None before has no answer yet. Returns what is to be dropped.
    pub fn ask(&mut self, asked: Asked) -> Option<Asked> {
        if self.is_closed { Some(asked) } else { self.asked.replace(asked) }
    }

    /// Whether there is a request for the monitor.
    pub const fn has_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// The request for the monitor, which it [answers](Desk::answer).
    pub fn take(&mut self) -> Option<Asked> {
        self.asked.take()
    }

    /// The monitor hands over a line of the answer, and the request, if there are more lines. Returns what is to be dropped.
    pub fn answer(&mut self, line: &[u8], again: Option<Asked>) -> Option<Asked> {
        if self.is_closed {
            return again;
        }
        let len = line.len().min(self.line.len());
        self.line[..len].copy_from_slice(&line[..len]);
        self.answer.replace((len, again)).and_then(|(_, again)| again)
    }

    /// What the console says next. Events stay if nobody is there to read them.
    pub fn next(&mut self, takes_events: bool, line: &mut LineBytes) -> Option<Next> {
        if takes_events && !(self.was_event && self.answer.is_some()) {
            let event = self.events.take();
            if let Some(event) = event {
                self.was_event = true;
                return Some(Next::Event(event));
            }
        }
        let (len, again) = self.answer.take()?;
        self.was_event = false;
        line[..len].copy_from_slice(&self.line[..len]);
        Some(Next::Answer(len, again))
    }

    /// From now on nothing is done or said. Returns what is to be dropped.
    pub fn close(&mut self) -> (Option<Asked>, Option<Asked>) {
        self.is_closed = true;
        (self.asked.take(), self.answer.take().and_then(|(_, again)| again))
    }

    /// Whether it was closed.
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }
}
