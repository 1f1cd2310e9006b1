//! The processor of a vCPU, which the core enters and leaves ([`Guest`]).
//!
//! The rest of a guest's machine (interrupts, PSCI) is behind [`Machine`]. Exits that do not concern the core are
//! answered here, and the guest continues at once. Before each entry the requests are looked at, as the core asks.

use core::arch::asm;

use mayfly_vm::memslot::{Gfn, Gpa, PAGE_SIZE};
use mayfly_vm::platform::address::PAGE_SHIFT;
use mayfly_vm::stage2::{ArmFwb, Format};
use mayfly_vm::{Event, Guest, Requests, Translation};

use super::confinement::Confinement;
use super::context::Resident;
use super::lookup::translate;
use super::machine::{Machine, Next, Reason, WAITS};
use super::switch::{Registers, Way};
use super::{common, cpu, switch, tlb};
use crate::errata::Errata;
use crate::inject::{Before, Exception};
use crate::syndrome::{self, Abort, Fault, Transfer, Trap};
use crate::vcpu::{AtRest, Owed};

const HCR_VSE: u64 = 1 << 8;
const HCR_TVM: u64 = 1 << 26;
/// APK and API: no trap of keys, nor of the instructions.
pub(super) const HCR_AUTHENTICATION: u64 = 1 << 40 | 1 << 41;
const RESET_PSTATE: u64 = 0x3c5;

/// An access to a device that the guest came out with.
#[derive(Clone, Copy, Debug)]
struct Pending {
    at: Gpa,
    transfer: Transfer,
    write: bool,
    /// The guest's data are big-endian.
    reversed: bool,
    data: [u8; 8],
}

/// The processor of one vCPU.
pub struct GuestCpu<'a, F, M> {
    pub(super) registers: Registers,
    pub(super) resident: &'a Resident,
    /// Of the instruction that it came out at, in bytes.
    length: u64,
    /// Where its last access failed, as `FAR_EL2` said.
    address: u64,
    pending: Option<Pending>,
    forget: Option<Gfn>,
    exception: Option<(Exception, u64)>,
    /// `HCR_EL2`, but for what differs from one entry to the next.
    hcr: u64,
    pub(super) confinement: Confinement<F>,
    /// Its machine.
    pub machine: M,
}

impl<'a, F: Format, M: Machine> GuestCpu<'a, F, M> {
    /// A vCPU whose other registers are `resident`. It is off: see [`GuestCpu::start`].
    pub fn new(resident: &'a Resident, confinement: Confinement<F>, machine: M) -> Self {
        let mut cpu = Self {
            registers: Registers::default(),
            resident,
            length: 4,
            address: 0,
            pending: None,
            forget: None,
            exception: None,
            hcr: 0,
            confinement,
            machine,
        };
        cpu.confine();
        cpu
    }

    /// Has `HCR_EL2` be as the machine, the format and what the vCPU has used of its registers ask.
    pub(super) fn confine(&mut self) {
        let keys = if self.resident.has_keys() { HCR_AUTHENTICATION } else { 0 };
        self.hcr = common::hcr() | self.confinement.hcr | keys;
    }

    /// Has it begin at `entry` with `argument` in x0, as after a reset: at EL1, everything masked, MMU and caches off.
    pub fn start(&mut self, entry: u64, argument: u64) {
        self.resident.reset();
        self.confine();
        self.registers = Registers { pc: entry, pstate: RESET_PSTATE, ..Registers::default() };
        self.registers.set(0, argument);
        (self.pending, self.forget, self.exception) = (None, None, None);
    }

    /// All that its guest finds in it, when it has come out by a request and its [`Resident`] is [put](Resident::put).
    /// An access to a device that was not answered is made again. None, if its registers are in the processor.
    pub fn at_rest(&self) -> Option<AtRest> {
        let context = self.resident.at_rest()?;
        let owed = Owed { error: self.resident.owes_error(), exception: self.exception };
        Some(AtRest { general: self.registers, context, owed })
    }

    /// Has it go on as another one was. This one was just made, and has not begun.
    pub fn go_on(&mut self, as_it_was: &AtRest) {
        let AtRest { general, context, owed } = as_it_was;
        self.resident.go_on(context);
        self.confine();
        self.resident.set_error(owed.error);
        (self.registers, self.exception) = (*general, owed.exception);
        (self.pending, self.forget) = (None, None);
    }

    /// Its general registers, program counter and PSTATE.
    pub fn registers(&self) -> &Registers {
        &self.registers
    }

    /// Has it take an exception when it next goes on; `address` is for `FAR_EL1`.
    pub fn inject(&mut self, exception: Exception, address: u64) {
        self.exception = Some((exception, address));
    }

    /// Has its guest take an `SError` once it has unmasked those, as if an access of it had failed late.
    pub fn fail(&self) {
        self.resident.set_error(true);
    }

