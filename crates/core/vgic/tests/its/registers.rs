//! The registers of the ITS, and those of redistributors for LPIs.

use mayfly_vgic::{Config, Frame, ITS_SIZE, ItsConfig, Read, Vgic, Write};

use crate::guest::{Guest, gic};

const ITS: Frame = Frame::Its;
const SMALL: ItsConfig = ItsConfig { lpis: 256, device_bits: 4, event_bits: 8 };
const QUIESCENT: u64 = 1 << 31;

#[test]
fn the_its_is_as_in_the_manual_at_every_offset_and_size() {
    let fixed: [(u64, u64); 12] = [
        (0x0004, 0x4d00_043b),
        // Physical LPIs, entries of 8 bytes, 8 bits of events, 4 of devices, and 2 of collections, as `CIL` says.
        (0x0008, 1 | 7 << 4 | 7 << 8 | 3 << 13),
        (0x000c, 1 << 4 | 1),
        (0xffd0, 0x44),
        (0xffe0, 0x94),
        (0xffe4, 0xb4),
        (0xffe8, 0x3b),
        (0xfff0, 0x0d),
        (0xfff4, 0xf0),
        (0xfff8, 0x05),
        (0xfffc, 0xb1),
        // The table of collections: its kind, entries of 8 bytes, pages of 64 KiB.
        (0x010c, 4 << 24 | 7 << 16),
    ];
    let gic = gic(4, SMALL, 4);
    for offset in 0..ITS_SIZE + 0x1000 {
        for len in [1, 2, 3, 4, 8, u64::MAX] {
            let read = gic.read(0, ITS, offset, len);
            let is_one = |at: u64| {
                offset / 8 * 8 == at && offset.is_multiple_of(len) && matches!(len, 4 | 8)
            };
            let is_long = [0x8, 0x80, 0x88, 0x90].into_iter().any(is_one)
                || (0x100..0x140).step_by(8).any(is_one);
            let is_word = len == 4
                && (matches!(offset, 0 | 4)
                    || (0xffd0..0x1_0000).contains(&offset) && offset.is_multiple_of(4));
            assert_eq!(matches!(read, Read::Value(_)), is_long || is_word, "{offset:#x} {len}");
            if let (Some((_, value)), 4) = (fixed.iter().find(|(at, _)| *at == offset), len) {
                assert_eq!(read, Read::Value(*value), "{offset:#x}");
                if offset != 0x10c {
                    let _ = gic.write(ITS, offset, 4, !value);
                    assert_eq!(gic.read(0, ITS, offset, 4), read, "{offset:#x} is only read");
                }
            }
        }
    }
    assert_eq!(gic.read(0, ITS, 0x8, 8), Read::Value(0x11_0000_0000 | 0x6771));
}

#[test]
fn a_gic_without_an_its_has_none_of_its_registers() {
    let config = Config { vcpus: 2, spis: 32, list_registers: 4, linked: &[] };
    let gic = Vgic::try_new(config, |_| ()).unwrap();
    for offset in 0..ITS_SIZE {
        for len in [1, 4, 8] {
            assert_eq!(gic.read(0, ITS, offset, len), Read::Reserved, "{offset:#x}");
            assert_eq!(gic.write(ITS, offset, len, u64::MAX), Write::Reserved, "{offset:#x}");
        }
    }
    assert!(!gic.has_its_work() && !gic.has_its());
    assert_eq!(gic.read(0, Frame::Distributor, 4, 4), Read::Value(9 << 19 | 1 << 25 | 1));
}

#[test]
fn a_guest_finds_the_lpis_and_how_many_there_are() {
    let gic = gic(2, SMALL, 4);
    let typer = 13 << 19 | 1 << 25 | 1 << 17 | 7 << 11 | 1;
    assert_eq!(gic.read(0, Frame::Distributor, 4, 4), Read::Value(typer));
    for vcpu in 0..2 {
        let Read::Value(typer) = gic.read(0, Frame::Redistributors, vcpu * 0x2_0000 + 8, 8) else {
            panic!("GICR_TYPER is read");
        };
        assert_eq!((typer & 1, typer >> 8 & 0xffff), (1, vcpu), "LPIs, and the number of the vCPU");
    }
}

