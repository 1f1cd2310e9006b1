//! The console's side of the protocol: bytes that come are requests, for the desk or refused, and what is said goes out.
//!
//! Nothing is read while a request has no answer, or while what is said finds no room. So the other side cannot have the
//! program keep more than one line each way, whatever it sends, and whether it reads or not.

use mayfly_desk::Event;

use super::desk::{Asked, Desk, LineBytes, Next};
use super::lines::{LONGEST, Lines};
use super::request::{Refused, Request};
use super::said::Said;

/// How many bytes are read at a time.
const READ: usize = 256;

/// What bytes come from, and go to.
pub trait Port {
    /// Whether a program on the other side is there, as far as was told.
    fn is_open(&mut self) -> bool;

    /// The next bytes that have come: how many, 0 for none.
    fn read(&mut self, into: &mut [u8]) -> usize;

    /// Has all of these bytes go out, or drops them if nobody is there. Returns whether there was room.
    fn write(&mut self, bytes: &[u8]) -> bool;
}

/// The desk, under its lock.
pub trait Locked {
    /// Does something with it.
    fn with<R>(&self, work: impl FnOnce(&mut Desk) -> R) -> R;
}

/// What has come and what is said.
#[derive(Debug)]
pub struct Talk {
    lines: Lines,
    look: fn(),
    read: [u8; READ],
    from: usize,
    to: usize,
    /// A line that waits for room has so many bytes.
    line: LineBytes,
    len: usize,
    /// What that line is.
    what: What,
    /// For which program on the other side the monitor does a request.
    asked_by: Option<u64>,
    /// Which program is on the other side, in the order of their coming and going.
    program: u64,
}

#[derive(Debug)]
enum What {
    Event(Event),
    /// An answer to this program, and what is asked again once it has gone out.
    Answer(u64, Option<Asked>),
}

impl Talk {
    /// Before the first byte. `look` looks for interrupts: it is called while a line is read.
    pub const fn new(look: fn()) -> Self {
        Self {
            lines: Lines::new(),
            look,
            read: [0; READ],
            from: 0,
            to: 0,
            line: [0; LONGEST + 1],
            len: 0,
            what: What::Answer(0, None),
            asked_by: None,
            program: 0,
        }
    }

    /// The program on the other side has come, or has gone: answers to requests before are not said.
    pub const fn changed(&mut self) {
        self.program += 1;
    }

    /// Whether it reads what comes next: a request has no answer yet, or a line has found no room, if not.
    pub const fn reads(&self) -> bool {
        self.asked_by.is_none() && self.len == 0
    }

    /// Does one thing, if there is one to do. Returns whether it did. Otherwise there is something to do when the port or
    /// the desk has changed.
    pub fn turn(&mut self, port: &mut impl Port, desk: &impl Locked) -> bool {
        if desk.with(|desk| desk.is_closed()) {
            (self.len, self.what) = (0, What::Answer(0, None));
            // Nothing is read any more.
            self.asked_by = Some(self.program);
            return false;
        }
        if self.len > 0 {
            return self.say(port, desk);
        }
        let is_open = port.is_open();
        match desk.with(|desk| desk.next(is_open, &mut self.line)) {
            Some(Next::Event(event)) => {
                self.what = What::Event(event);
                self.write(Said::Event(&event));
                return true;
            }
            Some(Next::Answer(len, again)) => {
                // A request whose program is gone has no further lines.
                let asked_by = self.asked_by.take();
                if let Some(program) = asked_by.filter(|program| *program == self.program) {
                    (self.len, self.what) = (len, What::Answer(program, again));
                }
                return true;
            }
            None => {}
        }
        self.reads() && self.listen(port, desk)
    }

    /// Has a line go out. An event waits until a program is known to be there. An answer is for a program that was there when
    /// it wrote, whether its coming was told or not; what is written to one that has gone is dropped by the port.
    fn say(&mut self, port: &mut impl Port, desk: &impl Locked) -> bool {
        let is_for = match self.what {
            What::Event(_) => port.is_open(),
            What::Answer(program, _) => program == self.program,
        };
        if is_for && !port.write(&self.line[..self.len]) {
            return false;
        }
        self.len = 0;
        match core::mem::replace(&mut self.what, What::Answer(0, None)) {
            What::Event(event) if !is_for => desk.with(|desk| desk.give_back(event)),
            What::Answer(_, Some(again)) if is_for => self.ask(again, desk),
            _ => {}
        }
        true
    }

    /// Takes bytes that have come, up to the end of a line.
    fn listen(&mut self, port: &mut impl Port, desk: &impl Locked) -> bool {
        if self.from == self.to {
            self.from = 0;
            self.to = port.read(&mut self.read).min(READ);
            if self.to == 0 {
                return false;
            }
        }
        while self.from < self.to {
            let byte = self.read[self.from];
            self.from += 1;
            let Some(line) = self.lines.push(byte) else { continue };
            match Request::read(line, self.look) {
                Ok(request) => self.ask(Asked { request, after: 0 }, desk),
                Err(refused) => self.refuse(refused),
            }
            break;
        }
        true
    }

    fn ask(&mut self, asked: Asked, desk: &impl Locked) {
        self.asked_by = Some(self.program);
        let dropped = desk.with(|desk| desk.ask(asked));
        drop(dropped);
    }

    fn refuse(&mut self, refused: Refused) {
        self.what = What::Answer(self.program, None);
        self.write(Said::Refused(refused));
    }

    fn write(&mut self, said: Said<'_>) {
        self.len = said.write(&mut self.line).len();
    }
}

#[cfg(test)]
mod tests;
