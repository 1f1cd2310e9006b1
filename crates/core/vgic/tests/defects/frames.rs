//! Registers: whose they are, what they reach, and what is seen through them.

use std::cell::RefCell;

use mayfly_vgic::{Config, Error, Read, SgiRegister, Vgic, Write, affinity};

use crate::guest::{DISTRIBUTOR, REDISTRIBUTORS, boot, cpu, gic, loaded, resync};
use crate::hardware::Cpu;

#[test]
fn a_write_to_a_redistributor_changes_that_vcpu_alone() {
    let kicked = RefCell::default();
    let gic = gic(4, 4, &kicked);
    for vcpu in 0..4_u64 {
        let enables = vcpu * 0x2_0000 + 0x1_0180;
        gic.write(REDISTRIBUTORS, enables, 4, 1 << (16 + vcpu));
        gic.write(REDISTRIBUTORS, vcpu * 0x2_0000 + 0x1_0400 + 16, 1, 0x10 + 8 * vcpu);
    }
    for vcpu in 0..4_u64 {
        let read = |offset, len| gic.read(0, REDISTRIBUTORS, vcpu * 0x2_0000 + offset, len);
        assert_eq!(read(0x1_0100, 4), Read::Value(0xffff_ffff & !(1 << (16 + vcpu))));
        assert_eq!(read(0x1_0410, 1), Read::Value(0x10 + 8 * vcpu));
    }
}

#[test]
fn registers_of_lpis_that_there_are_not_take_any_value_and_touch_nothing() {
    let kicked = RefCell::default();
    let gic = gic(2, 4, &kicked);
    // SETLPIR, CLRLPIR, PROPBASER, PENDBASER, INVLPIR, INVALLR, SYNCR.
    for offset in [0x40, 0x48, 0x70, 0x78, 0xa0, 0xb0, 0xc0] {
        for value in [0, 1, 8192, 0xffff_ffff, u64::MAX] {
            for len in [4, 8] {
                assert_eq!(gic.write(REDISTRIBUTORS, offset, len, value), Write::Reserved);
                assert_eq!(gic.read(0, REDISTRIBUTORS, offset, len), Read::Reserved);
            }
        }
    }
    assert!(kicked.borrow().is_empty());
}

#[test]
fn the_last_redistributor_says_so_and_no_other() {
    for vcpus in [1, 2, 17, 512] {
        let kicked = RefCell::default();
        let gic = gic(vcpus, 4, &kicked);
        for vcpu in 0..vcpus {
            let typer = gic.read(0, REDISTRIBUTORS, vcpu as u64 * 0x2_0000 + 8, 8);
            let Read::Value(typer) = typer else { panic!("a register") };
            assert_eq!(typer >> 4 & 1 != 0, vcpu + 1 == vcpus, "vCPU {vcpu} of {vcpus}");
            assert_eq!(typer >> 32, affinity(vcpu));
        }
    }
}

#[test]
fn a_disabled_interrupt_is_under_way_until_its_vcpu_has_come_out() {
    let kicked = RefCell::default();
    let gic = gic(2, 4, &kicked);
    let mut other = cpu(&gic, 1);
    gic.write(DISTRIBUTOR, 0x6100, 8, 1);
    gic.set_spi(32, true).unwrap();
    gic.set_ppi(1, 20, true).unwrap();
    gic.enter(&mut other);
    kicked.borrow_mut().clear();
    let waits = |frame, offset, bit: u32| match gic.read(0, frame, offset, 4) {
        Read::Value(value) => value >> bit & 1 != 0,
        other => panic!("{other:?}"),
    };
    gic.write(DISTRIBUTOR, 0x184, 4, 1);
    gic.write(REDISTRIBUTORS, 0x3_0180, 4, 1 << 20);
    assert_eq!(*kicked.borrow(), [1]);
    assert!(waits(DISTRIBUTOR, 0, 31), "GICD_CTLR.RWP");
    assert!(waits(REDISTRIBUTORS, 0x2_0000, 3), "GICR_CTLR.RWP");
    assert!(!waits(REDISTRIBUTORS, 0, 3), "of the other vCPU");
    resync(&gic, &mut other);
    assert_eq!(other.used(), 0);
    assert!(!waits(DISTRIBUTOR, 0, 31) && !waits(REDISTRIBUTORS, 0x2_0000, 3));
}

