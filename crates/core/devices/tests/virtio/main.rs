//! Virtio devices: what the specification says, and drivers that do not keep to it.

mod balloon;
mod clearing;
mod console;
mod guest;
mod hostile;
mod queues;
mod remote;
mod rings;
mod saved;
#[path = "../common/shown.rs"]
mod shown;
#[path = "../common/state.rs"]
mod state;

use guest::*;
use mayfly_devices::virtio::{Block, Disk, DiskError, Entropy, MAX_SEGMENT_BYTES, Mmio, Served};
use proptest::prelude::*;

const SECTORS: u64 = 64;

/// A disk in a vector, which counts, and fails where it is told to.
#[derive(Clone)]
pub(crate) struct Ram {
    pub(crate) bytes: Vec<u8>,
    pub(crate) read_only: bool,
    fails_at: Option<u64>,
    pub(crate) flushes: u32,
}

impl Ram {
    pub(crate) fn new() -> Self {
        let bytes = (0..SECTORS as usize * 512).map(|index| (index / 512) as u8).collect();
        Self { bytes, read_only: false, fails_at: None, flushes: 0 }
    }

    fn check(&self, offset: u64, len: usize) -> Result<usize, DiskError> {
        assert!(offset + len as u64 <= SECTORS * 512, "within the disk");
        let broken = offset..offset + len as u64;
        match self.fails_at {
            Some(at) if broken.contains(&at) => Err(DiskError),
            _ => Ok(offset as usize),
        }
    }
}

impl Disk for Ram {
    fn sectors(&self) -> u64 {
        SECTORS
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let at = self.check(offset, into.len())?;
        into.copy_from_slice(&self.bytes[at..at + into.len()]);
        Ok(())
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), DiskError> {
        assert!(!self.read_only);
        let at = self.check(offset, from.len())?;
        self.bytes[at..at + from.len()].copy_from_slice(from);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        self.flushes += 1;
        Ok(())
    }
}

const ALL: u64 = VERSION_1 | INDIRECT_FEATURE | EVENT_FEATURE;
/// `VIRTIO_BLK_F_FLUSH`.
const FLUSHES: u64 = 1 << 9;
const READ: u32 = 0;
const WRITE_OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const STATUS: u64 = DATA - 1;

struct Machine {
    memory: Memory,
    driver: Driver,
    device: Mmio<Block<Ram>>,
}

impl Machine {
    fn with(disk: Ram, features: u64) -> Self {
        let mut device = Mmio::new(Block::new(disk, "a disk of the tests, with a long name"));
        start(&mut device, features, 8);
        Self { memory: Memory::new(), driver: Driver { size: 8, available: 0 }, device }
    }

    /// A request of `kind` with its data in `pieces`; its status, and how many bytes were written.
    fn request(
        &mut self,
        kind: u32,
        sector: u64,
        pieces: &[(u64, u32)],
        indirect: bool,
    ) -> (u8, u32) {
        let header = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat();
        self.memory.put(TABLE - 0x100, &header);
        self.memory.put(STATUS, &[0xee]);
        let mut segments = vec![(TABLE - 0x100, 16, false)];
        segments.extend(pieces.iter().map(|(at, len)| (*at, *len, kind != WRITE_OUT)));
        segments.push((STATUS, 1, true));
        self.driver.request(&self.memory, &segments, indirect);
        assert!(set(&mut self.device, 0x50, 0), "a notification");
        assert_eq!(self.device.serve(&self.memory), Served::One);
        assert_eq!(self.device.serve(&self.memory), Served::Nothing);
        let (head, written) = self.driver.used(&self.memory).expect("it was used");
        assert_eq!(head, 0);
        (self.memory.get(STATUS, 1)[0], written)
    }
}

#[test]
fn a_driver_finds_a_virtio_1_block_device_with_its_configuration() {
    let device = Mmio::new(Block::new(Ram::new(), ""));
    assert_eq!([0, 4, 8].map(|offset| get(&device, offset)), [0x7472_6976, 2, 2]);
    assert_eq!([0x100, 0x104].map(|offset| get(&device, offset)), [SECTORS as u32, 0]);
    assert_eq!(get(&device, 0x108), MAX_SEGMENT_BYTES);
    assert_eq!([0x10c, 0x110, 0x114].map(|offset| get(&device, offset)), [126, 0, 512]);
    let mut byte = [0xff];
    device.read(0x115, &mut byte);
    assert_eq!(byte, [2], "the configuration is read by bytes too");
    assert_eq!(get(&device, 0x34), 256);
    assert_eq!(get(&device, 0xb0), u32::MAX, "no shared memory");
}