#[test]
fn registers_of_64_bits_are_written_in_one_and_by_halves() {
    let gic = gic(2, SMALL, 4);
    for (frame, offset, value) in [
        (ITS, 0x80, 1 << 63 | 0x12_3456_7000 | 0x55),
        (ITS, 0x100, 1 << 63 | 0x34_5670_0000),
        (Frame::Redistributors, 0x70, 0x7_0000 | 0x12_3450_0000 | 0xd),
        (Frame::Redistributors, 0x78, 0x12_3457_0000),
    ] {
        let read = |at: u64, len| match gic.read(0, frame, at, len) {
            Read::Value(value) => value,
            other => panic!("{at:#x}: {other:?}"),
        };
        let fixed = read(offset, 8);
        gic.write(frame, offset, 8, value);
        assert_eq!(read(offset, 8), value | fixed);
        assert_eq!(read(offset, 4) | read(offset + 4, 4) << 32, value | fixed);
        gic.write(frame, offset, 8, 0);
        gic.write(frame, offset + 4, 4, value >> 32);
        assert_eq!(read(offset, 8), value >> 32 << 32 | fixed);
        gic.write(frame, offset, 4, value & 0xffff_ffff);
        assert_eq!(read(offset, 8), value | fixed);
    }
}

/// `GICR_PENDBASER.PTZ` is only written; the tables are not written while they are used.
#[test]
fn tables_do_not_change_while_lpis_are_on() {
    let mut guest = Guest::new(1, 64, 2, 3, 4);
    let redistributors = Frame::Redistributors;
    guest.write(redistributors, 0x78, 8, 1 << 62 | 0x1234_0000);
    assert_eq!(guest.read(redistributors, 0x78, 8), Read::Value(0x1234_0000));
    let properties = guest.read(redistributors, 0x70, 8);
    guest.turn(0, true);
    for offset in [0x70, 0x78] {
        guest.write(redistributors, offset, 8, 0x5555_0000);
    }
    assert_eq!(guest.read(redistributors, 0x70, 8), properties);
    assert_eq!(guest.read(redistributors, 0x78, 8), Read::Value(0x1234_0000));
    guest.turn(0, false);
    guest.write(redistributors, 0x78, 8, 0x5555_0000);
    assert_eq!(guest.read(redistributors, 0x78, 8), Read::Value(0x5555_0000));
}

#[test]
fn lpis_that_are_turned_off_are_under_way_until_their_table_is_written() {
    let mut guest = Guest::new(1, 64, 2, 3, 4);
    guest.turn(0, true);
    guest.write(Frame::Redistributors, 0, 4, 0);
    let control = |guest: &Guest| guest.read(Frame::Redistributors, 0, 4);
    assert_eq!(control(&guest), Read::Value(2 | 8), "CES, RWP");
    guest.write(Frame::Redistributors, 0, 4, 1);
    assert_eq!(control(&guest), Read::Value(2 | 8), "not before that");
    guest.finish();
    assert_eq!(control(&guest), Read::Value(2));
}

#[test]
fn a_queue_that_is_off_is_quiescent_and_stays_as_it_is() {
    let mut guest = Guest::new(1, 64, 2, 3, 4);
    let (control, read, write) = (0x0, 0x90, 0x88);
    assert_eq!(guest.read(ITS, control, 4), Read::Value(1));
    // While it is on, it cannot be another queue, nor have other tables.
    for offset in [0x80, 0x100] {
        let before = guest.read(ITS, offset, 8);
        guest.write(ITS, offset, 8, 0x5555_0000);
        assert_eq!(guest.read(ITS, offset, 8), before);
    }
    guest.write(ITS, control, 4, 0);
    assert_eq!(guest.read(ITS, control, 4), Read::Value(QUIESCENT));
    guest.queue([9, 0, 1 << 63, 0]);
    guest.post();
    guest.serve();
    assert_eq!(guest.unread(), 32, "nothing is executed");
    guest.write(ITS, control, 4, 1);
    guest.finish();
    // An end that is not in the queue is none.
    guest.write(ITS, write, 8, 0x1000);
    assert_eq!(guest.read(ITS, write, 8), Read::Value(32));
    guest.write(ITS, control, 4, 0);
    guest.write(ITS, 0x80, 8, 1 << 63 | crate::guest::QUEUE);
    assert_eq!(
        (guest.read(ITS, read, 8), guest.read(ITS, write, 8)),
        (Read::Value(0), Read::Value(0))
    );
}

