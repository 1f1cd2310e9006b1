//! The processor of a vCPU: what it is, what comes before an entry to its guest, and what behind an exit.

use alloc::boxed::Box;
use core::convert::Infallible;

use mayfly_vapic::{Event as ApicEvent, LocalApic, Next};
use mayfly_vm::platform::address::PAGE_SIZE;
use mayfly_vm::{Access, AccessKind, Event};
use mayfly_x86_decode::{Operation, System};

use super::super::cpu::leaf as machine_leaf;
use super::super::switch::Resident;
use super::super::timer;
use super::confinement::Confinement;
use super::machine::{CANNOT, Machine, Reason, SHUT_DOWN, WAITS};
use super::pending::Pending;
use super::window::{self, TASK_PRIORITY};
use crate::guest::emulation::Registers;
use crate::machine::xsave::Xsave;
use crate::machine::{cpuid, cr4, layout, msr};
use crate::svm::event::{self, Met};
use crate::svm::exit::Exit;
use crate::svm::flush::Own;
use crate::svm::nmi::Nmi;
use crate::svm::permissions::{self, MSR_MAP_BYTES, PORT_MAP_BYTES};
use crate::svm::vmcb::{Save, Segment, Vmcb, first};

#[repr(C, align(4096))]
struct Map<const BYTES: usize>([u8; BYTES]);

static PORTS: Map<PORT_MAP_BYTES> = Map([0xff; PORT_MAP_BYTES]);
static MSRS: Map<MSR_MAP_BYTES> = Map(permissions::msr_map(&msr::DIRECT));

/// `CR0.PE`.
const PROTECTED: u64 = 1 << 0;
/// `RFLAGS.IF`.
const TAKES_INTERRUPTS: u64 = 1 << 9;

/// The processor of one vCPU.
pub struct GuestCpu<'a, F, M> {
    pub(super) vmcb: Box<Vmcb>,
    /// The general registers. RAX, RSP and the flags are in the control block, and here while an access is carried out.
    pub(super) registers: Registers,
    pub(super) resident: &'a Resident,
    pub(super) apic: LocalApic,
    pub(super) identity: cpuid::Vcpu,
    /// The bits of CR4 that it has.
    pub(super) cr4_bits: u64,
    /// What it has come out with, for a device.
    pub(super) pending: Option<Pending>,
    /// What the instruction does that was decoded last: the one by which it has come out for a device in memory.
    pub(super) operation: Operation,
    /// What its registers are behind an instruction that has read from a device, and is to write there.
    pub(super) behind: Option<Registers>,
    /// What it is to come out with next, before it goes in.
    pub(super) told: Option<Event>,
    /// What it is to take next.
    pub(super) inject: Option<u64>,
    /// The vector of an interrupt that it has accepted, and was taking when an exception came before it.
    displaced: Option<u8>,
    /// What its next entry flushes of its own.
    pub(super) outdated: Own,
    nmi: Nmi,
    pub(super) is_halted: bool,
    /// Nothing waits for it until then, by the host's counter, unless its APIC has something new, and the alarm is set. Not
    /// known when it comes to a processor.
    pub(super) settled: Option<u64>,
    /// Where KVM's clock is told, once it is.
    pub(super) system_time: Option<u64>,
    pub(super) confinement: Confinement<F>,
    /// Its machine.
    pub machine: M,
}

impl<'a, F, M: Machine> GuestCpu<'a, F, M> {
    /// One as after reset, whose other registers are `resident`: of `vcpus`, with that APIC, which has an x2APIC mode or not. It
    /// waits for its start-up, unless it is the first.
    pub fn new(
        resident: &'a Resident,
        confinement: Confinement<F>,
        apic: LocalApic,
        (vcpus, x2apic): (u32, bool),
        machine: M,
    ) -> Self {
        let (ports, msrs) = (&raw const PORTS as u64, &raw const MSRS as u64);
        let mut vmcb = Box::new(Vmcb::reset(ports, msrs));
        vmcb.control.tsc_offset = machine.time().began.wrapping_neg();
        let xsave = Xsave::reset(machine_leaf);
        let identity = cpuid::Vcpu { number: apic.vcpu() as u32, vcpus, x2apic, xsave };
        Self {
            vmcb,
            registers: Registers::default(),
            resident,
            apic,
            identity,
            cr4_bits: cr4::bits(identity, machine_leaf),
            pending: None,
            operation: Operation::System(System::Pause),
            behind: None,
            told: None,
            inject: None,
            displaced: None,
            outdated: Own::default(),
            nmi: Nmi::default(),
            is_halted: false,
            settled: None,
            system_time: None,
            confinement,
            machine,
        }
    }