#[test]
fn features_are_offered_by_words_and_taken_only_with_version_1_and_from_what_is_offered() {
    let mut device = Mmio::new(Block::new(Ram::new(), ""));
    let mut offered = 0;
    for word in 0..3 {
        set(&mut device, 0x14, word);
        let bits = get(&device, 0x10);
        assert!(word < 2 || bits == 0);
        offered |= u64::from(bits) << (32 * (word % 2));
    }
    assert_eq!(offered, ALL | 1 << 1 | 1 << 2 | 1 << 6 | 1 << 9);
    assert!(agree(&mut device, offered));
    assert!(agree(&mut device, VERSION_1));
    assert!(!agree(&mut device, INDIRECT_FEATURE), "a legacy driver");
    assert!(!agree(&mut device, VERSION_1 | 1 << 5), "it is not read-only");
    set(&mut device, 0x70, 0xf);
    assert_eq!(get(&device, 0x70) & 0xc, 0, "nor may it drive");
}

#[test]
fn a_queue_starts_with_numbers_that_it_can_have_and_no_others() {
    let mut device = Mmio::new(Block::new(Ram::new(), ""));
    assert!(agree(&mut device, VERSION_1));
    for (size, addresses, starts) in [
        (8, [BASE; 3], true),
        (256, [BASE; 3], true),
        (0, [BASE; 3], false),
        (3, [BASE; 3], false),
        (512, [BASE; 3], false),
        (0x1_0008, [BASE; 3], false),
        (8, [BASE + 8, BASE, BASE], false),
        (8, [BASE, BASE + 1, BASE], false),
        (8, [BASE, BASE, BASE + 2], false),
        (8, [BASE, u64::MAX - 1, BASE], false),
    ] {
        set(&mut device, 0x44, 0);
        set(&mut device, 0x38, size);
        for (offset, address) in [0x80, 0x90, 0xa0].into_iter().zip(addresses) {
            set(&mut device, offset, address as u32);
            set(&mut device, offset + 4, (address >> 32) as u32);
        }
        set(&mut device, 0x44, 1);
        assert_eq!(get(&device, 0x44), u32::from(starts), "{size} at {addresses:x?}");
    }
    set(&mut device, 0x30, 1);
    assert_eq!([0x34, 0x44].map(|offset| get(&device, offset)), [0, 0], "there is one queue");
}

#[test]
fn what_is_written_is_read_back_directly_and_indirectly_in_pieces() {
    for indirect in [false, true] {
        let mut machine = Machine::with(Ram::new(), ALL);
        let data: Vec<u8> = (0..1024_u32).map(|index| (index * 7) as u8).collect();
        machine.memory.put(DATA, &data);
        let pieces = [(DATA, 1), (DATA + 1, 510), (DATA + 511, 513)];
        assert_eq!(machine.request(WRITE_OUT, 3, &pieces, indirect), (0, 1));
        assert_eq!(machine.device.device().disk().bytes[1536..2560], data);
        machine.memory.put(DATA, &[0; 1024]);
        let pieces = [(DATA + 0x2000, 700), (DATA + 0x3000, 324)];
        assert_eq!(machine.request(READ, 3, &pieces, indirect), (0, 1025));
        let read = [machine.memory.get(DATA + 0x2000, 700), machine.memory.get(DATA + 0x3000, 324)];
        assert_eq!(read.concat(), data);
    }
}

#[test]
fn header_and_status_may_share_descriptors_with_the_data() {
    let mut machine = Machine::with(Ram::new(), ALL);
    machine.memory.put(DATA, &[&[0; 8][..], &5_u64.to_le_bytes()].concat());
    let segments = [
        (DATA, 5, false),
        (DATA + 5, 11, false),
        (DATA + 0x100, 500, true),
        (DATA + 0x1000, 13, true),
    ];
    machine.driver.request(&machine.memory, &segments, false);
    machine.device.serve(&machine.memory);
    assert_eq!(machine.driver.used(&machine.memory), Some((0, 513)));
    assert_eq!(machine.memory.get(DATA + 0x100, 500), [5; 500]);
    assert_eq!(machine.memory.get(DATA + 0x1000, 13), [[5; 12].as_slice(), &[0]].concat());
}

