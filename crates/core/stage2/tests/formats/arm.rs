//! DDI 0487, "Translation table descriptor formats" (4 KiB granule, 48-bit output address), "Stage 2 data access
//! permissions", "Stage 2 memory region type and cacheability attributes when FWB is disabled", and "... enabled".

use mayfly_platform::address::Pfn;
use mayfly_stage2::{Arm, ArmFwb, Entry, Format, Leaf, Level, MemoryType, Permissions};

use crate::{ALL, READ, READ_EXECUTE, READ_WRITE, bits, table};

#[test]
fn pages_are_encoded_as_in_the_manual() {
    fn check<F: Format>() {
        // Bits 1:0 a page, 0b11; 5:2 MemAttr, 0b1111 write-back; 7:6 S2AP, 0b11 read and write; 9:8 SH, 0b11 inner
        // shareable; 10 AF: 0x3 | 0x3c | 0xc0 | 0x300 | 0x400 = 0x7ff.
        let page = bits::<F>(Level::PAGE, 0x12345, ALL, MemoryType::WriteBack, true, false);
        assert_eq!(page, 0x0000_0000_1234_57ff);
        // S2AP 0b01 read-only; XN[1], bit 54.
        let page = bits::<F>(Level::PAGE, 0x12345, READ, MemoryType::WriteBack, true, false);
        assert_eq!(page, 0x0040_0000_1234_577f);
        // MemAttr 0b0101, Normal, neither inner nor outer cacheable: 0x3 | 0x14 | 0xc0 | 0x300 | 0x400 = 0x7d7.
        let page = bits::<F>(Level::PAGE, 0x12345, READ_WRITE, MemoryType::Uncached, true, false);
        assert_eq!(page, 0x0040_0000_1234_57d7);
        // MemAttr 0b0001, Device-nGnRE; AF clear: 0x3 | 0x4 | 0xc0 | 0x300 = 0x3c7.
        let page = bits::<F>(Level::PAGE, 0x12345, READ_WRITE, MemoryType::Device, false, false);
        assert_eq!(page, 0x0040_0000_1234_53c7);
    }
    check::<Arm<40>>();
    check::<Arm<48>>();
}

#[test]
fn blocks_have_their_own_descriptor_type() {
    fn check<F: Format>() {
        // Bits 1:0 are 0b01; S2AP 0b01.
        let block =
            bits::<F>(Level::MIB2, 0x12200, READ_EXECUTE, MemoryType::WriteBack, true, false);
        assert_eq!(block, 0x0000_0000_1220_077d);
        let block = bits::<F>(Level::GIB1, 0x14_0000, ALL, MemoryType::WriteBack, false, false);
        assert_eq!(block, 0x0000_0001_4000_03fd);
    }
    check::<Arm<40>>();
    check::<Arm<48>>();
}

#[test]
fn a_table_is_its_address_and_type() {
    assert_eq!(table::<Arm<40>>(0x54321), 0x0000_0000_5432_1003);
    assert_eq!(table::<Arm<48>>(0x54321), 0x0000_0000_5432_1003);
}

#[test]
fn the_highest_frame_is_that_of_48_bits_of_address() {
    let page = bits::<Arm<40>>(Level::PAGE, (1 << 36) - 1, ALL, MemoryType::WriteBack, true, false);
    assert_eq!(page, 0x0000_ffff_ffff_f7ff);
    assert_eq!(table::<Arm<48>>((1 << 36) - 1), 0x0000_ffff_ffff_f003);
}

#[test]
fn dirty_is_not_kept() {
    let clean =
        bits::<Arm<40>>(Level::PAGE, 0x12345, READ_WRITE, MemoryType::WriteBack, true, false);
    let dirty =
        bits::<Arm<40>>(Level::PAGE, 0x12345, READ_WRITE, MemoryType::WriteBack, true, true);
    assert_eq!(clean, dirty);
}

#[test]
fn with_fwb_write_back_is_forced_and_the_rest_is_as_without() {
    fn check<F: Format>() {
        // MemAttr 0b0110: 0x3 | 0x18 | 0xc0 | 0x300 | 0x400 = 0x7db.
        let page = bits::<F>(Level::PAGE, 0x12345, ALL, MemoryType::WriteBack, true, false);
        assert_eq!(page, 0x0000_0000_1234_57db);
        let block =
            bits::<F>(Level::MIB2, 0x12200, READ_EXECUTE, MemoryType::WriteBack, true, false);
        assert_eq!(block, 0x0000_0000_1220_0759);
        // MemAttr 0b0101, and 0b0001.
        let page = bits::<F>(Level::PAGE, 0x12345, READ_WRITE, MemoryType::Uncached, true, false);
        assert_eq!(page, 0x0040_0000_1234_57d7);
        let page = bits::<F>(Level::PAGE, 0x12345, READ_WRITE, MemoryType::Device, false, false);
        assert_eq!(page, 0x0040_0000_1234_53c7);
        assert_eq!(table::<F>(0x54321), 0x0000_0000_5432_1003);
    }
    check::<ArmFwb<32>>();
    check::<ArmFwb<40>>();
    check::<ArmFwb<48>>();
}

#[test]
fn what_is_write_back_without_fwb_is_not_with_it() {
    let leaf = Leaf::new(Pfn::new(0x12345), Permissions::READ);
    let without = Entry::<Arm<48>>::leaf(Level::PAGE, &leaf);
    let with = Entry::<ArmFwb<48>>::leaf(Level::PAGE, &leaf);
    // 0b1111 is reserved with FWB, and 0b0110 is another cacheability without.
    assert_ne!(Entry::<ArmFwb<48>>::from_bits(without.bits()).to_leaf(Level::PAGE), leaf);
    assert_ne!(Entry::<Arm<48>>::from_bits(with.bits()).to_leaf(Level::PAGE), leaf);
    assert_eq!([<Arm<48>>::COHERENT, <ArmFwb<48>>::COHERENT], [false, true]);
}
