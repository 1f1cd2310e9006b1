//! What executes a guest program.

use std::hint::spin_loop;
use std::marker::PhantomData;
use std::sync::Arc;

use mayfly_memslot::{Gfn, Gpa, PAGE_SIZE};
use mayfly_platform::address::{Hpa, Pfn};
use mayfly_platform::tlb::Vmid;
use mayfly_stage2::{Ept, Format, Permissions};
use mayfly_vm::{Access, AccessKind, CacheOp, CacheTraps, Event, Guest, Requests, Translation};

use crate::reach::Reach;
use crate::seat::Seat;
use crate::tlb::{CpuCounts, InGuest, Translated};
use crate::walk::{Cause, WalkFault};
use crate::{Arena, Hardware, Instruction, LINE, Mismatch, Program, Rigour};

/// Bytes of an access to memory.
const WORD: u64 = 8;

/// How long a guest that waits for something looks for it before it lets another thread have the processor.
const LOOKS: u32 = 64;

/// What a guest comes out with ([`Event::Custom`]) when a walk is led past the processor's physical addresses
/// ([`Processors::pa_bits`](crate::Processors::pa_bits)): an entry is wrong, and nobody can resolve that.
pub const ADDRESS_SIZE_FAULT: u64 = 0xadd_5125;

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

/// What a program has come to.
#[derive(Debug, Default)]
struct State {
    program: Program,
    /// The instruction it is at.
    at: usize,
    /// How far it is in that: bytes of a range, rounds of a spin.
    done: u64,
    /// The barrier round it waits for, if it is at one.
    awaited: Option<u64>,
    /// It came out with an access, which is answered.
    answered: bool,
    /// It came out with this, and finds it done when it is entered again.
    switching: Option<CacheOp>,
    /// The access that it is at.
    access: Option<Access>,
    /// The bytes of an access, little-endian.
    data: [u8; 8],
    len: usize,
    looks: u32,
    aborts: u64,
    reads: u64,
    mismatches: u64,
    first_mismatch: Option<Mismatch>,
}

impl<F: Format> Cpu<F> {
    /// Of `hardware`, at the beginning of `program`, with its caches on.
    pub fn new(hardware: &Hardware, program: Program) -> Self {
        let state = State { program, ..State::default() };
        let arena = Arc::clone(hardware.arena());
        let (seat, slice) = (hardware.seat(), hardware.processors().slice);
        Self { seat, slice, arena, has_caches_on: true, state, format: PhantomData }
    }

    /// Begins another program. TLB and caches stay as they are.
    pub fn load(&mut self, program: Program) {
        self.state = State { program, ..State::default() };
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

    /// Words that [`Instruction::Verify`] and [`Instruction::VerifyLines`] have read.
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

    /// What the last [`Instruction::ReadMmio`] or [`Instruction::Fetch`] read.
    pub fn last_read(&self) -> u64 {
        let mut value = [0; 8];
        let State { data, len, .. } = &self.state;
        value[..*len].copy_from_slice(&data[..*len]);
        u64::from_le_bytes(value)
    }
}

impl State {
    fn next(&mut self) {
        self.at += 1;
        self.done = 0;
    }

    /// Comes out with an access of `len` bytes at `gpa`, to which it writes `value`, or from which it reads.
    fn access(&mut self, gpa: Gpa, len: u64, value: Option<u64>) -> Event {
        self.data = value.unwrap_or(0).to_le_bytes();
        self.len = len.min(WORD) as usize;
        let access = Access::data(gpa, len, value.is_some());
        self.access = Some(access);
        Event::Access(access)
    }

    /// Comes out with an access to the next page of a range; goes on behind it when all are done.
    fn next_page(&mut self, gpa: Gpa, len: u64, value: Option<u64>) -> Option<Event> {
        let Some(page) = gpa.checked_add(self.done).filter(|_| self.done < len) else {
            self.next();
            return None;
        };
        Some(self.access(page, WORD, value))
    }

