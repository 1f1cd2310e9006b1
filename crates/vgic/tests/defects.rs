//! What virtual GICs have got wrong, each by its own test: here it is right.

use std::cell::RefCell;

#[path = "common/hardware.rs"]
mod hardware;

use hardware::{Cpu, intid};
use mayfly_vgic::{Config, CpuInterface, Error, Frame, Read, SgiRegister, Vgic, Write, affinity};

const DISTRIBUTOR: Frame = Frame::Distributor;
const REDISTRIBUTORS: Frame = Frame::Redistributors;
const PENDING: u64 = 1 << 62;
const ACTIVE: u64 = 1 << 63;

type Gic<'a> = Vgic<Box<dyn Fn(usize) + 'a>>;

fn gic(vcpus: usize, list_registers: usize, kicked: &RefCell<Vec<usize>>) -> Gic<'_> {
    let config = Config { vcpus, spis: 64, list_registers, linked: &[(27, 27)] };
    let kick: Box<dyn Fn(usize)> = Box::new(|vcpu| kicked.borrow_mut().push(vcpu));
    let gic = Vgic::try_new(config, kick).unwrap();
    boot(&gic);
    for vcpu in 0..vcpus {
        let mut cpu = cpu(&gic, vcpu);
        gic.enter(&mut cpu);
        gic.leave(&mut cpu);
    }
    kicked.borrow_mut().clear();
    gic
}

/// What a kernel does: group 1 on, everything enabled in it and at priority 0xa0, all awake.
fn boot(gic: &Gic<'_>) {
    gic.write(DISTRIBUTOR, 0, 4, 2);
    for vcpu in 0..gic.vcpus() as u64 {
        let base = vcpu * 0x2_0000;
        gic.write(REDISTRIBUTORS, base + 0x14, 4, 0);
        gic.write(REDISTRIBUTORS, base + 0x1_0080, 4, 0xffff_ffff);
        gic.write(REDISTRIBUTORS, base + 0x1_0100, 4, 0xffff_ffff);
        for word in (0..32).step_by(4) {
            gic.write(REDISTRIBUTORS, base + 0x1_0400 + word, 4, 0xa0a0_a0a0);
        }
    }
    for word in [4, 8] {
        gic.write(DISTRIBUTOR, 0x080 + word, 4, 0xffff_ffff);
        gic.write(DISTRIBUTOR, 0x100 + word, 4, 0xffff_ffff);
    }
    for word in (32..96).step_by(4) {
        gic.write(DISTRIBUTOR, 0x400 + word, 4, 0xa0a0_a0a0);
    }
}

/// A vCPU whose guest takes group 1, at any priority.
fn cpu(gic: &Gic<'_>, vcpu: usize) -> CpuInterface {
    let mut cpu = gic.cpu_interface(vcpu).unwrap();
    cpu.registers.vmcr = 0xff << 24 | 2;
    cpu
}

fn resync(gic: &Gic<'_>, cpu: &mut CpuInterface) {
    gic.leave(cpu);
    gic.enter(cpu);
}

fn loaded(cpu: &CpuInterface) -> Vec<u32> {
    cpu.registers.lr[..cpu.used()].iter().map(|register| intid(*register)).collect()
}

fn take_all(gic: &Gic<'_>, cpu: &mut CpuInterface) -> Vec<u32> {
    let mut taken = Vec::new();
    loop {
        if gic.is_stale(cpu.vcpu()) || Cpu(&mut cpu.registers).wants_maintenance() {
            resync(gic, cpu);
        }
        Cpu(&mut cpu.registers).check();
        let Some(next) = Cpu(&mut cpu.registers).acknowledge() else { return taken };
        taken.push(next);
        Cpu(&mut cpu.registers).end(next);
    }
}

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
fn an_sgi_goes_to_the_listed_of_its_cluster_or_to_all_others() {
    let kicked = RefCell::default();
    let gic = gic(34, 4, &kicked);
    let sent = |value| {
        kicked.borrow_mut().clear();
        gic.sgi(17, SgiRegister::Sgi1, value);
        let mut targets = kicked.borrow().clone();
        for target in &targets {
            // Taken, so that the next one is told of.
            let mut cpu = cpu(&gic, *target);
            gic.enter(&mut cpu);
            assert_eq!(loaded(&cpu), [5]);
            cpu.registers.lr = [0; 16];
            gic.leave(&mut cpu);
        }
        targets.sort_unstable();
        targets
    };
    let sgi = 5 << 24;
    assert_eq!(sent(sgi | 0b1001), [0, 3]);
    assert_eq!(sent(sgi | 1 << 16 | 0x8002), [17, 31], "Aff1 is 1");
    assert_eq!(sent(sgi | 2 << 16 | 0xffff), [32, 33], "of those that there are");
    for nobody in [1_u64 << 32, 1 << 48, 3 << 16, 1 << 44] {
        assert!(sent(sgi | nobody | 0xffff).is_empty(), "{nobody:#x}");
    }
    let others: Vec<usize> = (0..34).filter(|vcpu| *vcpu != 17).collect();
    assert_eq!(sent(sgi | 1 << 40), others);
    assert!(sent(sgi).is_empty());
}

