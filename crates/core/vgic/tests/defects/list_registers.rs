//! More interrupts than list registers.

use std::cell::RefCell;

use mayfly_vgic::{CpuInterface, Read, SgiRegister};

use crate::guest::{DISTRIBUTOR, Gic, REDISTRIBUTORS, cpu, gic, loaded, resync, take_all};
use crate::hardware::Cpu;

#[test]
fn more_interrupts_than_list_registers_all_arrive_the_urgent_first() {
    for list_registers in [1, 2, 4, 16] {
        let kicked = RefCell::default();
        let gic = gic(1, list_registers, &kicked);
        let mut cpu = cpu(&gic, 0);
        for spi in 32..96_u32 {
            gic.write(DISTRIBUTOR, 0x400 + u64::from(spi), 1, (u64::from(96 - spi) * 4) & 0xf8);
            gic.write(DISTRIBUTOR, 0xc00 + u64::from(spi / 16 * 4), 4, 0xaaaa_aaaa);
            gic.pulse_spi(spi).unwrap();
        }
        gic.enter(&mut cpu);
        assert_eq!(cpu.used(), list_registers);
        let taken = take_all(&gic, &mut cpu);
        let mut priorities: Vec<_> = taken.iter().map(|spi| ((96 - spi) * 4) & 0xf8).collect();
        assert!(priorities.is_sorted(), "{taken:?}");
        priorities.dedup();
        assert_eq!(taken.len(), 64, "with {list_registers}: {taken:?}");
    }
}

#[test]
fn what_came_again_during_its_handler_does_not_hold_up_the_more_urgent() {
    let kicked = RefCell::default();
    let gic = gic(1, 2, &kicked);
    let mut cpu = cpu(&gic, 0);
    for (sgi, priority) in [(7, 0xa8), (0, 0x00), (1, 0x88)] {
        gic.write(REDISTRIBUTORS, 0x1_0400 + sgi, 1, priority);
    }
    let send = |sgi: u64| gic.sgi(1, SgiRegister::Sgi1, sgi << 24 | 1);
    send(7);
    gic.enter(&mut cpu);
    assert_eq!(Cpu(&mut cpu.registers).acknowledge(), Some(7));
    send(7);
    send(0);
    send(1);
    resync(&gic, &mut cpu);
    // It ends the outer one first, and nothing of it is left to be in the way.
    Cpu(&mut cpu.registers).end(7);
    assert_eq!(take_all(&gic, &mut cpu), [0, 1, 7]);
}

/// Has the guest take SGI 7, and SGI 1 in its handler. SGI 0 is more urgent than both.
fn nest_1_in_7(gic: &Gic<'_>, cpu: &mut CpuInterface) {
    for (sgi, priority) in [(7, 0xa8), (1, 0x88), (0, 0x00)] {
        gic.write(REDISTRIBUTORS, 0x1_0400 + sgi, 1, priority);
    }
    gic.enter(cpu);
    for sgi in [7, 1] {
        gic.sgi(1, SgiRegister::Sgi1, u64::from(sgi) << 24 | 1);
        resync(gic, cpu);
        assert_eq!(Cpu(&mut cpu.registers).acknowledge(), Some(sgi));
    }
}

/// With SGI 0 in the only list register, the end of the inner handler leaves SGI 7 active.
fn assert_1_ends_first(gic: &Gic<'_>, cpu: &mut CpuInterface) {
    resync(gic, cpu);
    assert_eq!(loaded(cpu), [0], "no active one has a list register");
    Cpu(&mut cpu.registers).end(1);
    gic.leave(cpu);
    assert_eq!(gic.read(0, REDISTRIBUTORS, 0x1_0300, 4), Read::Value(1 << 7));
}

#[test]
fn a_priority_that_is_written_to_an_active_interrupt_changes_no_order_of_ends() {
    let kicked = RefCell::default();
    let gic = gic(1, 1, &kicked);
    let mut cpu = cpu(&gic, 0);
    nest_1_in_7(&gic, &mut cpu);
    gic.sgi(1, SgiRegister::Sgi1, 1);
    gic.write(REDISTRIBUTORS, 0x1_0407, 1, 0);
    assert_1_ends_first(&gic, &mut cpu);
}

#[test]
fn one_that_is_taken_runs_at_the_priority_it_was_loaded_with_whatever_is_written_before_it_comes_out()
 {
    let kicked = RefCell::default();
    let gic = gic(1, 1, &kicked);
    let mut cpu = cpu(&gic, 0);
    nest_1_in_7(&gic, &mut cpu);
    gic.write(REDISTRIBUTORS, 0x1_0401, 1, 0xf0);
    gic.sgi(1, SgiRegister::Sgi1, 1);
    assert_1_ends_first(&gic, &mut cpu);
}

