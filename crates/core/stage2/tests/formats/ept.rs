//! SDM volume 3C, "EPT Translation Mechanism": tables "Format of an EPT Page-Table Entry that Maps a 4-KByte Page",
//! "Format of an EPT Page-Directory Entry (PDE) that Maps a 2-MByte Page", "Format of an EPT Page-Directory Entry (PDE)
//! that References an EPT Page Table", and "Format of an EPT Page-Directory-Pointer-Table Entry (PDPTE) that Maps a
//! 1-GByte Page".

use mayfly_stage2::{Ept, Level, MemoryType};

use crate::{ALL, READ, READ_EXECUTE, READ_WRITE, bits, table};

#[test]
fn pages_are_encoded_as_in_the_manual() {
    // Bits 2:0 execute, write, read; 5:3 memory type, 6 write-back; 8 accessed; 9 dirty:
    // 7 | 6 << 3 | 1 << 8 | 1 << 9 = 0x337.
    let page = bits::<Ept>(Level::PAGE, 0x12345, ALL, MemoryType::WriteBack, true, true);
    assert_eq!(page, 0x0000_0000_1234_5337);
    // Memory type 0 is uncacheable: read alone is left.
    let page = bits::<Ept>(Level::PAGE, 0x12345, READ, MemoryType::Device, false, false);
    assert_eq!(page, 0x0000_0000_1234_5001);
    // Memory type 1 is write combining: 3 | 1 << 3 | 1 << 8 = 0x10b.
    let page = bits::<Ept>(Level::PAGE, 0x12345, READ_WRITE, MemoryType::Uncached, true, false);
    assert_eq!(page, 0x0000_0000_1234_510b);
}

#[test]
fn blocks_have_the_page_size_bit() {
    // Bit 7: 5 | 6 << 3 | 1 << 7 | 1 << 8 = 0x1b5.
    let block = bits::<Ept>(Level::MIB2, 0x12200, READ_EXECUTE, MemoryType::WriteBack, true, false);
    assert_eq!(block, 0x0000_0000_1220_01b5);
    // 7 | 6 << 3 | 1 << 7 = 0xb7.
    let block = bits::<Ept>(Level::GIB1, 0x14_0000, ALL, MemoryType::WriteBack, false, false);
    assert_eq!(block, 0x0000_0001_4000_00b7);
}

#[test]
fn tables_grant_everything_and_are_accessed() {
    // 7 | 1 << 8; bits 7:3 are reserved.
    assert_eq!(table::<Ept>(0x54321), 0x0000_0000_5432_1107);
}

#[test]
fn the_highest_frame_is_that_of_52_bits_of_address() {
    let page = bits::<Ept>(Level::PAGE, (1 << 40) - 1, READ, MemoryType::WriteBack, false, false);
    assert_eq!(page, 0x000f_ffff_ffff_f031);
    assert_eq!(table::<Ept>((1 << 40) - 1), 0x000f_ffff_ffff_f107);
}
