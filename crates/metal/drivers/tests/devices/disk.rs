use std::collections::HashMap;

use mayfly_drivers::{
    Broken, DeviceStatus, DeviceType, Disk, DiskInfo, Operation, PIECE_BYTES, SECTOR, SLOTS, Slot,
    Unusable,
};
use proptest::prelude::*;

use crate::fake::{Fake, Host, Part, VERSION_1};

const SECTORS: u64 = 1000;
const SIZE_MAX: u64 = 1 << 1;
const READ_ONLY: u64 = 1 << 5;
const BLK_SIZE: u64 = 1 << 6;
const FLUSH: u64 = 1 << 9;
const CONFIG_WCE: u64 = 1 << 11;
const DISCARD: u64 = 1 << 13;
const WRITE_ZEROES: u64 = 1 << 14;

type Under = Disk<Host, Fake, u32>;

fn config(size_max: u32, blk_size: u32) -> Vec<u8> {
    let mut config = vec![0; 64];
    config[..8].copy_from_slice(&SECTORS.to_le_bytes());
    config[8..12].copy_from_slice(&size_max.to_le_bytes());
    config[20..24].copy_from_slice(&blk_size.to_le_bytes());
    config
}

fn disk(features: u64) -> (Fake, Under) {
    let device = Fake::new(DeviceType::Block, VERSION_1 | features, &config(0x1_0000, 512));
    let disk = Disk::new(device.clone()).unwrap();
    (device, disk)
}

fn slot(disk: &mut Under, waiter: u32) -> Slot<u32> {
    disk.room(0, waiter).unwrap().unwrap()
}

/// What a request says: its kind and its sector.
fn header(parts: &[Part]) -> (u32, u64) {
    let bytes = parts[0].read();
    assert_eq!((bytes.len(), parts[0].is_written), (16, false));
    let kind = u32::from_le_bytes(bytes[..4].try_into().unwrap());
    (kind, u64::from_le_bytes(bytes[8..].try_into().unwrap()))
}

/// The device ends a request as one does that works.
fn answer(device: &Fake, status: u8, data: &[u8]) -> (u32, u64, Vec<u8>) {
    let (number, parts) = device.next(0).unwrap();
    let (kind, sector) = header(&parts);
    let last = parts.last().unwrap();
    assert_eq!((last.len, last.is_written), (1, true));
    let mut given = Vec::new();
    let mut written = 1;
    if let [_, middle, _] = &parts[..] {
        if middle.is_written {
            middle.write(data);
            written += data.len() as u32;
        } else {
            given = middle.read();
        }
    }
    last.write(&[status]);
    device.used(0, number.into(), written);
    (kind, sector, given)
}

#[test]
fn requests_are_what_was_asked_for_and_end_as_the_device_says() {
    let (device, mut disk) = disk(FLUSH | BLK_SIZE | SIZE_MAX);
    let info = DiskInfo {
        sectors: SECTORS,
        read_only: false,
        has_cache: true,
        most: PIECE_BYTES,
        most_discarded: 0,
        most_zeroed: 0,
        unmaps: false,
    };
    assert_eq!(disk.info(), info);
    let one = slot(&mut disk, 1);
    disk.start(one, Operation::Read(7, 1024)).unwrap();
    assert!(disk.ended().is_none());
    assert_eq!(answer(&device, 0, &[9; 1024]), (0, 7, vec![]));
    let ended = disk.ended().unwrap();
    assert_eq!((ended.waiter, ended.result()), (1, Ok(&[9; 1024][..])));
    assert_eq!(disk.give_back(ended), 1);

    let mut two = slot(&mut disk, 2);
    two.data(512).fill(5);
    disk.start(two, Operation::Write(SECTORS - 1, 512)).unwrap();
    assert_eq!(answer(&device, 0, &[]), (1, SECTORS - 1, vec![5; 512]));
    let ended = disk.ended().unwrap();
    assert_eq!((ended.waiter, ended.result()), (2, Ok(&[][..])));
    disk.give_back(ended);

    for status in [0, 1, 2, 255] {
        let three = slot(&mut disk, 3);
        disk.start(three, Operation::Flush).unwrap();
        assert_eq!(answer(&device, status, &[]), (4, 0, vec![]));
        let ended = disk.ended().unwrap();
        assert_eq!(ended.result().is_ok(), status == 0);
        disk.give_back(ended);
    }
}

