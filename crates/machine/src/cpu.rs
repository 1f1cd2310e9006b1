//! What executes a guest program.

use std::hint::spin_loop;
use std::sync::atomic::Ordering;

use mayfly_memslot::{Gpa, Hva, PAGE_SIZE};
use mayfly_vm::{Access, Event, Guest, Requests};

use crate::memory::{byte_cell, cell};
use crate::{Instruction, Program};

/// Bytes of an access to memory.
const WORD: u64 = 8;

/// How long a guest that waits for something looks for it before it lets another thread have the processor.
const LOOKS: u32 = 64;

/// A processor on the software machine: a program, and where it is in it. Looks for requests between instructions,
/// which is how a kick reaches it.
#[derive(Debug)]
pub struct Cpu {
    program: Program,
    /// The instruction it is at.
    at: usize,
    /// How far it is in that: bytes of a range, rounds of a spin.
    done: u64,
    /// The barrier round it waits for, if it is at one.
    awaited: Option<u64>,
    /// It came out with an access that is not complete.
    pending: bool,
    /// The bytes of an access, little-endian.
    data: [u8; 8],
    len: usize,
    /// Whether the access writes them.
    writes: bool,
    looks: u32,
    reads: u64,
    mismatches: u64,
}

impl Cpu {
    /// At the beginning of `program`.
    pub fn new(program: Program) -> Self {
        Self {
            program,
            at: 0,
            done: 0,
            awaited: None,
            pending: false,
            data: [0; 8],
            len: 0,
            writes: false,
            looks: 0,
            reads: 0,
            mismatches: 0,
        }
    }

    /// Words that [`Instruction::Verify`] has read.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Words that were not what [`Instruction::Verify`] said they are.
    pub fn mismatches(&self) -> u64 {
        self.mismatches
    }

    /// What the last [`Instruction::ReadMmio`] read.
    pub fn last_read(&self) -> u64 {
        let mut value = [0; 8];
        value[..self.len].copy_from_slice(&self.data[..self.len]);
        u64::from_le_bytes(value)
    }

    fn next(&mut self) {
        self.at += 1;
        self.done = 0;
    }

    /// Comes out with an access of `len` bytes at `gpa`, to which it writes `value`, or from which it reads.
    fn access(&mut self, gpa: Gpa, len: u64, value: Option<u64>) -> Event {
        self.pending = true;
        self.writes = value.is_some();
        self.data = value.unwrap_or(0).to_le_bytes();
        self.len = usize::try_from(len).map_or(self.data.len(), |len| len.min(self.data.len()));
        Event::Access(Access { gpa, len, write: value.is_some() })
    }

    /// Comes out with an access to the next page of a range, unless all are done.
    fn next_page(&mut self, gpa: Gpa, len: u64, value: Option<u64>) -> Option<Event> {
        let page = gpa.checked_add(self.done).filter(|_| self.done < len)?;
        Some(self.access(page, WORD, value))
    }

    /// The access it came out with was performed, or answered.
    fn complete(&mut self) {
        match self.program.get(self.at) {
            Some(Instruction::Touch { .. }) => self.done += PAGE_SIZE,
            Some(&Instruction::Verify { value, .. }) => {
                self.reads += 1;
                self.mismatches += u64::from(u64::from_le_bytes(self.data) != value);
                self.done += PAGE_SIZE;
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
    fn step(&mut self) -> Option<Event> {
        let Some(instruction) = self.program.get(self.at) else { return Some(Event::Halt) };
        match *instruction {
            Instruction::Touch { gpa, len, value } => {
                let event = self.next_page(gpa, len, Some(value));
                if event.is_none() {
                    self.next();
                }
                return event;
            }
            Instruction::Verify { gpa, len, .. } => {
                let event = self.next_page(gpa, len, None);
                if event.is_none() {
                    self.next();
                }
                return event;
            }
            Instruction::WaitFor { gpa, .. } => return Some(self.access(gpa, WORD, None)),
            Instruction::WriteMmio { gpa, len, value } => {
                return Some(self.access(gpa, u64::from(len), Some(value)));
            }
            Instruction::ReadMmio { gpa, len } => {
                return Some(self.access(gpa, u64::from(len), None));
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
            Instruction::Jump(target) => {
                self.at = target;
                self.done = 0;
            }
            Instruction::Halt => return Some(Event::Halt),
        }
        None
    }
}

impl Guest<Hva> for Cpu {
    fn enter(&mut self, requests: &Requests) -> Event {
        if std::mem::take(&mut self.pending) {
            self.complete();
        }
        loop {
            if requests.any() {
                return Event::Request;
            }
            if let Some(event) = self.step() {
                return event;
            }
        }
    }

    fn access(&mut self, memory: Hva) {
        if self.len == self.data.len() && memory.get().is_multiple_of(WORD) {
            if self.writes {
                cell(memory).store(u64::from_le_bytes(self.data), Ordering::Release);
            } else {
                self.data = cell(memory).load(Ordering::Acquire).to_le_bytes();
            }
            return;
        }
        for (offset, byte) in (0..).zip(&mut self.data[..self.len]) {
            let there = byte_cell(Hva::new(memory.get() + offset));
            if self.writes {
                there.store(*byte, Ordering::Release);
            } else {
                *byte = there.load(Ordering::Acquire);
            }
        }
    }

    fn data(&mut self) -> &mut [u8] {
        &mut self.data[..self.len]
    }
}