    /// Has it begin at `entry` with a kernel, in 64 bits, which finds its parameters at `parameters`. All but the first wait
    /// for their start-up.
    pub fn start(&mut self, entry: u64, parameters: u64) {
        if self.apic.vcpu() != 0 {
            return;
        }
        let code = Segment { selector: 0x10, attributes: 0xa9b, limit: u32::MAX, base: 0 };
        let data = Segment { selector: 0x18, attributes: 0xc93, limit: u32::MAX, base: 0 };
        let save = &mut self.vmcb.save;
        (save.cs, save.ds, save.es, save.ss) = (code, data, data, data);
        save.gdtr.base = layout::DESCRIPTORS;
        save.gdtr.limit = layout::DESCRIPTORS_BYTES as u32 - 1;
        // Paging and protection; PAE; long mode, which is active.
        save.cr0 = 0x8000_0011;
        save.cr4 = 1 << 5;
        save.cr3 = layout::PAGE_TABLES;
        save.efer |= 1 << 8 | 1 << 10;
        save.rip = entry;
        self.registers.general[6] = parameters;
    }

    /// As after INIT.
    fn initialise(&mut self) {
        self.vmcb.save = Save::reset();
        self.outdated.note(true);
        self.registers = Registers::default();
        // The processor's family, as its EDX has it.
        self.registers.general[2] = core::arch::x86_64::__cpuid(1).eax.into();
        (self.pending, self.told) = (None, None);
        (self.inject, self.displaced) = (None, None);
        (self.nmi, self.is_halted) = (Nmi::default(), false);
        self.vmcb.control.interrupt_shadow = 0;
        self.vmcb.control.event_injection = 0;
    }

    /// When it has to be run at the latest, by the host's counter.
    fn due(&self) -> u64 {
        let offset = self.vmcb.control.tsc_offset;
        let when = |deadline| self.machine.time().when(deadline, offset);
        self.apic.deadline().map_or(timer::NEVER, when)
    }

    /// Has its guest take a non-maskable interrupt, as a machine reports what has gone wrong in it.
    pub fn fail(&mut self) {
        self.nmi.arrive();
        self.settled = None;
    }

    /// Nothing answers the access that it came out with: a device that is not there reads as all ones. Where no instruction is
    /// known that has made it, it is decoded first, or cannot go on.
    pub fn inject_abort(&mut self, access: &Access) {
        let is_in_page = access.len <= PAGE_SIZE - access.gpa.get() % PAGE_SIZE;
        match access.kind {
            AccessKind::Data if is_in_page => self.answer_nothing(Reason::NoDevice),
            // An instruction that is to be decoded first.
            AccessKind::Opaque => self.told = self.device(access.gpa.get(), access.write),
            // Its tables are where no memory is, and so are its ways to any handler.
            AccessKind::Walk => self.told = Some(Event::Custom(SHUT_DOWN)),
            AccessKind::Data | AccessKind::Fetch => {
                self.count(Reason::NoDevice);
                self.raise(event::Exception::GeneralProtection);
            }
        }
    }

    /// No device has the port that it came out for.
    pub fn no_port(&mut self) {
        self.answer_nothing(Reason::NoPort);
    }

    fn answer_nothing(&mut self, reason: Reason) {
        self.count(reason);
        if let Some(pending) = &mut self.pending {
            pending.answer_nothing();
        }
    }

    /// What it is between two instructions, for another one to go on as: no vCPU is kept so on this architecture.
    pub fn at_rest(&self) -> Option<Infallible> {
        None
    }

    /// Has it go on as another one was, of which there is none.
    pub fn go_on(&mut self, as_it_was: &Infallible) {
        match *as_it_was {}
    }

    /// Where its next instruction is, for messages.
    pub fn at(&self) -> u64 {
        self.vmcb.save.rip
    }

    /// Has it take an exception in place of its instruction, or of what it was taking.
    pub(super) fn raise(&mut self, exception: event::Exception) {
        let protected = self.vmcb.save.cr0 & PROTECTED != 0;
        self.inject = match event::meet(self.inject, exception, protected) {
            Met::Takes(word) => Some(word),
            Met::Displaces(word, vector) => {
                self.displaced = Some(vector);
                Some(word)
            }
            Met::DisplacesNmi(word) => {
                self.nmi.put_back();
                Some(word)
            }
            Met::ShutsDown => {
                self.told = Some(Event::Custom(SHUT_DOWN));
                None
            }
        };
    }

    /// Whether it can go in as it is: nothing has come for it since it was last prepared.
    pub(super) fn is_settled(&self, now: u64) -> bool {
        self.settled.is_some_and(|until| now < until)
            && self.inject.is_none()
            && self.told.is_none()
            && !self.is_halted
            && !self.machine.vapic().is_stale(self.apic.vcpu())
    }