#[test]
fn an_sgi_of_group_0_alone_leaves_one_of_group_1_alone() {
    let kicked = RefCell::default();
    let gic = gic(2, 4, &kicked);
    gic.sgi(0, SgiRegister::Sgi0, 2);
    assert!(kicked.borrow().is_empty());
    gic.write(DISTRIBUTOR, 0, 4, 3);
    gic.write(REDISTRIBUTORS, 0x3_0080, 4, 0xffff_fffe);
    gic.enter(&mut cpu(&gic, 1));
    kicked.borrow_mut().clear();
    gic.sgi(0, SgiRegister::Sgi0, 2);
    assert_eq!(*kicked.borrow(), [1]);
}

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

#[test]
fn a_priority_that_is_written_to_an_active_interrupt_changes_no_order_of_ends() {
    let kicked = RefCell::default();
    let gic = gic(1, 1, &kicked);
    let mut cpu = cpu(&gic, 0);
    for (sgi, priority) in [(7, 0xa8), (1, 0x88), (0, 0x00)] {
        gic.write(REDISTRIBUTORS, 0x1_0400 + sgi, 1, priority);
    }
    gic.enter(&mut cpu);
    for sgi in [7, 1] {
        gic.sgi(1, SgiRegister::Sgi1, u64::from(sgi) << 24 | 1);
        resync(&gic, &mut cpu);
        assert_eq!(Cpu(&mut cpu.registers).acknowledge(), Some(sgi));
    }
    gic.sgi(1, SgiRegister::Sgi1, 1);
    gic.write(REDISTRIBUTORS, 0x1_0407, 1, 0);
    resync(&gic, &mut cpu);
    assert_eq!(loaded(&cpu), [0], "no active one has a list register");
    Cpu(&mut cpu.registers).end(1);
    gic.leave(&mut cpu);
    assert_eq!(gic.read(0, REDISTRIBUTORS, 0x1_0300, 4), Read::Value(1 << 7));
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

#[test]
fn an_interrupt_that_is_routed_away_while_loaded_is_taken_by_its_new_vcpu() {
    let kicked = RefCell::default();
    let gic = gic(2, 4, &kicked);
    let (mut first, mut second) = (cpu(&gic, 0), cpu(&gic, 1));
    gic.enter(&mut first);
    gic.enter(&mut second);
    gic.set_spi(32, true).unwrap();
    resync(&gic, &mut first);
    assert_eq!(loaded(&first), [32]);
    kicked.borrow_mut().clear();
    gic.write(DISTRIBUTOR, 0x6100, 8, 1);
    assert_eq!(*kicked.borrow(), [0], "who has it comes out first");
    assert!(take_all(&gic, &mut first).is_empty());
    assert_eq!(*kicked.borrow(), [0, 1]);
    resync(&gic, &mut second);
    assert_eq!(loaded(&second), [32]);
}

#[test]
fn an_active_interrupt_that_is_routed_away_is_taken_elsewhere_after_its_end() {
    let kicked = RefCell::default();
    let gic = gic(2, 4, &kicked);
    let (mut first, mut second) = (cpu(&gic, 0), cpu(&gic, 1));
    gic.write(DISTRIBUTOR, 0xc08, 4, 0xaaaa_aaaa);
    gic.pulse_spi(32).unwrap();
    gic.enter(&mut first);
    gic.enter(&mut second);
    assert_eq!(Cpu(&mut first.registers).acknowledge(), Some(32));
    gic.write(DISTRIBUTOR, 0x6100, 8, 1);
    gic.pulse_spi(32).unwrap();
    resync(&gic, &mut first);
    assert!(take_all(&gic, &mut second).is_empty(), "it is active");
    Cpu(&mut first.registers).end(32);
    assert!(Cpu(&mut first.registers).wants_maintenance());
    assert!(take_all(&gic, &mut first).is_empty());
    assert_eq!(take_all(&gic, &mut second), [32]);
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
fn an_spi_is_deactivated_by_another_vcpu_than_took_it() {
    let kicked = RefCell::default();
    let gic = gic(2, 4, &kicked);
    let mut first = cpu(&gic, 0);
    gic.write(DISTRIBUTOR, 0xc08, 4, 0xaaaa_aaaa);
    // EOImode 1: the end drops the priority, and ICC_DIR_EL1 traps.
    first.registers.vmcr |= 1 << 9;
    gic.pulse_spi(32).unwrap();
    gic.enter(&mut first);
    assert_ne!(first.registers.hcr & 1 << 14, 0, "ICH_HCR_EL2.TDIR");
    assert_eq!(Cpu(&mut first.registers).acknowledge(), Some(32));
    Cpu(&mut first.registers).end(32);
    gic.pulse_spi(32).unwrap();
    resync(&gic, &mut first);
    assert_eq!(Cpu(&mut first.registers).best_priority(), None, "still active");
    gic.deactivate(1, 32);
    assert!(gic.is_stale(0));
    resync(&gic, &mut first);
    assert_eq!(Cpu(&mut first.registers).acknowledge(), Some(32));
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
fn an_interrupt_that_came_while_its_redistributor_slept_ends_a_wfi() {
    let kicked = RefCell::default();
    let gic = gic(2, 4, &kicked);
    let mut cpu = cpu(&gic, 1);
    gic.write(REDISTRIBUTORS, 0x2_0014, 4, 2);
    gic.sgi(0, SgiRegister::Sgi1, 2);
    gic.enter(&mut cpu);
    assert_eq!(cpu.used(), 0, "it is not given,");
    gic.leave(&mut cpu);
    assert!(gic.is_pending(&cpu), "and wakes");
    gic.write(REDISTRIBUTORS, 0x2_0014, 4, 0);
    gic.enter(&mut cpu);
    assert_eq!(loaded(&cpu), [0]);
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
