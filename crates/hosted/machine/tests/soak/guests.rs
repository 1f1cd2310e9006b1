//! vCPUs that read and write, and know what they should find.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_machine::MachineVcpu;
use mayfly_machine::tlb::{CpuTlb, InGuest};
use mayfly_machine::walk::Cause;
use mayfly_memslot::Gfn;
use mayfly_stage2::{Format, Permissions};
use mayfly_vm::{Access, Error, Event, Exit, Guest, HostFault, Requests, Translation};

use crate::book::{Before, PLACES, SLOTS, SMALLS, Target, pages_of, word};
use crate::crew::Seat;
use crate::random::Random;
use crate::round::Round;
use crate::tally::What;

/// vCPUs of the VM, a thread each.
pub(crate) const VCPUS: u32 = 3;

/// Of so many accesses, one takes long between its translation and memory.
const LONG: u64 = 256;
/// Accesses from one look for invalidations to the next.
const POLL: u64 = 4;

/// Runs vCPUs numbered `id`, one after another, until the round is over.
pub(crate) fn live<F: Format>(round: &Arc<Round<F>>, id: u32, random: &mut Random, seat: &Seat) {
    let mut guest = Walker::new(round, id, random.fork());
    while !round.tally.is_over() {
        seat.at("creating a vCPU");
        let mut vcpu = round.vm.create_vcpu(id).unwrap();
        round.tally.add(What::VcpuCreated, 1);
        for _ in 0..=guest.mind.random.below(3) {
            // Short, and others get the processor outside of the guest: they wait for whoever is inside.
            guest.mind.left = 1 + guest.mind.random.below(400);
            seat.at("running a vCPU");
            run(round, &mut vcpu, &mut guest);
            std::thread::yield_now();
        }
        round.tally.add(What::ReadChecked, std::mem::take(&mut guest.mind.checked));
        round.tally.add(What::Faulted, std::mem::take(&mut guest.mind.faults));
        seat.at("dropping a vCPU");
    }
}

fn run<F: Format>(round: &Round<F>, vcpu: &mut MachineVcpu<F>, guest: &mut Walker<F>) {
    loop {
        let exit = vcpu.run(guest);
        let failed = |guest: &mut Walker<F>| guest.mind.access.take().expect("it came out with it");
        match exit {
            Exit::Halt => return,
            Exit::Kicked => round.tally.add(What::Kicked, 1),
            Exit::Mmio(_) => {
                let (step, before) = failed(guest);
                round.book.check_exit(step.target, before);
            }
            Exit::Failed(_, Error::Host(HostFault::NotMapped)) => {
                let (step, before) = failed(guest);
                round.book.check_unmapped(step.target, before);
            }
            Exit::Failed(_, Error::Host(HostFault::ReadOnly)) => {
                let (step, before) = failed(guest);
                assert!(step.write.is_some(), "a read of {:x?} is refused as a write", step.target);
                round.book.check_forbidden(step.target, before);
            }
            Exit::Failed(_, Error::Host(HostFault::OutOfMemory)) => {
                let (step, _) = failed(guest);
                let is_huge = step.target.slot >= SMALLS;
                let (arena, reclaimer) =
                    (round.machine.hardware().arena(), round.machine.reclaimer());
                let frames = (arena.in_use(), reclaimer.frames());
                assert!(is_huge, "all frames are in use (so many, and in dead tables): {frames:?}");
            }
            exit => panic!("the guests give no cause for {exit:?}"),
        }
    }
}

/// A guest that goes through its memory.
struct Walker<F: Format> {
    tlb: CpuTlb,
    mind: Mind<F>,
}

/// What a guest does next, and what it has found.
struct Mind<F: Format> {
    round: Arc<Round<F>>,
    id: usize,
    random: Random,
    /// Where it was last.
    slot: usize,
    at: usize,
    /// The access that it came out with.
    access: Option<(Step, Before)>,
    /// Whether an entry denied it.
    denied: bool,
    /// Accesses until it halts.
    left: u64,
    checked: u64,
    faults: u64,
    data: [u8; 8],
}

