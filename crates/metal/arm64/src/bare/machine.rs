//! The parts of a guest's machine other than its memory and its processor.

use mayfly_vm::platform::address::{Gpa, Pfn};
use mayfly_vm::platform::tlb::Vmid;

use super::switch::Registers;
use crate::sysreg::SysReg;

/// What a guest's machine is made of beside memory, as its vCPU asks.
///
/// # Safety
///
/// Its methods run no vCPU on the processor that calls them, and go on there until they return: the guest goes on by the
/// root that `VTTBR_EL2` named before.
pub unsafe trait Machine {
    /// An `HVC` (or `SMC`) of the guest, by the SMC calling convention: `registers` are the guest's, for the answer
    /// too.
    fn call(&mut self, registers: &mut Registers) -> Next;

    /// The guest has written one of the registers that send software interrupts.
    fn send_interrupt(&mut self, register: SysReg, value: u64);

    /// Whether others are to have the processor before the guest goes on. Asked with interrupts masked before an entry, unless
    /// the guest came out for an interrupt. `cpu` is the processor's number.
    fn is_to_yield(&self, cpu: usize) -> bool;

    /// The guest is about to go on: puts its pending interrupts where it finds them.
    fn before(&mut self);

    /// The guest has come out, and not for an interrupt ([`Machine::interrupt`]).
    fn after(&mut self);

    /// The guest is about to translate by the root at `top`, under `vmid`; barriers follow before it does.
    #[inline]
    fn enters(&mut self, _top: Pfn, _vmid: Vmid) {}

    /// It does no more.
    #[inline]
    fn leaves(&mut self, _vmid: Vmid) {}

    /// The guest has written the register by which it deactivates interrupts (`ICC_DIR_EL1`).
    fn deactivate(&mut self, value: u64);

    /// The line of the interrupt of the guest's performance counters ([`gic::COUNTERS`](super::gic::COUNTERS)) is high, or
    /// low.
    fn counters_line(&mut self, high: bool);

    /// The guest has come out for an interrupt of the hardware's, which is pending on this processor.
    fn interrupt(&mut self) -> Next;

    /// The guest has come out for this reason.
    fn count(&mut self, reason: Reason);

    /// A device has answered the guest's access to this address, for which it has come out.
    fn answered(&mut self, at: Gpa);
}

/// How a guest goes on after an exit that its machine has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once.
    Resume,
    /// After the core has looked around: others may want the processor.
    Yield,
    /// After the caller that runs the vCPU has seen this number ([`Event::Custom`](mayfly_vm::Event::Custom)).
    Exit(u64),
}

/// [`Event::Custom`](mayfly_vm::Event::Custom) of a vCPU that waits for an interrupt; the numbers of a [`Machine`] are
/// others.
pub const WAITS: u64 = 0;

/// Why a guest came out, for the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Reason {
    Interrupt,
    WaitForInterrupt,
    Hypercall,
    SecureCall,
    IdRegister,
    DebugRegister,
    SoftwareInterrupt,
    CacheRegister,
    OtherRegister,
    MemoryFault,
    Device,
    Abort,
    Undefined,
    SystemError,
}

impl Reason {
    /// All of them, and what they are called.
    pub const ALL: [(Self, &'static str); 14] = [
        (Self::Interrupt, "interrupt"),
        (Self::WaitForInterrupt, "wfi"),
        (Self::Hypercall, "hvc"),
        (Self::SecureCall, "smc"),
        (Self::IdRegister, "id-register"),
        (Self::DebugRegister, "debug-register"),
        (Self::SoftwareInterrupt, "sgi"),
        (Self::CacheRegister, "cache-register"),
        (Self::OtherRegister, "other-register"),
        (Self::MemoryFault, "memory-fault"),
        (Self::Device, "device"),
        (Self::Abort, "abort"),
        (Self::Undefined, "undefined"),
        (Self::SystemError, "system-error"),
    ];
}
