//! APM volume 2, "Long-Mode Page Translation" (figures "4-Kbyte PTE", "2-Mbyte PDE", "4-Kbyte PDE", "1-Gbyte PDPE") and
//! "Nested Paging".

use mayfly_stage2::{Level, MemoryType, Npt};

use crate::{ALL, READ, READ_EXECUTE, READ_WRITE, bits, table};

#[test]
fn pages_are_encoded_as_in_the_manual() {
    // Bit 0 present, 1 writable, 2 user, 5 accessed, 6 dirty; the page attribute table's entry 0.
    let page = bits::<Npt>(Level::PAGE, 0x12345, ALL, MemoryType::WriteBack, true, true);
    assert_eq!(page, 0x0000_0000_1234_5067);
    // Bit 63 forbids execution: 1 | 4 | 0x20.
    let page = bits::<Npt>(Level::PAGE, 0x12345, READ, MemoryType::WriteBack, true, false);
    assert_eq!(page, 0x8000_0000_1234_5025);
    // PCD, bit 4, is entry 2: 7 | 0x10 | 0x20.
    let page = bits::<Npt>(Level::PAGE, 0x12345, READ_WRITE, MemoryType::Uncached, true, false);
    assert_eq!(page, 0x8000_0000_1234_5037);
    // PCD and PWT, bit 3, are entry 3: 7 | 0x18.
    let page = bits::<Npt>(Level::PAGE, 0x12345, READ_WRITE, MemoryType::Device, false, false);
    assert_eq!(page, 0x8000_0000_1234_501f);
}

#[test]
fn blocks_have_the_page_size_bit() {
    // Bit 7: 1 | 4 | 0x20 | 0x80.
    let block = bits::<Npt>(Level::MIB2, 0x12200, READ_EXECUTE, MemoryType::WriteBack, true, false);
    assert_eq!(block, 0x0000_0000_1220_00a5);
    // 7 | 0x80.
    let block = bits::<Npt>(Level::GIB1, 0x14_0000, ALL, MemoryType::WriteBack, false, false);
    assert_eq!(block, 0x0000_0001_4000_0087);
}

#[test]
fn tables_grant_everything_and_are_accessed() {
    // 7 | 0x20.
    assert_eq!(table::<Npt>(0x54321), 0x0000_0000_5432_1027);
}

#[test]
fn the_highest_frame_is_that_of_52_bits_of_address() {
    let page = bits::<Npt>(Level::PAGE, (1 << 40) - 1, ALL, MemoryType::WriteBack, false, false);
    assert_eq!(page, 0x000f_ffff_ffff_f007);
    assert_eq!(table::<Npt>((1 << 40) - 1), 0x000f_ffff_ffff_f027);
}
