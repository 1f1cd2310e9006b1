//! Rings and requests that make no sense: the device says so, does a bounded amount of work, and works again after its
//! reset.

use mayfly_devices::memory::GuestMemory;
use mayfly_devices::virtio::{
    Block, Device, Disk, DiskError, Entropy, MAX_SEGMENT_BYTES, Mmio, Served,
};
use proptest::prelude::*;

use crate::guest::*;
use crate::shown::Shown;
use crate::{ALL, Ram};

fn block(features: u64) -> (Memory, Mmio<Block<Ram>>, Driver) {
    let mut device = Mmio::new(Block::new(Ram::new(), ""));
    start(&mut device, features, 8);
    (Memory::new(), device, Driver { size: 8, available: 0 })
}

/// The device serves what `prepare` has made available, and asks for its reset.
fn breaks(features: u64, prepare: impl Fn(&Memory, &mut Driver)) {
    let (memory, mut device, mut driver) = block(features);
    prepare(&memory, &mut driver);
    assert_eq!(device.serve(&memory), Served::Nothing);
    assert!(device.is_broken());
    assert_eq!(get(&device, 0x70) & 0x40, 0x40, "DEVICE_NEEDS_RESET");
    assert_eq!(get(&device, 0x60), 2, "told as a change of its configuration");
    assert_eq!(memory.word(USED + 2), 0, "nothing was used");
    assert!(*memory.accesses.borrow() < 1000, "a bounded look");
    let looked = *memory.accesses.borrow();
    assert_eq!(device.serve(&memory), Served::Nothing);
    assert_eq!(*memory.accesses.borrow(), looked, "nothing is done until its reset");
    set(&mut device, 0x70, 0xf);
    assert!(device.is_broken(), "another status does not mend it");
    start(&mut device, features, 8);
    assert!(!device.is_broken());
}

#[test]
fn a_chain_that_ends_in_a_circle() {
    breaks(ALL, |memory, driver| {
        descriptor(memory, DESCRIPTORS, 0, (DATA, 16, NEXT, 1));
        descriptor(memory, DESCRIPTORS, 1, (DATA, 16, NEXT, 0));
        driver.offer(memory, 0);
    });
    breaks(ALL, |memory, driver| {
        descriptor(memory, DESCRIPTORS, 0, (TABLE, 16 * 1000, INDIRECT, 0));
        descriptor(memory, TABLE, 0, (DATA, 16, NEXT, 0));
        driver.offer(memory, 0);
    });
}

#[test]
fn a_head_and_a_next_past_the_end_of_their_table() {
    breaks(ALL, |memory, driver| driver.offer(memory, 8));
    breaks(ALL, |memory, driver| {
        descriptor(memory, DESCRIPTORS, 0, (DATA, 16, NEXT, 8));
        driver.offer(memory, 0);
    });
    breaks(ALL, |memory, driver| {
        descriptor(memory, DESCRIPTORS, 0, (TABLE, 32, INDIRECT, 0));
        descriptor(memory, TABLE, 0, (DATA, 16, NEXT, 2));
        driver.offer(memory, 0);
    });
}

#[test]
fn tables_that_are_not_there_empty_cut_short_nested_or_not_agreed_on() {
    let of = |fields: (u64, u32, u16, u16)| {
        move |memory: &Memory, driver: &mut Driver| {
            descriptor(memory, DESCRIPTORS, 0, fields);
            descriptor(memory, TABLE, 0, (TABLE, 16, INDIRECT, 0));
            driver.offer(memory, 0);
        }
    };
    breaks(ALL, of((0x10, 16, INDIRECT, 0)));
    breaks(ALL, of((u64::MAX - 8, 16, INDIRECT, 0)));
    breaks(ALL, of((TABLE, 0, INDIRECT, 0)));
    breaks(ALL, of((TABLE, 17, INDIRECT, 0)));
    breaks(ALL, of((TABLE, 16, INDIRECT | NEXT, 1)));
    breaks(ALL, of((TABLE, 16, INDIRECT, 0)));
}

/// A flush, which makes sense.
const FLUSH: [(u64, u32, bool); 2] = [(DATA, 16, false), (DATA + 64, 1, true)];

