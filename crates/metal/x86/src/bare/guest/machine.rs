//! The parts of a guest's machine other than its memory and its processor.

use mayfly_vapic::{Deadline, Kick, Vapic};
use mayfly_vm::platform::address::Pfn;
use mayfly_vm::platform::tlb::Vmid;

use super::super::timer;
use crate::guest::walk;
use crate::machine::clock::{self, Rate, Scale};
use crate::svm::exit::Port;

/// The memory of a guest, as far as its processor reads it and writes to it. None of it waits.
pub trait Ram: walk::Memory {
    /// What is read of it one after the other.
    type Glance<'a>: Glance
    where
        Self: 'a;

    /// Reads some of it, and uses it in no other way meanwhile.
    fn glance(&self) -> Self::Glance<'_>;

    /// The 16 bytes at `address`, all of which are in one page, unless there is no memory.
    fn sixteen(&self, address: u64) -> Option<[u8; 16]>;

    /// Reads bytes, unless there is no memory.
    fn read(&self, address: u64, into: &mut [u8]) -> Option<()>;

    /// Writes bytes, unless there is no memory.
    fn write(&self, address: u64, from: &[u8]) -> Option<()>;
}

/// What can be read at once of a guest's memory, which may be less than all: of what is not seen, [`Ram`] says what it is.
pub trait Glance: walk::Memory {
    /// The 16 bytes at `address`, all of which are in one page, if they are seen.
    fn sixteen(&self, address: u64) -> Option<[u8; 16]>;
}

/// The clocks of a guest.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// How fast the host's counter counts.
    pub rate: Rate,
    /// The same, of what is asked before most entries.
    scale: Scale,
    /// The host's counter at which its own was zero.
    pub began: u64,
    /// The second, since 1970, at which it was.
    pub began_at: u64,
    /// A timer of the guest's interrupts no sooner than so many ticks of the host's counter after the last entry.
    pub shortest: u64,
}

/// A guest's timer interrupts no sooner than this after the last entry, in nanoseconds.
const SHORTEST: u64 = 20_000;

impl Time {
    /// Those of a guest that begins now, in that second since 1970.
    pub fn new(began_at: u64) -> Self {
        let rate = timer::rate();
        let (scale, shortest) = (Scale::new(rate), rate.ticks(SHORTEST));
        Self { rate, scale, began: timer::ticks(), began_at, shortest }
    }

    /// What a vCPU's clocks say, whose counter is so far behind the host's.
    pub(super) fn of(&self, tsc_offset: u64) -> mayfly_vapic::Time {
        let ticks = timer::ticks();
        mayfly_vapic::Time {
            clock: self.scale.nanoseconds(ticks.wrapping_sub(self.began)),
            tsc: ticks.wrapping_add(tsc_offset),
        }
    }

    /// When a deadline is, by the host's counter.
    pub(super) fn when(&self, deadline: Deadline, tsc_offset: u64) -> u64 {
        match deadline {
            Deadline::Clock(at) => self.began.saturating_add(self.rate.ticks(at)),
            Deadline::Tsc(at) => {
                let now = timer::ticks();
                clock::due(at, now.wrapping_add(tsc_offset), now)
            }
        }
    }
}

/// What a guest's machine is made of beside memory, as its vCPU asks.
///
/// # Safety
///
/// Its methods run no vCPU on the processor that calls them, and go on there until they return. [`Machine::enters`] has what
/// was invalidated be flushed, as its documentation says.
pub unsafe trait Machine {
    /// Tells vCPUs that there is something new for their APICs.
    type Kick: Kick;
    /// Its memory.
    type Ram: Ram;

    /// Its interrupt controllers.
    fn vapic(&self) -> &Vapic<Self::Kick>;

    /// Its memory.
    fn ram(&self) -> &Self::Ram;

    /// Where that ends.
    fn memory_end(&self) -> u64;

    /// Whether an address beyond that is one at which the guest reads memory, and writes to a device.
    fn is_shown(&self, address: u64) -> bool;

