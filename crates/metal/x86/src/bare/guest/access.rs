//! Accesses of a guest's to devices: by ports, and by instructions that are fetched through the guest's tables and decoded.
//!
//! The guest may have changed an instruction since its CPU has fetched it. What is decoded is carried out at the address that
//! the CPU has named, and only if its own address has the same place in a page, and it reads or writes as the CPU has said; if
//! not, the guest goes on and executes what is there now. So a guest that changes instructions while it executes them gets no
//! access that it could not have made. There is one exception: an instruction that reads and writes is carried out also where
//! the CPU has said that it reads. QEMU's TCG makes one without LOCK as a load and a store, and comes out for the load, before
//! it has looked whether the guest's own tables let it write there: they do not keep such a write from a device.
//!
//! An access that begins in memory and ends where there is none is a general-protection fault.

use mayfly_vapic::PAGE_SIZE;
use mayfly_vm::memslot::Gpa;
use mayfly_vm::{Access, AccessKind, Event};
use mayfly_x86_decode::{Mode, Undecoded, Width, decode_into};

use super::cpu::GuestCpu;
use super::machine::{Glance as _, Machine, Ram, Reason, SHUT_DOWN};
use super::pending::{Pending, What};
use crate::guest::address::{self, Part};
use crate::guest::emulation::{self, Registers};
use crate::guest::walk;
use crate::svm::event::Exception;
use crate::svm::exit::NestedFault;

/// Bytes that are fetched of an instruction, of which it has at most 15.
const FETCHED: usize = 16;

const RAX: usize = 0;
const RSP: usize = 4;