fn flush(memory: &Memory) {
    memory.put(DATA, &[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_table_of_descriptors_where_none_was_agreed_on_before_or_after_the_features() {
    breaks(VERSION_1, |memory, driver| {
        flush(memory);
        driver.request(memory, &FLUSH, true);
    });
    let (memory, mut device, mut driver) = block(VERSION_1);
    set(&mut device, 0x24, 0);
    set(&mut device, 0x20, INDIRECT_FEATURE as u32);
    flush(&memory);
    driver.request(&memory, &FLUSH, true);
    assert_eq!(device.serve(&memory), Served::Nothing);
    assert!(device.is_broken(), "FEATURES_OK was the last word");
}

/// As at the head of a chain; and a circle by way of a table. But for what is wrong, each is a flush.
#[test]
fn tables_behind_a_descriptor_that_make_no_sense() {
    let behind = |fields: (u64, u32, u16, u16), first: (u64, u32, u16, u16)| {
        move |memory: &Memory, driver: &mut Driver| {
            flush(memory);
            descriptor(memory, DESCRIPTORS, 0, (DATA, 16, NEXT, 1));
            descriptor(memory, DESCRIPTORS, 1, fields);
            descriptor(memory, TABLE, 0, first);
            descriptor(memory, TABLE, 1, (DATA + 64, 1, WRITE, 0));
            driver.offer(memory, 0);
        }
    };
    let status = (DATA + 64, 1, WRITE, 0);
    breaks(ALL, behind((0x10, 16, INDIRECT, 0), status));
    breaks(ALL, behind((TABLE, 0, INDIRECT, 0), status));
    breaks(ALL, behind((TABLE, 17, INDIRECT, 0), status));
    breaks(ALL, behind((TABLE, 16, INDIRECT | NEXT, 1), status));
    breaks(VERSION_1, behind((TABLE, 16, INDIRECT, 0), status));
    breaks(ALL, behind((TABLE, 16, INDIRECT, 0), (TABLE + 16, 16, INDIRECT, 0)));
    breaks(ALL, behind((TABLE, 16, INDIRECT, 0), (DESCRIPTORS, 16, INDIRECT, 0)));
}

#[test]
fn segments_that_are_empty_wrap_around_or_are_in_no_order() {
    for second in [(DATA, 0, 0, 0), (u64::MAX, 2, 0, 0), (u64::MAX - 10, u32::MAX, WRITE, 0)] {
        breaks(ALL, |memory, driver| {
            descriptor(memory, DESCRIPTORS, 0, (DATA, 16, NEXT, 1));
            descriptor(memory, DESCRIPTORS, 1, second);
            driver.offer(memory, 0);
        });
    }
    breaks(ALL, |memory, driver| {
        descriptor(memory, DESCRIPTORS, 0, (DATA, 16, NEXT | WRITE, 1));
        descriptor(memory, DESCRIPTORS, 1, (DATA, 16, 0, 0));
        driver.offer(memory, 0);
    });
    breaks(ALL, |memory, driver| {
        flush(memory);
        let again =
            [(DATA, 16, false), (DATA + 64, 1, true), (DATA, 16, false), (DATA + 64, 1, true)];
        driver.request(memory, &again, false);
    });
}

#[test]
fn a_request_without_a_header_or_a_status_or_with_either_nowhere() {
    for segments in [
        vec![(DATA, 15, false), (DATA, 1, true)],
        vec![(DATA, 16, false)],
        vec![(DATA, 1, true)],
        vec![(0x10, 16, false), (DATA, 1, true)],
        vec![(DATA, 16, false), (0x10, 1, true)],
    ] {
        breaks(ALL, |memory, driver| driver.request(memory, &segments, false));
    }
}

/// A disk that says that it has more bytes than there are numbers for.
struct Boundless;

impl Disk for Boundless {
    fn sectors(&self) -> u64 {
        u64::MAX
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        assert!(offset.checked_add(into.len() as u64).is_some(), "within the disk");
        Ok(())
    }

    fn write(&mut self, _offset: u64, _from: &[u8]) -> Result<(), DiskError> {
        Err(DiskError)
    }
}

#[test]
fn a_request_beyond_the_last_byte_that_has_a_number_is_an_error() {
    for (sector, status) in [((1 << 55) - 1, 1), ((1 << 55) - 17, 0), (u64::MAX - 15, 1)] {
        let (memory, mut device) = (Memory::new(), Mmio::new(Block::new(Boundless, "")));
        start(&mut device, ALL, 8);
        let mut driver = Driver { size: 8, available: 0 };
        memory.put(DATA, &[&[0; 8][..], &u64::to_le_bytes(sector)].concat());
        driver.request(&memory, &[(DATA, 16, false), (DATA + 0x1000, 8193, true)], false);
        assert_eq!(device.serve(&memory), Served::One);
        assert_eq!(memory.get(DATA + 0x1000 + 8192, 1), [status], "at {sector:#x}");
    }
}

#[test]
fn more_chains_than_the_queue_has_descriptors() {
    breaks(ALL, |memory, driver| {
        flush(memory);
        driver.request(memory, &FLUSH, false);
        memory.store_release(AVAILABLE + 2, 9).unwrap();
    });
}

#[test]
fn rings_where_there_is_no_memory() {
    for missing in [0x80, 0x90, 0xa0] {
        let (memory, mut device, mut driver) = block(ALL);
        driver.request(&memory, &[(DATA, 16, false), (DATA + 64, 1, true)], false);
        set(&mut device, 0x44, 0);
        set(&mut device, missing, 0x100);
        set(&mut device, missing + 4, 0);
        set(&mut device, 0x44, 1);
        assert_eq!(device.serve(&memory), Served::Nothing);
        assert!(device.is_broken(), "{missing:#x}");
    }
}

#[test]
fn requests_of_gigabytes_fail_without_being_done() {
    let (memory, mut device, mut driver) = block(ALL);
    memory.put(DATA, &[0; 16]);
    let huge = [(DATA, 16, false), (BASE, u32::MAX - 511, true), (DATA + 64, 1, true)];
    for _ in 0..10 {
        driver.request(&memory, &huge, false);
        *memory.accesses.borrow_mut() = 0;
        assert_eq!(device.serve(&memory), Served::One);
        assert!(*memory.accesses.borrow() < 40, "{}", memory.accesses.borrow());
        assert_eq!(memory.get(DATA + 64, 1), [1]);
    }
}

/// A disk that has room for any request, and reads none.
struct Endless;

impl Disk for Endless {
    fn sectors(&self) -> u64 {
        1 << 40
    }

    fn read(&mut self, _: u64, _: &mut [u8]) -> Result<(), DiskError> {
        panic!("more than a request may have");
    }

    fn write(&mut self, _: u64, _: &[u8]) -> Result<(), DiskError> {
        panic!("more than a request may have");
    }
}

#[test]
fn a_request_for_more_than_a_driver_was_told_of_fails_on_the_largest_disk() {
    let (memory, mut device) = (Memory::new(), Mmio::new(Block::new(Endless, "")));
    start(&mut device, ALL, 8);
    let mut driver = Driver { size: 8, available: 0 };
    for kind in [0_u8, 1] {
        memory.put(DATA, &[kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let huge = 127 * MAX_SEGMENT_BYTES;
        let segments = [(DATA, 16, false), (BASE, huge, kind == 0), (DATA + 64, 1, true)];
        driver.request(&memory, &segments, false);
        assert_eq!(device.serve(&memory), Served::One);
        assert_eq!(memory.get(DATA + 64, 1), [1]);
    }
}

#[test]
fn buffers_that_overlap_the_rings_harm_nobody_but_their_driver() {
    let (memory, mut device, mut driver) = block(ALL);
    memory.put(DATA, &[0; 16]);
    // Sectors are read over the descriptors, the ring and what was used.
    let over = [(DATA, 16, false), (DESCRIPTORS, 0x3000, true), (DATA + 64, 1, true)];
    driver.request(&memory, &over, false);
    assert_eq!(device.serve(&memory), Served::One);
    for _ in 0..20 {
        device.serve(&memory);
    }
}

/// Whatever a driver writes, to registers and to memory.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Register(u64, u32),
    Read(u64, usize),
    Descriptor(bool, u16, (u64, u32, u16, u16)),
    Offer(u16),
    Word(u64, u16),
    Serve,
    Start(u32),
}

fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0..0x1_8000_u64).prop_map(|offset| BASE + offset),
        1 => Just(TABLE),
        1 => (0..64_u64).prop_map(|before| BASE + BYTES as u64 - before),
        1 => any::<u64>(),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![4 => 0..0x400_u32, 2 => (0..40_u32).prop_map(|count| count * 16), 1 => any::<u32>()];
    let flags = prop_oneof![8 => 0..8_u16, 1 => any::<u16>()];
    let next = prop_oneof![8 => 0..10_u16, 1 => any::<u16>()];
    prop_oneof![
        1 => ((0..0x44_u64), any::<u32>()).prop_map(|(at, value)| Step::Register(at * 4, value)),
        1 => (any::<u64>(), any::<u32>()).prop_map(|(at, value)| Step::Register(at, value)),
        1 => (0..0x220_u64, 1..9_usize).prop_map(|(at, len)| Step::Read(at, len)),
        8 => (any::<bool>(), 0..8_u16, (address(), len, flags, next))
            .prop_map(|(indirect, index, fields)| Step::Descriptor(indirect, index, fields)),
        4 => (0..10_u16).prop_map(Step::Offer),
        1 => (0..0x2000_u64, any::<u16>())
            .prop_map(|(at, value)| Step::Word(AVAILABLE + at * 2, value)),
        6 => Just(Step::Serve),
        1 => prop_oneof![Just(8), Just(1), Just(256)].prop_map(Step::Start),
    ]
}

pub(crate) fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 0..120)
}

