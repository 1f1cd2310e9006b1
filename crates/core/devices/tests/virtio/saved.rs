//! Disks and entropy sources that are saved and loaded: each goes on as it would have, whatever its driver does.

use mayfly_devices::virtio::{Block, Device, Entropy, Mmio, STATE};
use mayfly_state::Error;
use proptest::prelude::*;

use crate::guest::*;
use crate::hostile::{Guest, Step, any_steps};
use crate::state::{any_forgery, config, forged, loaded, saved};
use crate::{ALL, Ram};

pub(crate) fn save<D: Device>(device: &Mmio<D>) -> Vec<u8> {
    saved(STATE, |to| device.save(to).unwrap())
}

pub(crate) fn load<D: Device>(device: &mut Mmio<D>, bytes: &[u8]) -> Result<(), Error> {
    loaded(bytes, STATE, |from| device.load(from))
}

fn disk(name: &str) -> Mmio<Block<Ram>> {
    Mmio::new(Block::new(Ram::new(), name))
}

type Fill = fn(&mut [u8]);

fn source() -> Mmio<Entropy<Fill>> {
    Mmio::new(Entropy::new(|bytes| bytes.fill(7)))
}

/// All that a driver reads of a device.
fn registers<D: Device>(device: &Mmio<D>) -> Vec<u8> {
    let mut all = vec![0; 0x100];
    for (at, word) in all.chunks_exact_mut(4).enumerate() {
        device.read(4 * at as u64, word);
    }
    let mut configuration = [0; 0x40];
    device.read(0x100, &mut configuration);
    [&all[..], &configuration].concat()
}

/// Does `before` with a guest of `device`, saves that, and has one that `make` makes of it become it; then both do the
/// same. Returns the other one.
fn goes_on<D: Device>(
    device: &mut Mmio<D>,
    make: impl Fn(&D) -> Mmio<D>,
    before: &[Step],
    then: &[Step],
) -> Mmio<D> {
    let mut guest = Guest::new();
    start(device, ALL, 8);
    for step in before {
        guest.step(device, step);
    }
    let bytes = save(device);
    let mut loaded = make(device.device());
    load(&mut loaded, &bytes).unwrap();
    assert_eq!(save(&loaded), bytes);
    // A copy of what was loaded, which has had a driver of its own.
    let mut other = make(device.device());
    start(&mut other, ALL, 4);
    other.go_on_as(&loaded).unwrap();
    assert_eq!(save(&other), bytes);
    let mut copy = Guest { memory: guest.memory.copy(), driver: guest.driver.clone() };
    for step in then {
        guest.step(device, step);
        copy.step(&mut other, step);
        assert_eq!(registers(device), registers(&other), "{step:?}");
        assert_eq!(device.interrupt(), other.interrupt(), "{step:?}");
    }
    assert!(guest.memory.get(BASE, BYTES) == copy.memory.get(BASE, BYTES));
    other
}

/// The state of a device, with its fields as `change` makes them.
struct Fields {
    id: u32,
    features: u64,
    status: u32,
    interrupts: u32,
    queues: u32,
    size: u16,
    ready: u8,
    descriptors: u64,
    sectors: u64,
    is_read_only: bool,
}

fn disk_with(change: impl Fn(&mut Fields)) -> Result<(), Error> {
    let mut fields = Fields {
        id: 2,
        features: ALL,
        status: 0xf,
        interrupts: 3,
        queues: 1,
        size: 8,
        ready: 1,
        descriptors: DESCRIPTORS,
        sectors: 64,
        is_read_only: false,
    };
    change(&mut fields);
    let bytes = saved(STATE, |to| {
        to.u32(fields.id);
        to.u64(fields.features);
        for word in [0, 0, 0, fields.status, fields.interrupts, fields.queues] {
            to.u32(word);
        }
        to.u16(fields.size);
        to.u8(fields.ready);
        for address in [fields.descriptors, AVAILABLE, USED] {
            to.u64(address);
        }
        to.u32(0xffff_0001);
        to.u64(fields.sectors);
        to.flag(fields.is_read_only);
        to.bytes(&[b'x'; 20]);
    });
    let mut device = disk("");
    start(&mut device, ALL, 4);
    let before = save(&device);
    let loaded = load(&mut device, &bytes);
    match loaded {
        Ok(()) => assert_eq!(save(&device), bytes),
        Err(_) => assert_eq!(save(&device), before, "it is as it was"),
    }
    // Whatever it was loaded with, it serves.
    let memory = Memory::new();
    for _ in 0..4 {
        device.serve(&memory);
    }
    loaded
}