    /// Has it take an external abort for the access that it came out with.
    pub fn inject_abort(&mut self, access: &mayfly_vm::Access) {
        let exception = Exception::ExternalAbort {
            fetch: access.kind == mayfly_vm::AccessKind::Fetch,
            walk: access.kind == mayfly_vm::AccessKind::Walk,
            write: access.write,
        };
        self.machine.count(Reason::Abort);
        self.pending = None;
        self.inject(exception, self.address);
    }

    #[cold]
    fn take_injected(&mut self) {
        if let Some((exception, address)) = self.exception.take() {
            self.take_exception(exception, Some(address));
        }
    }

    /// Has it take an exception now, while its registers are in the processor.
    pub(super) fn take_exception(&mut self, exception: Exception, address: Option<u64>) {
        let before = Before {
            pc: self.registers.pc,
            pstate: self.registers.pstate,
            vbar: crate::read_register!("vbar_el1"),
            sctlr: crate::read_register!("sctlr_el1"),
            has_pan: cpu::has_pan(),
            has_ssbs: cpu::has_ssbs(),
        };
        let after = exception.take(&before);
        // SAFETY: registers of the guest's.
        unsafe {
            crate::write_register!("elr_el1", after.elr);
            crate::write_register!("spsr_el1", after.spsr);
            crate::write_register!("esr_el1", after.esr);
            if let Some(address) = address {
                crate::write_register!("far_el1", address);
            }
        }
        (self.registers.pc, self.registers.pstate) = (after.pc, after.pstate);
    }

    /// Has it go on behind the instruction that it came out at.
    pub(super) fn skip(&mut self) {
        self.registers.pc = self.registers.pc.wrapping_add(self.length);
    }

    fn run(&mut self, requests: &Requests) -> Event {
        loop {
            // Interrupts are masked: one that comes later is pending when the guest is entered.
            if requests.any() {
                return Event::Request;
            }
            self.machine.before();
            // SAFETY: the registers of EL2 are set, interrupts are masked, the vectors are this crate's.
            let way = unsafe { switch::enter(&mut self.registers) };
            let next = match way {
                Way::Interrupt => {
                    self.machine.count(Reason::Interrupt);
                    self.machine.interrupt()
                }
                Way::SystemError => {
                    self.machine.after();
                    self.machine.count(Reason::SystemError);
                    self.take_error();
                    Next::Yield
                }
                Way::Synchronous => {
                    self.machine.after();
                    match self.synchronous() {
                        Ok(next) => next,
                        Err(event) => return event,
                    }
                }
            };
            match next {
                // What was answered may have woken a thread that comes before this one.
                Next::Resume
                    if matches!(way, Way::Synchronous)
                        && self.machine.is_to_yield(cpu::number()) =>
                {
                    return Event::Request;
                }
                Next::Resume => {}
                Next::Yield => return Event::Request,
                Next::Exit(number) => return Event::Custom(number),
            }
        }
    }

    /// Has the guest take the `SError` that it has made.
    #[cold]
    fn take_error(&self) {
        self.resident.set_error(true);
        let hcr = crate::read_register!("hcr_el2") | HCR_VSE;
        // SAFETY: an exception of the guest's. `enter` looks in the register whether it was taken.
        unsafe { crate::write_register!("hcr_el2", hcr) };
    }

    fn synchronous(&mut self) -> Result<Next, Event> {
        let esr = crate::read_register!("esr_el2");
        // IL; AArch32 has instructions of 16 bits, which EL0 may be in though its ID registers do not offer it.
        self.length = if esr >> 25 & 1 == 1 { 4 } else { 2 };
        match syndrome::decode(esr) {
            Trap::Hypercall => {
                self.machine.count(Reason::Hypercall);
                Ok(self.machine.call(&mut self.registers))
            }
            Trap::SecureCall => {
                self.machine.count(Reason::SecureCall);
                self.skip();
                Ok(self.machine.call(&mut self.registers))
            }
            Trap::WaitForInterrupt => {
                self.machine.count(Reason::WaitForInterrupt);
                self.skip();
                Ok(Next::Exit(WAITS))
            }
            Trap::WaitForEvent => {
                self.skip();
                Ok(Next::Yield)
            }
            Trap::System(access) => self.system(access),
            Trap::Abort(abort) => self.abort(&abort),
            Trap::Undefined { class: syndrome::AUTHENTICATION }
                if cpu::has_pointer_authentication() =>
            {
                Ok(self.use_keys())
            }
            Trap::Undefined { .. } => {
                self.machine.count(Reason::Undefined);
                self.take_exception(Exception::Undefined, None);
                Ok(Next::Resume)
            }
        }
    }

