//! A host with its VMs, and a step of what happens to them.

use std::sync::{Arc, Mutex};

use mayfly_machine::cache::{Lines, Moment};
use mayfly_machine::merger::Merger;
use mayfly_machine::scenario::TableFormat;
use mayfly_machine::{Instruction, Machine};
use mayfly_memslot::{Hva, PAGE_SIZE};
use mayfly_platform::cache::CacheCapabilities;

use crate::guests::{Guests, Page, Place, Player, Slot};
use crate::steps::{Access, BASES, Change, Nature, PAGES, SLOTS, Step, VCPUS, VMS, Which, Who};

/// What is begun before maintenance, or after, by whoever comes there first.
pub(crate) type Armed = Arc<Mutex<Option<(bool, Box<dyn FnOnce() + Send>)>>>;

pub(crate) struct World {
    pub(crate) vms: Vec<Guests>,
    /// Where they are, and what they say.
    pub(crate) forks: Vec<(Hva, u64)>,
    pub(crate) merger: Merger,
    pub(crate) armed: Armed,
    pub(crate) nature: Nature,
    /// Writes past the caches.
    pub(crate) past: u64,
    pub(crate) number: u64,
    /// What is accessed beside a change that is under way.
    pub(crate) beside: Vec<Which>,
    pub(crate) machine: Machine<TableFormat>,
}

impl World {
    pub(crate) fn new(nature: Nature) -> Self {
        let capabilities = CacheCapabilities { fgt: nature.fgt, ..CacheCapabilities::default() };
        let machine: Machine<TableFormat> =
            Machine::with_caches(1 << 14, Lines::Modelled, capabilities).unwrap();
        let armed = Armed::default();
        let in_the_middle = Arc::clone(&armed);
        let oracle = machine.hardware().arena().oracle().unwrap();
        oracle.at_maintenance(Box::new(move |moment, _, _| {
            let is_before = matches!(moment, Moment::BeforeClean | Moment::BeforeFlush);
            let access = in_the_middle.lock().unwrap().take_if(|(before, _)| *before == is_before);
            if let Some((_, access)) = access {
                access();
            }
        }));
        let vms = (0..VMS).map(|_| Guests::new(&machine, nature)).collect();
        let merger = Merger::new(Arc::clone(machine.space()));
        let (forks, past, number, beside) = (Vec::new(), 0, 0, Vec::new());
        let mut world = Self { vms, forks, merger, armed, nature, past, number, beside, machine };
        for (vm, slot) in (0..VMS).flat_map(|vm| (0..SLOTS).map(move |slot| (vm, slot))) {
            world.changes(Change::Place(Which { vm, slot, page: 0 }, slot as u64 * BASES / 2));
        }
        world
    }

    pub(crate) fn slot(&mut self, Which { vm, slot, .. }: Which) -> &mut Slot {
        &mut self.vms[vm].slots[slot]
    }

    pub(crate) fn page(&mut self, which: Which) -> &mut Page {
        &mut self.slot(which).pages[which.page]
    }

    pub(crate) fn hva(&self, which: Which) -> Hva {
        self.vms[which.vm].slots[which.slot].hva(which.page)
    }

    pub(crate) fn range(&self, which: Which) -> std::ops::Range<Hva> {
        let hva = self.hva(which);
        hva..Hva::new(hva.get() + PAGE_SIZE)
    }

    pub(crate) fn does(&mut self, step: Step) {
        self.number += 1;
        match step {
            Step::Access(access) => self.access(access),
            Step::HostWrites(which) => self.host_writes(which),
            Step::HostReads(which) => self.host_reads(which),
            Step::Changes(change) => self.changes(change),
            Step::Beside(change, middle) => self.beside(change, middle),
        }
    }

    /// What `access` is, if there is a promise for it; the model has it done then.
    pub(crate) fn allow(&mut self, Access { vcpu, which, write }: Access) -> Option<Instruction> {
        let mine = self.vms[which.vm].players[vcpu].as_ref()?.side();
        let number = self.number;
        let slot = self.slot(which);
        let gpa = slot.gpa(which.page)?;
        let page = &mut slot.pages[which.page];
        if ![Place::Both, mine].contains(&page.place) || write && page.read_only {
            return None;
        }
        let instruction = if write {
            (page.place, page.value, page.logged) = (mine, number, true);
            Instruction::Touch { gpa, len: 1, value: number }
        } else {
            Instruction::Verify { gpa, len: 1, value: page.value }
        };
        slot.maps_around(which.page);
        self.past += u64::from(write && mine == Place::Memory);
        Some(instruction)
    }

    pub(crate) fn host_reads(&mut self, which: Which) {
        let Page { place, value, .. } = *self.page(which);
        if place != Place::Memory {
            let hva = self.hva(which);
            assert_eq!(self.machine.space().read_u64(hva), Ok(value), "of {which:?}");
        }
    }

    pub(crate) fn host_writes(&mut self, which: Which) {
        let number = self.number;
        let page = self.page(which);
        if page.place == Place::Memory || page.read_only {
            return;
        }
        page.value = number;
        if page.mapped {
            page.place = Place::Cache;
        }
        let hva = self.hva(which);
        self.machine.space().write_u64(hva, number).unwrap();
    }

    pub(crate) fn access(&mut self, access: Access) {
        if let Some(instruction) = self.allow(access) {
            let Access { which: Which { vm, .. }, vcpu, .. } = access;
            self.player(Who { vm, vcpu }).run(vec![instruction]);
        }
    }

    /// Everybody reads all that may be read, with caches as they are, and then on.
    pub(crate) fn ends(&mut self) {
        self.everybody_reads();
        for who in (0..VMS).flat_map(|vm| (0..VCPUS).map(move |vcpu| Who { vm, vcpu })) {
            if !self.player(who).on {
                self.changes(Change::Switch(who));
            }
        }
        self.everybody_reads();
        self.end_forks();
    }

    pub(crate) fn everybody_reads(&mut self) {
        for vm in 0..VMS {
            for (slot, page) in (0..SLOTS).flat_map(|slot| (0..PAGES).map(move |page| (slot, page)))
            {
                let which = Which { vm, slot, page };
                self.does(Step::HostReads(which));
                for vcpu in 0..VCPUS {
                    self.access(Access { vcpu, which, write: false });
                }
            }
        }
    }

    pub(crate) fn end_forks(&mut self) {
        let space = self.machine.space();
        for (fork, value) in self.forks.drain(..) {
            assert_eq!(space.read_u64(fork), Ok(value));
            space.munmap(fork..Hva::new(fork.get() + PAGE_SIZE)).unwrap();
        }
    }

    pub(crate) fn player(&mut self, Who { vm, vcpu }: Who) -> &mut Player {
        self.vms[vm].players[vcpu].as_mut().expect("only one that nothing else is asked of is away")
    }

    /// What a vCPU that switches has brought about for all of its VM.
    pub(crate) fn agree(&mut self, vm: usize, from: Place) {
        for slot in &mut self.vms[vm].slots {
            slot.pages.iter_mut().for_each(|page| page.agrees(from));
        }
    }
}