/// Virtio 1.2, 2.7.5.3.2: a device handles zero or more descriptors that are followed by one that points to a table.
#[test]
fn a_chain_may_begin_with_descriptors_and_end_with_a_table_of_them() {
    let mut machine = Machine::with(Ram::new(), ALL);
    let memory = &machine.memory;
    memory.put(DATA, &[&[0; 8][..], &5_u64.to_le_bytes()].concat());
    descriptor(memory, DESCRIPTORS, 0, (DATA, 9, NEXT, 3));
    descriptor(memory, DESCRIPTORS, 3, (DATA + 9, 7, NEXT, 1));
    // The table's own WRITE means nothing, and its numbers are its own.
    descriptor(memory, DESCRIPTORS, 1, (TABLE, 32, INDIRECT | WRITE, 7));
    descriptor(memory, TABLE, 0, (DATA + 0x100, 512, WRITE | NEXT, 1));
    descriptor(memory, TABLE, 1, (STATUS, 1, WRITE, 0));
    memory.put(STATUS, &[0xee]);
    machine.driver.offer(memory, 0);
    assert_eq!(machine.device.serve(memory), Served::One);
    assert_eq!(machine.driver.used(memory), Some((0, 513)));
    assert_eq!(memory.get(DATA + 0x100, 512), [5; 512]);
    assert_eq!(memory.get(STATUS, 1), [0]);
}

#[test]
fn what_is_not_on_the_disk_is_an_error_and_changes_nothing() {
    let mut machine = Machine::with(Ram::new(), ALL);
    let before = machine.device.device().disk().bytes.clone();
    for (sector, len) in
        [(SECTORS, 512), (SECTORS - 1, 1024), (u64::MAX, 512), (u64::MAX / 512, 1024), (0, 100)]
    {
        for kind in [READ, WRITE_OUT] {
            let (status, _) = machine.request(kind, sector, &[(DATA, len)], false);
            assert_eq!(status, 1, "{len} bytes at {sector:#x}");
        }
    }
    assert_eq!(machine.device.device().disk().bytes, before);
    assert!(!machine.device.is_broken());
}

#[test]
fn a_disk_that_fails_and_memory_that_is_not_there_are_errors_of_that_request() {
    let mut machine = Machine::with(Ram { fails_at: Some(600), ..Ram::new() }, ALL);
    assert_eq!(machine.request(READ, 1, &[(DATA, 512)], false).0, 1);
    assert_eq!(machine.request(WRITE_OUT, 1, &[(DATA, 512)], false).0, 1);
    assert_eq!(machine.request(READ, 0, &[(0x1000, 512)], false).0, 1);
    assert_eq!(machine.request(WRITE_OUT, 0, &[(BASE + BYTES as u64 - 511, 512)], false).0, 1);
    assert_eq!(machine.request(READ, 0, &[(DATA, 512)], false), (0, 513));
}

#[test]
fn a_read_only_disk_says_so_and_is_not_written() {
    let mut machine = Machine::with(Ram { read_only: true, ..Ram::new() }, ALL | 1 << 5);
    assert_eq!(machine.request(WRITE_OUT, 0, &[(DATA, 512)], false).0, 1);
    assert_eq!(machine.request(READ, 0, &[(DATA, 512)], false).0, 0);
}

#[test]
fn flush_and_the_name_are_there_and_what_is_not_is_unsupported() {
    let mut machine = Machine::with(Ram::new(), ALL);
    assert_eq!(machine.request(FLUSH, 0, &[], false), (0, 1));
    assert_eq!(machine.device.device().disk().flushes, 1);
    assert_eq!(machine.request(GET_ID, 0, &[(DATA, 20)], false), (0, 21));
    assert_eq!(machine.memory.get(DATA, 20), b"a disk of the tests,");
    for kind in [2, 3, 11, 13, 14, u32::MAX] {
        assert_eq!(machine.request(kind, 0, &[(DATA, 512)], false), (2, 1), "{kind}");
    }
}

