//! What an instruction gets that a guest came out for.

use mayfly_vm::{Event, PortAccess};
use mayfly_x86_decode::{Mode, Operation, System, Width};

use super::super::cpu::leaf as machine_leaf;
use super::cpu::GuestCpu;
use super::machine::{Machine, Reason};
use super::pending::Pending;
use crate::guest::{address, plain};
use crate::machine::xsave::Xsave;
use crate::machine::{cpuid, cr4};
use crate::svm::event::Exception;
use crate::svm::exit::{Exit, Port};

/// What a hypercall that there is not returns (`KVM_ENOSYS`).
const NO_CALL: i64 = -1000;
const DEBUG: u8 = 1;
const MACHINE_CHECK: u8 = 18;
/// `RFLAGS.TF`.
const TRAPS: u64 = 1 << 8;
/// `RFLAGS.RF`.
const RESUMES: u64 = 1 << 16;
/// `DR6.BS`.
const STEPPED: u64 = 1 << 14;
/// `CR4.OSXSAVE`.
const OSXSAVE: u64 = 1 << 18;

impl<F, M: Machine> GuestCpu<'_, F, M> {
    /// Answers an instruction, or its fault. What it comes out with for the core, if it does.
    pub(super) fn instruction(&mut self, exit: Exit) -> Option<Event> {
        match exit {
            Exit::Cpuid => {
                self.count(Reason::Cpuid);
                self.cpuid();
                self.skip();
            }
            Exit::Halt => {
                self.count(Reason::Halt);
                self.is_halted = true;
                self.skip();
            }
            Exit::WriteCr4 => self.write_cr4(),
            Exit::Msr { write } => self.msr(write),
            Exit::Port(port) => return Some(self.port(port)),
            Exit::NestedFault(fault) => return self.nested_fault(&fault),
            Exit::Call => {
                self.count(Reason::Call);
                self.vmcb.save.rax = NO_CALL.cast_unsigned();
                self.skip();
            }
            // Caches are coherent, and hold nothing that is to be dropped.
            Exit::Caches => self.skip(),
            // There are no counters.
            Exit::CounterRead => {
                self.count(Reason::Refused);
                self.raise(Exception::GeneralProtection);
            }
            Exit::PortString => {
                self.count(Reason::Undecoded);
                self.raise(Exception::GeneralProtection);
            }
            Exit::Exception(DEBUG, _) => self.raise(Exception::Debug),
            Exit::Exception(MACHINE_CHECK, _) => {
                panic!("the machine's memory or processor is broken")
            }
            Exit::Exception(..) => self.raise(Exception::AlignmentCheck),
            Exit::SetXcr => self.set_xcr(),
            // What guests do not have.
            _ => {
                self.count(Reason::Refused);
                self.raise(Exception::Undefined);
            }
        }
        None
    }

    pub(super) fn count(&mut self, reason: Reason) {
        self.machine.count(reason);
    }

    fn cpuid(&mut self) {
        let (leaf, sub) = (self.vmcb.save.rax as u32, self.registers.general[1] as u32);
        let mut identity = self.identity;
        if cpuid::tells_xsave(leaf) {
            identity.xsave = self.xsave();
        }
        let [a, b, c, d] = cpuid::leaf(identity, leaf, sub, machine_leaf);
        self.vmcb.save.rax = a.into();
        let registers = &mut self.registers.general;
        (registers[3], registers[1], registers[2]) = (b.into(), c.into(), d.into());
    }

    /// Carries a MOV to CR4 out, or raises what it raises.
    fn write_cr4(&mut self) {
        let mode = address::mode(&self.vmcb.save);
        let decoded = self.decode(mode).map(|length| (self.operation, length));
        let Ok((Operation::System(System::WriteControl(4, register)), length)) = decoded else {
            self.count(Reason::Undecoded);
            return self.raise(Exception::GeneralProtection);
        };
        let width = if mode == Mode::Bits64 { Width::Qword } else { Width::Dword };
        let value = self.gather().get(register, width);
        let Ok(value) = cr4::write(value, self.cr4_bits, self.vmcb.save.efer) else {
            self.count(Reason::Refused);
            return self.raise(Exception::GeneralProtection);
        };
        self.count(Reason::Cr4);
        // The guest has turned PGE off and on to have its TLB flushed, or has changed what it has.
        self.outdated.note(self.vmcb.save.cr4 != value);
        self.vmcb.save.cr4 = value;
        self.go_behind(address::behind(&self.vmcb.save, mode, length));
    }

    /// What it has of XSAVE now.
    fn xsave(&self) -> Xsave {
        let is_on = self.vmcb.save.cr4 & OSXSAVE != 0;
        Xsave { xcr0: self.resident.xcr0(), is_on, ..self.identity.xsave }
    }

    /// Carries XSETBV out, or raises what it raises.
    fn set_xcr(&mut self) {
        let (xsave, cpl) = (self.xsave(), self.vmcb.save.cpl);
        let (number, upper) = (self.registers.general[1] as u32, self.registers.general[2]);
        let value = upper << 32 | self.vmcb.save.rax & 0xffff_ffff;
        let written = xsave.write(value).ok().filter(|_| number == 0 && cpl == 0);
        if !xsave.is_on {
            self.count(Reason::Refused);
            self.raise(Exception::Undefined);
        } else if let Some(value) = written {
            self.count(Reason::Xcr);
            self.resident.put_xcr0(value);
            self.skip();
        } else {
            self.count(Reason::Refused);
            self.raise(Exception::GeneralProtection);
        }
    }

    fn port(&mut self, port: Port) -> Event {
        self.count(Reason::Port);
        if let Some(number) = self.machine.port(port, self.vmcb.save.rax) {
            self.go_behind(port.next);
            return Event::Custom(number);
        }
        let data = self.vmcb.save.rax.to_le_bytes();
        self.pending = Some(Pending::port(port, data));
        Event::Port(PortAccess { port: port.port, len: port.bytes, write: port.write })
    }

    /// Has it go on behind its instruction, if that is still there and can be read: otherwise the guest has changed it, and
    /// executes what is there now.
    pub(super) fn skip(&mut self) {
        let next = self.vmcb.control.next_rip;
        let is_said =
            cfg!(feature = "synthetic-next-rip") || self.confinement.features.has_next_rip();
        if is_said && next != 0 {
            return self.go_behind(next);
        }
        let mode = address::mode(&self.vmcb.save);
        let fetched = self.fetch(mode);
        let length = match fetched.and_then(|bytes| plain::length(&bytes)) {
            Some(length) => Ok(length),
            None => self.decode_fetched(mode, fetched),
        };
        if let Ok(length) = length {
            self.go_behind(address::behind(&self.vmcb.save, mode, length));
        }
    }

    /// Says where the next instruction is as a CPU with NRIP save does, of a CPUID without prefixes.
    #[cfg(feature = "synthetic-next-rip")]
    pub(super) fn say_next(&mut self) {
        const CPUID: u64 = 0x72;
        let is_cpuid = self.vmcb.control.exit_code == CPUID;
        self.vmcb.control.next_rip = if is_cpuid { self.vmcb.save.rip.wrapping_add(2) } else { 0 };
    }

    /// Has it go on at `next`, behind an instruction that was carried out.
    pub(super) fn go_behind(&mut self, next: u64) {
        self.vmcb.save.rip = next;
        self.vmcb.control.interrupt_shadow = 0;
        if self.vmcb.save.rflags & (RESUMES | TRAPS) != 0 {
            self.debugged();
        }
    }

    /// What the CPU does behind an instruction for a debugger: RF was for that one instruction (APM volume 2, 3.1.6), and
    /// a single step ends there.
    #[cold]
    fn debugged(&mut self) {
        let save = &mut self.vmcb.save;
        save.rflags &= !RESUMES;
        if save.rflags & TRAPS != 0 {
            save.dr6 |= STEPPED;
            self.raise(Exception::Debug);
        }
    }
}
