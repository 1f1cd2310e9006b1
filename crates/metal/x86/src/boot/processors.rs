//! The processors of the machine, as the ACPI's tables list them (ACPI 6.5, 5.2.5 to 5.2.12).

use alloc::vec::Vec;

use super::hvm::Physical;

/// Where the root pointer is looked for, if the loader has not told: what a PC has for its firmware.
const FIRMWARE: core::ops::Range<u64> = 0xe_0000..0x10_0000;
const ROOT_MARK: &[u8; 8] = b"RSD PTR ";
/// Bytes of the root pointer, of its first version and of the second.
const ROOT: usize = 36;
const FIRST_ROOT: usize = 20;
/// Bytes of a table's header.
const HEADER: usize = 36;
/// Where entries begin in the table of interrupt controllers.
const ENTRIES: usize = 44;
/// Bytes of the largest table that is looked at, and processors that are.
const LARGEST: usize = 64 << 10;
const MOST: usize = 256;

fn half(bytes: &[u8], at: usize) -> u32 {
    let mut half = [0; 4];
    half.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(half)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from(half(bytes, at)) | u64::from(half(bytes, at + 4)) << 32
}

fn is_whole(bytes: &[u8]) -> bool {
    bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)) == 0
}

/// The IDs of the local APICs of all processors that can be used, in the order of the tables. `root` is where the root pointer
/// is, if the loader has told it; otherwise it is 0. Empty, where the tables are not there, or are not as they have to be.
pub fn apic_ids(memory: &impl Physical, root: u64) -> Vec<u32> {
    find(memory, root).map_or(Vec::new(), |table| listed(&table))
}

/// The table of interrupt controllers.
fn find(memory: &impl Physical, root: u64) -> Option<Vec<u8>> {
    let root = if root == 0 {
        FIRMWARE.step_by(16).find(|at| {
            let mut mark = [0; 8];
            memory.read(*at, &mut mark).is_some() && mark == *ROOT_MARK
        })?
    } else {
        root
    };
    let mut pointer = [0; ROOT];
    memory.read(root, &mut pointer[..FIRST_ROOT])?;
    if pointer[..8] != *ROOT_MARK || !is_whole(&pointer[..FIRST_ROOT]) {
        return None;
    }
    // Of the second version on there are addresses of 64 bits.
    let is_wide = pointer[15] >= 2
        && memory.read(root, &mut pointer).is_some()
        && is_whole(&pointer)
        && word(&pointer, 24) != 0;
    let (list, bytes) = if is_wide {
        (table(memory, word(&pointer, 24), *b"XSDT")?, 8)
    } else {
        (table(memory, half(&pointer, 16).into(), *b"RSDT")?, 4)
    };
    list[HEADER..].chunks_exact(bytes).find_map(|entry| {
        let at = if is_wide { word(entry, 0) } else { half(entry, 0).into() };
        table(memory, at, *b"APIC")
    })
}

/// The table at an address, if it is of that kind, and whole.
fn table(memory: &impl Physical, at: u64, kind: [u8; 4]) -> Option<Vec<u8>> {
    let mut header = [0; HEADER];
    memory.read(at, &mut header)?;
    let length = half(&header, 4) as usize;
    if header[..4] != kind || !(HEADER..=LARGEST).contains(&length) {
        return None;
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).ok()?;
    bytes.resize(length, 0);
    memory.read(at, &mut bytes)?;
    is_whole(&bytes).then_some(bytes)
}

/// The IDs that a table lists: of local APICs that are enabled, or can be.
fn listed(table: &[u8]) -> Vec<u32> {
    const LOCAL: u8 = 0;
    const LOCAL_X2: u8 = 9;
    let (mut ids, mut rest) = (Vec::new(), table.get(ENTRIES..).unwrap_or_default());
    while let [kind, length, ..] = *rest
        && ids.len() < MOST
    {
        let Some((entry, behind)) = rest.split_at_checked(usize::from(length).max(2)) else {
            break;
        };
        let found = match kind {
            LOCAL if entry.len() >= 8 => Some((u32::from(entry[3]), half(entry, 4))),
            LOCAL_X2 if entry.len() >= 16 => Some((half(entry, 4), half(entry, 8))),
            _ => None,
        };
        ids.extend(found.filter(|(_, flags)| flags & 3 != 0).map(|(id, _)| id));
        rest = behind;
    }
    ids
}