/// A disk that discards up to 8 sectors at a time, and zeroes up to 4; so many ranges at a time.
fn cleared(features: u64, ranges: u32, unmaps: u8) -> (Fake, Under) {
    let mut config = config(0, 512);
    for (at, word) in [(36, 8), (40, ranges), (48, 4), (52, ranges)] {
        config[at..at + 4].copy_from_slice(&u32::to_le_bytes(word));
    }
    config[56] = unmaps;
    let device = Fake::new(DeviceType::Block, VERSION_1 | features, &config);
    let disk = Disk::new(device.clone()).unwrap();
    (device, disk)
}

#[test]
fn what_is_cleared_is_one_range_of_the_disk() {
    for (unmaps, flag) in [(1, 1), (0, 0)] {
        let (device, mut disk) = cleared(DISCARD | WRITE_ZEROES, 3, unmaps);
        assert_eq!(
            device.0.lock().unwrap().taken & (DISCARD | WRITE_ZEROES),
            DISCARD | WRITE_ZEROES
        );
        for (operation, kind, range) in [
            (Operation::Discard(5, 8 * 512), 11, (5, 8, 0)),
            (Operation::Discard(SECTORS - 1, 512), 11, (SECTORS - 1, 1, 0)),
            (Operation::Zero(5, 4 * 512, false), 13, (5, 4, 0)),
            (Operation::Zero(6, 512, true), 13, (6, 1, flag)),
        ] {
            for status in [0, 1, 2, 255] {
                let one = slot(&mut disk, 1);
                disk.start(one, operation).unwrap();
                let (is, sector, given) = answer(&device, status, &[]);
                assert_eq!((is, sector, given.len()), (kind, 0, 16));
                let found = (
                    u64::from_le_bytes(given[..8].try_into().unwrap()),
                    u32::from_le_bytes(given[8..12].try_into().unwrap()),
                    u32::from_le_bytes(given[12..].try_into().unwrap()),
                );
                assert_eq!(found, range, "{operation:?}");
                let ended = disk.ended().unwrap();
                assert_eq!(ended.result().is_ok(), status == 0);
                disk.give_back(ended);
            }
        }
    }
}

#[test]
fn a_disk_is_cleared_as_it_offers_and_not_beyond_its_end() {
    for (features, ranges, most) in [
        (DISCARD | WRITE_ZEROES, 1, (8 * 512, 4 * 512)),
        (DISCARD, 1, (8 * 512, 0)),
        (WRITE_ZEROES, u32::MAX, (0, 4 * 512)),
        (DISCARD | WRITE_ZEROES, 0, (0, 0)),
        (DISCARD | WRITE_ZEROES | READ_ONLY, 1, (8 * 512, 4 * 512)),
    ] {
        let (device, mut disk) = cleared(features, ranges, 1);
        let info = disk.info();
        assert_eq!((info.most_discarded, info.most_zeroed), most);
        assert_eq!(info.unmaps, most.1 > 0);
        for operation in [
            Operation::Discard(0, 9 * 512),
            Operation::Discard(SECTORS, 512),
            Operation::Discard(SECTORS - 1, 1024),
            Operation::Discard(u64::MAX, 512),
            Operation::Discard(0, 0),
            Operation::Discard(0, 100),
            Operation::Zero(0, 5 * 512, true),
            Operation::Zero(SECTORS - 1, 1024, false),
            Operation::Zero(0, u64::MAX, false),
        ] {
            let one = slot(&mut disk, 1);
            let refused = disk.start(one, operation).unwrap_err();
            assert!(refused.result().is_err(), "{operation:?}");
            disk.give_back(refused);
        }
        for (operation, most) in
            [(Operation::Discard(0, 512), most.0), (Operation::Zero(0, 512, false), most.1)]
        {
            let one = slot(&mut disk, 1);
            let is_started = disk.start(one, operation).is_ok();
            assert_eq!(is_started, most > 0 && !info.read_only, "{operation:?}");
        }
        assert_eq!(device.next(0).is_some(), most != (0, 0) && !info.read_only);
    }
}

#[test]
fn a_device_that_has_read_less_than_it_was_to_has_read_nothing() {
    let (device, mut disk) = disk(0);
    for written in [0, 1, 512] {
        let one = slot(&mut disk, 1);
        disk.start(one, Operation::Read(0, 512)).unwrap();
        let (number, parts) = device.next(0).unwrap();
        parts[2].write(&[0]);
        device.used(0, number.into(), written);
        let ended = disk.ended().unwrap();
        assert!(ended.result().is_err(), "{written}: what is in the buffer may be another VM's");
        disk.give_back(ended);
    }
}

