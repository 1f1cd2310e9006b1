//! The processor of a vCPU, which the core enters and leaves ([`Guest`]).
//!
//! Exits that do not concern the core are answered here, and the guest goes on at once. Before each entry the vCPU's APIC is
//! looked at, and what is to be injected is.

use alloc::boxed::Box;
use alloc::sync::Arc;

use mayfly_vapic::{Event as ApicEvent, LocalApic, Next};
use mayfly_vm::memslot::Gfn;
use mayfly_vm::platform::address::PAGE_SHIFT;
use mayfly_vm::stage2::Npt;
use mayfly_vm::{Event, Guest, Requests, Translation};
use mayfly_x86::boot::plan::Plan;
use mayfly_x86::guest::emulation::Registers;
use mayfly_x86::machine::xsave::Xsave;
use mayfly_x86::machine::{cpuid, cr4, layout, msr};
use mayfly_x86::svm::event::{self, Met};
use mayfly_x86::svm::exit::Exit;
use mayfly_x86::svm::features::Features;
use mayfly_x86::svm::flush::Own;
use mayfly_x86::svm::nmi::Nmi;
use mayfly_x86::svm::permissions::{self, MSR_MAP_BYTES, PORT_MAP_BYTES};
use mayfly_x86::svm::vmcb::{Save, Segment, Vmcb, first};
use mayfly_x86_decode::{Operation, System};

use super::board::Board;
use super::counts::Reason;
use super::load::{DESCRIPTORS_BYTES, Entry};
use super::pending::Pending;
use super::switch::{self, Resident};
use super::window::{self, TASK_PRIORITY};
use crate::program::processor::{interrupts, timer};
use crate::program::world::platform::{MACHINE, OUTDATED};

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

/// `CR0.PE`.
const PROTECTED: u64 = 1 << 0;
/// `RFLAGS.IF`.
const TAKES_INTERRUPTS: u64 = 1 << 9;

/// The processor of one vCPU.
pub(super) struct Processor {
    pub(super) vmcb: Box<Vmcb>,
    /// The general registers. RAX, RSP and the flags are in the control block, and here while an access is carried out.
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
        let xsave = Xsave::reset(machine_leaf);
        let identity = cpuid::Vcpu { number, vcpus: plan.vcpus, x2apic: plan.x2apic, xsave };
        Self {
            vmcb,
            registers: Registers::default(),
            resident: Resident::new(xsave, has_tsc_aux),
            apic,
            board: Arc::clone(board),
            identity,
            cr4_bits: cr4::bits(identity, machine_leaf),
            features,
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
        self.registers.general[6] = layout::PARAMETERS;
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
    pub(super) fn due(&self) -> u64 {
        let offset = self.vmcb.control.tsc_offset;
        self.apic.deadline().map_or(timer::NEVER, |deadline| self.board.when(deadline, offset))
    }

    /// Whether there is something for it, if it waits.
    pub(super) fn is_ready(&self, now: u64) -> bool {
        let waits = self.is_halted || self.apic.waits_for_startup();
        !waits || self.board.vapic.is_stale(self.apic.vcpu()) || self.due() <= now
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
    fn is_settled(&self, now: u64) -> bool {
        self.settled.is_some_and(|until| now < until)
            && self.inject.is_none()
            && self.told.is_none()
            && !self.is_halted
            && !self.board.vapic.is_stale(self.apic.vcpu())
    }

    /// Looks at its APIC, has it take what it can take, and sets the alarm. What it comes out with, if it does not go in.
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
                || takes && (self.displaced.is_some() || matches!(next, Next::Deliver(_)));
            if !wakes {
                return Some(Event::Halt);
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
                if let Some(vector) = board.vapic.accept(&mut self.apic) {
                    self.vmcb.control.event_injection = event::interrupt(vector);
                }
                window::of(board.vapic.next(&self.apic))
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
        self.set_alarm(due);
        None
    }

    /// Sets the alarm for the end of the time slice, or for when it is due by the guest's timer.
    fn set_alarm(&self, due: u64) {
        let earliest = timer::ticks() + self.board.shortest;
        timer::set_alarm(self.slice_end.min(due.max(earliest)));
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

/// What the machine's processor reads at a leaf of CPUID.
pub(super) fn machine_leaf(leaf: u32, sub: u32) -> cpuid::Leaf {
    let said = core::arch::x86_64::__cpuid_count(leaf, sub);
    [said.eax, said.ebx, said.ecx, said.edx]
}

impl Guest<Npt> for Processor {
    fn enter(&mut self, translation: Translation<'_, Npt>, requests: &Requests) -> Event {
        // What it is to come out with may be the access that is pending, which is not answered yet.
        if let Some(event) = self.told.take().or_else(|| self.complete()) {
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
            if !self.is_settled(now)
                && let Some(event) = self.told.take().or_else(|| self.prepare())
            {
                return event;
            }
            self.vmcb.control.tlb_control = self.outdated.take(OUTDATED.take(), self.features);
            // SAFETY: the control block is this vCPU's, whose tables the core keeps until this returns; its maps are constants.
            // Interrupts are masked: they always are.
            unsafe { switch::enter(&mut self.vmcb, &mut self.registers.general) };
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
