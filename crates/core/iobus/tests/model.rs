//! Random operations on a bus and on a list that is searched from end to end.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Device, bus};
use mayfly_iobus::{
    Edit, Error, IoBus, IoRange, Ioeventfd, LastHit, MAX_DEVICES, Relocation, WriteHit,
};
use mayfly_srcu::Srcu;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

#[derive(Clone, Copy, Debug)]
enum Change {
    Insert(IoRange),
    Remove(IoRange),
    InsertEventfd(Ioeventfd),
    RemoveEventfd(Ioeventfd),
    Relocate(Relocation),
}

/// A change, and which of the things that are there it is to be about, instead of what it says.
#[derive(Clone, Copy, Debug)]
struct Aimed {
    change: Change,
    at: Option<usize>,
}

impl Aimed {
    fn at(self, model: &Model) -> Change {
        let device = || nth(&model.devices, self.at);
        let eventfd = || nth(&model.eventfds, self.at);
        match self.change {
            Change::Remove(range) => Change::Remove(device().unwrap_or(range)),
            Change::RemoveEventfd(on) => Change::RemoveEventfd(eventfd().unwrap_or(on)),
            Change::Relocate(Relocation::Device { from, to }) => {
                let from = device().unwrap_or(from);
                Change::Relocate(Relocation::Device { from, to })
            }
            Change::Relocate(Relocation::Eventfd { from, to }) => {
                let from = eventfd().unwrap_or(from);
                Change::Relocate(Relocation::Eventfd { from, to })
            }
            insert @ (Change::Insert(_) | Change::InsertEventfd(_)) => insert,
        }
    }
}

fn nth<T: Copy>(all: &[(T, u64)], at: Option<usize>) -> Option<T> {
    all.get(at?.checked_rem(all.len())?).map(|(one, _)| *one)
}

#[derive(Clone, Debug)]
enum Step {
    Change(Aimed),
    /// Several changes at once; the edit is given up at the end if the flag is set.
    Edit(Vec<Aimed>, bool),
    Access {
        address: u64,
        len: u64,
        value: u64,
    },
}

#[derive(Debug, PartialEq)]
enum Target {
    Eventfd(u64),
    Device(u64, u64),
}

/// The rules, as plainly as they can be written.
#[derive(Clone, Default)]
struct Model {
    devices: Vec<(IoRange, u64)>,
    eventfds: Vec<(Ioeventfd, u64)>,
}

impl Model {
    fn apply(&mut self, change: Change, id: u64) -> Result<(), Error> {
        match change {
            Change::Insert(range) => self.insert(range, id),
            Change::Remove(range) => {
                let at = self.devices.iter().position(|(other, _)| *other == range);
                self.devices.remove(at.ok_or(Error::NoDevice(range))?);
                Ok(())
            }
            Change::InsertEventfd(on) => self.insert_eventfd(on, id),
            Change::RemoveEventfd(on) => {
                let at = self.eventfds.iter().position(|(other, _)| *other == on);
                self.eventfds.remove(at.ok_or(Error::NoEventfd(on))?);
                Ok(())
            }
            Change::Relocate(relocation) => {
                let mut moved = self.clone();
                moved.relocate(relocation)?;
                *self = moved;
                Ok(())
            }
        }
    }

    /// Taken off and put on again, and half done if that is refused.
    fn relocate(&mut self, relocation: Relocation) -> Result<(), Error> {
        match relocation {
            Relocation::Device { from, to } => {
                let at = self.devices.iter().position(|(other, _)| *other == from);
                let (_, id) = self.devices.remove(at.ok_or(Error::NoDevice(from))?);
                self.insert(to, id)
            }
            Relocation::Eventfd { from, to } => {
                let at = self.eventfds.iter().position(|(other, _)| *other == from);
                let (_, id) = self.eventfds.remove(at.ok_or(Error::NoEventfd(from))?);
                self.insert_eventfd(to, id)
            }
        }
    }

    fn insert(&mut self, range: IoRange, id: u64) -> Result<(), Error> {
        if range.len == 0 {
            return Err(Error::ZeroLength(range));
        }
        if end(range) > u64::MAX.into() {
            return Err(Error::Overflow(range));
        }
        let overlaps = |other: &&(IoRange, u64)| {
            u128::from(range.start) < end(other.0) && u128::from(other.0.start) < end(range)
        };
        let first = self.devices.iter().filter(overlaps).min_by_key(|(other, _)| other.start);
        if let Some((with, _)) = first {
            return Err(Error::Overlap { range, with: *with });
        }
        if self.devices.len() == MAX_DEVICES {
            return Err(Error::Full(range));
        }
        self.devices.push((range, id));
        Ok(())
    }