#[test]
fn what_a_running_vcpu_has_taken_is_read_as_active_once_it_came_out() {
    let kicked = RefCell::default();
    let gic = gic(2, 4, &kicked);
    let mut other = cpu(&gic, 1);
    gic.write(DISTRIBUTOR, 0x6100, 8, 1);
    gic.set_spi(32, true).unwrap();
    gic.enter(&mut other);
    assert_eq!(Cpu(&mut other.registers).acknowledge(), Some(32));
    kicked.borrow_mut().clear();
    let read = || gic.read(0, DISTRIBUTOR, 0x304, 4);
    assert_eq!(read(), Read::Retry);
    assert_eq!(read(), Read::Retry, "it has not come out");
    assert_eq!(*kicked.borrow(), [1]);
    resync(&gic, &mut other);
    assert_eq!(read(), Read::Value(1), "it may be inside again");
}

#[test]
fn a_gic_that_is_reset_is_as_new_and_runs_again() {
    let kicked = RefCell::default();
    let gic = gic(2, 4, &kicked);
    let mut first = cpu(&gic, 0);
    gic.set_spi(40, true).unwrap();
    gic.take_linked(0, 27).unwrap();
    gic.sgi(1, SgiRegister::Sgi1, 1);
    gic.enter(&mut first);
    Cpu(&mut first.registers).acknowledge();
    gic.leave(&mut first);
    gic.reset();
    let mut first = gic.cpu_interface(0).unwrap();
    for (frame, offset) in [
        (DISTRIBUTOR, 0x104),
        (DISTRIBUTOR, 0x304),
        (REDISTRIBUTORS, 0x1_0200),
        (REDISTRIBUTORS, 0x1_0300),
    ] {
        assert_eq!(gic.read(0, frame, offset, 4), Read::Value(0), "{offset:#x}");
    }
    assert_eq!(gic.read(0, DISTRIBUTOR, 0x204, 4), Read::Value(1 << 8), "its line is high");
    assert!(!gic.holds_physical(0, 27) && !gic.is_pending(&first));
    boot(&gic);
    first.registers.vmcr = 0xff << 24 | 2;
    gic.enter(&mut first);
    assert_eq!(loaded(&first), [40]);
}

#[test]
fn numbers_that_there_are_not_are_errors_and_nothing_else() {
    let kicked = RefCell::default();
    let gic = gic(2, 4, &kicked);
    for spi in [0, 16, 31, 96, 1020, u32::MAX] {
        assert!(gic.set_spi(spi, true).is_err() && gic.pulse_spi(spi).is_err(), "{spi}");
    }
    for (vcpu, ppi) in [(2, 20), (0, 15), (0, 32), (usize::MAX, 16), (0, u32::MAX)] {
        assert!(gic.set_ppi(vcpu, ppi, true).is_err(), "{ppi} of {vcpu}");
    }
    assert!(gic.take_linked(0, 26).is_err() && gic.take_linked(2, 27).is_err());
    assert!(gic.cpu_interface(2).is_none() && !gic.is_stale(2) && !gic.holds_physical(9, 27));
    assert!(kicked.borrow().is_empty());
    let try_new = |vcpus, spis, list_registers, linked: &[(u32, u32)]| {
        let config = Config { vcpus, spis, list_registers, linked };
        Vgic::try_new(config, |_: usize| {}).err()
    };
    assert_eq!(try_new(0, 32, 4, &[]), Some(Error::Vcpus(0)));
    assert_eq!(try_new(513, 32, 4, &[]), Some(Error::Vcpus(513)));
    assert_eq!(try_new(1, 989, 4, &[]), Some(Error::Spis(989)));
    assert_eq!(try_new(1, 32, 17, &[]), Some(Error::ListRegisters(17)));
    for (ppi, physical) in [(15, 27), (32, 27), (27, 1020), (27, 15)] {
        assert_eq!(try_new(1, 0, 1, &[(ppi, physical)]), Some(Error::Link { ppi, physical }));
    }
    let twice = Some(Error::Link { ppi: 27, physical: 28 });
    assert_eq!(try_new(1, 0, 1, &[(27, 27), (27, 28)]), twice);
    assert_eq!(try_new(512, 988, 16, &[]), None);
}