    /// Takes what its APIC has for it. There may be more: that is looked at when the core has looked around. Other vCPUs can send it
    /// without end, and interrupts may have been served meanwhile, which are seen before the guest goes in.
    #[cold]
    #[inline(never)]
    fn take_event(&mut self, event: ApicEvent) -> Event {
        match event {
            ApicEvent::Init => self.initialise(),
            ApicEvent::Startup(vector) => self.vmcb.save.begin_real(u64::from(vector) << 12),
            ApicEvent::Nmi => self.nmi.arrive(),
        }
        Event::Request
    }

    /// Looks at its APIC, has it take what it can take, and sets the alarm. What it comes out with, if it does not go in.
    pub(super) fn prepare(&mut self) -> Option<Event> {
        let now = self.machine.time().of(self.vmcb.control.tsc_offset);
        let look = self.machine.vapic().look(&mut self.apic, now);
        if let Some(event) = look.event {
            return Some(self.take_event(event));
        }
        let next = look.next;
        if self.apic.waits_for_startup() {
            return Some(self.wait());
        }
        let takes = self.vmcb.save.rflags & TAKES_INTERRUPTS != 0
            && self.vmcb.control.interrupt_shadow & 1 == 0;
        if self.is_halted {
            let wakes = self.inject.is_some()
                || self.nmi.can_be_taken()
                || takes && (self.displaced.is_some() || matches!(next, Next::Deliver(_)));
            if !wakes {
                return Some(self.wait());
            }
            self.is_halted = false;
        }
        window::set_priority(&mut self.vmcb.control, self.apic.cr8());
        let waiting = window::of(next);
        let window = match self.inject.take() {
            Some(word) => {
                self.vmcb.control.event_injection = word;
                waiting
            }
            None if self.nmi.can_be_taken() && self.vmcb.control.interrupt_shadow & 1 == 0 => {
                self.nmi.take();
                self.vmcb.control.event_injection = event::nmi();
                waiting
            }
            None if takes && self.displaced.is_some() => {
                self.vmcb.control.event_injection =
                    self.displaced.take().map_or(0, event::interrupt);
                waiting
            }
            None if takes && matches!(next, Next::Deliver(_)) => {
                if let Some(vector) = self.machine.vapic().accept(&mut self.apic) {
                    self.vmcb.control.event_injection = event::interrupt(vector);
                }
                window::of(self.machine.vapic().next(&self.apic))
            }
            None => waiting,
        };
        // One that was accepted is before what waits in the APIC.
        let window = self.displaced.map(|vector| (vector, true)).or(window);
        window::set(&mut self.vmcb.control, window);
        self.vmcb.control.intercepts[0] &= !first::IRET;
        if self.nmi.wants_iret() {
            self.vmcb.control.intercepts[0] |= first::IRET;
        }
        let is_quiet = window.is_none() && self.nmi.is_quiet();
        let due = self.due();
        self.settled = is_quiet.then_some(due);
        let earliest = timer::ticks() + self.machine.time().shortest;
        timer::set_guest_alarm(due.max(earliest));
        None
    }

    /// It waits for something new of its APIC, or until it is due.
    fn wait(&self) -> Event {
        self.resident.set_due(self.due());
        Event::Custom(WAITS)
    }

    /// What the guest was taking when it came out is taken again; its priority is its APIC's.
    pub(super) fn after(&mut self) {
        let control = &mut self.vmcb.control;
        control.tlb_control = 0;
        control.event_injection = 0;
        self.inject = event::again(control.exit_interrupt_info);
        self.nmi.came_out(self.vmcb.save.rip, self.vmcb.save.rsp);
        let cr8 = (control.virtual_interrupts & TASK_PRIORITY) as u8;
        if cr8 != self.apic.cr8() {
            self.settled = None;
            self.machine.vapic().set_cr8(&mut self.apic, cr8);
        }
    }

    /// Answers why it came out. What it comes out with for the core, if it does.
    pub(super) fn answer(&mut self, exit: Exit) -> Option<Event> {
        match exit {
            // It is taken as soon as the host is back.
            Exit::Nmi => {}
            Exit::Window => self.machine.count(Reason::Window),
            Exit::Iret => self.nmi.iret(self.vmcb.save.rip, self.vmcb.save.rsp),
            Exit::Shutdown => return Some(Event::Custom(SHUT_DOWN)),
            Exit::Invalid => return Some(Event::Custom(CANNOT | u64::MAX << 8)),
            Exit::Other(code) => return Some(Event::Custom(CANNOT | code << 8)),
            _ => return self.instruction(exit),
        }
        None
    }
}
