//! Edges, levels, and the timer whose physical interrupt is linked.

use std::cell::RefCell;

use mayfly_vgic::Read;

use crate::guest::{ACTIVE, DISTRIBUTOR, PENDING, REDISTRIBUTORS, cpu, gic, resync, take_all};
use crate::hardware::Cpu;

const ISENABLER: u64 = 0x1_0100;
const ICENABLER: u64 = 0x1_0180;
const ISPENDR: u64 = 0x1_0200;
const ICPENDR: u64 = 0x1_0280;

#[test]
fn an_edge_during_its_own_handler_comes_again_and_two_come_once() {
    let kicked = RefCell::default();
    let gic = gic(1, 4, &kicked);
    let mut cpu = cpu(&gic, 0);
    gic.write(DISTRIBUTOR, 0xc08, 4, 0xaaaa_aaaa);
    gic.pulse_spi(32).unwrap();
    gic.pulse_spi(32).unwrap();
    gic.enter(&mut cpu);
    assert_eq!(Cpu(&mut cpu.registers).acknowledge(), Some(32));
    gic.pulse_spi(32).unwrap();
    gic.pulse_spi(32).unwrap();
    assert!(gic.is_stale(0));
    resync(&gic, &mut cpu);
    assert_eq!(cpu.registers.lr[0] & (PENDING | ACTIVE), PENDING | ACTIVE);
    Cpu(&mut cpu.registers).end(32);
    assert_eq!(take_all(&gic, &mut cpu), [32]);
}

#[test]
fn a_level_that_stays_high_comes_again_after_its_end_and_one_that_fell_does_not() {
    for stays in [true, false] {
        let kicked = RefCell::default();
        let gic = gic(1, 4, &kicked);
        let mut cpu = cpu(&gic, 0);
        gic.set_spi(32, true).unwrap();
        gic.enter(&mut cpu);
        assert_eq!(Cpu(&mut cpu.registers).acknowledge(), Some(32));
        gic.set_spi(32, stays).unwrap();
        Cpu(&mut cpu.registers).end(32);
        assert!(Cpu(&mut cpu.registers).wants_maintenance(), "its end is told");
        resync(&gic, &mut cpu);
        assert_eq!(Cpu(&mut cpu.registers).acknowledge(), stays.then_some(32));
    }
}

#[test]
fn an_active_edge_that_becomes_a_level_is_seen_when_it_ends() {
    let kicked = RefCell::default();
    let gic = gic(1, 4, &kicked);
    let mut cpu = cpu(&gic, 0);
    gic.write(DISTRIBUTOR, 0xc08, 4, 0xaaaa_aaaa);
    gic.pulse_spi(32).unwrap();
    gic.enter(&mut cpu);
    assert_eq!(Cpu(&mut cpu.registers).acknowledge(), Some(32));
    gic.write(DISTRIBUTOR, 0xc08, 4, 0);
    assert!(gic.is_stale(0));
    resync(&gic, &mut cpu);
    gic.set_spi(32, true).unwrap();
    Cpu(&mut cpu.registers).end(32);
    assert!(Cpu(&mut cpu.registers).wants_maintenance());
    resync(&gic, &mut cpu);
    assert_eq!(Cpu(&mut cpu.registers).acknowledge(), Some(32));
}

#[test]
fn a_level_that_falls_before_it_is_taken_is_taken_back() {
    let kicked = RefCell::default();
    let gic = gic(1, 4, &kicked);
    let mut cpu = cpu(&gic, 0);
    gic.set_spi(32, true).unwrap();
    gic.enter(&mut cpu);
    kicked.borrow_mut().clear();
    gic.set_spi(32, false).unwrap();
    assert_eq!(*kicked.borrow(), [0]);
    resync(&gic, &mut cpu);
    assert_eq!(cpu.used(), 0);
}

#[test]
fn a_linked_timer_ends_without_maintenance_and_is_never_pending_and_active() {
    let kicked = RefCell::default();
    let gic = gic(1, 4, &kicked);
    let mut cpu = cpu(&gic, 0);
    for _ in 0..3 {
        gic.take_linked(0, 27).unwrap();
        gic.enter(&mut cpu);
        resync(&gic, &mut cpu);
        let linked = PENDING | 1 << 61 | 1 << 60 | 0xa0 << 48 | 27 << 32 | 0x1b;
        assert_eq!(cpu.registers.lr[0], linked);
        assert!(gic.holds_physical(0, 27));
        assert_eq!(Cpu(&mut cpu.registers).acknowledge(), Some(27));
        resync(&gic, &mut cpu);
        assert_eq!(cpu.registers.lr[0], linked ^ PENDING ^ ACTIVE);
        assert!(gic.holds_physical(0, 27));
        Cpu(&mut cpu.registers).end(27);
        assert!(!Cpu(&mut cpu.registers).wants_maintenance());
        gic.leave(&mut cpu);
        assert!(!gic.holds_physical(0, 27));
    }
}

