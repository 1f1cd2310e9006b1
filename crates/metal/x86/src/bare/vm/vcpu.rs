//! The processor of a vCPU, which the core enters and leaves ([`Guest`]).
//!
//! Exits that do not concern the core are answered here, and the guest goes on at once. Before each entry the vCPU's APIC is
//! looked at, and what is to be injected is.

use alloc::boxed::Box;
use alloc::sync::Arc;

use mayfly_vapic::{Deadline, Event as ApicEvent, LocalApic, Next};
use mayfly_vm::memslot::Gfn;
use mayfly_vm::platform::address::PAGE_SHIFT;
use mayfly_vm::stage2::Npt;
use mayfly_vm::{Event, Guest, Requests, Translation};
use mayfly_x86::boot::plan::Plan;
use mayfly_x86::guest::emulation;
use mayfly_x86::machine::{cpuid, cr4, layout, msr};
use mayfly_x86::svm::event;
use mayfly_x86::svm::exit::Exit;
use mayfly_x86::svm::features::Features;
use mayfly_x86::svm::flush::Own;
use mayfly_x86::svm::nmi::Nmi;
use mayfly_x86::svm::permissions::{self, MSR_MAP_BYTES, PORT_MAP_BYTES};
use mayfly_x86::svm::vmcb::{Save, Segment, Vmcb, first};

use super::board::Board;
use super::counts::Reason;
use super::exits;
use super::load::{DESCRIPTORS_BYTES, Entry};
use super::pending::Pending;
use super::switch::{self, Registers, Resident};
use crate::bare::processor::{interrupts, timer};
use crate::bare::world::platform::{MACHINE, OUTDATED};

/// Its time slice is over.
pub(super) const SLICE_OVER: u64 = 0;
/// It waits for its start-up.
pub(super) const WAITS: u64 = 1;
/// It has shut down.
pub(super) const SHUT_DOWN: u64 = 2;
/// It cannot go on. Above these bits is the code of its exit.
pub(super) const CANNOT: u64 = 3;

#[repr(C, align(4096))]
struct Map<const BYTES: usize>([u8; BYTES]);

static PORTS: Map<PORT_MAP_BYTES> = Map([0xff; PORT_MAP_BYTES]);
static MSRS: Map<MSR_MAP_BYTES> = Map(permissions::msr_map(&msr::DIRECT));

/// `RFLAGS.IF`.
const TAKES_INTERRUPTS: u64 = 1 << 9;
/// Of the virtual interrupt (APM volume 2, 15.21): `V_TPR`, `V_IRQ`, `V_INTR_PRIO`, `V_IGN_TPR`.
const TASK_PRIORITY: u64 = 0xf;
const REQUESTED: u64 = 1 << 8;
const PRIORITY_SHIFT: u32 = 16;
const PRIORITY: u64 = 0xf << PRIORITY_SHIFT;
const IGNORES_PRIORITY: u64 = 1 << 20;
/// A guest's timer interrupts no sooner than this after the last entry, in nanoseconds.
const SHORTEST: u64 = 20_000;

/// The processor of one vCPU.
pub(super) struct Processor {
    pub(super) vmcb: Box<Vmcb>,
    pub(super) registers: Registers,
    pub(super) resident: Resident,
    pub(super) apic: LocalApic,
    pub(super) board: Arc<Board>,
    pub(super) identity: cpuid::Vcpu,
    /// The bits of CR4 that it has.
    pub(super) cr4_bits: u64,
    pub(super) features: Features,
    /// What it has come out with, for a device.
    pub(super) pending: Option<Pending>,
    /// What its registers are behind an instruction that has read from a device, and is to write there.
    pub(super) behind: Option<emulation::Registers>,
    /// What it is to come out with next, before it goes in.
    pub(super) told: Option<Event>,
    /// What it is to take next.
    pub(super) inject: Option<u64>,
    /// What its next entry flushes of its own.
    pub(super) outdated: Own,
    nmi: Nmi,
    pub(super) is_halted: bool,
    /// Nothing waits for it until then, by the host's counter, unless its APIC has something new, and the alarm is set. Not
    /// known when its turn begins.
    pub(super) settled: Option<u64>,
    /// When its time slice is over, by the host's counter.
    pub(super) slice_end: u64,
    /// Where KVM's clock is told, once it is.
    pub(super) system_time: Option<u64>,
}

