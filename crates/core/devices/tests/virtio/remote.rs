//! A disk whose requests are carried out elsewhere.

use mayfly_devices::memory::GuestMemory;
use mayfly_devices::virtio::{
    Block, Disk, DiskError, MAX_SEGMENT_BYTES, Mmio, Remote, Request, STATE, Served, Taken, Work,
};
use mayfly_state::{State, Writer};
use proptest::prelude::*;

use crate::guest::*;
use crate::{ALL, FLUSH, FLUSHES, GET_ID, READ, Ram, SECTORS, WRITE_OUT};

pub(crate) const SIZE: u16 = 16;

pub(crate) struct Machine {
    pub(crate) memory: Memory,
    driver: Driver,
    pub(crate) device: Mmio<Remote>,
}

impl Machine {
    fn new(is_read_only: bool) -> Self {
        Self::with(is_read_only, ALL | FLUSHES)
    }

    fn with(is_read_only: bool, features: u64) -> Self {
        let mut device = Mmio::new(Remote::new(SECTORS, is_read_only, "a disk elsewhere"));
        start(&mut device, features, SIZE.into());
        Self::of(device)
    }

    pub(crate) fn of(device: Mmio<Remote>) -> Self {
        Self { memory: Memory::new(), driver: Driver { size: SIZE, available: 0 }, device }
    }

    /// Asks by three descriptors from `head` on. The header, the data and the status have places of their own.
    pub(crate) fn ask(&mut self, head: u16, kind: u32, sector: u64, len: u32) {
        ask(&self.memory, head, kind, sector, len);
        self.driver.offer(&self.memory, head);
    }

    pub(crate) fn take(&mut self) -> (Request, Taken) {
        let mut request = Request::new();
        let taken = self.device.take_request(&mut request, &self.memory);
        (request, taken)
    }

    /// Which chain was used at a place of the ring, and how many bytes the device says that it has written.
    fn used(&self, place: u64) -> (u32, u32) {
        let element = self.memory.get(USED + 4 + 8 * place, 8);
        let number = |at: usize| u32::from_le_bytes(element[at..at + 4].try_into().unwrap());
        (number(0), number(4))
    }
}

fn header(head: u16) -> u64 {
    DATA + 0x2000 * u64::from(head)
}

pub(crate) fn data(head: u16) -> u64 {
    header(head) + 0x100
}

pub(crate) fn status(memory: &Memory, head: u16) -> u8 {
    memory.get(header(head) + 0x20, 1)[0]
}

fn ask(memory: &Memory, head: u16, kind: u32, sector: u64, len: u32) {
    memory.put(header(head), &kind.to_le_bytes());
    memory.put(header(head) + 8, &sector.to_le_bytes());
    memory.put(header(head) + 0x20, &[0xee]);
    // Writes, discards and zeroes.
    let writes = if [WRITE_OUT, 11, 13].contains(&kind) { 0 } else { WRITE };
    descriptor(memory, DESCRIPTORS, head, (header(head), 16, NEXT, head + 1));
    descriptor(memory, DESCRIPTORS, head + 1, (data(head), len, NEXT | writes, head + 2));
    descriptor(memory, DESCRIPTORS, head + 2, (header(head) + 0x20, 1, WRITE, 0));
}

#[test]
fn requests_that_are_under_way_together_end_in_any_order() {
    let mut machine = Machine::new(false);
    machine.ask(0, READ, 3, 1024);
    machine.ask(3, WRITE_OUT, 7, 512);
    machine.ask(6, FLUSH, 0, 512);
    machine.memory.put(data(3), &[7; 512]);
    let (read, taken) = machine.take();
    assert_eq!(taken, Taken::Work(Work::Read(3 * 512, 1024)));
    let (write, taken) = machine.take();
    assert_eq!(taken, Taken::Work(Work::Write(7 * 512, 512)));
    let (flush, taken) = machine.take();
    assert_eq!(taken, Taken::Work(Work::Flush));
    assert_eq!(machine.take().1, Taken::Nothing);
    assert!(!machine.device.interrupt());
    assert_eq!(machine.memory.word(USED + 2), 0, "nothing is used before it is answered");

    let mut bytes = [0; 512];
    write.get(0, &mut bytes, &machine.memory).unwrap();
    assert_eq!(bytes, [7; 512]);
    assert!(write.get(1, &mut bytes, &machine.memory).is_err(), "there are no more");
    machine.device.answer(&flush, Ok(()), &machine.memory);
    assert!(machine.device.interrupt());
    machine.device.answer(&write, Err(DiskError), &machine.memory);
    read.put(512, &[9; 512], &machine.memory).unwrap();
    assert!(read.put(513, &[9; 512], &machine.memory).is_err(), "the status is not data");
    machine.device.answer(&read, Ok(()), &machine.memory);
    assert_eq!([0, 1, 2].map(|place| machine.used(place)), [(6, 1), (3, 1), (0, 1025)]);
    assert_eq!([0, 3, 6].map(|head| status(&machine.memory, head)), [0, 1, 0]);
    assert_eq!(machine.memory.get(data(0) + 512, 512), [9; 512]);
}

