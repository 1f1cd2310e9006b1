//! Privileged Architecture, "Sv39: Page-Based 39-bit Virtual-Memory System" (figure "Sv39 page table entry"; bits 9:0
//! as in Sv32), "Guest Physical Address Translation", and "Svpbmt".

use mayfly_stage2::{Format, Level, MemoryType, Sv39x4, Sv48x4};

use crate::{ALL, READ, READ_EXECUTE, READ_WRITE, bits, table};

#[test]
fn pages_are_encoded_as_in_the_manual() {
    fn check<F: Format>() {
        // V, R, W, X, U are bits 0 to 4, A and D are bits 6 and 7: 0x1f | 0x40 | 0x80 = 0xdf. The frame is in bits
        // 53:10: 0x12345 << 10 = 0x48d_1400.
        let page = bits::<F>(Level::PAGE, 0x12345, ALL, MemoryType::WriteBack, true, true);
        assert_eq!(page, 0x0000_0000_048d_14df);
        // V, R, U; neither A nor D.
        let page = bits::<F>(Level::PAGE, 0x12345, READ, MemoryType::WriteBack, false, false);
        assert_eq!(page, 0x0000_0000_048d_1413);
        // PBMT, bits 62:61, is 1 for NC: V, R, W, U, A, D = 0xd7.
        let page = bits::<F>(Level::PAGE, 0x12345, READ_WRITE, MemoryType::Uncached, true, false);
        assert_eq!(page, 0x2000_0000_048d_14d7);
        // And 2 for IO.
        let page = bits::<F>(Level::PAGE, 0x12345, READ_WRITE, MemoryType::Device, true, false);
        assert_eq!(page, 0x4000_0000_048d_14d7);
    }
    check::<Sv39x4>();
    check::<Sv48x4>();
}

#[test]
fn blocks_are_leaves_at_a_higher_level() {
    fn check<F: Format>() {
        // 0x12200 << 10; V, R, X, U, A = 0x5b.
        let block =
            bits::<F>(Level::MIB2, 0x12200, READ_EXECUTE, MemoryType::WriteBack, true, false);
        assert_eq!(block, 0x0000_0000_0488_005b);
        // 0x140000 << 10.
        let block = bits::<F>(Level::GIB1, 0x14_0000, READ, MemoryType::WriteBack, false, false);
        assert_eq!(block, 0x0000_0000_5000_0013);
    }
    check::<Sv39x4>();
    check::<Sv48x4>();
}

#[test]
fn a_table_is_its_address_and_valid() {
    // 0x54321 << 10 = 0x150c_8400.
    assert_eq!(table::<Sv39x4>(0x54321), 0x0000_0000_150c_8401);
    assert_eq!(table::<Sv48x4>(0x54321), 0x0000_0000_150c_8401);
}

#[test]
fn the_highest_frame_is_that_of_56_bits_of_address() {
    let page = bits::<Sv39x4>(Level::PAGE, (1 << 44) - 1, ALL, MemoryType::WriteBack, true, false);
    assert_eq!(page, 0x003f_ffff_ffff_fcdf);
    assert_eq!(table::<Sv48x4>((1 << 44) - 1), 0x003f_ffff_ffff_fc01);
}

#[test]
fn what_may_be_written_never_faults_for_its_dirty_bit() {
    const DIRTY: u64 = 1 << 7;
    let writable = bits::<Sv39x4>(Level::PAGE, 1, READ_WRITE, MemoryType::WriteBack, true, false);
    let protected = bits::<Sv39x4>(Level::PAGE, 1, READ, MemoryType::WriteBack, true, true);
    assert_eq!((writable & DIRTY, protected & DIRTY), (DIRTY, 0));
}