    fn insert_eventfd(&mut self, on: Ioeventfd, id: u64) -> Result<(), Error> {
        if ![0, 1, 2, 4, 8].contains(&on.len) {
            return Err(Error::EventfdLength(on));
        }
        if on.len == 0 && on.datamatch.is_some() {
            return Err(Error::EventfdDatamatchWithoutLength(on));
        }
        if u128::from(on.address) + u128::from(on.len) > u64::MAX.into() {
            return Err(Error::EventfdOverflow(on));
        }
        // kvm/eventfd.c: ioeventfd_check_collision
        let collides = |other: &&(Ioeventfd, u64)| {
            let other = other.0;
            other.address == on.address
                && (other.len == 0
                    || on.len == 0
                    || (other.len == on.len
                        && (other.datamatch.is_none()
                            || on.datamatch.is_none()
                            || other.datamatch == on.datamatch)))
        };
        let order = |on: &&(Ioeventfd, u64)| (on.0.len, on.0.datamatch);
        if let Some((with, _)) = self.eventfds.iter().filter(collides).min_by_key(order) {
            return Err(Error::Collision { eventfd: on, with: *with });
        }
        self.eventfds.push((on, id));
        Ok(())
    }

    fn read(&self, address: u64, len: u64) -> Option<Target> {
        let (range, id) = self.devices.iter().find(|(range, _)| {
            len > 0
                && range.start <= address
                && u128::from(address) + u128::from(len) <= end(*range)
        })?;
        Some(Target::Device(*id, address - range.start))
    }

    fn write(&self, address: u64, len: u64, value: u64) -> Option<Target> {
        // kvm/eventfd.c: ioeventfd_in_range
        let mut matching = self.eventfds.iter().filter(|(on, _)| {
            let value = if len < 8 { value % (1 << (8 * len)) } else { value };
            on.address == address
                && (on.len == 0
                    || (u64::from(on.len) == len && on.datamatch.is_none_or(|data| data == value)))
        });
        let first = matching.next();
        assert!(matching.next().is_none(), "two ioeventfds match, so they should have collided");
        first.map(|(_, id)| Target::Eventfd(*id)).or_else(|| self.read(address, len))
    }
}

fn end(range: IoRange) -> u128 {
    u128::from(range.start) + u128::from(range.len)
}

/// A bus and its model, and what makes devices for both.
struct Pair {
    domain: Srcu,
    bus: IoBus<Device>,
    model: Model,
    last: LastHit,
    made: u64,
    living: Arc<AtomicUsize>,
}

impl Pair {
    fn new() -> Self {
        let (domain, bus) = bus();
        let (model, last) = (Model::default(), LastHit::default());
        Self { domain, bus, model, last, made: 0, living: Arc::default() }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Change(change) => {
                self.made += 1;
                let change = change.at(&self.model);
                let expected = self.model.apply(change, self.made);
                let device = || Device::new(self.made, &self.living);
                let changed = match change {
                    Change::Insert(range) => {
                        self.bus.register(range, device()).map_err(Error::from)
                    }
                    Change::Remove(range) => self.bus.unregister(range).map(drop),
                    Change::InsertEventfd(on) => {
                        self.bus.register_eventfd(on, device()).map_err(Error::from)
                    }
                    Change::RemoveEventfd(on) => self.bus.unregister_eventfd(on).map(drop),
                    Change::Relocate(relocation) => self.bus.try_relocate(&[relocation]),
                };
                assert_eq!(changed, expected);
            }
            Step::Edit(changes, give_up) => {
                let mut model = self.model.clone();
                let edited = self.bus.edit(|edit| {
                    for change in changes {
                        self.made += 1;
                        let change = change.at(&model);
                        let device = || Device::new(self.made, &self.living);
                        assert_eq!(apply(edit, change, device), model.apply(change, self.made));
                    }
                    if give_up { Err(GaveUp) } else { Ok(()) }
                });
                assert_eq!(edited.is_err(), give_up);
                if let Ok(((), replaced)) = edited {
                    replaced.defer();
                    self.model = model;
                }
            }
            Step::Access { address, len, value } => {
                let section = self.domain.read_lock();
                let read = self.bus.find(&section, &mut self.last, address, len);
                let read = read.map(|hit| Target::Device(hit.device.id, hit.offset));
                assert_eq!(read, self.model.read(address, len));
                let write = self.bus.find_write(&section, &mut self.last, address, len, value);
                let write = write.map(|hit| match hit {
                    WriteHit::Eventfd(device) => Target::Eventfd(device.id),
                    WriteHit::Device(hit) => Target::Device(hit.device.id, hit.offset),
                });
                assert_eq!(write, self.model.write(address, len, value));
            }
        }
    }

    fn finish(self) {
        self.domain.barrier();
        let registered = self.model.devices.len() + self.model.eventfds.len();
        assert_eq!(self.living.load(Ordering::Relaxed), registered);
        drop(self.bus);
        assert_eq!(self.living.load(Ordering::Relaxed), 0);
    }
}

