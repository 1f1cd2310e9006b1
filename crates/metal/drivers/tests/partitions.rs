//! Tables of partitions, whole and damaged, and tables that say what cannot be.

mod table;

use gpt_disk_types::GptPartitionEntry;
use mayfly_drivers::{BadTable, Partitions, SECTOR};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::HashMap;
use table::{entry, usable};

const SECTORS: u64 = 4096;

type Sectors = HashMap<u64, [u8; SECTOR]>;

fn disk(entries: &[GptPartitionEntry]) -> Sectors {
    table::table(SECTORS, entries).into_iter().collect()
}

fn read(disk: &Sectors) -> (Partitions, Result<(), BadTable>) {
    read_until(disk, usize::MAX)
}

/// Reads so many sectors, and fails then.
fn read_until(disk: &Sectors, mut good: usize) -> (Partitions, Result<(), BadTable>) {
    let mut partitions = Partitions::try_new().unwrap();
    let result = partitions.read(
        SECTORS,
        |number, into| {
            assert!(number < SECTORS, "a sector of the disk");
            good = good.checked_sub(1).ok_or(())?;
            *into = disk.get(&number).copied().unwrap_or([0; SECTOR]);
            Ok::<(), ()>(())
        },
        || {},
    );
    (partitions, result)
}

#[test]
fn partitions_are_found_by_their_names() {
    let (first, last) = usable(SECTORS);
    let (partitions, result) =
        read(&disk(&[entry("root", first, 99), entry("Daten und mehr", 100, last)]));
    assert_eq!(result, Ok(()));
    assert!(!partitions.is_second());
    assert_eq!(partitions.find("root", || {}).unwrap().sectors, first..100);
    let other = partitions.find("Daten und mehr", || {}).unwrap();
    assert_eq!((&other.sectors, other.wrong), (&(100..last + 1), None));
    assert_eq!(other.to_string(), "Daten und mehr");
    assert_eq!(partitions.find("roo", || {}), None);
    assert_eq!(partitions.find("roott", || {}), None);
    assert_eq!(partitions.find("", || {}), None);
}

#[test]
fn a_message_has_the_first_names_and_how_many_more_there_are() {
    let (first, _) = usable(SECTORS);
    let named = |count: u64| {
        let entries: Vec<_> =
            (0..count).map(|at| entry(&format!("p{at}"), first + at, first + at)).collect();
        let (partitions, result) = read(&disk(&entries));
        assert_eq!(result, Ok(()));
        partitions
    };
    assert_eq!(named(0).names(3).to_string(), "(none)");
    assert_eq!(named(1).names(3).to_string(), "p0");
    assert_eq!(named(3).names(3).to_string(), "p0, p1, p2");
    assert_eq!(named(4).names(3).to_string(), "p0, p1, p2, and 1 more");
    let all = named(128);
    assert_eq!(all.names(3).to_string(), "p0, p1, p2, and 125 more");
    let pauses = Cell::new(0);
    let found = all.find("p99", || pauses.set(pauses.get() + 1)).unwrap();
    assert_eq!((found.sectors.start, pauses.get()), (first + 99, 100));
    assert!(all.find("p128", || pauses.set(pauses.get() + 1)).is_none());
    assert_eq!(pauses.get(), 228, "one for each that was compared");
}

#[test]
fn what_shares_sectors_or_a_name_or_lies_where_nothing_may_is_not_used() {
    let (first, last) = usable(SECTORS);
    let (partitions, result) = read(&disk(&[
        entry("header", 1, 200),
        entry("back", 300, 250),
        entry("a", 400, 500),
        entry("b", 500, 600),
        entry("twice", 700, 710),
        entry("twice", 720, 730),
        entry("end", 3000, last + 1),
        entry("far", u64::MAX, u64::MAX),
        entry("good", 800, 900),
        entry("whole", first + 900, last - 1100),
    ]));
    assert_eq!(result, Ok(()));
    let used: Vec<_> = partitions
        .all()
        .iter()
        .filter(|partition| partition.wrong.is_none())
        .map(ToString::to_string)
        .collect();
    assert_eq!(used, ["good", "whole"]);
    assert_eq!(partitions.find("a", || {}).unwrap().wrong, Some("it shares sectors with another"));
    assert_eq!(partitions.find("twice", || {}).unwrap().wrong, Some("another has its name"));
    assert_eq!(partitions.find("back", || {}).unwrap().wrong, Some("it ends before it begins"));
    for wrong in ["header", "end", "far"] {
        let why = partitions.find(wrong, || {}).unwrap().wrong;
        assert_eq!(why, Some("it is not where partitions may be"), "{wrong}");
    }
}

#[test]
fn the_second_table_is_read_where_the_first_is_damaged() {
    let whole = disk(&[entry("root", 100, 200)]);
    for damaged in [1, 2, 33] {
        let mut disk = whole.clone();
        disk.get_mut(&damaged).unwrap()[7] ^= 1;
        let (partitions, result) = read(&disk);
        assert_eq!((result, partitions.is_second()), (Ok(()), true), "{damaged}");
        assert_eq!(partitions.find("root", || {}).unwrap().sectors, 100..201);
        disk.get_mut(&(SECTORS - 1)).unwrap()[20] ^= 1;
        let (partitions, result) = read(&disk);
        assert_eq!((result, partitions.all().len()), (Err(BadTable::Damaged), 0));
    }
}

