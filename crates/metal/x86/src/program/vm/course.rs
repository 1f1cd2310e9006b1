//! The course of a VM: its vCPUs run in turn, each for a slice, while there is something for them to do; otherwise the
//! processor halts until there is.

use alloc::sync::Arc;
use alloc::vec::Vec;

use mayfly_vm::platform::memory::OutOfMemory;
use mayfly_vm::{Access, AccessKind, Error, Exit, Vcpu, Vm};
use mayfly_x86::boot::plan::Plan;
use mayfly_x86::svm::event::Exception;
use mayfly_x86::svm::features::Features;

use super::board::{Board, End};
use super::counts::Reason;
use super::host::Kinds;
use super::load::Entry;
use super::pending::Pending;
use super::vcpu::{CANNOT, Processor, SHUT_DOWN};
use crate::program::processor::console::{self, say};
use crate::program::processor::{interrupts, timer};

/// A slice, in nanoseconds.
const SLICE: u64 = 4_000_000;
/// How often it is looked whether something was typed, in nanoseconds.
const TYPING: u64 = 20_000_000;

struct Seat {
    vcpu: Vcpu<Kinds>,
    processor: Processor,
}

/// The vCPUs of a VM.
pub(super) struct Seats {
    seats: Vec<Seat>,
    /// Whose registers the processor has.
    present: Option<usize>,
}

impl Seats {
    pub(super) fn try_new(
        vm: &Vm<Kinds>,
        board: &Arc<Board>,
        features: Features,
        plan: &Plan<'_>,
    ) -> Result<Self, Error> {
        let mut seats = Vec::new();
        seats.try_reserve_exact(plan.vcpus as usize).map_err(|_| OutOfMemory)?;
        for number in 0..plan.vcpus {
            let Some(apic) = board.vapic.local_apic(number as usize) else { break };
            let processor = Processor::new(number, apic, board, features, plan);
            seats.push(Seat { vcpu: vm.create_vcpu(number)?, processor });
        }
        Ok(Self { seats, present: None })
    }

    /// Has the first begin.
    pub(super) fn begin(&mut self, entry: Entry) {
        if let Some(seat) = self.seats.first_mut() {
            seat.processor.begin(entry);
        }
    }

    /// Has the processor have the registers of one of them.
    fn switch_to(&mut self, number: usize) {
        if self.present == Some(number) {
            return;
        }
        if let Some(present) = self.present.replace(number) {
            self.seats[present].processor.resident.put();
        }
        self.seats[number].processor.resident.take();
    }
}

/// Runs a VM to its end.
pub(super) fn run(seats: &mut Seats, board: &Board) -> End {
    let (slice, typing) = (board.rate.ticks(SLICE), board.rate.ticks(TYPING));
    let (mut last, mut kept) = (0, None);
    loop {
        if let Some(end) = board.ending() {
            return end;
        }
        type_in(board, &mut kept);
        let (now, count) = (timer::ticks(), seats.seats.len());
        // The one behind the last that ran is first.
        let ready = (1..=count).map(|after| (last + after) % count);
        let next = { ready }.find(|&number| seats.seats[number].processor.is_ready(now));
        let Some(number) = next else {
            let due = seats.seats.iter().map(|seat| seat.processor.due()).min();
            timer::set_alarm(due.unwrap_or(timer::NEVER).min(now + typing));
            interrupts::wait();
            continue;
        };
        last = number;
        seats.switch_to(number);
        let Seat { vcpu, processor } = &mut seats.seats[number];
        (processor.slice_end, processor.settled) = (now + slice, None);
        let exit = vcpu.run(processor);
        answer(exit, processor, board, number as u32);
    }
}

/// Gives the guest what was typed. What it does not take now is kept for later.
fn type_in(board: &Board, kept: &mut Option<u8>) {
    while let Some(byte) = kept.take().or_else(console::typed) {
        if !board.typed(byte) {
            *kept = Some(byte);
            return;
        }
    }
}

fn answer(exit: Exit, processor: &mut Processor, board: &Board, number: u32) {
    match exit {
        Exit::Mmio(_) | Exit::Port(_) => {
            let is_port = matches!(exit, Exit::Port(_));
            board.counts.count(if is_port { Reason::NoPort } else { Reason::NoDevice });
            processor.pending.as_mut().map(Pending::answer_nothing);
        }
        Exit::Unbacked(access) => unbacked(access, processor, board),
        Exit::Failed(access, error) => {
            say!("vCPU {number} failed at {}: {error}", access.gpa);
            board.end(End::Failed(number));
        }
        Exit::Custom(SHUT_DOWN) => board.end(End::TripleFault(number)),
        Exit::Custom(what) if what & 0xff == CANNOT => {
            let (code, rip) = (what >> 8, processor.vmcb.save.rip);
            say!("vCPU {number} came out at {rip:#x} with {code:#x}, which means nothing here");
            board.end(End::Failed(number));
        }
        // It waits, or its slice is over, or it is to look at something.
        Exit::Custom(_) | Exit::Halt | Exit::Kicked | Exit::Asked(_) | Exit::Caches(_) => {}
    }
}

/// Neither memory nor a device answers.
fn unbacked(access: Access, processor: &mut Processor, board: &Board) {
    match access.kind {
        // An instruction that is to be decoded first.
        AccessKind::Opaque => processor.told = processor.device(access.gpa.get(), access.write),
        // Its tables are where no memory is, and so are its ways to any handler.
        AccessKind::Walk => board.end(End::TripleFault(processor.identity.number)),
        AccessKind::Data | AccessKind::Fetch => {
            board.counts.count(Reason::NoDevice);
            processor.raise(Exception::GeneralProtection);
        }
    }
}