impl Processor {
    /// One as after reset, which waits for its start-up unless it is the first.
    pub(super) fn new(
        number: u32,
        apic: LocalApic,
        board: &Arc<Board>,
        features: Features,
        plan: &Plan<'_>,
    ) -> Self {
        let (ports, msrs) = (&raw const PORTS as u64, &raw const MSRS as u64);
        let mut vmcb = Box::new(Vmcb::reset(ports, msrs));
        vmcb.control.tsc_offset = board.began.wrapping_neg();
        let has_tsc_aux = core::arch::x86_64::__cpuid(0x8000_0001).edx >> 27 & 1 != 0;
        let identity = cpuid::Vcpu { number, vcpus: plan.vcpus, x2apic: plan.x2apic };
        Self {
            vmcb,
            registers: Registers::default(),
            resident: Resident::new(has_tsc_aux),
            apic,
            board: Arc::clone(board),
            identity,
            cr4_bits: cr4::bits(identity, exits::machine_leaf),
            features,
            pending: None,
            behind: None,
            told: None,
            inject: None,
            outdated: Own::default(),
            nmi: Nmi::default(),
            is_halted: false,
            settled: None,
            slice_end: 0,
            system_time: None,
        }
    }

    /// Has it begin with a kernel, in 64 bits.
    pub(super) fn begin(&mut self, entry: Entry) {
        let code = Segment { selector: 0x10, attributes: 0xa9b, limit: u32::MAX, base: 0 };
        let data = Segment { selector: 0x18, attributes: 0xc93, limit: u32::MAX, base: 0 };
        let save = &mut self.vmcb.save;
        (save.cs, save.ds, save.es, save.ss) = (code, data, data, data);
        save.gdtr.base = layout::DESCRIPTORS;
        save.gdtr.limit = DESCRIPTORS_BYTES as u32 - 1;
        // Paging and protection; PAE; long mode, which is active.
        save.cr0 = 0x8000_0011;
        save.cr4 = 1 << 5;
        save.cr3 = layout::PAGE_TABLES;
        save.efer |= 1 << 8 | 1 << 10;
        save.rip = entry.0;
        self.registers.0[6] = layout::PARAMETERS;
    }

    /// As after INIT.
    fn initialise(&mut self) {
        self.vmcb.save = Save::reset();
        self.outdated.note(true);
        self.registers = Registers::default();
        // The processor's family, as its EDX has it.
        self.registers.0[2] = core::arch::x86_64::__cpuid(1).eax.into();
        (self.pending, self.told, self.inject) = (None, None, None);
        (self.nmi, self.is_halted) = (Nmi::default(), false);
        self.vmcb.control.interrupt_shadow = 0;
        self.vmcb.control.event_injection = 0;
    }

    /// When it has to be run at the latest, by the host's counter.
    pub(super) fn due(&self) -> u64 {
        let offset = self.vmcb.control.tsc_offset;
        self.apic.deadline().map_or(timer::NEVER, |deadline| self.board.when(deadline, offset))
    }

    /// Whether there is something for it, if it waits.
    pub(super) fn is_ready(&self, now: u64) -> bool {
        let waits = self.is_halted || self.apic.waits_for_startup();
        !waits || self.board.vapic.is_stale(self.apic.vcpu()) || self.due() <= now
    }