/// Tables at another place know nothing of what those before had.
#[test]
fn another_table_has_no_mappings() {
    let mut guest = Guest::new(1, 64, 2, 3, 4);
    guest.properties(0, 0xa1);
    guest.turn(0, true);
    let map = |guest: &mut Guest| {
        for words in [[9, 0, 1 << 63, 0], [8, 2, 1 << 63, 0], [10, 8192 << 32, 0, 0]] {
            guest.command(words);
        }
    };
    map(&mut guest);
    assert!(guest.gic.send_msi(0, 0).is_ok());
    for table in [0x100, 0x108] {
        guest.write(ITS, 0, 4, 0);
        guest.write(ITS, table, 8, 1 << 63 | 0xdead_0000 | 0x77_0000_0000);
        guest.write(ITS, 0, 4, 1);
        assert!(guest.gic.send_msi(0, 0).is_err());
        map(&mut guest);
        assert!(guest.gic.send_msi(0, 0).is_ok());
        // Without a table, there is nothing to be mapped in it.
        guest.write(ITS, 0, 4, 0);
        guest.write(ITS, table, 8, 0);
        guest.write(ITS, 0, 4, 1);
        map(&mut guest);
        assert!(guest.gic.send_msi(0, 0).is_err());
        guest.write(ITS, 0, 4, 0);
        guest.write(ITS, table, 8, 1 << 63);
        guest.write(ITS, 0, 4, 1);
        map(&mut guest);
        assert!(guest.gic.send_msi(0, 0).is_ok());
    }
}

/// As QEMU's CPUs do: the list register of an LPI says that it is active until its end.
#[test]
fn an_lpi_that_a_cpu_has_as_active_comes_again_before_its_end() {
    let mut guest = Guest::new(1, 64, 2, 3, 4);
    guest.properties(0, 0xa1);
    guest.turn(0, true);
    for words in [[9, 0, 1 << 63, 0], [8, 2, 1 << 63, 0], [10, 8192 << 32, 0, 0]] {
        guest.command(words);
    }
    guest.gic.send_msi(0, 0).unwrap();
    guest.enter(0);
    guest.cpus[0].registers.lr[0] ^= 3 << 62;
    guest.gic.send_msi(0, 0).unwrap();
    guest.sync();
    assert_eq!(guest.given(0).into_iter().collect::<Vec<_>>(), [(8192, 0xa0)]);
    assert_eq!(guest.take(0), Some(8192));
    guest.come_out();
    assert_eq!(guest.cpus[0].used(), 0);
}

#[test]
fn a_device_has_the_events_that_it_was_mapped_with_and_no_others() {
    let mut guest = Guest::new(1, 64, 2, 3, 4);
    guest.turn(0, true);
    guest.command([9, 0, 1 << 63, 0]);
    guest.command([8, 0, 1 << 63, 0]);
    for event in 0..8 {
        guest.command([10, event | (8192 + event) << 32, 0, 0]);
    }
    let mapped: Vec<_> = (0..8).filter(|event| guest.gic.send_msi(0, *event).is_ok()).collect();
    assert_eq!(mapped, [0, 1], "one bit");
}

#[test]
fn a_group_that_is_turned_off_is_under_way_while_a_vcpu_has_an_lpi() {
    let mut guest = Guest::new(1, 64, 2, 3, 4);
    guest.properties(0, 0xa1);
    guest.turn(0, true);
    for words in [[9, 0, 1 << 63, 0], [8, 2, 1 << 63, 0], [10, 8192 << 32, 0, 0]] {
        guest.command(words);
    }
    guest.gic.send_msi(0, 0).unwrap();
    guest.enter(0);
    guest.write(Frame::Distributor, 0, 4, 1);
    let is_under_way = |guest: &Guest| matches!(guest.read(Frame::Distributor, 0, 4), Read::Value(value) if value >> 31 != 0);
    assert!(is_under_way(&guest));
    guest.come_out();
    assert!(!is_under_way(&guest) && guest.cpus[0].used() == 0);
    guest.write(Frame::Distributor, 0, 4, 3);
    guest.sync();
    assert_eq!(guest.take(0), Some(8192));
}