#[test]
fn a_device_that_says_nothing_of_how_it_ended_has_failed() {
    let (device, mut disk) = disk(0);
    for _ in 0..2 * SLOTS {
        let one = slot(&mut disk, 1);
        disk.start(one, Operation::Read(0, 512)).unwrap();
        let (number, parts) = device.next(0).unwrap();
        assert_ne!(parts[2].read(), [0], "not what the last one has left there");
        device.used(0, number.into(), 513);
        let ended = disk.ended().unwrap();
        assert!(ended.result().is_err());
        disk.give_back(ended);
        let one = slot(&mut disk, 1);
        disk.start(one, Operation::Read(0, 512)).unwrap();
        answer(&device, 0, &[1; 512]);
        let ended = disk.ended().unwrap();
        assert!(ended.result().is_ok());
        disk.give_back(ended);
    }
}

#[test]
fn what_is_not_on_the_disk_or_cannot_be_is_refused() {
    let (device, mut disk) = disk(READ_ONLY);
    for operation in [
        Operation::Read(SECTORS, 512),
        Operation::Read(SECTORS - 1, 1024),
        Operation::Read(u64::MAX, 512),
        Operation::Read(0, 0),
        Operation::Read(0, 511),
        Operation::Read(0, PIECE_BYTES + SECTOR),
        Operation::Write(0, 512),
        Operation::Flush,
        Operation::Discard(0, 512),
        Operation::Zero(0, 512, false),
    ] {
        let one = slot(&mut disk, 1);
        let refused = disk.start(one, operation).unwrap_err();
        assert!(refused.result().is_err(), "{operation:?}");
        disk.give_back(refused);
    }
    assert!(device.next(0).is_none());
}

#[test]
fn one_party_leaves_half_of_the_room_to_others() {
    let (_device, mut disk) = disk(0);
    let mut held = Vec::new();
    while let Ok(slot) = disk.room(1, 1).unwrap() {
        held.push(slot);
    }
    assert_eq!(held.len(), SLOTS / 2);
    assert!(disk.room(2, 2).unwrap().is_ok());
    assert!(matches!(disk.room(1, 7), Ok(Err(7))), "the waiter is given back");
    disk.give_back(held.pop().unwrap());
    assert!(disk.room(1, 1).unwrap().is_ok());
}

#[test]
fn all_requests_of_a_device_that_was_found_out_have_failed() {
    for number in [1, 63, 64, 0xffff, u32::MAX] {
        let (device, mut disk) = disk(0);
        for waiter in 0..5 {
            let one = slot(&mut disk, waiter);
            disk.start(one, Operation::Read(waiter.into(), 512)).unwrap();
        }
        device.used(0, number, 513);
        let mut waiters = Vec::new();
        while let Some(ended) = disk.ended() {
            assert!(ended.result().is_err());
            waiters.push(disk.give_back(ended));
        }
        waiters.sort_unstable();
        assert_eq!(waiters, [0, 1, 2, 3, 4], "{number}");
        assert_eq!(disk.broken(), Some(Broken::Rings));
        assert_eq!(device.0.lock().unwrap().stops, 1);
        assert!(disk.room(0, 9).is_err());
    }
}

#[test]
fn a_disk_that_asks_for_its_reset_is_used_no_more_and_its_requests_have_failed() {
    let (device, mut disk) = disk(0);
    let spare = slot(&mut disk, 9);
    for waiter in 0..3 {
        let one = slot(&mut disk, waiter);
        disk.start(one, Operation::Read(waiter.into(), 512)).unwrap();
    }
    disk.look(true);
    assert_eq!(disk.broken(), None);
    device.0.lock().unwrap().status |= DeviceStatus::DEVICE_NEEDS_RESET;
    disk.look(true);
    assert_eq!(disk.broken(), Some(Broken::NeedsReset));
    // What it does in spite of that counts no more.
    answer(&device, 0, &[9; 512]);
    let mut ended = Vec::new();
    while let Some(slot) = disk.ended() {
        assert!(slot.result().is_err());
        ended.push(disk.give_back(slot));
    }
    ended.sort_unstable();
    assert_eq!(ended, [0, 1, 2]);
    assert!(disk.start(spare, Operation::Read(0, 512)).is_err());
    disk.look(true);
    assert_eq!(disk.room(0, 9).err(), Some(Broken::NeedsReset));
    assert_eq!(device.0.lock().unwrap().stops, 1);
}

#[test]
fn a_disk_is_flushed_where_it_can_be_and_has_no_cache_otherwise() {
    for (offered, has_cache) in [(FLUSH, true), (FLUSH | CONFIG_WCE, true), (0, false)] {
        let (device, disk) = disk(offered);
        assert_eq!(disk.info().has_cache, has_cache);
        let taken = device.0.lock().unwrap().taken;
        assert_eq!(taken & (FLUSH | CONFIG_WCE), offered & FLUSH);
    }
}

