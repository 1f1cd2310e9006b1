//! A disk with a GPT, made from its entries.

use bytemuck::{Zeroable, bytes_of};
use gpt_disk_types::{
    Crc32, GptHeader, GptPartitionEntry, GptPartitionName, GptPartitionType, LbaLe, U32Le, guid,
};

pub(crate) const SECTOR: usize = 512;
/// The sectors of a table of 128 entries, and with its header.
const ENTRIES: u64 = 32;
const TABLE: u64 = 1 + ENTRIES;

/// An entry for the sectors from `first` to `last`.
pub(crate) fn entry(name: &str, first: u64, last: u64) -> GptPartitionEntry {
    GptPartitionEntry {
        partition_type_guid: GptPartitionType(guid!("0fc63daf-8483-4772-8e79-3d69d8477de4")),
        starting_lba: LbaLe::from_u64(first),
        ending_lba: LbaLe::from_u64(last),
        name: name.parse::<GptPartitionName>().unwrap(),
        ..GptPartitionEntry::zeroed()
    }
}

/// The first sector that a partition may have, and the last of a disk of so many.
pub(crate) fn usable(sectors: u64) -> (u64, u64) {
    (1 + TABLE, sectors - 1 - TABLE)
}

/// What is written to a disk of so many sectors: each sector's number, and the bytes.
pub(crate) fn table(sectors: u64, entries: &[GptPartitionEntry]) -> Vec<(u64, [u8; SECTOR])> {
    let mut array = vec![0; ENTRIES as usize * SECTOR];
    for (place, entry) in array.chunks_exact_mut(size_of::<GptPartitionEntry>()).zip(entries) {
        place.copy_from_slice(bytes_of(entry));
    }
    let (first, last) = usable(sectors);
    let mut written = Vec::new();
    for (at, other, entries_at) in [(1, sectors - 1, 2), (sectors - 1, 1, sectors - TABLE)] {
        let mut header = GptHeader {
            my_lba: LbaLe::from_u64(at),
            alternate_lba: LbaLe::from_u64(other),
            first_usable_lba: LbaLe::from_u64(first),
            last_usable_lba: LbaLe::from_u64(last),
            partition_entry_lba: LbaLe::from_u64(entries_at),
            number_of_partition_entries: U32Le::from_u32(128),
            partition_entry_array_crc32: Crc32(U32Le::from_u32(crc32fast::hash(&array))),
            ..GptHeader::default()
        };
        header.update_header_crc32();
        let mut sector = [0; SECTOR];
        sector[..size_of::<GptHeader>()].copy_from_slice(bytes_of(&header));
        written.push((at, sector));
        for (number, bytes) in (entries_at..).zip(array.chunks_exact(SECTOR)) {
            written.push((number, bytes.try_into().unwrap()));
        }
    }
    written
}