/// A guest with its driver, which does anything.
pub(crate) struct Guest {
    pub(crate) memory: Memory,
    pub(crate) driver: Driver,
}

impl Guest {
    pub(crate) fn new() -> Self {
        Self { memory: Memory::new(), driver: Driver { size: 8, available: 0 } }
    }

    pub(crate) fn step<D: Device>(&mut self, device: &mut Mmio<D>, step: &Step) {
        let Self { memory, driver } = self;
        match step {
            Step::Register(at, value) => {
                set(device, *at, *value);
            }
            Step::Read(at, len) => device.read(*at, &mut vec![0; *len]),
            Step::Descriptor(indirect, index, fields) => {
                let table = if *indirect { TABLE } else { DESCRIPTORS };
                descriptor(memory, table, *index, *fields);
            }
            Step::Offer(head) => driver.offer(memory, *head),
            Step::Word(at, value) => memory.store_release(*at, *value).unwrap(),
            Step::Serve => {
                *memory.accesses.borrow_mut() = 0;
                let broken = device.is_broken();
                let served = device.serve(memory);
                // A request's data in pieces of 4096, each of which may be in pieces of the guest's.
                assert!(*memory.accesses.borrow() < 5_000, "a bounded amount of work");
                assert!(!broken || served == Served::Nothing);
            }
            Step::Start(size) => {
                start(device, ALL, *size);
                memory.put(AVAILABLE, &[0; 4]);
                *driver = Driver { size: *size as u16, available: 0 };
            }
        }
    }
}

fn run<D: Device>(device: &mut Mmio<D>, steps: &[Step]) {
    let mut guest = Guest::new();
    start(device, ALL, 8);
    let mut shown = Shown::new(device);
    for step in steps {
        guest.step(device, step);
        match step {
            Step::Register(..) | Step::Start(_) => shown.is_written(device),
            _ => shown.is_served(device),
        }
    }
    // Whatever it has been through, it works after its reset.
    start(device, ALL, 8);
    assert!(!device.is_broken());
}

proptest! {
    #[test]
    fn a_disk_survives_any_driver_and_keeps_its_size(steps in any_steps()) {
        let mut device = Mmio::new(Block::new(Ram::new(), "fuzzed"));
        run(&mut device, &steps);
        prop_assert_eq!(device.device().disk().bytes.len(), Ram::new().bytes.len());
    }

    #[test]
    fn an_entropy_source_survives_any_driver(steps in any_steps()) {
        run(&mut Mmio::new(Entropy::new(|bytes: &mut [u8]| bytes.fill(7))), &steps);
    }
}