    /// Has it take an exception in place of its instruction. If it was taking one, it shuts down: the handler of that one is
    /// as much out of reach.
    pub(super) fn raise(&mut self, exception: event::Exception) {
        if self.inject.is_some_and(event::is_exception) {
            self.told = Some(Event::Custom(SHUT_DOWN));
        }
        self.inject = Some(event::exception(exception));
    }

    /// Whether it can go in as it is: nothing has come for it since it was last prepared.
    fn is_settled(&self, now: u64) -> bool {
        self.settled.is_some_and(|until| now < until)
            && self.inject.is_none()
            && self.told.is_none()
            && !self.is_halted
            && !self.board.vapic.is_stale(self.apic.vcpu())
    }

    /// Looks at its APIC, and has it take what it can take. What it comes out with, if it does not go in.
    fn prepare(&mut self) -> Option<Event> {
        let board = Arc::clone(&self.board);
        let next = loop {
            let look = board.vapic.look(&mut self.apic, board.time(self.vmcb.control.tsc_offset));
            match look.event {
                Some(ApicEvent::Init) => self.initialise(),
                Some(ApicEvent::Startup(vector)) => {
                    self.vmcb.save.begin_real(u64::from(vector) << 12);
                }
                Some(ApicEvent::Nmi) => self.nmi.arrive(),
                None => break look.next,
            }
        };
        if self.apic.waits_for_startup() {
            return Some(Event::Custom(WAITS));
        }
        let takes = self.vmcb.save.rflags & TAKES_INTERRUPTS != 0
            && self.vmcb.control.interrupt_shadow & 1 == 0;
        if self.is_halted {
            let wakes = self.inject.is_some()
                || self.nmi.can_be_taken()
                || takes && matches!(next, Next::Deliver(_));
            if !wakes {
                return Some(Event::Halt);
            }
            self.is_halted = false;
        }
        self.set_priority();
        let waiting = match next {
            Next::Nothing => None,
            Next::Deliver(vector) => Some((vector, true)),
            Next::Masked(vector) => Some((vector, false)),
        };
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
            None if takes && matches!(next, Next::Deliver(_)) => {
                if let Some(vector) = board.vapic.accept(&mut self.apic) {
                    self.vmcb.control.event_injection = event::interrupt(vector);
                }
                match board.vapic.next(&self.apic) {
                    Next::Nothing => None,
                    Next::Deliver(vector) => Some((vector, true)),
                    Next::Masked(vector) => Some((vector, false)),
                }
            }
            None => waiting,
        };
        self.set_window(window);
        self.vmcb.control.intercepts[0] &= !first::IRET;
        if self.nmi.wants_iret() {
            self.vmcb.control.intercepts[0] |= first::IRET;
        }
        let is_quiet = window.is_none() && self.nmi.is_quiet();
        self.settled = is_quiet.then(|| self.due());
        None
    }

    /// The guest's CR8 is its APIC's task priority.
    fn set_priority(&mut self) {
        let virtual_interrupts = &mut self.vmcb.control.virtual_interrupts;
        *virtual_interrupts = *virtual_interrupts & !TASK_PRIORITY | u64::from(self.apic.cr8());
    }

    /// Has the guest come out as soon as it takes an interrupt of this vector, or, if it is not to be delivered yet, as soon
    /// as it lowers its priority for it.
    fn set_window(&mut self, waiting: Option<(u8, bool)>) {
        let control = &mut self.vmcb.control;
        control.virtual_interrupts &= !(REQUESTED | PRIORITY | IGNORES_PRIORITY);
        control.intercepts[0] &= !first::VIRTUAL_INTERRUPT;
        if let Some((vector, delivers)) = waiting {
            control.intercepts[0] |= first::VIRTUAL_INTERRUPT;
            control.virtual_interrupts |= REQUESTED | u64::from(vector >> 4) << PRIORITY_SHIFT;
            if delivers {
                control.virtual_interrupts |= IGNORES_PRIORITY;
            }
        }
    }

    /// Sets the alarm for the end of the time slice, or for what the guest's timer asks for.
    fn set_alarm(&self) {
        let timer = match self.apic.deadline() {
            Some(deadline @ (Deadline::Clock(_) | Deadline::Tsc(_))) => {
                let at = self.board.when(deadline, self.vmcb.control.tsc_offset);
                at.max(timer::ticks() + self.board.rate.ticks(SHORTEST))
            }
            None => timer::NEVER,
        };
        timer::set_alarm(self.slice_end.min(timer));
    }

    /// What the guest was taking when it came out is taken again; its priority is its APIC's.
    fn after(&mut self) {
        let control = &mut self.vmcb.control;
        control.tlb_control = 0;
        control.event_injection = 0;
        self.inject = event::again(control.exit_interrupt_info);
        self.nmi.came_out(self.vmcb.save.rip, self.vmcb.save.rsp);
        let cr8 = (control.virtual_interrupts & TASK_PRIORITY) as u8;
        if cr8 != self.apic.cr8() {
            self.settled = None;
            self.board.vapic.set_cr8(&mut self.apic, cr8);
        }
    }

    /// Answers why it came out. What it comes out with for the core, if it does.
    fn answer(&mut self) -> Option<Event> {
        let exit = Exit::from(&self.vmcb.control);
        match exit {
            Exit::Interrupt => {
                self.settled = None;
                self.board.counts.count(Reason::Interrupt);
                interrupts::look();
            }
            // It is taken as soon as the host is back.
            Exit::Nmi => {}
            Exit::Window => self.board.counts.count(Reason::Window),
            Exit::Iret => self.nmi.iret(self.vmcb.save.rip, self.vmcb.save.rsp),
            Exit::Shutdown => return Some(Event::Custom(SHUT_DOWN)),
            Exit::Invalid => return Some(Event::Custom(CANNOT | u64::MAX << 8)),
            Exit::Other(code) => return Some(Event::Custom(CANNOT | code << 8)),
            _ => return self.instruction(exit),
        }
        None
    }
}