    /// The access `made` was performed at `place`, or answered.
    fn complete(&mut self, made: Access, place: Option<(Reach<'_>, Hpa)>) {
        match self.program.get(self.at) {
            Some(Instruction::Touch { .. }) => self.done += PAGE_SIZE,
            Some(&Instruction::TouchLines { value, .. }) => {
                self.done += PAGE_SIZE;
                for (reach, hpa) in place.into_iter().flat_map(other_lines) {
                    reach.store(hpa, value);
                }
            }
            Some(&Instruction::Verify { value, .. }) => {
                self.done += PAGE_SIZE;
                self.verify(made.gpa, u64::from_le_bytes(self.data), value, place);
            }
            Some(&Instruction::VerifyLines { value, .. }) => {
                self.done += PAGE_SIZE;
                self.verify(made.gpa, u64::from_le_bytes(self.data), value, place);
                for (reach, hpa) in place.into_iter().flat_map(other_lines) {
                    let gpa = Gpa::new(made.gpa.get() + hpa.get() % PAGE_SIZE);
                    self.verify(gpa, reach.load(hpa), value, Some((reach, hpa)));
                }
            }
            Some(&Instruction::WaitFor { value, .. }) => {
                if u64::from_le_bytes(self.data) == value {
                    self.next();
                } else {
                    self.pause();
                }
            }
            _ => self.next(),
        }
    }

    /// Notes that `read` was found where `expected` should be.
    fn verify(&mut self, gpa: Gpa, read: u64, expected: u64, place: Option<(Reach<'_>, Hpa)>) {
        self.reads += 1;
        if read != expected {
            self.mismatches += 1;
            let other_way = place.and_then(|(reach, hpa)| reach.other_way(hpa));
            self.first_mismatch.get_or_insert(Mismatch { gpa, expected, read, other_way });
        }
    }

    /// A round of waiting.
    fn pause(&mut self) {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS) {
            std::thread::yield_now();
        } else {
            spin_loop();
        }
    }

    /// Executes the present instruction, or a part of it. Returns why the guest comes out, if it does.
    fn step(&mut self) -> Option<Event> {
        let Some(instruction) = self.program.get(self.at) else { return Some(Event::Halt) };
        match *instruction {
            Instruction::Touch { gpa, len, value }
            | Instruction::TouchLines { gpa, len, value } => {
                return self.next_page(gpa, len, Some(value));
            }
            Instruction::Verify { gpa, len, .. } | Instruction::VerifyLines { gpa, len, .. } => {
                return self.next_page(gpa, len, None);
            }
            Instruction::WaitFor { gpa, .. } => return Some(self.access(gpa, WORD, None)),
            Instruction::WriteMmio { gpa, len, value } => {
                return Some(self.access(gpa, u64::from(len), Some(value)));
            }
            Instruction::ReadMmio { gpa, len } => {
                return Some(self.access(gpa, u64::from(len), None));
            }
            Instruction::Fetch { gpa } => {
                let Event::Access(access) = self.access(gpa, WORD, None) else { return None };
                let fetch = Access { kind: AccessKind::Fetch, ..access };
                self.access = Some(fetch);
                return Some(Event::Access(fetch));
            }
            Instruction::Spin { loops } => {
                if self.done < u64::from(loops) {
                    self.done += 1;
                    spin_loop();
                } else {
                    self.next();
                }
            }
            Instruction::Barrier(ref barrier) => {
                let awaited = *self.awaited.get_or_insert_with(|| barrier.arrive());
                if barrier.is_over(awaited) {
                    self.awaited = None;
                    self.next();
                } else {
                    self.pause();
                }
            }
            Instruction::Caches(on) => {
                return Some(Event::Caches(if on { CacheOp::On } else { CacheOp::Off }));
            }
            Instruction::SetWay => return Some(Event::Caches(CacheOp::SetWay)),
            Instruction::Jump(target) => {
                self.at = target;
                self.done = 0;
            }
            Instruction::Halt => return Some(Event::Halt),
        }
        None
    }
}

/// The lines after the first, whose place is given, up to the end of its page. The page is the guest's until it looks for
/// requests again; the next one of the host's memory is anybody's.
fn other_lines((reach, first): (Reach<'_>, Hpa)) -> impl Iterator<Item = (Reach<'_>, Hpa)> {
    let lines = (LINE..PAGE_SIZE - first.get() % PAGE_SIZE).step_by(LINE as usize);
    lines.map(move |offset| (reach, Hpa::new(first.get() + offset)))
}

/// Makes `access`, if the translation allows it. Returns where its first byte is, and how the guest reaches it; or what
/// comes out: the access as far as it lies in the page that faulted, or that the tables are wrong.
fn perform<'a, F: Format>(
    access: Access,
    bytes: &mut [u8],
    guest: &mut InGuest<'_>,
    arena: &Arena,
    reach: Reach<'a>,
) -> Result<(Reach<'a>, Hpa), Event> {
    let Access { gpa, len, write, .. } = access;
    let needed = access.wanted();
    let mut place = |access: Access| {
        let found = guest.translate::<F>(arena, access.gpa.gfn(), needed);
        let event = |fault: WalkFault| match fault.cause {
            Cause::AddressSize => Event::Custom(ADDRESS_SIZE_FAULT),
            cause => Event::Access(Access { denied: cause == Cause::Permission, ..access }),
        };
        let met = |found: Translated<'_>| (found.hpa(access.gpa), found.leaf);
        found.map(met).map_err(event)
    };
    let (hpa, leaf) = place(access)?;
    let here = (reach.of(leaf.memory), hpa);
    let in_page = (PAGE_SIZE - gpa.page_offset()).min(len);
    let beyond = match gpa.checked_add(in_page).filter(|_| in_page < len) {
        // Nothing is done before both pages are there.
        Some(gpa) => {
            let (hpa, leaf) =
                place(Access { gpa, len: len - in_page, kind: AccessKind::Opaque, ..access })?;
            guest.record(gpa.gfn(), hpa.pfn(), write, || ());
            (reach.of(leaf.memory), hpa)
        }
        None => here,
    };
    if let Some(oracle) = arena.oracle()
        && leaf.permissions.contains(Permissions::EXECUTE)
    {
        oracle.look_ahead(arena.memory(), guest.cpu(), gpa.gfn(), hpa.pfn());
    }
    guest.record(gpa.gfn(), hpa.pfn(), write, || match arena.oracle() {
        Some(oracle) if access.kind == AccessKind::Fetch => {
            let word = oracle.fetch(arena.memory(), guest.cpu(), gpa.gfn(), hpa);
            bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
        }
        _ => transfer(bytes, write, in_page, [here, beyond]),
    });
    Ok(here)
}

/// Reads or writes `bytes`: `in_page` of them at the first place, the others at the second, each as it is reached.
fn transfer(
    bytes: &mut [u8],
    write: bool,
    in_page: u64,
    [(reach, hpa), (reach_beyond, beyond)]: [(Reach<'_>, Hpa); 2],
) {
    if let (Ok(word), true) = (<[u8; 8]>::try_from(&*bytes), hpa.get().is_multiple_of(WORD)) {
        if write {
            reach.store(hpa, u64::from_le_bytes(word));
        } else {
            bytes.copy_from_slice(&reach.load(hpa).to_le_bytes());
        }
        return;
    }
    for (offset, byte) in (0..).zip(bytes) {
        let (reach, there) = if offset < in_page {
            (reach, hpa.get() + offset)
        } else {
            (reach_beyond, beyond.get() + offset - in_page)
        };
        if write {
            reach.store_byte(Hpa::new(there), *byte);
        } else {
            *byte = reach.load_byte(Hpa::new(there));
        }
    }
}

impl<F: Format> Cpu<F> {
    /// Runs until an event, or to the end of its slice.
    fn run(&mut self, translation: &Translation<'_>, requests: &Requests) -> Option<Event> {
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

impl<F: Format> Guest for Cpu<F> {
    fn enter(&mut self, translation: Translation, requests: &Requests) -> Event {
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