#[test]
fn what_a_driver_writes_that_does_not_flush_is_kept_before_it_is_answered() {
    for (features, is_through) in [(ALL, true), (ALL | FLUSHES, false)] {
        let mut machine = Machine::with(false, features);
        machine.ask(0, WRITE_OUT, 7, 512);
        let work =
            if is_through { Work::WriteThrough(7 * 512, 512) } else { Work::Write(7 * 512, 512) };
        assert_eq!(machine.take().1, Taken::Work(work));
    }
    // Another driver of the same disk may flush, after its reset.
    let mut machine = Machine::with(false, ALL | FLUSHES);
    start(&mut machine.device, ALL, SIZE.into());
    machine.ask(0, WRITE_OUT, 0, 512);
    assert_eq!(machine.take().1, Taken::Work(Work::WriteThrough(0, 512)));
}

#[test]
fn a_request_from_before_a_reset_is_not_answered_after_it() {
    let mut machine = Machine::new(false);
    machine.ask(0, READ, 0, 512);
    let (before, _) = machine.take();
    start(&mut machine.device, ALL, SIZE.into());
    machine.memory = Memory::new();
    machine.driver.available = 0;
    machine.ask(0, READ, 0, 512);
    let (after, taken) = machine.take();
    assert_eq!(taken, Taken::Work(Work::Read(0, 512)));
    assert_ne!(before.epoch(), after.epoch());
    machine.device.answer(&before, Ok(()), &machine.memory);
    assert_eq!(machine.memory.word(USED + 2), 0);
    assert_eq!(status(&machine.memory, 0), 0xee);
    machine.device.answer(&after, Ok(()), &machine.memory);
    assert_eq!((machine.memory.word(USED + 2), status(&machine.memory, 0)), (1, 0));
}

#[test]
fn what_the_embedder_cannot_do_is_answered_at_once() {
    let mut machine = Machine::new(true);
    for (kind, sector, len, expected) in [
        (WRITE_OUT, 0, 512, 1),
        (READ, SECTORS, 512, 1),
        (READ, u64::MAX, 512, 1),
        (READ, 0, 500, 1),
        (READ, SECTORS - 1, 1024, 1),
        (11, 0, 512, 2),
        (FLUSH, 0, 512, 0),
        (GET_ID, 0, 20, 0),
    ] {
        machine.ask(0, kind, sector, len);
        assert_eq!(machine.take().1, Taken::Answered, "{kind} {sector} {len}");
        assert_eq!(status(&machine.memory, 0), expected, "{kind} {sector} {len}");
    }
    assert_eq!(machine.memory.get(data(0), 16), b"a disk elsewhere");
    let bits = get(&machine.device, 0x10);
    assert!(bits & 1 << 5 != 0 && bits & 1 << 9 != 0, "read-only, with flushes");
}

#[test]
fn a_ring_that_makes_no_sense_breaks_it_until_its_reset() {
    let mut machine = Machine::new(false);
    machine.driver.offer(&machine.memory, SIZE);
    assert_eq!(machine.take().1, Taken::Nothing);
    assert!(machine.device.is_broken());
    // One without a header, and one without a place for the answer.
    for segments in [&[(DATA, 15, false), (DATA, 1, true)][..], &[(DATA, 16, false)]] {
        let mut machine = Machine::new(false);
        machine.driver.request(&machine.memory, segments, false);
        assert_eq!(machine.take().1, Taken::Nothing);
        assert!(machine.device.is_broken());
    }
    assert_eq!(machine.device.serve(&machine.memory), Served::Nothing);
}

/// What a `Remote` asks its embedder for, done to a disk.
fn carry_out(
    work: Work,
    request: &Request,
    disk: &mut Ram,
    memory: &Memory,
) -> Result<(), DiskError> {
    let mut bytes;
    match work {
        Work::Read(start, len) => {
            bytes = vec![0; len as usize];
            disk.read(start, &mut bytes)?;
            request.put(0, &bytes, memory).map_err(|_| DiskError)
        }
        Work::Write(start, len) => {
            bytes = vec![0; len as usize];
            request.get(0, &mut bytes, memory).map_err(|_| DiskError)?;
            disk.write(start, &bytes)
        }
        Work::WriteThrough(start, len) => {
            carry_out(Work::Write(start, len), request, disk, memory)?;
            disk.flush()
        }
        Work::Flush => disk.flush(),
        Work::Discard { .. } | Work::Zero { .. } => unreachable!("neither is offered"),
    }
}

