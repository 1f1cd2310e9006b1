//! A VM in a second format, on the machine of the others; and VMs of parts of two machines.

use std::sync::Arc;

use proptest::prelude::*;

use mayfly_vm::memslot::{Flags, Gpa, Hva, PAGE_SHIFT, PAGE_SIZE, Region, SlotId};
use mayfly_vm::stage2::{Arm, Reclaimer, Slice};
use mayfly_vm::testing::{Machine, Memory, Step as Make};
use mayfly_vm::{
    Caches, Config, Device, Error, Event, Protection, Reason, SlotZap, Vcpu, Vm, World,
};

use crate::guests::{Saying, event};
use crate::host::{Host, check, returns};
use crate::step::{PAGES, PLACES};

/// A format that asks more of the core than the machine's own: break before make, and caches that are not coherent.
pub(crate) struct Foreign;

impl World for Foreign {
    type Device = Arc<dyn Device>;
    type Backing = Hva;
    type Format = Arm<40>;
    type Memory = Memory;
}

/// A VM in that format.
pub(crate) struct Other {
    vm: Vm<Foreign>,
    vcpu: Option<Vcpu<Foreign>>,
    reclaimer: Arc<Reclaimer<Arm<40>>>,
    memory: Hva,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Put {
        slot: u16,
        place: usize,
        pages: u64,
        logs: bool,
    },
    Run {
        events: Vec<Event>,
    },
    Reset,
    Take {
        from: u64,
        pages: u64,
    },
    ReplaceRoots,
    Harvest {
        slot: u16,
    },
    Destroy,
    /// A VM of which one part is another machine's.
    Mix {
        part: usize,
    },
    /// A vCPU runs a guest of another machine.
    RunAnothers {
        at: usize,
        makes: Vec<Make>,
    },
}

pub(crate) fn some() -> impl Strategy<Value = Step> {
    let (slot, place, pages) = (0..3_u16, 0..PLACES.len(), 0..=PAGES);
    prop_oneof![
        4 => (slot.clone(), place, pages, any::<bool>())
            .prop_map(|(slot, place, pages, logs)| Step::Put { slot, place, pages, logs }),
        6 => prop::collection::vec(event(), 1..8).prop_map(|events| Step::Run { events }),
        1 => Just(Step::Reset),
        2 => (0..PAGES, 1..=PAGES).prop_map(|(from, pages)| Step::Take { from, pages }),
        1 => Just(Step::ReplaceRoots),
        1 => slot.prop_map(|slot| Step::Harvest { slot }),
        1 => Just(Step::Destroy),
        1 => (0..4_usize).prop_map(|part| Step::Mix { part }),
        2 => (any::<usize>(), crate::step::accesses())
            .prop_map(|(at, makes)| Step::RunAnothers { at, makes }),
    ]
}

impl Other {
    pub(crate) fn new(machine: &Machine, memory: Hva) -> Self {
        let mmu = machine.config().stage2.mmu;
        let reclaimer = Arc::new(Reclaimer::new(mmu, Reclaimer::<Arm<40>>::BOUND));
        let vm = Self::create(machine, &reclaimer);
        Self { vcpu: vm.create_vcpu(0).ok(), vm, reclaimer, memory }
    }

    fn create(machine: &Machine, reclaimer: &Arc<Reclaimer<Arm<40>>>) -> Vm<Foreign> {
        let Config { srcu, stage2, memory, cache, slice, .. } = machine.config();
        let stage2 = mayfly_vm::stage2::Config {
            mmu: stage2.mmu,
            vmids: stage2.vmids,
            reclaimer: Arc::clone(reclaimer),
            max_frames: 64,
        };
        let (caches, slot_zap) = (Caches::Tracked, SlotZap::AllRoots);
        Vm::create(Config { srcu, stage2, memory, cache, caches, slot_zap, slice }).unwrap()
    }

    /// As of the other VMs.
    pub(crate) fn check(&self) {
        check(&self.vm);
    }

    fn make(&mut self, machine: &Machine, step: &Step) {
        match *step {
            Step::Put { slot, place, pages, logs } => {
                let flags = if logs { Flags::LOG_DIRTY_PAGES } else { Flags::empty() };
                let (gpa, size) = (Gpa::new(PLACES[place] << PAGE_SHIFT), pages * PAGE_SIZE);
                let (slot, backing) = (SlotId::main(slot), self.memory);
                let _ = self.vm.set_memory_region(&Region { slot, flags, gpa, size, backing });
            }
            Step::Run { ref events } => {
                let mut guest = Saying { cpu: 0, events: events.clone(), data: vec![7; 8] };
                if let Some(vcpu) = &mut self.vcpu {
                    returns(|| _ = vcpu.run(&mut guest));
                }
            }
            Step::Reset => {
                if let Some(vcpu) = &mut self.vcpu {
                    vcpu.reset_caches();
                }
            }
            Step::Take { from, pages } => {
                let from = Hva::new(self.memory.get() + from * PAGE_SIZE);
                let (old, new) = (Protection::ReadWrite, Protection::ReadOnly);
                let change = mayfly_vm::Change { reason: Reason::Protect, old, new };
                drop(self.vm.invalidate_start(from, pages * PAGE_SIZE, change));
            }
            Step::ReplaceRoots => drop(self.vm.stage2().replace_roots()),
            Step::Harvest { slot } => {
                let _ = self.vm.harvest_dirty(SlotId::main(slot), 0, &mut [0]);
            }
            Step::Destroy => {
                let fresh = Self::create(machine, &self.reclaimer);
                std::mem::replace(&mut self.vm, fresh).destroy();
                self.vcpu = self.vm.create_vcpu(0).ok();
                self.reclaimer.run_slice(Slice::default());
            }
            Step::Mix { .. } | Step::RunAnothers { .. } => {}
        }
    }
}

impl Host {
    pub(crate) fn make_foreign(&mut self, step: &Step) {
        self.other.make(&self.machine, step);
        match *step {
            Step::Mix { part } => {
                let (mut config, anothers) = (self.machine.config(), self.anothers.config());
                match part {
                    0 => config.memory = anothers.memory,
                    1 => config.stage2.vmids = anothers.stage2.vmids,
                    2 => config.stage2.reclaimer = anothers.stage2.reclaimer,
                    _ => config.cache = anothers.cache,
                }
                let mut made = None;
                let returned = returns(|| made = Some(Vm::create(config)));
                match part {
                    0 => assert_eq!(made.unwrap().err(), Some(Error::OtherMachine)),
                    1 => assert!(!returned, "two roots of one machine come to have a VMID"),
                    _ => drop(made.unwrap().unwrap().create_vcpu(0)),
                }
                assert!(self.anothers.reclaim());
            }
            Step::RunAnothers { at, ref makes } => {
                let count = self.vcpus.len().max(1);
                let Some((of, vcpu)) = self.vcpus.get_mut(at % count) else { return };
                if of.is_none_or(|vm| self.vms[vm].open > 0) {
                    vcpu.kicker().kick();
                }
                let mut guest = self.anothers.guest(makes.clone());
                let live = self.anothers.process().arena().live();
                returns(|| _ = vcpu.run(&mut guest));
                assert!(guest.loaded().is_empty(), "it has walked the other machine");
                assert_eq!(self.anothers.process().arena().live(), live);
            }
            _ => {}
        }
    }
}