#[test]
fn a_write_is_flushed_before_it_is_answered_where_the_driver_does_not_flush() {
    for (features, flushes) in [(ALL, 1), (ALL | FLUSHES, 0)] {
        let mut machine = Machine::with(Ram { fails_at: Some(600), ..Ram::new() }, features);
        assert_eq!(machine.request(WRITE_OUT, 0, &[(DATA, 512)], false), (0, 1));
        assert_eq!(machine.device.device().disk().flushes, flushes);
        assert_eq!(machine.request(WRITE_OUT, 1, &[(DATA, 512)], false), (1, 1));
        assert_eq!(machine.request(READ, 0, &[(DATA, 512)], false), (0, 513));
        assert_eq!(machine.device.device().disk().flushes, flushes, "nothing was written");
    }
}

#[test]
fn an_entropy_device_fills_what_it_is_given_and_says_how_much() {
    let mut next = 0_u8;
    let fill = move |bytes: &mut [u8]| {
        for byte in bytes {
            next = next.wrapping_add(1);
            *byte = next;
        }
    };
    let (memory, mut device) = (Memory::new(), Mmio::new(Entropy::new(fill)));
    assert_eq!(get(&device, 8), 4);
    start(&mut device, ALL, 8);
    let mut driver = Driver { size: 8, available: 0 };
    driver.request(&memory, &[(DATA, 3, true), (DATA + 0x100, 5, true)], false);
    assert_eq!(device.serve(&memory), Served::One);
    assert_eq!(driver.used(&memory), Some((0, 8)));
    assert_eq!(memory.get(DATA, 3), [1, 2, 3]);
    assert_eq!(memory.get(DATA + 0x100, 5), [4, 5, 6, 7, 8]);
    driver.request(&memory, &[(DATA, 0x1000, true)], false);
    device.serve(&memory);
    assert_eq!(driver.used(&memory), Some((0, 256)), "no more at a time");
}

#[test]
fn a_reset_forgets_everything_but_the_disk() {
    let mut machine = Machine::with(Ram::new(), ALL);
    machine.memory.put(DATA, &[9; 512]);
    machine.request(WRITE_OUT, 0, &[(DATA, 512)], false);
    set(&mut machine.device, 0x70, 0);
    assert_eq!([0x44, 0x60, 0x70].map(|offset| get(&machine.device, offset)), [0; 3]);
    assert_eq!(machine.device.serve(&machine.memory), Served::Nothing);
    start(&mut machine.device, ALL, 8);
    machine.memory.put(AVAILABLE, &[0; 4]);
    machine.memory.put(USED, &[0; 4]);
    machine.driver = Driver { size: 8, available: 0 };
    machine.request(READ, 0, &[(DATA + 0x1000, 512)], false);
    assert_eq!(machine.memory.get(DATA + 0x1000, 512), [9; 512]);
}

proptest! {
    #[test]
    fn a_disk_is_what_was_last_written_to_it(
        requests in prop::collection::vec(
            (any::<bool>(), 0..SECTORS, 1..4_u64, prop::collection::vec(1..600_u32, 0..4), any::<bool>()),
            1..40
        )
    ) {
        let mut machine = Machine::with(Ram::new(), ALL);
        let mut model = Ram::new().bytes;
        for (round, (write, sector, count, cuts, indirect)) in requests.into_iter().enumerate() {
            let mut rest = (count * 512) as u32;
            let mut pieces = Vec::new();
            let mut at = DATA;
            for cut in cuts.into_iter().chain([u32::MAX]) {
                let now = cut.min(rest);
                if now > 0 {
                    pieces.push((at, now));
                }
                (at, rest) = (at + u64::from(now) + 3, rest - now);
            }
            let (start, len) = (sector as usize * 512, count as usize * 512);
            let fits = sector + count <= SECTORS;
            let data = vec![round as u8 | 0x80; len];
            if write {
                for (at, len) in &pieces {
                    machine.memory.put(*at, &data[..*len as usize]);
                }
            }
            let kind = if write { WRITE_OUT } else { READ };
            let (status, _) = machine.request(kind, sector, &pieces, indirect);
            prop_assert_eq!(status == 0, fits);
            if !fits {
                continue;
            }
            if write {
                model[start..start + len].copy_from_slice(&data);
            } else {
                let read: Vec<u8> = pieces
                    .iter()
                    .flat_map(|(at, len)| machine.memory.get(*at, *len as usize))
                    .collect();
                prop_assert_eq!(&read[..], &model[start..start + len]);
            }
        }
        prop_assert_eq!(&machine.device.device().disk().bytes, &model);
    }
}