#[derive(Clone, Copy, Debug)]
struct Step {
    target: Target,
    /// Which write it is, if it is one.
    write: Option<u64>,
}

impl<F: Format> Walker<F> {
    fn new(round: &Arc<Round<F>>, id: u32, random: Random) -> Self {
        let mind = Mind {
            round: Arc::clone(round),
            id: id as usize,
            random,
            slot: 0,
            at: 0,
            access: None,
            denied: false,
            left: 0,
            checked: 0,
            faults: 0,
            data: [0; 8],
        };
        Self { tlb: round.machine.hardware().tlbs().cpu(), mind }
    }
}

impl<F: Format> Mind<F> {
    /// Mostly to the next page of the same slot.
    fn step(&mut self) -> Step {
        let Self { random, slot, at, .. } = self;
        if random.once_in(16) {
            *slot = random.below(SLOTS as u64) as usize;
            *at = random.below(pages_of(*slot) as u64) as usize;
        } else {
            *at = (*at + 1) % pages_of(*slot);
        }
        let place = self.round.book.slot(*slot).place().filter(|_| !random.once_in(32));
        let place = place.unwrap_or_else(|| random.below(PLACES));
        let target = Target { slot: *slot, place, at: *at };
        let is_mine = target.page() % VCPUS as usize == self.id;
        let page = &self.round.book.pages[target.page()];
        Step { target, write: (is_mine && random.once_in(2)).then(|| page.begin()) }
    }

    /// Does what is next. Returns whether it has come out with an access.
    fn advance(&mut self, guest: &mut InGuest<'_>) -> bool {
        let step = self.access.take().map_or_else(|| self.step(), |(step, _)| step);
        let Step { target, write } = step;
        let (book, arena) = (&self.round.book, self.round.machine.hardware().arena());
        let before = book.before(target);
        let needed = if write.is_some() { Permissions::WRITE } else { Permissions::READ };
        let found = match guest.translate::<F>(arena, target.gfn(), needed) {
            Ok(found) => found,
            Err(fault) => {
                self.access = Some((step, before));
                self.denied = fault.cause == Cause::Permission;
                return true;
            }
        };
        let memory = arena.word(found.hpa(target.gpa()));
        if self.random.once_in(LONG) {
            // The translation is still good: nobody is told that it is forgotten before the next poll.
            std::thread::yield_now();
        }
        if let Some(count) = write {
            memory.store(word(target.page(), count), Ordering::Release);
            book.check_write(target, before, count);
        } else {
            let is_certain = book.check_read(target, before, memory.load(Ordering::Acquire));
            self.checked += u64::from(is_certain);
        }
        false
    }
}

impl<F: Format> Guest<F> for Walker<F> {
    fn enter(&mut self, translation: Translation<F>, requests: &Requests) -> Event {
        let Self { tlb, mind } = self;
        let mut guest = tlb.enter::<F>(mind.round.machine.hardware().arena(), &translation);
        while mind.left > 0 {
            if requests.any() {
                return Event::Request;
            }
            if mind.random.once_in(POLL) {
                guest.poll();
            }
            if mind.advance(&mut guest) {
                mind.faults += 1;
                let (Step { target, write }, _) = mind.access.expect("it came out with it");
                let access = Access::data(target.gpa(), 8, write.is_some());
                return Event::Access(Access { denied: mind.denied, ..access });
            }
            mind.left -= 1;
        }
        Event::Halt
    }

    fn cpu(&self) -> u32 {
        self.tlb.number()
    }

    fn forget(&mut self, gfn: Gfn) {
        self.tlb.forget(gfn);
    }

    fn data(&mut self) -> &mut [u8] {
        &mut self.mind.data
    }

    fn answered(&mut self) {}
}
