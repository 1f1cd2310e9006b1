//! Accesses of a guest's to devices: by ports, and by instructions that are fetched through the guest's tables and decoded.
//!
//! The guest may have changed an instruction since its CPU has fetched it. What is decoded is carried out at the address that
//! the CPU has named, and only if its own address has the same place in a page, and it reads or writes as the CPU has said; if
//! not, the guest goes on and executes what is there now. So a guest that changes instructions while it executes them gets no
//! access that it could not have made. One that begins in memory and ends where there is none is a general-protection fault.

use mayfly_vapic::PAGE_SIZE;
use mayfly_vm::memslot::Gpa;
use mayfly_vm::{Access, AccessKind, Event};
use mayfly_x86::guest::address::{self, Part};
use mayfly_x86::guest::emulation::{self, Registers};
use mayfly_x86::guest::walk;
use mayfly_x86::svm::event::Exception;
use mayfly_x86::svm::exit::NestedFault;
use mayfly_x86_decode::{Instruction, Undecoded, Width, decode};

use super::counts::Reason;
use super::pending::{Pending, What};
use super::vcpu::{Processor, SHUT_DOWN};

/// The most bytes of an instruction.
const LONGEST: usize = 15;

impl Processor {
    /// Goes on behind a device access that was answered; what it comes out with next, if the instruction makes another.
    pub(super) fn complete(&mut self) -> Option<Event> {
        // One that was not answered is made again.
        let pending = self.pending.take().filter(|pending| pending.answered)?;
        let value = u64::from_le_bytes(pending.data);
        match pending.what {
            What::Port(port) => {
                if !port.write {
                    let width = match port.bytes {
                        1 => Width::Byte,
                        2 => Width::Word,
                        _ => Width::Dword,
                    };
                    self.vmcb.save.rax = emulation::merged(self.vmcb.save.rax, width, value);
                }
                self.go_on(port.next);
                None
            }
            What::Memory { next, write: true, .. } => {
                if let Some(registers) = self.behind.take() {
                    self.set_all(&registers);
                }
                self.go_on(next);
                None
            }
            What::Memory { operation, width, address, write: false, next } => {
                let mut registers = self.all();
                let written = emulation::then(&operation, &mut registers, value & width.mask());
                let Some(written) = written else {
                    self.set_all(&registers);
                    self.go_on(next);
                    return None;
                };
                self.behind = Some(registers);
                let what = What::Memory { operation, width, address, write: true, next };
                Some(self.come_out(what, address, width, Some(written)))
            }
        }
    }

    /// Comes out with an access to a device; the local APIC's page is answered here.
    fn come_out(&mut self, what: What, address: u64, width: Width, written: Option<u64>) -> Event {
        let length = width.bytes() as usize;
        let data = written.unwrap_or(0).to_le_bytes();
        let mut pending = Pending { data, length, answered: false, what };
        if let Some(page) = self.apic.page().filter(|page| address & !(PAGE_SIZE - 1) == *page) {
            self.count(Reason::Apic);
            self.settled = None;
            let (time, bytes) = (self.board.time(self.vmcb.control.tsc_offset), length as u64);
            let board = self.board.clone();
            let offset = address - page;
            if let Some(value) = written {
                board.vapic.write(&mut self.apic, offset, bytes, value, time);
            } else {
                let value = board.vapic.read(&mut self.apic, offset, bytes, time);
                pending.data = u64::from(value).to_le_bytes();
            }
            pending.answered = true;
            self.pending = Some(pending);
            // It is completed when it is next entered.
            return self.complete().unwrap_or(Event::Request);
        }
        self.pending = Some(pending);
        self.count(Reason::Device);
        Event::Access(Access::data(Gpa::new(address), bytes_of(width), written.is_some()))
    }

    /// The guest has touched what its nested tables do not allow.
    pub(super) fn nested_fault(&mut self, fault: &NestedFault) -> Option<Event> {
        let is_memory = fault.address < self.board.memory_end;
        let kind = match (fault.walk, fault.fetch) {
            (true, _) => AccessKind::Walk,
            (_, true) => AccessKind::Fetch,
            _ if is_memory => AccessKind::Opaque,
            // It was taking something, by a table or a stack that is no memory: no instruction has accessed that.
            _ if self.inject.is_some() => return Some(Event::Custom(SHUT_DOWN)),
            _ => return self.device(fault.address, fault.write),
        };
        if is_memory {
            self.count(Reason::Memory);
        }
        let (gpa, write) = (Gpa::new(fault.address), fault.write);
        Some(Event::Access(Access { gpa, len: 1, write, kind, denied: fault.present }))
    }

    /// The guest has accessed `address`, where it has no memory, by an instruction that is found and carried out.
    pub(super) fn device(&mut self, address: u64, write: bool) -> Option<Event> {
        let decoded = self.decode();
        let registers = self.all();
        let first = decoded.ok().and_then(|instruction| {
            let first = emulation::first(&instruction.operation, &registers)?;
            Some((instruction, first))
        });
        let Some((instruction, first)) = first else {
            self.count(Reason::Undecoded);
            self.raise(Exception::GeneralProtection);
            return None;
        };
        let save = &self.vmcb.save;
        let next = address::behind(save, instruction.length);
        let linear = address::operand(save, &first.memory, &registers.general, next);
        let part = address::part(linear, bytes_of(first.width), address);
        // One that reads and writes is said to write.
        let is_it = part == Part::Beginning && (first.written.is_none() || write);
        if !is_it {
            self.count(Reason::Undecoded);
            // It begins in memory, and ends where there is none. It would never get further.
            if part == Part::SecondPage {
                self.raise(Exception::GeneralProtection);
            }
            return None;
        }
        let what = What::Memory {
            operation: instruction.operation,
            width: first.width,
            address,
            write: first.written.is_some(),
            next,
        };
        self.behind = None;
        Some(self.come_out(what, address, first.width, first.written))
    }

    /// The instruction that the guest is at.
    pub(super) fn decode(&self) -> Result<Instruction, Undecoded> {
        let save = &self.vmcb.save;
        let (start, mut bytes, mut count) = (address::instruction(save), [0; LONGEST], 0);
        while count < LONGEST {
            let linear = start.wrapping_add(count as u64);
            let here = (LONGEST - count).min((PAGE_SIZE - linear % PAGE_SIZE) as usize);
            let Ok(at) = walk::translate(save, linear, &*self.board.memory) else { break };
            if self.board.memory.read(at, &mut bytes[count..count + here]).is_err() {
                break;
            }
            count += here;
        }
        decode(address::mode(save), &bytes[..count])
    }

    /// All its registers.
    pub(super) fn all(&self) -> Registers {
        let mut general = self.registers.0;
        (general[0], general[4]) = (self.vmcb.save.rax, self.vmcb.save.rsp);
        Registers { general, flags: self.vmcb.save.rflags }
    }

    fn set_all(&mut self, registers: &Registers) {
        self.registers.0 = registers.general;
        let save = &mut self.vmcb.save;
        (save.rax, save.rsp, save.rflags) =
            (registers.general[0], registers.general[4], registers.flags);
    }
}

fn bytes_of(width: Width) -> u64 {
    width.bytes().into()
}