#[test]
fn a_disk_that_cannot_be_used_says_why() {
    let with = |features: u64, config: Vec<u8>| {
        let device = Fake::new(DeviceType::Block, VERSION_1 | features, &config);
        Under::new(device).err()
    };
    assert_eq!(with(BLK_SIZE, config(0, 4096)), Some(Unusable::BlockSize(4096)));
    assert_eq!(with(SIZE_MAX, config(511, 512)), Some(Unusable::SegmentSize(511)));
    assert_eq!(with(CONFIG_WCE, config(0, 512)), Some(Unusable::Cache));
    assert_eq!(with(0, vec![0; 4]), Some(Unusable::Configuration));
    let device = Fake::new(DeviceType::Block, VERSION_1, &config(0, 512));
    device.0.lock().unwrap().generations = u32::MAX;
    assert_eq!(Under::new(device).err(), Some(Unusable::Configuration), "never the same twice");
    let device = Fake::new(DeviceType::Block, VERSION_1, &config(0, 512));
    device.0.lock().unwrap().generations = 3;
    assert_eq!(Under::new(device).unwrap().info().sectors, SECTORS);
    let device = Fake::new(DeviceType::Block, VERSION_1 | SIZE_MAX, &config(1300, 512));
    assert_eq!(Under::new(device).unwrap().info().most, 1024);
}

proptest! {
    /// Requests of several parties that end in any order, of a device that works: each reads what was written last.
    #[test]
    fn a_sector_has_what_was_written_to_it(
        steps in prop::collection::vec((0..3_u64, 0..8_u64, any::<bool>(), any::<u8>(), any::<prop::sample::Index>()), 1..200),
    ) {
        let (device, mut disk) = disk(FLUSH);
        // What the device has, and which requests it has not ended.
        let mut bytes: HashMap<u64, u8> = HashMap::new();
        let mut waiting: Vec<(u16, Vec<Part>)> = Vec::new();
        let mut expected: HashMap<u32, Option<u8>> = HashMap::new();
        for (number, (party, sector, writes, byte, which)) in (0_u32..).zip(steps) {
            // One request for a sector at a time, as its order would be nobody's.
            if let Ok(mut slot) = disk.room(party, number).unwrap() {
                let sector = sector * 100 + party;
                let operation = if writes {
                    slot.data(512).fill(byte);
                    Operation::Write(sector, 512)
                } else {
                    Operation::Read(sector, 512)
                };
                prop_assert!(disk.start(slot, operation).is_ok());
            }
            while let Some(next) = device.next(0) {
                waiting.push(next);
            }
            if waiting.len() > 3 || number % 2 == 0 {
                let (token, parts) = waiting.swap_remove(which.index(waiting.len()));
                let (kind, sector) = header(&parts);
                let written = if kind == 0 {
                    let byte = bytes.get(&sector).copied().unwrap_or(0);
                    parts[1].write(&[byte; 512]);
                    expected.insert(token.into(), Some(byte));
                    513
                } else {
                    bytes.insert(sector, parts[1].read()[0]);
                    expected.insert(token.into(), None);
                    1
                };
                parts.last().unwrap().write(&[0]);
                device.used(0, token.into(), written);
                let ended = disk.ended().unwrap();
                let read = ended.result().unwrap();
                match expected.remove(&u32::from(token)).unwrap() {
                    Some(byte) => prop_assert_eq!(read, &[byte; 512][..]),
                    None => prop_assert!(read.is_empty()),
                }
                disk.give_back(ended);
            }
        }
    }

    /// Whatever it says: each request ends once.
    #[test]
    fn a_request_ends_once_whatever_the_device_says(
        lies in prop::collection::vec((prop_oneof![0..70_u32, any::<u32>()], any::<u32>(), 0..4_u16), 0..20),
    ) {
        let (device, mut disk) = disk(0);
        let mut under_way = Vec::new();
        for (number, (token, written, jump)) in (0_u32..).zip(lies) {
            if let Ok(Ok(slot)) = disk.room(0, number)
                && disk.start(slot, Operation::Read(0, 512)).is_ok()
            {
                under_way.push(number);
            }
            device.used(0, token, written);
            device.jump(0, jump);
            while let Some(ended) = disk.ended() {
                let waiter = disk.give_back(ended);
                let place = under_way.iter().position(|other| *other == waiter);
                prop_assert!(place.is_some(), "{waiter} has ended twice");
                under_way.swap_remove(place.unwrap());
            }
        }
        prop_assert!(disk.broken().is_none() || under_way.is_empty());
    }
}