#[test]
fn a_disk_without_a_table_or_that_cannot_be_read_has_no_partitions() {
    assert_eq!(read(&Sectors::new()).1, Err(BadTable::None));
    let whole = disk(&[entry("root", 100, 200)]);
    for good in 0..33 {
        let (partitions, result) = read_until(&whole, good);
        assert_eq!((result, partitions.all().len()), (Err(BadTable::Unreadable), 0), "{good}");
    }
    let mut partitions = Partitions::try_new().unwrap();
    for sectors in 0..3 {
        let nothing = |_, _: &mut [u8; SECTOR]| Ok::<(), ()>(());
        assert_eq!(partitions.read(sectors, nothing, || {}), Err(BadTable::None), "{sectors}");
    }
}

/// A header that is right but for `change`; its own checksum is right, too.
fn with_header(change: impl Fn(&mut gpt_disk_types::GptHeader)) -> Sectors {
    let mut disk = disk(&[entry("root", 100, 200)]);
    disk.remove(&(SECTORS - 1));
    let sector = disk.get_mut(&1).unwrap();
    let mut header: gpt_disk_types::GptHeader = bytemuck::pod_read_unaligned(&sector[..92]);
    change(&mut header);
    header.update_header_crc32();
    sector[..92].copy_from_slice(bytemuck::bytes_of(&header));
    disk
}

#[test]
fn headers_that_are_whole_and_absurd_are_refused() {
    use gpt_disk_types::{LbaLe, U32Le};
    assert_eq!(read(&with_header(|_| {})).1, Ok(()));
    let changes: [&dyn Fn(&mut gpt_disk_types::GptHeader); 9] = [
        &|header| header.my_lba = LbaLe::from_u64(2),
        &|header| header.header_size = U32Le::from_u32(u32::MAX),
        &|header| header.size_of_partition_entry = U32Le::from_u32(0),
        &|header| header.size_of_partition_entry = U32Le::from_u32(64),
        &|header| header.number_of_partition_entries = U32Le::from_u32(u32::MAX),
        &|header| header.partition_entry_lba = LbaLe::from_u64(u64::MAX),
        &|header| header.partition_entry_lba = LbaLe::from_u64(SECTORS),
        &|header| header.first_usable_lba = LbaLe::from_u64(1),
        &|header| header.last_usable_lba = LbaLe::from_u64(u64::MAX),
    ];
    for (number, change) in changes.iter().enumerate() {
        let (partitions, result) = read(&with_header(change));
        assert_eq!((result, partitions.all().len()), (Err(BadTable::Damaged), 0), "{number}");
    }
}

proptest! {
    /// Whatever a table says, those that are used are on the disk, behind the first table and before the second, apart from
    /// each other, and named once.
    #[test]
    fn partitions_that_are_used_never_share_a_sector(
        entries in prop::collection::vec(
            ("[a-e]", prop_oneof![0..SECTORS + 50, any::<u64>()], prop_oneof![0..300_u64, any::<u64>()]),
            0..128,
        ),
    ) {
        let entries: Vec<_> = entries
            .iter()
            .map(|(name, first, len)| entry(name, *first, first.wrapping_add(*len)))
            .collect();
        let (first, last) = usable(SECTORS);
        let pauses = Cell::new(0);
        let whole = disk(&entries);
        let mut partitions = Partitions::try_new().unwrap();
        let result = partitions.read(
            SECTORS,
            |number, into| {
                *into = whole.get(&number).copied().unwrap_or([0; SECTOR]);
                Ok::<(), ()>(())
            },
            || pauses.set(pauses.get() + 1),
        );
        prop_assert_eq!(result, Ok(()));
        prop_assert_eq!(partitions.all().len(), entries.len());
        prop_assert_eq!(pauses.get(), entries.len());
        let used: Vec<_> =
            partitions.all().iter().filter(|partition| partition.wrong.is_none()).collect();
        for (number, one) in used.iter().enumerate() {
            prop_assert!(first <= one.sectors.start && one.sectors.start < one.sectors.end);
            prop_assert!(one.sectors.end <= last + 1);
            for other in &used[..number] {
                prop_assert!(one.sectors.end <= other.sectors.start || other.sectors.end <= one.sectors.start);
                prop_assert!(one.name != other.name);
            }
        }
        // And one is used that has nothing to do with another.
        for (number, one) in partitions.all().iter().enumerate() {
            let is_apart = partitions.all().iter().enumerate().all(|(place, other)| {
                place == number
                    || (one.name != other.name
                        && (one.sectors.end <= other.sectors.start || other.sectors.end <= one.sectors.start))
            });
            let is_inside = first <= one.sectors.start && one.sectors.end <= last + 1 && !one.sectors.is_empty();
            if is_apart && is_inside {
                prop_assert_eq!(one.wrong, None);
            }
        }
    }

    #[test]
    fn any_bytes_are_a_table_or_none(
        changes in prop::collection::vec((0..40_u64, 0..SECTOR, any::<u8>()), 0..16),
    ) {
        let mut disk = disk(&[entry("root", 100, 200)]);
        for (sector, byte, value) in changes {
            disk.entry(sector).or_insert([0; SECTOR])[byte] = value;
        }
        let (partitions, result) = read(&disk);
        // A change of the first is found, and the second is whole.
        prop_assert_eq!(result, Ok(()));
        prop_assert_eq!(&partitions.find("root", || {}).unwrap().sectors, &(100..201));
    }
}