impl<F, M: Machine> GuestCpu<'_, F, M> {
    /// Goes on behind a device access that was answered; what it comes out with next, if the instruction makes another.
    pub(super) fn complete(&mut self) -> Option<Event> {
        let pending = self.pending.as_ref()?;
        let (answered, value, what) =
            (pending.answered, u64::from_le_bytes(pending.data), pending.what);
        self.pending = None;
        // One that was not answered is made again.
        if answered { self.go_on_with(what, value) } else { None }
    }

    /// The same, of an access that was answered with `value`, where it reads.
    #[inline]
    fn go_on_with(&mut self, what: What, value: u64) -> Option<Event> {
        match what {
            What::Port(port) => {
                if !port.write {
                    let width = match port.bytes {
                        1 => Width::Byte,
                        2 => Width::Word,
                        _ => Width::Dword,
                    };
                    self.vmcb.save.rax = emulation::merged(self.vmcb.save.rax, width, value);
                }
                self.go_behind(port.next);
                None
            }
            What::Memory { next, write: true, .. } => {
                if let Some(registers) = self.behind.take() {
                    self.registers = registers;
                    self.scatter();
                }
                self.go_behind(next);
                None
            }
            What::Memory { width, address, write: false, next } => {
                // All its registers are in one place since the instruction was decoded.
                if emulation::writes_back(&self.operation) {
                    return self.write_back(width, address, next, value);
                }
                emulation::then(&self.operation, &mut self.registers, value & width.mask());
                self.scatter();
                self.go_behind(next);
                None
            }
        }
    }

    /// Goes on with an instruction that has read `value`, and writes to the same place. What it does to registers counts when
    /// it has written.
    #[cold]
    fn write_back(&mut self, width: Width, address: u64, next: u64, value: u64) -> Option<Event> {
        let mut registers = self.registers.clone();
        let written = emulation::then(&self.operation, &mut registers, value & width.mask());
        if let Some(written) = written {
            self.behind = Some(registers);
            let what = What::Memory { width, address, write: true, next };
            return self.come_out(what, address, width, Some(written));
        }
        self.registers = registers;
        self.scatter();
        self.go_behind(next);
        None
    }

    /// Comes out with an access to a device. The local APIC's page is answered here, and so is what the machine has itself: the
    /// guest goes on.
    #[inline]
    fn come_out(
        &mut self,
        what: What,
        address: u64,
        width: Width,
        written: Option<u64>,
    ) -> Option<Event> {
        let length = width.bytes() as usize;
        let data = written.unwrap_or(0).to_le_bytes();
        let page = self.apic.page().filter(|page| address & !(PAGE_SIZE - 1) == *page);
        if let Some(page) = page {
            let value = self.local_apic(address - page, length as u64, written);
            return self.go_on_with(what, value);
        }
        if let Some(value) = self.machine.device(address, length as u64, written) {
            self.count(Reason::Device);
            self.settled = None;
            return self.go_on_with(what, value);
        }
        self.pending = Some(Pending { data, length, answered: false, what });
        self.count(Reason::Device);
        Some(Event::Access(Access::data(Gpa::new(address), bytes_of(width), written.is_some())))
    }

    /// Has its local APIC read, or written. What is read.
    fn local_apic(&mut self, offset: u64, bytes: u64, written: Option<u64>) -> u64 {
        self.count(Reason::Apic);
        self.settled = None;
        let time = self.machine.time().of(self.vmcb.control.tsc_offset);
        match written {
            Some(value) => {
                self.machine.vapic().write(&mut self.apic, offset, bytes, value, time);
                0
            }
            None => self.machine.vapic().read(&mut self.apic, offset, bytes, time).into(),
        }
    }

    /// The guest has touched what its nested tables do not allow.
    pub(super) fn nested_fault(&mut self, fault: &NestedFault) -> Option<Event> {
        let is_memory = fault.address < self.machine.memory_end()
            || !fault.write && self.machine.is_shown(fault.address);
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
        let mode = address::mode(&self.vmcb.save);
        let Ok(length) = self.decode(mode) else {
            self.refuse();
            return None;
        };
        self.gather();
        let Some(first) = emulation::first(&self.operation, &self.registers) else {
            self.refuse();
            return None;
        };
        let save = &self.vmcb.save;
        let next = address::behind(save, mode, length);
        let general = &self.registers.general;
        let linear = address::operand(save, mode, &first.memory, general, next);
        let part = address::part(linear, bytes_of(first.width), address);
        // One that reads and writes is said to write, or, by TCG, to read.
        let is_it = part == Part::Beginning && (first.written.is_none() || write);
        if !is_it {
            self.count(Reason::Undecoded);
            // It begins in memory, and ends where there is none. It would never get further.
            if part == Part::SecondPage {
                self.raise(Exception::GeneralProtection);
            }
            return None;
        }
        let what =
            What::Memory { width: first.width, address, write: first.written.is_some(), next };
        self.behind = None;
        self.come_out(what, address, first.width, first.written)
    }

    /// An instruction that reaches a device, and is not carried out.
    #[cold]
    fn refuse(&mut self) {
        self.count(Reason::Undecoded);
        self.raise(Exception::GeneralProtection);
    }

    /// Has the instruction that the guest is at, which it reads in this mode, as its `operation`. How many bytes it has.
    pub(super) fn decode(&mut self, mode: Mode) -> Result<u8, Undecoded> {
        let fetched = self.fetch(mode);
        self.decode_fetched(mode, fetched)
    }

    /// The same, where it was fetched.
    pub(super) fn decode_fetched(
        &mut self,
        mode: Mode,
        fetched: Option<[u8; FETCHED]>,
    ) -> Result<u8, Undecoded> {
        match fetched {
            Some(bytes) => decode_into(mode, &bytes, &mut self.operation),
            None => self.decode_by_parts(mode),
        }
    }

    /// The bytes from the instruction on that it is at, if there are so many in its page.
    pub(super) fn fetch(&self, mode: Mode) -> Option<[u8; FETCHED]> {
        let start = address::instruction(&self.vmcb.save, mode);
        // Mostly it cannot reach the next page.
        if start % PAGE_SIZE > PAGE_SIZE - FETCHED as u64 {
            return None;
        }
        let glance = self.machine.ram().glance();
        let seen = walk::translate(&self.vmcb.save, start, &glance).ok();
        let seen = seen.and_then(|at| glance.sixteen(at));
        drop(glance);
        seen.or_else(|| self.fetch_unseen(start))
    }

    /// The same, where not all of that was seen at a glance.
    #[cold]
    #[inline(never)]
    fn fetch_unseen(&self, start: u64) -> Option<[u8; FETCHED]> {
        let at = walk::translate(&self.vmcb.save, start, self.machine.ram()).ok()?;
        self.machine.ram().sixteen(at)
    }

    /// Decodes an instruction that may be in two pages, or where no memory is.
    #[cold]
    fn decode_by_parts(&mut self, mode: Mode) -> Result<u8, Undecoded> {
        let start = address::instruction(&self.vmcb.save, mode);
        let (mut bytes, mut count) = ([0; FETCHED], 0);
        while count < FETCHED {
            let linear = start.wrapping_add(count as u64);
            let here = (FETCHED - count).min((PAGE_SIZE - linear % PAGE_SIZE) as usize);
            let Ok(at) = walk::translate(&self.vmcb.save, linear, self.machine.ram()) else {
                break;
            };
            if self.machine.ram().read(at, &mut bytes[count..count + here]).is_none() {
                break;
            }
            count += here;
        }
        decode_into(mode, &bytes[..count], &mut self.operation)
    }

    /// Has all its registers in one place.
    pub(super) fn gather(&mut self) -> &Registers {
        let (registers, save) = (&mut self.registers, &self.vmcb.save);
        (registers.general[RAX], registers.general[RSP]) = (save.rax, save.rsp);
        registers.flags = save.rflags;
        registers
    }

    /// Has them again where VMRUN finds them.
    fn scatter(&mut self) {
        let (registers, save) = (&self.registers, &mut self.vmcb.save);
        (save.rax, save.rsp) = (registers.general[RAX], registers.general[RSP]);
        save.rflags = registers.flags;
    }
}

fn bytes_of(width: Width) -> u64 {
    width.bytes().into()
}