    /// Its clocks.
    fn time(&self) -> &Time;

    /// Answers an access to a port that the machine has itself: the number that it comes out with
    /// ([`Event::Custom`](mayfly_vm::Event::Custom)). None, if the port is not one of those.
    fn port(&mut self, port: Port, value: u64) -> Option<u64>;

    /// Answers an access of so many bytes to a device in memory that the machine has itself: what is read, if nothing is
    /// `written`. None, if the address is of no such device. The vCPU's APIC is looked at before the guest goes on.
    fn device(&mut self, address: u64, bytes: u64, written: Option<u64>) -> Option<u64>;

    /// Whether others are to have the processor before the guest goes on. Asked with interrupts masked before an entry, unless
    /// the guest came out for an interrupt. `cpu` is the processor's number.
    fn is_to_yield(&self, cpu: usize) -> bool;

    /// The guest is about to go on, under that VMID. Returns whether all that this processor's TLB has of guests is to be
    /// flushed first.
    fn enters(&mut self, vmid: Vmid) -> bool;

    /// The guest goes on by the root at `top`, under that VMID. The entry flushes as `tlb_control` says (APM volume 2, 15.16.1).
    fn walks(&mut self, _top: Pfn, _vmid: Vmid, _tlb_control: u32) {}

    /// The guest has come out, under that VMID.
    fn leaves(&mut self, vmid: Vmid);

    /// The processor has refused to run the guest, which has left. Whether what [`Machine::enters`] asked for was flushed is not
    /// known: it is flushed at the next entry of any guest.
    fn refused(&mut self);

    /// The guest has come out, and not for an interrupt ([`Machine::interrupt`]).
    fn after(&mut self);

    /// The guest has come out for an interrupt of the hardware's, which is pending on this processor.
    fn interrupt(&mut self) -> Next;

    /// The guest has come out for this reason.
    fn count(&mut self, reason: Reason);

    /// A device has answered the guest's access to this address, for which it has come out.
    fn answered(&mut self, at: u64);
}

/// How a guest goes on after an interrupt of the hardware's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once.
    Resume,
    /// After the core has looked around: others may want the processor.
    Yield,
}

/// [`Event::Custom`](mayfly_vm::Event::Custom) of a vCPU that waits for an interrupt, or for its start-up.
pub const WAITS: u64 = 0;
/// That of one that has shut down: an exception came while another was being raised.
pub const SHUT_DOWN: u64 = 1;
/// That of one that cannot go on. Above eight bits is the code of its exit. The numbers of a [`Machine`] are others.
pub const CANNOT: u64 = 2;

/// Why a guest came out, for the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Reason {
    Cpuid,
    Cr4,
    Xcr,
    Msr,
    Port,
    /// A port that no device has.
    NoPort,
    Memory,
    Device,
    /// An address that neither memory nor a device has.
    NoDevice,
    Apic,
    Halt,
    Window,
    Interrupt,
    Call,
    /// An instruction or an MSR that guests do not have.
    Refused,
    /// An instruction that reaches a device, and could not be carried out.
    Undecoded,
}

impl Reason {
    /// All of them, and what they are called.
    pub const ALL: [(Self, &'static str); 16] = [
        (Self::Cpuid, "cpuid"),
        (Self::Cr4, "cr4"),
        (Self::Xcr, "xcr0"),
        (Self::Msr, "msr"),
        (Self::Port, "port"),
        (Self::NoPort, "port-not-there"),
        (Self::Memory, "memory-fault"),
        (Self::Device, "device"),
        (Self::NoDevice, "device-not-there"),
        (Self::Apic, "apic"),
        (Self::Halt, "hlt"),
        (Self::Window, "interrupt-window"),
        (Self::Interrupt, "interrupt"),
        (Self::Call, "hypercall"),
        (Self::Refused, "refused"),
        (Self::Undecoded, "undecoded"),
    ];
}
