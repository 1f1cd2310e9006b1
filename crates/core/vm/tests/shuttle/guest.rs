//! A guest: its steps, one access or one operation each, and the CPU that makes them.

use std::collections::VecDeque;
use std::sync::Arc;

use shuttle::rand::{Rng, thread_rng};

use mayfly_memslot::{Gfn, Gpa, PAGE_SIZE};
use mayfly_platform::address::Pfn;
use mayfly_platform::tlb::Vmid;
use mayfly_stage2::{Entry, Format, Level, Permissions, State};
use mayfly_vm::{Access, Base, CacheOp, CacheTraps, Event, Requests};

use crate::cpus::{self, Cpus};
use crate::memory::Memory;
use crate::model::{Tiny, World};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Writes the value to the page.
    Write(u64, u64),
    /// Finds this value in the page.
    Read(u64, u64),
    /// Finds this value, or a greater one.
    ReadAtLeast(u64, u64),
    /// Reads the page, whatever is there.
    Look(u64),
    Caches(CacheOp),
}

impl Step {
    fn page(self) -> u64 {
        match self {
            Self::Write(page, _)
            | Self::Read(page, _)
            | Self::ReadAtLeast(page, _)
            | Self::Look(page) => page,
            Self::Caches(_) => unreachable!("not an access"),
        }
    }
}

pub(crate) struct Guest<const BREAK: bool> {
    cpu: usize,
    world: Arc<World<Cpus>>,
    memory: Arc<Memory>,
    steps: VecDeque<Step>,
    caches_on: bool,
    /// What the CPU is to forget first.
    stale: Option<Gfn>,
}

impl<const BREAK: bool> Guest<BREAK> {
    pub(crate) fn new(
        cpu: usize,
        world: Arc<World<Cpus>>,
        memory: Arc<Memory>,
        steps: Vec<Step>,
    ) -> Self {
        Self { cpu, world, memory, steps: steps.into(), caches_on: false, stale: None }
    }

    /// Leaves out the step that it came out with.
    pub(crate) fn skip(&mut self) {
        self.steps.pop_front();
    }

    /// Goes through the steps until it has to come out.
    fn steps(&mut self, base: Base, traps: CacheTraps, requests: &Requests) -> Event {
        if let Some(gfn) = self.stale.take() {
            self.world.tlb.forget(self.cpu, base.vmid, gfn.get());
        }
        while !requests.any() {
            self.world.tlb.serve(self.cpu);
            let Some(&step) = self.steps.front() else { return Event::Halt };
            if let Step::Caches(op) = step {
                self.steps.pop_front();
                match op {
                    CacheOp::On => self.caches_on = true,
                    CacheOp::Off => self.caches_on = false,
                    CacheOp::SetWay => {}
                }
                if if op == CacheOp::SetWay { traps.set_way() } else { traps.toggles() } {
                    return Event::Caches(op);
                }
                continue;
            }
            if let Err(denied) = self.access(base.top, base.vmid, step) {
                let gpa = Gpa::new(step.page() * PAGE_SIZE);
                let write = matches!(step, Step::Write(..));
                return Event::Access(Access { denied, ..Access::data(gpa, 8, write) });
            }
            self.steps.pop_front();
        }
        Event::Request
    }

    /// Accesses memory by what the CPU remembers, or finds in the tables. If it could not, returns whether that was
    /// denied.
    fn access(&self, top: Pfn, vmid: Vmid, step: Step) -> Result<(), bool> {
        let (cpus, page) = (&self.world.tlb, step.page());
        let mut translation = cpus.remembered(self.cpu, vmid, page);
        // A CPU may walk though it remembers.
        if (translation.is_none() || thread_rng().gen_bool(0.25))
            && let Some(found) = self.walk(top, vmid, page)
        {
            cpus.remember(self.cpu, found, BREAK);
            translation.get_or_insert(found);
        }
        let write = matches!(step, Step::Write(..));
        let allows =
            |leaf: &mayfly_stage2::Leaf| !write || leaf.permissions.contains(Permissions::WRITE);
        let Some(found) = translation.filter(|found| allows(&found.leaf)) else {
            if !Tiny::<BREAK>::KEEPS_FAULTING {
                cpus.forget(self.cpu, vmid, page);
            }
            return Err(translation.is_some());
        };
        let pfn = found.leaf.pfn.get() + page - found.first;
        let on = self.caches_on;
        match step {
            Step::Write(_, value) => self.memory.write(pfn, on, value),
            Step::Read(_, value) => {
                assert_eq!(self.memory.read(pfn, on), value, "page {page}, caches on: {on}");
            }
            Step::ReadAtLeast(_, value) => assert!(self.memory.read(pfn, on) >= value),
            Step::Look(_) | Step::Caches(_) => {
                self.memory.read(pfn, on);
            }
        }
        Ok(())
    }

    /// As hardware walks: with no regard for sections.
    fn walk(&self, top: Pfn, vmid: Vmid, page: u64) -> Option<cpus::Translation> {
        let (mut table, mut level) = (top, Tiny::<BREAK>::TOP);
        loop {
            let index = page / level.pages() % Level::MIB2.pages();
            let bits = self.world.arena.load(table, index as usize);
            let entry = Entry::<Tiny<BREAK>>::from_bits(bits);
            match entry.state(level) {
                State::Table(below) => (table, level) = (below, level.below().unwrap()),
                State::Leaf => {
                    let (leaf, first) = (entry.to_leaf(level), page - page % level.pages());
                    return leaf.accessed.then_some(cpus::Translation { vmid, level, first, leaf });
                }
                _ => return None,
            }
        }
    }
}

impl<const BREAK: bool> mayfly_vm::Guest<Tiny<BREAK>> for Guest<BREAK> {
    fn enter(
        &mut self,
        translation: mayfly_vm::Translation<Tiny<BREAK>>,
        requests: &Requests,
    ) -> Event {
        let world = self.world.clone();
        // SAFETY: this thread has the CPU to itself until it returns.
        let base = unsafe { translation.load() };
        // Nobody is asked to leave but by `requests`.
        assert!(world.tlb.enter(self.cpu, world.tlb.kicks()));
        let event = self.steps(base, translation.traps, requests);
        world.tlb.leave(self.cpu);
        event
    }

    fn cpu(&self) -> u32 {
        self.cpu as u32
    }

    fn forget(&mut self, gfn: Gfn) {
        self.stale = Some(gfn);
    }

    fn data(&mut self) -> &mut [u8] {
        // No device answers.
        &mut []
    }

    fn answered(&mut self) {}
}