#[test]
fn the_end_of_one_that_no_list_register_has_is_told_so_that_it_can_come_again() {
    let kicked = RefCell::default();
    let gic = gic(1, 1, &kicked);
    let mut cpu = cpu(&gic, 0);
    gic.write(DISTRIBUTOR, 0x420, 1, 0x10);
    gic.set_spi(32, true).unwrap();
    gic.enter(&mut cpu);
    assert_eq!(Cpu(&mut cpu.registers).acknowledge(), Some(32));
    gic.set_spi(33, true).unwrap();
    resync(&gic, &mut cpu);
    assert_eq!(loaded(&cpu), [33], "32 is active, and has none");
    assert!(!Cpu(&mut cpu.registers).wants_maintenance());
    Cpu(&mut cpu.registers).end(32);
    assert!(Cpu(&mut cpu.registers).wants_maintenance());
    resync(&gic, &mut cpu);
    assert_eq!(Cpu(&mut cpu.registers).acknowledge(), Some(32), "its line is high still");
}

#[test]
fn the_end_of_what_was_active_no_more_ends_nothing_else() {
    let kicked = RefCell::default();
    let gic = gic(1, 4, &kicked);
    let mut cpu = cpu(&gic, 0);
    gic.sgi(1, SgiRegister::Sgi1, 7 << 24 | 1);
    gic.enter(&mut cpu);
    assert_eq!(Cpu(&mut cpu.registers).acknowledge(), Some(7));
    gic.write(REDISTRIBUTORS, 0x1_0380, 4, 1 << 7);
    resync(&gic, &mut cpu);
    Cpu(&mut cpu.registers).end(7);
    assert_eq!(cpu.registers.hcr >> 27, 1, "the hardware counts it");
    gic.write(REDISTRIBUTORS, 0x1_0300, 4, 1);
    gic.leave(&mut cpu);
    assert_eq!(gic.read(0, REDISTRIBUTORS, 0x1_0300, 4), Read::Value(1), "SGI 0 is active");
}

#[test]
fn nested_interrupts_that_have_no_list_register_end_one_by_one() {
    let kicked = RefCell::default();
    let gic = gic(1, 2, &kicked);
    let mut cpu = cpu(&gic, 0);
    gic.enter(&mut cpu);
    // Each interrupts the one before.
    for spi in 32..40_u32 {
        gic.write(DISTRIBUTOR, 0x400 + u64::from(spi), 1, u64::from(48 - spi) * 8);
        gic.set_spi(spi, true).unwrap();
        resync(&gic, &mut cpu);
        assert_eq!(Cpu(&mut cpu.registers).acknowledge(), Some(spi));
        gic.set_spi(spi, false).unwrap();
    }
    for spi in (32..40).rev() {
        resync(&gic, &mut cpu);
        Cpu(&mut cpu.registers).end(spi);
        gic.leave(&mut cpu);
        let active = gic.read(0, DISTRIBUTOR, 0x304, 4);
        assert_eq!(active, Read::Value((1 << (spi - 32)) - 1), "{spi} has ended");
        gic.enter(&mut cpu);
    }
}

#[test]
fn a_pending_interrupt_of_a_group_that_is_off_does_not_hold_up_the_others() {
    let kicked = RefCell::default();
    let gic = gic(1, 1, &kicked);
    let mut cpu = cpu(&gic, 0);
    gic.write(DISTRIBUTOR, 0, 4, 3);
    gic.write(DISTRIBUTOR, 0x084, 4, 0xffff_fffe);
    gic.write(DISTRIBUTOR, 0x420, 1, 0);
    gic.set_spi(32, true).unwrap();
    gic.set_spi(33, true).unwrap();
    gic.enter(&mut cpu);
    assert_eq!(
        loaded(&cpu),
        [33],
        "32 is more urgent, and of group 0, which this guest takes none of"
    );
    cpu.registers.vmcr |= 1;
    assert!(Cpu(&mut cpu.registers).wants_maintenance(), "now it does");
    resync(&gic, &mut cpu);
    assert_eq!(loaded(&cpu), [32]);
}

#[test]
fn a_priority_that_is_raised_while_the_interrupt_is_loaded_lets_it_interrupt() {
    let kicked = RefCell::default();
    let gic = gic(1, 4, &kicked);
    let mut cpu = cpu(&gic, 0);
    gic.set_spi(32, true).unwrap();
    gic.enter(&mut cpu);
    assert_eq!(Cpu(&mut cpu.registers).acknowledge(), Some(32));
    gic.set_spi(33, true).unwrap();
    resync(&gic, &mut cpu);
    assert_eq!(Cpu(&mut cpu.registers).acknowledge(), None, "of the same priority");
    gic.write(DISTRIBUTOR, 0x421, 1, 0x10);
    assert!(gic.is_stale(0));
    resync(&gic, &mut cpu);
    assert_eq!(Cpu(&mut cpu.registers).acknowledge(), Some(33));
}
