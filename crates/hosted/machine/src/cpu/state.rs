//! What a guest program has come to, and its next step.

use std::hint::spin_loop;

use mayfly_memslot::{Gpa, PAGE_SIZE};
use mayfly_platform::address::Hpa;
use mayfly_vm::{Access, AccessKind, CacheOp, Event};

use super::access::WORD;
use crate::reach::Reach;
use crate::{Instruction, LINE, Mismatch, Program};

/// How long a guest that waits for something looks for it before it lets another thread have the processor.
const LOOKS: u32 = 64;

/// What a program has come to.
#[derive(Debug, Default)]
pub(super) struct State {
    program: Program,
    /// The instruction it is at.
    at: usize,
    /// How far it is in that: bytes of a range, rounds of a spin.
    done: u64,
    /// The barrier round it waits for, if it is at one.
    awaited: Option<u64>,
    /// It came out with an access, which is answered.
    pub(super) answered: bool,
    /// It came out with this, and finds it done when it is entered again.
    pub(super) switching: Option<CacheOp>,
    /// The access that it is at.
    pub(super) access: Option<Access>,
    /// The bytes of an access, little-endian.
    pub(super) data: [u8; 8],
    pub(super) len: usize,
    looks: u32,
    pub(super) aborts: u64,
    pub(super) reads: u64,
    pub(super) mismatches: u64,
    pub(super) first_mismatch: Option<Mismatch>,
}

impl State {
    pub(super) fn at_the_beginning_of(program: Program) -> Self {
        Self { program, ..Self::default() }
    }

    pub(super) fn next(&mut self) {
        self.at += 1;
        self.done = 0;
    }

    /// Comes out with an access of `len` bytes at `gpa`, to which it writes `value`, or from which it reads.
    fn access(&mut self, gpa: Gpa, len: u64, value: Option<u64>) -> Event {
        self.data = value.unwrap_or(0).to_le_bytes();
        self.len = len.min(WORD) as usize;
        let access = Access::data(gpa, len, value.is_some());
        self.access = Some(access);
        Event::Access(access)
    }

    /// Comes out with an access to the next page of a range; goes on behind it when all are done.
    fn next_page(&mut self, gpa: Gpa, len: u64, value: Option<u64>) -> Option<Event> {
        let Some(page) = gpa.checked_add(self.done).filter(|_| self.done < len) else {
            self.next();
            return None;
        };
        Some(self.access(page, WORD, value))
    }

    /// The access `made` was performed at `place`, or answered.
    pub(super) fn complete(&mut self, made: Access, place: Option<(Reach<'_>, Hpa)>) {
        match self.program.get(self.at) {
            Some(Instruction::Touch { .. }) => self.done += PAGE_SIZE,
            Some(&Instruction::TouchLines { value, .. }) => {
                self.done += PAGE_SIZE;
                for (reach, hpa) in place.into_iter().flat_map(other_lines) {
                    reach.store(hpa, value);
                }
            }
            Some(&Instruction::Verify { value, .. }) => {
                self.done += PAGE_SIZE;
                self.verify(made.gpa, u64::from_le_bytes(self.data), value, place);
            }
            Some(&Instruction::VerifyLines { value, .. }) => {
                self.done += PAGE_SIZE;
                self.verify(made.gpa, u64::from_le_bytes(self.data), value, place);
                for (reach, hpa) in place.into_iter().flat_map(other_lines) {
                    let gpa = Gpa::new(made.gpa.get() + hpa.get() % PAGE_SIZE);
                    self.verify(gpa, reach.load(hpa), value, Some((reach, hpa)));
                }
            }
            Some(&Instruction::WaitFor { value, .. }) => {
                if u64::from_le_bytes(self.data) == value {
                    self.next();
                } else {
                    self.pause();
                }
            }
            _ => self.next(),
        }
    }

    /// Notes that `read` was found where `expected` should be.
    fn verify(&mut self, gpa: Gpa, read: u64, expected: u64, place: Option<(Reach<'_>, Hpa)>) {
        self.reads += 1;
        if read != expected {
            self.mismatches += 1;
            let other_way = place.and_then(|(reach, hpa)| reach.other_way(hpa));
            self.first_mismatch.get_or_insert(Mismatch { gpa, expected, read, other_way });
        }
    }

    /// A round of waiting.
    fn pause(&mut self) {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS) {
            std::thread::yield_now();
        } else {
            spin_loop();
        }
    }

    /// Executes the present instruction, or a part of it. Returns why the guest comes out, if it does.
    pub(super) fn step(&mut self) -> Option<Event> {
        let Some(instruction) = self.program.get(self.at) else { return Some(Event::Halt) };
        match *instruction {
            Instruction::Touch { gpa, len, value }
            | Instruction::TouchLines { gpa, len, value } => {
                return self.next_page(gpa, len, Some(value));
            }
            Instruction::Verify { gpa, len, .. } | Instruction::VerifyLines { gpa, len, .. } => {
                return self.next_page(gpa, len, None);
            }
            Instruction::WaitFor { gpa, .. } => return Some(self.access(gpa, WORD, None)),
            Instruction::WriteMmio { gpa, len, value } => {
                return Some(self.access(gpa, u64::from(len), Some(value)));
            }
            Instruction::ReadMmio { gpa, len } => {
                return Some(self.access(gpa, u64::from(len), None));
            }
            Instruction::Fetch { gpa } => {
                let Event::Access(access) = self.access(gpa, WORD, None) else { return None };
                let fetch = Access { kind: AccessKind::Fetch, ..access };
                self.access = Some(fetch);
                return Some(Event::Access(fetch));
            }
            Instruction::Spin { loops } => {
                if self.done < u64::from(loops) {
                    self.done += 1;
                    spin_loop();
                } else {
                    self.next();
                }
            }
            Instruction::Barrier(ref barrier) => {
                let awaited = *self.awaited.get_or_insert_with(|| barrier.arrive());
                if barrier.is_over(awaited) {
                    self.awaited = None;
                    self.next();
                } else {
                    self.pause();
                }
            }
            Instruction::Caches(on) => {
                return Some(Event::Caches(if on { CacheOp::On } else { CacheOp::Off }));
            }
            Instruction::SetWay => return Some(Event::Caches(CacheOp::SetWay)),
            Instruction::Jump(target) => {
                self.at = target;
                self.done = 0;
            }
            Instruction::Halt => return Some(Event::Halt),
        }
        None
    }
}

/// The lines after the first, whose place is given, up to the end of its page. The page is the guest's until it looks for
/// requests again; the next one of the host's memory is anybody's.
fn other_lines((reach, first): (Reach<'_>, Hpa)) -> impl Iterator<Item = (Reach<'_>, Hpa)> {
    let lines = (LINE..PAGE_SIZE - first.get() % PAGE_SIZE).step_by(LINE as usize);
    lines.map(move |offset| (reach, Hpa::new(first.get() + offset)))
}
