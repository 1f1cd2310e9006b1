//! The ITS and the LPIs against the architecture without queue, tables in words and list registers: commands of random
//! guests on three vCPUs, of which any may be in its guest. After each, each vCPU is given what the architecture would
//! give it, and a GIC that was saved and loaded goes on alike.

mod guest;
#[path = "../common/hardware.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod hardware;
mod hostile;
mod interrupted;
#[path = "../common/memory.rs"]
mod memory;
mod naive;
mod registers;
mod saved;

use std::collections::BTreeMap;

use guest::{Guest, PENDING_TABLE};
use mayfly_vgic::Read;
use naive::{DEVICES, EVENT_BITS, Event, Its, LPIS, VCPUS};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Enter(usize),
    Leave(usize),
    Acknowledge(usize),
    MapDevice(u32, Option<u32>),
    MapCollection(u32, Option<usize>),
    /// By `MAPTI`, or by `MAPI`, where the event names the interrupt.
    MapEvent(u32, u32, Event),
    MoveEvent(u32, u32, u32),
    MoveAll(usize, usize),
    Send(u32, u32),
    /// By a device, not by a command.
    Message(u32, u32),
    Clear(u32, u32),
    Discard(u32, u32),
    /// The guest writes a byte of the table of properties, and says so by `INV`, or by `INVALL`, or not at all.
    Properties(usize, u8),
    Invalidate(u32, u32),
    InvalidateAll(u32),
    Sync,
    TurnOn(usize, u64, bool),
    TurnOff(usize),
    /// What is no command, and what names what there is not.
    Wrong([u64; 4]),
    /// The machine is saved, and another goes on as it was.
    Save,
}

fn any_step() -> impl Strategy<Value = Step> {
    let vcpu = || 0..VCPUS;
    let device = || 0..=DEVICES;
    let event = || 0..=1_u32 << EVENT_BITS;
    let collection = || 0..5_u32;
    let lpi = prop_oneof![8 => 0..8_usize, 1 => 60..LPIS + 2];
    prop_oneof![
        4 => vcpu().prop_map(Step::Enter),
        2 => vcpu().prop_map(Step::Leave),
        4 => vcpu().prop_map(Step::Acknowledge),
        1 => (device(), prop::option::weighted(0.7, 1..=EVENT_BITS + 1))
            .prop_map(|(device, bits)| Step::MapDevice(device, bits)),
        3 => (collection(), prop::option::weighted(0.9, 0..=VCPUS))
            .prop_map(|(collection, vcpu)| Step::MapCollection(collection, vcpu)),
        6 => (device(), event(), lpi, collection()).prop_map(|(device, event, lpi, collection)| {
            Step::MapEvent(device, event, Event { lpi, collection })
        }),
        3 => (device(), event(), collection())
            .prop_map(|(device, event, to)| Step::MoveEvent(device, event, to)),
        1 => (0..=VCPUS, 0..=VCPUS).prop_map(|(from, to)| Step::MoveAll(from, to)),
        8 => (device(), event()).prop_map(|(device, event)| Step::Send(device, event)),
        4 => (device(), event()).prop_map(|(device, event)| Step::Message(device, event)),
        2 => (device(), event()).prop_map(|(device, event)| Step::Clear(device, event)),
        3 => (device(), event()).prop_map(|(device, event)| Step::Discard(device, event)),
        4 => (0..8_usize, any::<u8>()).prop_map(|(lpi, byte)| Step::Properties(lpi, byte)),
        3 => (device(), event()).prop_map(|(device, event)| Step::Invalidate(device, event)),
        2 => collection().prop_map(Step::InvalidateAll),
        1 => Just(Step::Sync),
        2 => (vcpu(), any::<u64>(), any::<bool>())
            .prop_map(|(vcpu, pending, zero)| Step::TurnOn(vcpu, pending, zero)),
        1 => vcpu().prop_map(Step::TurnOff),
        1 => prop::array::uniform4(any::<u64>())
            .prop_filter("no command", |words| !matches!(words[0] as u8, 1 | 3..=5 | 8..=15))
            .prop_map(Step::Wrong),
        1 => Just(Step::Save),
    ]
}

struct Machine {
    guest: Guest,
    model: Its,
    /// The guest's table of properties.
    table: [u8; LPIS],
}

impl Machine {
    fn new() -> Self {
        let guest = Guest::new(VCPUS, LPIS, DEVICES.ilog2(), EVENT_BITS, 16);
        Self { guest, model: Its::default(), table: [0; LPIS] }
    }