#[derive(Debug)]
struct GaveUp;

impl From<Error> for GaveUp {
    fn from(_: Error) -> Self {
        Self
    }
}

fn apply(
    edit: &mut Edit<'_, Device>,
    change: Change,
    device: impl FnOnce() -> Device,
) -> Result<(), Error> {
    match change {
        Change::Insert(range) => Ok(edit.insert(range, device())?),
        Change::Remove(range) => edit.remove(range),
        Change::InsertEventfd(on) => Ok(edit.insert_eventfd(on, device())?),
        Change::RemoveEventfd(on) => edit.remove_eventfd(on),
        Change::Relocate(relocation) => edit.relocate(relocation),
    }
}

/// Few enough addresses to meet each other, and the ends of what there is.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..32_u64, 1 => (u64::MAX - 16)..=u64::MAX, 1 => any::<u64>()]
}

fn len() -> impl Strategy<Value = u64> {
    prop_oneof![16 => 0..10_u64, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

fn value() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..3_u64, 1 => 0x100..0x103_u64, 1 => any::<u64>()]
}

fn range() -> impl Strategy<Value = IoRange> {
    (address(), len()).prop_map(|(start, len)| IoRange { start, len })
}

fn eventfd() -> impl Strategy<Value = Ioeventfd> {
    let address = prop_oneof![4 => 0..6_u64, 1 => address()];
    let len = prop_oneof![12 => select(vec![0, 1, 2, 4, 8]), 1 => any::<u32>()];
    let datamatch = proptest::option::of(value());
    (address, len, datamatch).prop_map(|(address, len, datamatch)| Ioeventfd {
        address,
        len,
        datamatch,
    })
}

fn relocation() -> impl Strategy<Value = Relocation> {
    prop_oneof![
        (range(), range()).prop_map(|(from, to)| Relocation::Device { from, to }),
        (eventfd(), eventfd()).prop_map(|(from, to)| Relocation::Eventfd { from, to }),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => range().prop_map(Change::Insert),
        3 => range().prop_map(Change::Remove),
        3 => eventfd().prop_map(Change::InsertEventfd),
        3 => eventfd().prop_map(Change::RemoveEventfd),
        4 => relocation().prop_map(Change::Relocate),
    ]
}

fn aimed() -> impl Strategy<Value = Aimed> {
    (change(), proptest::option::of(0..64_usize)).prop_map(|(change, at)| Aimed { change, at })
}

/// Fewer under Miri, which also has no files to keep failures in.
fn config() -> ProptestConfig {
    if cfg!(miri) {
        ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4) }
    } else {
        ProptestConfig::default()
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => aimed().prop_map(Step::Change),
        1 => (vec(aimed(), 0..12), any::<bool>()).prop_map(|(all, end)| Step::Edit(all, end)),
        6 => (address(), len(), value())
            .prop_map(|(address, len, value)| Step::Access { address, len, value }),
    ]
}

/// The most steps of a test.
const STEPS: usize = if cfg!(miri) { 20 } else { 120 };

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_bus_does_what_a_list_searched_from_end_to_end_does(steps in vec(step(), 1..STEPS)) {
        let mut pair = Pair::new();
        for step in steps {
            pair.step(step);
        }
        pair.finish();
    }
}
