//! A disk of which sectors are discarded, or are to be zero (virtio 1.2, 5.2.6).

use mayfly_devices::virtio::{Clearing, Mmio, Remote, Request, STATE, Taken, Work};
use mayfly_state::{State, Writer};
use proptest::prelude::*;

use crate::guest::*;
use crate::remote::{Machine, SIZE, data, status};
use crate::{ALL, FLUSHES, SECTORS};

const DISCARD: u32 = 11;
const ZERO: u32 = 13;
/// `VIRTIO_BLK_F_DISCARD`, `VIRTIO_BLK_F_WRITE_ZEROES`.
const DISCARDS: u64 = 1 << 13;
const ZEROES: u64 = 1 << 14;
const CLEARING: Clearing = Clearing { discards: 32, zeroes: 16, unmaps: true };
const UNSUPPORTED: u8 = 2;

fn machine(features: u64, clearing: Clearing) -> Machine {
    let mut device = Mmio::new(Remote::new(SECTORS, false, "").with_clearing(clearing));
    start(&mut device, features, SIZE.into());
    Machine::of(device)
}

fn all() -> Machine {
    machine(ALL | FLUSHES | DISCARDS | ZEROES, CLEARING)
}

/// Asks for a range, with what may lie behind it. What was taken; and the answer, if that was at once.
fn ask(machine: &mut Machine, kind: u32, range: (u64, u32, u32), len: u32) -> (Taken, u8) {
    let (sector, count, flags) = range;
    let mut bytes = sector.to_le_bytes().to_vec();
    bytes.extend(count.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    machine.memory.put(data(0), &bytes.repeat(4));
    // The sector of the header is of no request of this kind.
    machine.ask(0, kind, u64::MAX, len);
    let (_, taken) = machine.take();
    (taken, status(&machine.memory, 0))
}

#[test]
fn what_is_offered_is_in_its_features_and_its_configuration() {
    let offered = |is_read_only, clearing| {
        let device = Mmio::new(Remote::new(SECTORS, is_read_only, "").with_clearing(clearing));
        let words = [36, 40, 44, 48, 52, 56, 60, 64].map(|at| get(&device, 0x100 + at));
        (u64::from(get(&device, 0x10)) & (DISCARDS | ZEROES), words)
    };
    assert_eq!(offered(false, Clearing::default()), (0, [0; 8]));
    assert_eq!(offered(true, CLEARING), (0, [0; 8]));
    assert_eq!(offered(false, CLEARING), (DISCARDS | ZEROES, [32, 1, 1, 16, 1, 1, 0, 0]));
    let discards = Clearing { discards: 7, ..Clearing::default() };
    assert_eq!(offered(false, discards), (DISCARDS, [7, 1, 1, 0, 0, 0, 0, 0]));
    let zeroes = Clearing { zeroes: 7, ..Clearing::default() };
    assert_eq!(offered(false, zeroes), (ZEROES, [0, 0, 0, 7, 1, 0, 0, 0]));
}

#[test]
fn a_range_is_for_the_embedder_up_to_the_last_sector_and_the_bound() {
    for (features, is_through) in [(FLUSHES, false), (0, true)] {
        let mut machine = machine(ALL | DISCARDS | ZEROES | features, CLEARING);
        let mut asks = |kind, range| ask(&mut machine, kind, range, 16).0;
        let discard = |start, len| Taken::Work(Work::Discard { start, len, is_through });
        let zero = |start, len, unmaps| Taken::Work(Work::Zero { start, len, unmaps, is_through });
        assert_eq!(asks(DISCARD, (3, 2, 0)), discard(3 * 512, 1024));
        assert_eq!(asks(DISCARD, (SECTORS - 32, 32, 0)), discard((SECTORS - 32) * 512, 32 * 512));
        assert_eq!(asks(ZERO, (0, 16, 0)), zero(0, 16 * 512, false));
        assert_eq!(asks(ZERO, (SECTORS - 1, 1, 1)), zero((SECTORS - 1) * 512, 512, true));
        assert_eq!(asks(ZERO, (5, 0, 0)), zero(5 * 512, 0, false));
    }
    let mut machine = machine(ALL | ZEROES, Clearing { unmaps: false, ..CLEARING });
    let Taken::Work(Work::Zero { unmaps, .. }) = ask(&mut machine, ZERO, (0, 1, 1), 16).0 else {
        panic!("it is offered, and was taken");
    };
    assert!(!unmaps, "it was not said that sectors may be given up");
}

#[test]
fn a_range_that_is_not_there_or_too_long_or_not_alone_is_an_error() {
    let mut machine = all();
    for kind in [DISCARD, ZERO] {
        for (range, len) in [
            ((SECTORS, 1, 0), 16),
            ((SECTORS - 1, 2, 0), 16),
            ((u64::MAX, 1, 0), 16),
            ((u64::MAX - 15, 16, 0), 16),
            ((0, 33, 0), 16),
            ((0, u32::MAX, 0), 16),
            ((0, 1, 0), 1),
            ((0, 1, 0), 15),
            ((0, 1, 0), 17),
            ((0, 1, 0), 32),
        ] {
            let found = ask(&mut machine, kind, range, len);
            assert_eq!(found, (Taken::Answered, 1), "{kind} {range:?} {len}");
        }
    }
    assert_eq!(ask(&mut machine, ZERO, (0, 17, 0), 16), (Taken::Answered, 1));
    assert!(!machine.device.is_broken());
}

#[test]
fn what_was_not_taken_or_is_not_known_is_not_supported() {
    for (features, kind) in [(ZEROES, DISCARD), (DISCARDS, ZERO), (0, DISCARD), (0, ZERO)] {
        let mut machine = machine(ALL | features, CLEARING);
        assert_eq!(ask(&mut machine, kind, (0, 1, 0), 16), (Taken::Answered, UNSUPPORTED));
    }
    let mut machine = all();
    for (kind, flags) in [(DISCARD, 1), (DISCARD, 2), (ZERO, 2), (ZERO, u32::MAX)] {
        let found = ask(&mut machine, kind, (0, 1, flags), 16);
        assert_eq!(found, (Taken::Answered, UNSUPPORTED), "{kind} {flags}");
    }
}

proptest! {
    /// Whatever a driver says: what the embedder is to clear is on the disk, and no more than was offered.
    #[test]
    fn whatever_is_asked_for_is_on_the_disk(
        zeroes in any::<bool>(),
        sector in prop_oneof![0..SECTORS + 2, any::<u64>()],
        count in prop_oneof![0..40_u32, any::<u32>()],
        flags in prop_oneof![4 => 0..3_u32, 1 => any::<u32>()],
        len in prop_oneof![4 => Just(16_u32), 1 => 1..64_u32],
    ) {
        let mut machine = all();
        let (kind, most) = if zeroes { (ZERO, CLEARING.zeroes) } else { (DISCARD, CLEARING.discards) };
        let (taken, status) = ask(&mut machine, kind, (sector, count, flags), len);
        match taken {
            Taken::Work(Work::Discard { start, len, .. } | Work::Zero { start, len, .. }) => {
                prop_assert!(len <= u64::from(most) * 512 && start + len <= SECTORS * 512);
                prop_assert_eq!((start, len), (sector * 512, u64::from(count) * 512));
                prop_assert_eq!(status, 0xee, "it is not answered yet");
            }
            Taken::Answered => prop_assert!(status == 1 || status == UNSUPPORTED),
            other => prop_assert!(false, "{:?}", other),
        }
    }
}

#[test]
fn a_disk_goes_on_as_one_that_is_cleared_alike() {
    let mut bytes = [0; 1024];
    let mut writer = Writer::new(&mut bytes);
    writer.section(STATE, 0, |to| all().device.save(to)).unwrap();
    let len = writer.finish().unwrap();
    let load = |clearing| {
        let mut other = Mmio::new(Remote::new(SECTORS, false, "").with_clearing(clearing));
        let mut sections = State::open(&bytes[..len]).unwrap().sections();
        other.load(sections.take(STATE, 0).unwrap()).map(|()| other)
    };
    let mut machine = Machine::of(load(CLEARING).unwrap());
    let (_, taken): (Request, _) = machine.take();
    assert_eq!(taken, Taken::Nothing);
    for other in [
        Clearing { discards: 31, ..CLEARING },
        Clearing { zeroes: 15, ..CLEARING },
        Clearing { unmaps: false, ..CLEARING },
    ] {
        assert!(load(other).is_err(), "{other:?}");
    }
}
