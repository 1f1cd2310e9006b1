//! What executes a guest program.

mod access;
mod state;

use std::marker::PhantomData;
use std::sync::Arc;

use mayfly_memslot::Gfn;
use mayfly_platform::address::Pfn;
use mayfly_platform::tlb::Vmid;
use mayfly_stage2::{Ept, Format};
use mayfly_vm::{CacheOp, CacheTraps, Event, Guest, Requests, Translation};

use crate::reach::Reach;
use crate::seat::Seat;
use crate::tlb::CpuCounts;
use crate::{Arena, Hardware, Mismatch, Program, Rigour};
pub use access::ADDRESS_SIZE_FAULT;
use access::perform;
use state::State;

/// What runs a program on the software machine, in translation format `F`, and where it is in it: on a CPU of its own, or
/// on those that the machine's vCPUs share ([`Processors`](crate::Processors)). Looks for requests and invalidations
/// between instructions, which is how a kick reaches it.
#[derive(Debug)]
pub struct Cpu<F: Format = Ept> {
    seat: Seat,
    /// After how many steps it comes out by itself.
    slice: Option<u32>,
    arena: Arc<Arena>,
    has_caches_on: bool,
    state: State,
    format: PhantomData<F>,
}

impl<F: Format> Cpu<F> {
    /// Of `hardware`, at the beginning of `program`, with its caches on.
    pub fn new(hardware: &Hardware, program: Program) -> Self {
        let state = State::at_the_beginning_of(program);
        let arena = Arc::clone(hardware.arena());
        let (seat, slice) = (hardware.seat(), hardware.processors().slice);
        Self { seat, slice, arena, has_caches_on: true, state, format: PhantomData }
    }

    /// Begins another program. TLB and caches stay as they are.
    pub fn load(&mut self, program: Program) {
        self.state = State::at_the_beginning_of(program);
    }

    /// Turns its caches off, as they are when a processor is reset: for a vCPU that the core takes to begin so.
    pub fn turn_caches_off(&mut self) {
        self.has_caches_on = false;
    }

    /// What the TLB of its CPU has done.
    pub fn tlb(&self) -> CpuCounts {
        self.seat.counts()
    }

    /// Takes an abort for the access that it came out with last, and goes on behind it, as a guest does that probes for
    /// memory: the access has not happened.
    pub fn abort(&mut self) {
        if self.state.access.take().is_some() {
            self.state.next();
            self.state.aborts += 1;
        }
    }

    /// Aborts that it took.
    pub fn aborts(&self) -> u64 {
        self.state.aborts
    }

    /// The first frame of the root that the translation base register of its CPU names, and the VMID there.
    pub fn named(&self) -> Option<(Pfn, Vmid)> {
        self.seat.named()
    }

    /// Words that [`Instruction::Verify`](crate::Instruction::Verify) and
    /// [`Instruction::VerifyLines`](crate::Instruction::VerifyLines) have read.
    pub fn reads(&self) -> u64 {
        self.state.reads
    }

    /// Those of them that were not what the instruction said they are.
    pub fn mismatches(&self) -> u64 {
        self.state.mismatches
    }

    /// The first of those.
    pub fn first_mismatch(&self) -> Option<Mismatch> {
        self.state.first_mismatch
    }

    /// What the last [`Instruction::ReadMmio`](crate::Instruction::ReadMmio) or
    /// [`Instruction::Fetch`](crate::Instruction::Fetch) read.
    pub fn last_read(&self) -> u64 {
        let mut value = [0; 8];
        let State { data, len, .. } = &self.state;
        value[..*len].copy_from_slice(&data[..*len]);
        u64::from_le_bytes(value)
    }
}

impl<F: Format> Cpu<F> {
    /// Runs until an event, or to the end of its slice.
    fn run(&mut self, translation: &Translation<'_, F>, requests: &Requests) -> Option<Event> {
        let Self { seat, slice, arena, has_caches_on, state, .. } = self;
        if std::mem::take(&mut state.answered)
            && let Some(access) = state.access.take()
        {
            state.complete(access, None);
        }
        if let Some(op) = state.switching.take() {
            switch(has_caches_on, op);
            state.next();
        }
        let mut reach = Reach::new(arena, *has_caches_on);
        let mut tlb = seat.take();
        // What was interrupted before is the host's. From here on interrupts are masked, and come when the guest runs.
        tlb.take_interrupt();
        let mut guest = tlb.enter::<F>(arena, translation);
        if requests.any() {
            return Some(Event::Request);
        }
        let needs_interrupts = guest.rigour().contains(Rigour::NEEDS_INTERRUPTS);
        let mut left = *slice;
        while left != Some(0) {
            left = left.map(|left| left - 1);
            if guest.is_interrupted() || !needs_interrupts && requests.any() {
                return Some(Event::Request);
            }
            guest.poll();
            let event = match state.access {
                // It came out with this, and is to make it again.
                Some(access) => Some(Event::Access(access)),
                None => state.step(),
            };
            match event {
                None => {}
                Some(Event::Access(access)) => {
                    let bytes = &mut state.data[..state.len];
                    match perform::<F>(access, bytes, &mut guest, arena, reach) {
                        Ok(place) => {
                            state.access = None;
                            state.complete(access, Some(place));
                        }
                        Err(event) => return Some(event),
                    }
                }
                Some(Event::Caches(op)) if is_trapped(translation.traps, op) => {
                    state.switching = Some(op);
                    return Some(Event::Caches(op));
                }
                Some(Event::Caches(op)) => {
                    switch(has_caches_on, op);
                    reach = Reach::new(arena, *has_caches_on);
                    state.next();
                }
                Some(event) => return Some(event),
            }
        }
        None
    }
}

impl<F: Format> Guest<F> for Cpu<F> {
    fn enter(&mut self, translation: Translation<F>, requests: &Requests) -> Event {
        self.run(&translation, requests).unwrap_or_else(|| {
            self.seat.move_on();
            Event::Request
        })
    }

    fn cpu(&self) -> u32 {
        self.seat.number()
    }

    fn forget(&mut self, gfn: Gfn) {
        self.seat.forget(gfn);
    }

    fn data(&mut self) -> &mut [u8] {
        &mut self.state.data[..self.state.len]
    }

    fn answered(&mut self) {
        self.state.answered = true;
    }
}

fn is_trapped(traps: CacheTraps, op: CacheOp) -> bool {
    match op {
        CacheOp::On | CacheOp::Off => traps.toggles(),
        CacheOp::SetWay => traps.set_way(),
    }
}

fn switch(has_caches_on: &mut bool, op: CacheOp) {
    match op {
        CacheOp::On => *has_caches_on = true,
        CacheOp::Off => *has_caches_on = false,
        CacheOp::SetWay => {}
    }
}