#[test]
fn a_timer_that_fires_again_before_its_vcpu_came_out_is_not_lost() {
    let kicked = RefCell::default();
    let gic = gic(1, 4, &kicked);
    let mut cpu = cpu(&gic, 0);
    gic.take_linked(0, 27).unwrap();
    gic.enter(&mut cpu);
    assert_eq!(Cpu(&mut cpu.registers).acknowledge(), Some(27));
    Cpu(&mut cpu.registers).end(27);
    gic.take_linked(0, 27).unwrap();
    assert_eq!(take_all(&gic, &mut cpu), [27]);
}

#[test]
fn a_timer_that_was_set_anew_before_the_guest_saw_it_is_taken_back() {
    let kicked = RefCell::default();
    let gic = gic(1, 4, &kicked);
    let mut cpu = cpu(&gic, 0);
    gic.take_linked(0, 27).unwrap();
    gic.enter(&mut cpu);
    gic.leave(&mut cpu);
    gic.withdraw_linked(0, 27).unwrap();
    assert!(!gic.holds_physical(0, 27) && !gic.is_pending(&cpu));
    gic.enter(&mut cpu);
    assert_eq!(cpu.used(), 0);
}

/// What a guest that has its timer's interrupt disabled sees and gets: `ISPENDR` follows the timer, and a timer that was
/// turned off before its interrupt was enabled again interrupts no more.
#[test]
fn a_linked_timer_whose_line_has_fallen_while_it_was_disabled_is_not_taken() {
    let kicked = RefCell::default();
    let gic = gic(1, 4, &kicked);
    let mut cpu = cpu(&gic, 0);
    let pending = || gic.read(0, REDISTRIBUTORS, ISPENDR, 4) == Read::Value(1 << 27);
    gic.write(REDISTRIBUTORS, ICENABLER, 4, 1 << 27);
    gic.take_linked(0, 27).unwrap();
    gic.enter(&mut cpu);
    assert!(pending() && cpu.used() == 0);
    gic.withdraw_linked(0, 27).unwrap();
    assert!(!pending());
    assert!(gic.is_stale(0), "its physical interrupt is to come again");
    gic.write(REDISTRIBUTORS, ISENABLER, 4, 1 << 27);
    assert!(take_all(&gic, &mut cpu).is_empty());
    gic.take_linked(0, 27).unwrap();
    assert_eq!(take_all(&gic, &mut cpu), [27]);
}

#[test]
fn a_linked_timer_that_the_guest_made_pending_is_so_still_when_its_line_falls() {
    for inside in [false, true] {
        let kicked = RefCell::default();
        let gic = gic(1, 4, &kicked);
        let mut cpu = cpu(&gic, 0);
        gic.take_linked(0, 27).unwrap();
        gic.write(REDISTRIBUTORS, ISPENDR, 4, 1 << 27);
        if inside {
            gic.enter(&mut cpu);
        }
        gic.withdraw_linked(0, 27).unwrap();
        assert!(gic.holds_physical(0, 27), "so that its end ends something");
        assert_eq!(take_all(&gic, &mut cpu), [27]);
    }
}

#[test]
fn a_linked_timer_that_falls_while_loaded_is_taken_back_if_the_guest_has_not_taken_it() {
    for taken in [false, true] {
        let kicked = RefCell::default();
        let gic = gic(1, 4, &kicked);
        let mut cpu = cpu(&gic, 0);
        gic.take_linked(0, 27).unwrap();
        gic.enter(&mut cpu);
        if taken {
            assert_eq!(Cpu(&mut cpu.registers).acknowledge(), Some(27));
        }
        gic.withdraw_linked(0, 27).unwrap();
        assert!(gic.is_stale(0));
        resync(&gic, &mut cpu);
        assert_eq!(cpu.used(), usize::from(taken));
        assert_eq!(gic.holds_physical(0, 27), taken);
    }
}

#[test]
fn a_linked_timer_that_is_taken_back_outside_of_list_registers_is_told_so_that_it_comes_again() {
    let kicked = RefCell::default();
    let gic = gic(1, 4, &kicked);
    let mut cpu = cpu(&gic, 0);
    gic.write(REDISTRIBUTORS, ICENABLER, 4, 1 << 27);
    gic.take_linked(0, 27).unwrap();
    gic.enter(&mut cpu);
    assert_eq!(cpu.used(), 0, "it is not enabled");
    assert!(gic.holds_physical(0, 27) && !gic.is_stale(0));
    kicked.borrow_mut().clear();
    gic.write(REDISTRIBUTORS, ICPENDR, 4, 1 << 27);
    assert!(
        gic.is_stale(0),
        "the vCPU has to come out, for its physical interrupt is still active"
    );
    assert_eq!(*kicked.borrow(), [0]);
    resync(&gic, &mut cpu);
    assert!(!gic.holds_physical(0, 27));
}
