//! Guests of the program's own, around those of the machine.

use proptest::prelude::*;

use mayfly_vm::memslot::{Gfn, Gpa};
use mayfly_vm::stage2::{Ept, Format};
use mayfly_vm::testing::{Kinds, Program, Step as Make};
use mayfly_vm::{
    Access, AccessKind, CacheOp, Event, Guest, PortAccess, Requests, Translation, Vcpu,
};

use crate::host::{Host, returns};
use crate::step::{PLACES, accesses};

/// How often a guest is entered.
const ENTRIES: u32 = 40;

/// What a guest does instead of its accesses.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Nothing,
    Panics,
    /// Uses its translation twice.
    EntersTwice,
    /// Runs another vCPU inside, and goes on.
    Runs {
        at: usize,
    },
    /// Comes out with something that has not happened.
    Says(Vec<Event>),
}

/// A run of a vCPU with such a guest.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) at: usize,
    /// What it says that its CPU is.
    pub(crate) cpu: u32,
    pub(crate) act: Act,
    pub(crate) makes: Vec<Make>,
    /// How long it says that its data are.
    pub(crate) bytes: usize,
}

pub(crate) fn some() -> impl Strategy<Value = Step> {
    let act = prop_oneof![
        1 => Just(Act::Nothing),
        1 => Just(Act::Panics),
        1 => Just(Act::EntersTwice),
        1 => any::<usize>().prop_map(|at| Act::Runs { at }),
        3 => prop::collection::vec(event(), 1..6).prop_map(Act::Says),
    ];
    let cpu = prop_oneof![8 => 0..4_u32, 1 => Just(1 << 28), 1 => any::<u32>()];
    (any::<usize>(), cpu, act, accesses(), 0..12_usize)
        .prop_map(|(at, cpu, act, makes, bytes)| Step { at, cpu, act, makes, bytes })
}

/// Any event, the likelier one that is understood.
pub(crate) fn event() -> impl Strategy<Value = Event> {
    let kind = prop_oneof![
        4 => Just(AccessKind::Data),
        1 => Just(AccessKind::Opaque),
        1 => Just(AccessKind::Fetch),
        1 => Just(AccessKind::Walk),
    ];
    let gpa = prop_oneof![
        6 => (0..PLACES.len(), 0..0x9000_u64).prop_map(|(at, by)| (PLACES[at] << 12) + by),
        1 => (0..4_u64, 0..16_u64).prop_map(|(at, by)| (at << 40) + by),
        1 => any::<u64>(),
    ];
    let len = prop_oneof![4 => 0..12_u64, 1 => any::<u64>()];
    let access = (gpa, len, any::<bool>(), kind, any::<bool>()).prop_map(
        |(gpa, len, write, kind, denied)| {
            Event::Access(Access { gpa: Gpa::new(gpa), len, write, kind, denied })
        },
    );
    let port = (any::<u16>(), 0..9_u8, any::<bool>())
        .prop_map(|(port, len, write)| Event::Port(PortAccess { port, len, write }));
    let op = prop_oneof![Just(CacheOp::On), Just(CacheOp::Off), Just(CacheOp::SetWay)];
    prop_oneof![
        8 => access,
        1 => port,
        1 => op.prop_map(Event::Caches),
        1 => any::<u64>().prop_map(Event::Custom),
        1 => Just(Event::Request),
    ]
}

/// Says what it is told, whatever it is entered with, and halts.
pub(crate) struct Saying {
    pub(crate) cpu: u32,
    pub(crate) events: Vec<Event>,
    pub(crate) data: Vec<u8>,
}

impl<F: Format> Guest<F> for Saying {
    fn enter(&mut self, _: Translation<F>, _: &Requests) -> Event {
        self.events.pop().unwrap_or(Event::Halt)
    }

    fn cpu(&self) -> u32 {
        self.cpu
    }

    fn forget(&mut self, _: Gfn) {}

    fn data(&mut self) -> &mut [u8] {
        &mut self.data
    }

    fn answered(&mut self) {}
}

/// Around a guest that makes accesses.
struct Around<'a> {
    inner: Program,
    act: &'a Act,
    cpu: u32,
    entries: u32,
    /// Another vCPU, and what it makes.
    other: Option<(&'a mut Vcpu<Kinds>, Program)>,
}

impl Guest<Ept> for Around<'_> {
    fn enter(&mut self, translation: Translation<Ept>, requests: &Requests) -> Event {
        self.entries += 1;
        let _ = translation.vcpu();
        if self.entries > ENTRIES {
            return Event::Halt;
        }
        match self.act {
            Act::Panics => panic!("as it was told to"),
            Act::EntersTwice => {
                let _ = self.inner.enter(translation, requests);
            }
            Act::Runs { .. } => {
                if let Some((other, program)) = &mut self.other {
                    let _ = other.run(program);
                }
            }
            Act::Nothing | Act::Says(_) => {}
        }
        self.inner.enter(translation, requests)
    }

    fn cpu(&self) -> u32 {
        self.cpu
    }

    fn forget(&mut self, gfn: Gfn) {
        self.inner.forget(gfn);
    }

    fn data(&mut self) -> &mut [u8] {
        self.inner.data()
    }

    fn answered(&mut self) {
        self.inner.answered();
    }
}

impl Host {
    pub(crate) fn run_own(&mut self, step: &Step) {
        let Step { at, cpu, act, makes, bytes } = step;
        let count = self.vcpus.len().max(1);
        let is_open: Vec<bool> = self.vcpus.iter().map(|(vm, _)| self.is_open(*vm)).collect();
        for ((_, vcpu), _) in self.vcpus.iter().zip(is_open).filter(|(_, is_open)| *is_open) {
            // It would wait for this thread.
            let kicker = vcpu.kicker();
            kicker.kick();
            assert!(kicker.dirty_stall().longest <= kicker.dirty_stall().time);
        }
        if self.vcpus.is_empty() {
            return;
        }
        let (of, mut vcpu) = self.vcpus.swap_remove(at % count);
        if let Act::Says(events) = act {
            let data = vec![7; *bytes];
            let mut guest = Saying { cpu: *cpu, events: events.clone(), data };
            returns(|| _ = vcpu.run(&mut guest));
        } else {
            let others = self.vcpus.len().max(1);
            let other = match act {
                Act::Runs { at } => self.vcpus.get_mut(at % others),
                _ => None,
            };
            let other = other.map(|(_, other)| (other, self.machine.guest(makes.clone())));
            let inner = self.machine.guest(makes.clone());
            let mut guest = Around { inner, act, cpu: *cpu, entries: 0, other };
            returns(|| _ = vcpu.run(&mut guest));
        }
        vcpu.kicker().ask(*bytes as u16);
        let _ = (vcpu.id(), vcpu.requests().any());
        match *cpu {
            3 => vcpu.reset_caches(),
            // As another vCPU of any VM, whose guest may do what it likes with its caches.
            2 => {
                let caches = self
                    .vcpus
                    .first()
                    .map_or(vcpu.guest_caches(), |(_, other)| other.guest_caches());
                returns(|| _ = vcpu.start_with_caches(caches));
            }
            _ => {}
        }
        self.vcpus.push((of, vcpu));
    }
}