impl Guest<Npt> for Processor {
    fn enter(&mut self, translation: Translation<'_, Npt>, requests: &Requests) -> Event {
        if let Some(event) = self.complete() {
            return event;
        }
        // A guest that has turned its machine off, which it did by a device, executes nothing any more.
        if self.board.ending().is_some() {
            return Event::Custom(SLICE_OVER);
        }
        assert!(
            translation.cpu() == 0 && translation.tlbs() == MACHINE,
            "a vCPU of another machine"
        );
        // SAFETY: this is in `enter`, on the one CPU, whose only flow of control is this one; VMRUN has the CPU walk by what
        // is loaded, and no instruction behind it does. The TLBs are this machine's.
        let base = unsafe { translation.load() };
        self.vmcb.control.asid = base.vmid.0.into();
        self.vmcb.control.nested_cr3 = base.top.get() << PAGE_SHIFT;
        self.outdated.note(base.flush);
        loop {
            if requests.any() {
                return Event::Request;
            }
            let now = timer::ticks();
            if now >= self.slice_end {
                return Event::Custom(SLICE_OVER);
            }
            if !self.is_settled(now) {
                if let Some(event) = self.told.take().or_else(|| self.prepare()) {
                    return event;
                }
                self.set_alarm();
            }
            self.vmcb.control.tlb_control = self.outdated.take(&OUTDATED, self.features);
            // SAFETY: the control block is this vCPU's, whose tables the core keeps until this returns; its maps are constants.
            // Interrupts are masked: they always are.
            unsafe { switch::enter(&mut self.vmcb, &mut self.registers) };
            self.after();
            if let Some(event) = self.answer() {
                return event;
            }
        }
    }

    fn forget(&mut self, _gfn: Gfn) {}

    fn data(&mut self) -> &mut [u8] {
        self.pending.as_mut().map_or(&mut [], Pending::data)
    }

    fn answered(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.answered = true;
        }
    }
}