proptest! {
    /// It answers any request as a [`Block`] does.
    #[test]
    fn it_does_what_a_disk_does_that_is_at_hand(
        flushes in any::<bool>(),
        requests in prop::collection::vec((0..12_u32, 0..SECTORS + 2, prop_oneof![
            (0..8_u32).prop_map(|count| count * 512), 1..3000_u32, Just(MAX_SEGMENT_BYTES)
        ], any::<u8>()), 1..20),
    ) {
        let mut here = Mmio::new(Block::new(Ram::new(), "a disk elsewhere"));
        let features = if flushes { ALL | FLUSHES } else { ALL };
        start(&mut here, features, SIZE.into());
        let mut machine = Machine::with(false, features);
        let (memory, mut driver) = (Memory::new(), Driver { size: SIZE, available: 0 });
        let mut disk = Ram::new();
        for (kind, sector, len, byte) in requests {
            // A length of 0 makes the rings malformed.
            let len = len.clamp(1, 0x1e00);
            for memory in [&memory, &machine.memory] {
                memory.put(data(0), &vec![byte; 0x1e00]);
            }
            ask(&memory, 0, kind, sector, len);
            driver.offer(&memory, 0);
            machine.ask(0, kind, sector, len);
            prop_assert_eq!(here.serve(&memory), Served::One);
            let (request, taken) = machine.take();
            if let Taken::Work(work) = taken {
                let result = carry_out(work, &request, &mut disk, &machine.memory);
                machine.device.answer(&request, result, &machine.memory);
            }
            prop_assert_eq!(driver.used(&memory), machine.driver.used(&machine.memory));
            prop_assert_eq!(status(&memory, 0), status(&machine.memory, 0));
            prop_assert_eq!(memory.get(data(0), 0x1e00), machine.memory.get(data(0), 0x1e00));
            prop_assert_eq!(&here.device().disk().bytes, &disk.bytes);
            prop_assert_eq!(here.device().disk().flushes, disk.flushes);
        }
    }

    /// Whatever lies in the rings: a bounded look, and no panic.
    #[test]
    fn anything_may_lie_in_its_rings(bytes in prop::collection::vec(any::<u8>(), 0x200), heads in prop::collection::vec(any::<u16>(), 1..8)) {
        let mut machine = Machine::new(false);
        machine.memory.put(DESCRIPTORS, &bytes);
        for head in heads {
            machine.driver.offer(&machine.memory, head % (SIZE + 1));
        }
        for _ in 0..8 {
            if let (request, Taken::Work(work)) = machine.take() {
                let bytes = match work {
                    Work::Read(start, len)
                    | Work::Write(start, len)
                    | Work::WriteThrough(start, len) => start + len,
                    Work::Flush | Work::Discard { .. } | Work::Zero { .. } => 0,
                };
                prop_assert!(bytes <= SECTORS * 512);
                let _ = request.put(0, &[1; 512], &machine.memory);
                machine.device.answer(&request, Ok(()), &machine.memory);
            }
        }
        prop_assert!(*machine.memory.accesses.borrow() < 10_000);
        let _ = machine.memory.load_acquire(USED + 2);
    }
}

/// Whether the device can be saved, and if so, whether another one goes on as it was.
fn is_saved(device: &Mmio<Remote>) -> bool {
    let mut bytes = [0; 1024];
    let mut writer = Writer::new(&mut bytes);
    if writer.section(STATE, 0, |to| device.save(to)).is_err() {
        return false;
    }
    let len = writer.finish().unwrap();
    let mut other = Mmio::new(Remote::new(SECTORS, false, "another"));
    let mut sections = State::open(&bytes[..len]).unwrap().sections();
    other.load(sections.take(STATE, 0).unwrap()).unwrap();
    let smaller = &mut Mmio::new(Remote::new(SECTORS - 1, false, "a smaller one"));
    let mut sections = State::open(&bytes[..len]).unwrap().sections();
    assert!(smaller.load(sections.take(STATE, 0).unwrap()).is_err());
    true
}

#[test]
fn a_disk_is_saved_when_what_it_was_asked_for_is_answered() {
    let mut machine = Machine::new(false);
    assert!(is_saved(&machine.device));
    machine.ask(0, READ, 0, 512);
    assert!(is_saved(&machine.device), "what was not taken is asked for again");
    let (request, taken) = machine.take();
    assert!(matches!(taken, Taken::Work(_)));
    assert!(!is_saved(&machine.device));
    machine.device.answer(&request, Ok(()), &machine.memory);
    assert!(is_saved(&machine.device));
}