    fn step(&mut self, step: &Step) {
        let first = |number: u64, device: u32| number | u64::from(device) << 32;
        let of_event =
            |number: u64, device: u32, event: u32| [first(number, device), u64::from(event), 0, 0];
        let valid = |is_valid: bool| u64::from(is_valid) << 63;
        let (guest, model) = (&mut self.guest, &mut self.model);
        match *step {
            Step::Enter(vcpu) => guest.enter(vcpu),
            Step::Leave(vcpu) => guest.leave(vcpu),
            Step::Acknowledge(vcpu) => {
                guest.sync();
                if let Some(intid) = guest.take(vcpu) {
                    let at = model.pending.remove(&((intid - naive::FIRST) as usize));
                    assert_eq!(at, Some(vcpu), "{intid} was not pending there");
                }
            }
            Step::MapDevice(device, bits) => {
                model.map_device(device, bits);
                let size = u64::from(bits.unwrap_or(1) - 1);
                guest.command([first(8, device), size, valid(bits.is_some()), 0]);
            }
            Step::MapCollection(collection, vcpu) => {
                model.map_collection(collection, vcpu);
                let target = vcpu.unwrap_or(0) as u64;
                guest.command([
                    9,
                    0,
                    valid(vcpu.is_some()) | target << 16 | u64::from(collection),
                    0,
                ]);
            }
            Step::MapEvent(device, event, to) => {
                model.map_event(device, event, to, &self.table);
                let intid = u64::from(naive::FIRST) + to.lpi as u64;
                let words =
                    [first(10, device), u64::from(event) | intid << 32, to.collection.into(), 0];
                guest.command(words);
            }
            Step::MoveEvent(device, event, collection) => {
                model.move_event(device, event, collection);
                guest.command([first(1, device), event.into(), collection.into(), 0]);
            }
            Step::MoveAll(from, to) => {
                model.move_all(from, to);
                guest.command([14, 0, (from as u64) << 16, (to as u64) << 16]);
            }
            Step::Send(device, event) => {
                model.send(device, event);
                guest.command(of_event(3, device, event));
            }
            Step::Message(device, event) => {
                let is_mapped = model
                    .event(device, event)
                    .is_some_and(|event| model.collections.contains_key(&event.collection));
                model.send(device, event);
                assert_eq!(guest.gic.send_msi(device, event).is_ok(), is_mapped);
            }
            Step::Clear(device, event) => {
                model.clear(device, event);
                guest.command(of_event(4, device, event));
            }
            Step::Discard(device, event) => {
                model.discard(device, event);
                guest.command(of_event(15, device, event));
            }
            Step::Properties(lpi, byte) => {
                self.table[lpi] = byte;
                guest.properties(lpi, byte);
            }
            Step::Invalidate(device, event) => {
                if let Some(event) = model.event(device, event) {
                    model.known.insert(event.lpi, self.table[event.lpi]);
                }
                guest.command(of_event(12, device, event));
            }
            Step::InvalidateAll(collection) => {
                if model.collections.contains_key(&collection) {
                    model.read_all(&self.table);
                }
                guest.command([13, 0, collection.into(), 0]);
            }
            Step::Sync => guest.command([5, 0, 0, 0]),
            Step::TurnOn(vcpu, pending, zero) => {
                if !model.on.contains(&vcpu) {
                    guest.pending_table(vcpu, pending, zero);
                }
                model.turn_on(vcpu, &self.table, if zero { 0 } else { pending });
                guest.turn(vcpu, true);
            }
            Step::TurnOff(vcpu) => self.turn_off(vcpu),
            Step::Wrong(words) => guest.command(words),
            Step::Save => guest.save_and_load(),
        }
    }

    fn turn_off(&mut self, vcpu: usize) {
        // So that the GIC knows what was taken.
        self.guest.come_out();
        let was_on = self.model.on.contains(&vcpu);
        let bits = self.model.turn_off(vcpu);
        self.guest.turn(vcpu, false);
        if was_on {
            let at = PENDING_TABLE + vcpu as u64 * 0x1_0000 + 1024;
            assert_eq!(u64::from_le_bytes(self.guest.memory.get(at)), bits, "vCPU {vcpu}");
        }
    }