    fn abort(&mut self, abort: &Abort) -> Result<Next, Event> {
        let far = crate::read_register!("far_el2");
        if !abort.is_stage2() {
            self.machine.count(Reason::Abort);
            let exception = match abort.fault {
                Fault::Unsupported => Exception::UnsupportedAccess,
                _ => Exception::ExternalAbort {
                    fetch: abort.fetch,
                    walk: abort.walk,
                    write: abort.write,
                },
            };
            self.take_exception(exception, Some(far));
            return Ok(Next::Resume);
        }
        let Some(gpa) = faulting_address(abort, far) else { return Ok(Next::Resume) };
        let access = abort.access(gpa);
        self.address = far;
        self.pending = abort.transfer.map(|transfer| {
            let reversed =
                syndrome::is_big_endian(self.registers.pstate, crate::read_register!("sctlr_el1"));
            let value = self.registers.get(transfer.rt);
            let data = if abort.write { transfer.store(value, reversed) } else { [0; 8] };
            Pending { at: gpa, transfer, write: abort.write, reversed, data }
        });
        self.machine.count(Reason::MemoryFault);
        Err(Event::Access(access))
    }
}

/// Where a guest's access failed at stage 2; `None` where its own tables have changed since, and it is to try again.
fn faulting_address(abort: &Abort, far: u64) -> Option<Gpa> {
    let errata = common::errata();
    // Erratum 834220 of Cortex-A57: the fault may be one of stage 1, which the guest takes when it tries again.
    let page = if abort.page_is_known() && (abort.walk || !errata.has(Errata::STAGE1_FIRST)) {
        // FIPA, bits 43:4, is the address from bit 12 on.
        (crate::read_register!("hpfar_el2") >> 4 & 0xff_ffff_ffff) << PAGE_SHIFT
    } else {
        let barrier = || {
            // Erratum 1508412 of Cortex-A77.
            if errata.has(Errata::PAR_BARRIERS) {
                // SAFETY: a barrier.
                unsafe { asm!("dmb sy", options(nostack)) };
            }
        };
        barrier();
        let kept = crate::read_register!("par_el1");
        let found = translate(far);
        barrier();
        // SAFETY: the guest's own value.
        unsafe { crate::write_register!("par_el1", kept) };
        if found & 1 == 1 {
            return None;
        }
        found & 0xf_ffff_ffff_f000
    };
    let offset = if abort.walk { 0 } else { far % PAGE_SIZE };
    Some(Gpa::new(page | offset))
}

impl<F: Format, M: Machine> Guest<F> for GuestCpu<'_, F, M> {
    fn enter(&mut self, translation: Translation<'_, F>, requests: &Requests) -> Event {
        let cpu = cpu::number();
        if translation.cpu() as usize != cpu || self.machine.is_to_yield(cpu) {
            return Event::Request;
        }
        assert!(translation.tlbs() == self.confinement.tlbs, "the vCPU is one of another machine");
        // SAFETY: this is the CPU that was named, of this machine, and it was prepared for the format. Interrupts are masked until the guest is left. Until then its
        // `Machine` is called, which enters no other. What is loaded stays in the register, from which `Tlb::vacate`
        // takes it.
        let base = unsafe { translation.load() };
        if !self.resident.is_loaded() {
            // So that no walk mixes this vCPU's stage 1 with another's stage 2 (errata 1530923, 1319537, 1319367, 1165522:
            // see `tlb`).
            self.confinement.empty.load();
            self.resident.load();
        }
        if self.exception.is_some() {
            self.take_injected();
        }
        let mut hcr = self.hcr;
        hcr |= if translation.traps.toggles() { HCR_TVM } else { 0 };
        hcr |= if self.resident.owes_error() { HCR_VSE } else { 0 };
        // VTTBR_EL2 is the same for all formats of Arm's.
        let vttbr = ArmFwb::<40>::vttbr(base.top, base.vmid);
        let before = crate::read_register!("vttbr_el2");
        self.machine.enters(base.top, base.vmid);
        // SAFETY: the guest is confined to the root that the core says. What was stored to its tables is walked.
        unsafe {
            crate::write_register!("hcr_el2", hcr);
            if before != vttbr {
                crate::write_register!("vttbr_el2", vttbr);
            }
            asm!("dsb ish", "isb", options(nostack));
        }
        if base.flush {
            tlb::flush_here();
        }
        if let Some(gfn) = self.forget {
            self.forget = None;
            tlb::forget_here(gfn);
        }
        let event = self.run(requests);
        self.machine.leaves(base.vmid);
        // Taken by the guest, the virtual error is gone from the register.
        if self.resident.owes_error() {
            self.resident.set_error(crate::read_register!("hcr_el2") & HCR_VSE != 0);
        }
        event
    }

    fn cpu(&self) -> u32 {
        // What runs this asks on the processor where it is about to enter.
        cpu::number() as u32
    }

    fn forget(&mut self, gfn: Gfn) {
        self.forget = Some(gfn);
    }

    fn data(&mut self) -> &mut [u8] {
        match &mut self.pending {
            Some(pending) => &mut pending.data[..usize::from(pending.transfer.bytes.min(8))],
            None => &mut [],
        }
    }

    fn answered(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        let Pending { at, transfer, write, reversed, data } = pending;
        self.machine.count(Reason::Device);
        self.machine.answered(at);
        if !write {
            self.registers.set(transfer.rt, transfer.load(data, reversed));
        }
        self.skip();
    }
}