#[test]
fn fields_that_no_driver_and_no_device_could_have_made_are_refused_by_name() {
    type Change = fn(&mut Fields);
    let cases: [(Change, Option<&str>); 19] = [
        (|_| {}, None),
        (|fields| fields.status = 0x4f, None),
        (|fields| (fields.ready, fields.size) = (0, 0), None),
        (|fields| (fields.features, fields.status) = (u64::MAX, 3), None),
        (|fields| fields.id = 4, Some("device")),
        (|fields| fields.features = VERSION_1 | 1 << 5, Some("features")),
        (|fields| fields.features = INDIRECT_FEATURE, Some("features")),
        (|fields| fields.status = 7, Some("Status")),
        (|fields| fields.status = 0x1f, Some("Status")),
        (|fields| fields.interrupts = 4, Some("InterruptStatus")),
        (|fields| fields.queues = 0, Some("queues")),
        (|fields| fields.queues = u32::MAX, Some("queues")),
        (|fields| fields.size = 0, Some("queue ready")),
        (|fields| fields.size = 512, Some("queue ready")),
        (|fields| fields.descriptors = u64::MAX - 0xf, Some("queue ready")),
        (|fields| fields.descriptors = BASE + 8, Some("queue ready")),
        (|fields| fields.ready = 2, Some("queue ready")),
        (|fields| fields.sectors = 65, Some("sectors")),
        (|fields| fields.is_read_only = true, Some("read-only")),
    ];
    for (index, (change, refused)) in cases.into_iter().enumerate() {
        let named = match disk_with(change) {
            Ok(()) => None,
            Err(Error::Invalid { field, .. }) => Some(field),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(named, refused, "case {index}");
    }
}

#[test]
fn a_disk_keeps_the_name_that_its_guest_knows_and_is_not_loaded_as_another() {
    let mut one = disk("the first");
    let bytes = save(&one);
    let mut other = disk("the second");
    load(&mut other, &bytes).unwrap();
    assert_eq!(save(&other), bytes);
    assert!(load(&mut source(), &bytes).is_err());
    let mut read_only = Mmio::new(Block::new(Ram { read_only: true, ..Ram::new() }, ""));
    assert!(load(&mut read_only, &bytes).is_err());
    load(&mut one, &save(&disk("the third"))).unwrap();
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_disk_goes_on_as_the_one_that_was_saved(before in any_steps(), then in any_steps()) {
        let mut device = disk("a name");
        // The bytes of a disk are not part of its state.
        let same_bytes = |block: &Block<Ram>| Mmio::new(Block::new(block.disk().clone(), ""));
        let other = goes_on(&mut device, same_bytes, &before, &then);
        prop_assert!(device.device().disk().bytes == other.device().disk().bytes);
    }

    #[test]
    fn an_entropy_source_goes_on_as_the_one_that_was_saved(
        before in any_steps(),
        then in any_steps(),
    ) {
        goes_on(&mut source(), |_| source(), &before, &then);
    }

    #[test]
    fn a_forged_disk_is_refused_or_works(
        before in any_steps(),
        forgery in any_forgery(),
        then in any_steps(),
    ) {
        let (mut device, mut guest) = (disk("a name"), Guest::new());
        start(&mut device, ALL, 8);
        for step in &before {
            guest.step(&mut device, step);
        }
        let bytes = forged(&save(&device), STATE, &forgery);
        if load(&mut device, &bytes).is_ok() {
            prop_assert_eq!(save(&device), bytes);
            for step in &then {
                guest.step(&mut device, step);
            }
        }
    }
}