    fn check(&mut self) {
        self.guest.sync();
        for vcpu in 0..VCPUS {
            let due = self.model.deliverable(vcpu);
            assert_eq!(self.guest.is_on(vcpu), self.model.on.contains(&vcpu));
            if self.guest.inside[vcpu] {
                // Not all have a list register, but the next one has.
                let given: BTreeMap<u32, u8> = self.guest.given(vcpu);
                let is_due = |(intid, priority): (&u32, &u8)| due.get(intid) == Some(priority);
                assert!(given.iter().all(is_due), "vCPU {vcpu}: {given:?} of {due:?}");
                assert_eq!(given.values().min(), due.values().min(), "vCPU {vcpu}: {due:?}");
            } else {
                let wakes = due.values().any(|priority| *priority < 0xff);
                assert_eq!(self.guest.is_pending(vcpu), wakes, "vCPU {vcpu}: {due:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("PROPTEST_CASES").is_some() { ProptestConfig::default().cases } else { 96 },
        ..ProptestConfig::default()
    })]

    #[test]
    fn each_vcpu_is_given_the_lpis_that_the_architecture_gives(
        mapped in prop::bool::weighted(0.8),
        steps in prop::collection::vec(any_step(), 1..80),
    ) {
        let mut machine = Machine::new();
        if mapped {
            // What guests do first, and where most of it happens.
            for vcpu in 0..VCPUS {
                machine.step(&Step::TurnOn(vcpu, 0, true));
                machine.step(&Step::MapCollection(vcpu as u32, Some(vcpu)));
            }
            for lpi in 0..8 {
                machine.step(&Step::Properties(lpi, 1 | (lpi * 24) as u8));
            }
            for device in 0..DEVICES {
                machine.step(&Step::MapDevice(device, Some(EVENT_BITS)));
                for event in 0..4 {
                    let to = Event { lpi: (device * 2 + event) as usize % 8, collection: event % 3 };
                    machine.step(&Step::MapEvent(device, event, to));
                }
            }
        }
        for step in &steps {
            machine.step(step);
            machine.check();
        }
    }
}

/// The order in which the guest of few list registers takes LPIs.
#[test]
fn lpis_are_taken_by_priority_though_there_is_one_list_register() {
    let mut guest = Guest::new(1, LPIS, 2, 3, 1);
    for lpi in 0..8_u8 {
        guest.properties(lpi, 1 | (0xe0 - 0x18 * lpi));
    }
    guest.turn(0, true);
    guest.command([9, 0, 1 << 63, 0]);
    guest.command([8, 2, 1 << 63, 0]);
    for lpi in 0..8 {
        guest.command([10, lpi | (8192 + lpi) << 32, 0, 0]);
    }
    guest.enter(0);
    for lpi in 0..8 {
        guest.command([3, lpi, 0, 0]);
    }
    let mut taken = Vec::new();
    for _ in 0..8 {
        guest.sync();
        taken.extend(guest.take(0));
    }
    assert_eq!(taken, (8192..8200).rev().collect::<Vec<_>>());
    guest.sync();
    assert_eq!(guest.take(0), None);
}

/// What a vCPU that runs may still take is waited for, and `GICR_CTLR.RWP` is one until it has come out.
#[test]
fn a_sync_after_an_lpi_was_disabled_or_cleared_waits_for_the_vcpu_that_has_it() {
    // INV, CLEAR, DISCARD.
    [12, 4, 15].into_iter().for_each(sync_waits_after);
}

fn sync_waits_after(command: u64) {
    let mut guest = Guest::new(1, LPIS, 2, 3, 4);
    guest.properties(0, 0xa1);
    guest.turn(0, true);
    guest.command([9, 0, 1 << 63, 0]);
    guest.command([8, 2, 1 << 63, 0]);
    guest.command([10, 8192 << 32, 0, 0]);
    guest.enter(0);
    guest.command([3, 0, 0, 0]);
    guest.sync();
    assert_eq!(guest.cpus[0].used(), 1);
    guest.properties(0, 0xa0);
    guest.queue([command, 0, 0, 0]);
    guest.queue([5, 0, 0, 0]);
    guest.post();
    for _ in 0..3 {
        assert_eq!(guest.serve(), mayfly_vgic::Served::Waits);
        assert_eq!(guest.unread(), 32, "the SYNC");
    }
    assert_eq!(guest.read(mayfly_vgic::Frame::Redistributors, 0, 4), Read::Value(1 | 2 | 8));
    guest.leave(0);
    assert_eq!(guest.serve(), mayfly_vgic::Served::Nothing);
    assert_eq!(guest.unread(), 0);
    assert_eq!(guest.read(mayfly_vgic::Frame::Redistributors, 0, 4), Read::Value(1 | 2));
    guest.enter(0);
    assert_eq!(guest.cpus[0].used(), 0);
}