#[cfg(test)]
mod tests {
    use std::vec;

    use proptest::prelude::*;

    use super::*;

    /// Memory from 0xe0000 on.
    struct Firmware(Vec<u8>);

    impl Physical for Firmware {
        fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
            let from = usize::try_from(address.checked_sub(FIRMWARE.start)?).ok()?;
            bytes.copy_from_slice(self.0.get(from..from.checked_add(bytes.len())?)?);
            Some(())
        }
    }

    const LIST_AT: u64 = FIRMWARE.start + 0x1000;
    const TABLE_AT: u64 = FIRMWARE.start + 0x2000;

    fn whole(mut bytes: Vec<u8>, place: usize) -> Vec<u8> {
        bytes[place] = 0;
        let sum = bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        bytes[place] = sum.wrapping_neg();
        bytes
    }

    fn a_table(kind: [u8; 4], contents: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[..4].copy_from_slice(&kind);
        bytes[4..8].copy_from_slice(&((HEADER + contents.len()) as u32).to_le_bytes());
        bytes.extend(contents);
        whole(bytes, 9)
    }

    /// Firmware whose root pointer is of that version, and whose table of interrupt controllers has these entries.
    fn firmware(version: u8, root: usize, entries: &[u8]) -> Firmware {
        let mut bytes = vec![0; 0x4000];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let mut pointer = vec![0; ROOT];
        pointer[..8].copy_from_slice(ROOT_MARK);
        pointer[15] = version;
        pointer[16..20].copy_from_slice(&(LIST_AT as u32).to_le_bytes());
        pointer[24..32].copy_from_slice(&LIST_AT.to_le_bytes());
        let first = whole(pointer[..FIRST_ROOT].to_vec(), 8);
        pointer[..FIRST_ROOT].copy_from_slice(&first);
        put(root, &whole(pointer, 32));
        // One that is another table comes first.
        let places = [TABLE_AT + 0x1000, TABLE_AT];
        let list = if version >= 2 {
            a_table(*b"XSDT", &places.map(u64::to_le_bytes).concat())
        } else {
            a_table(*b"RSDT", &places.map(|at| (at as u32).to_le_bytes()).concat())
        };
        put(0x1000, &list);
        put(0x2000, &a_table(*b"APIC", &[&[0; 8][..], entries].concat()));
        put(0x3000, &a_table(*b"FACP", &[1; 8]));
        Firmware(bytes)
    }

    const ENTRY: [u8; 56] = [
        0, 8, 0, 7, 1, 0, 0, 0, // enabled
        1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // an IOAPIC
        0, 8, 1, 9, 0, 0, 0, 0, // neither
        0, 8, 2, 3, 2, 0, 0, 0, // can be enabled
        9, 16, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, // of 32 bits
        0xff, 2, 0, 8,
    ];

    #[test]
    fn the_processors_are_those_that_can_be_used() {
        for version in [0, 2] {
            let memory = firmware(version, 0x40, &ENTRY);
            assert_eq!(apic_ids(&memory, 0), [7, 3, 256]);
            assert_eq!(apic_ids(&memory, FIRMWARE.start + 0x40), [7, 3, 256]);
        }
    }

    #[test]
    fn tables_that_are_not_whole_list_nothing() {
        for at in [0x40, 0x54, 0x1000, 0x1028, 0x2000, 0x2030] {
            let mut memory = firmware(0, 0x40, &ENTRY);
            memory.0[at] ^= 0x10;
            let is_used = !(0x54..0x64).contains(&at);
            assert_eq!(apic_ids(&memory, 0).is_empty(), is_used, "{at:#x}");
        }
        assert!(apic_ids(&firmware(2, 0x40, &ENTRY), FIRMWARE.start).is_empty());
        assert!(apic_ids(&Firmware(vec![]), 0).is_empty());
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_bad(
            entries in prop::collection::vec(any::<u8>(), 0..200),
            changes in prop::collection::vec((0_usize..0x4000, any::<u8>()), 0..6),
        ) {
            let mut memory = firmware(2, 0x40, &entries);
            for (at, byte) in changes {
                memory.0[at] = byte;
            }
            prop_assert!(apic_ids(&memory, 0).len() <= MOST);
        }
    }
}
