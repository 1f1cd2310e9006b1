//! Interrupts of several vCPUs: SGIs, routes, ends elsewhere, and sleep.

use std::cell::RefCell;

use mayfly_vgic::{Config, Read, SgiRegister, Vgic};

use crate::guest::{DISTRIBUTOR, REDISTRIBUTORS, cpu, gic, loaded, resync, take_all};
use crate::hardware::Cpu;

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

/// A kernel that a hypervisor starts finds its redistributors awake, as KVM has them: some never write `GICR_WAKER`.
#[test]
fn a_guest_that_never_writes_waker_is_given_its_interrupts_at_its_start_and_after_a_reset() {
    let config = Config { vcpus: 2, spis: 32, list_registers: 4, linked: &[] };
    let gic = Vgic::try_new(config, |_| ()).unwrap();
    for _ in 0..2 {
        for vcpu in 0..2 {
            let base = vcpu as u64 * 0x2_0000;
            assert_eq!(gic.read(vcpu, REDISTRIBUTORS, base + 0x14, 4), Read::Value(0));
            gic.write(DISTRIBUTOR, 0, 4, 2);
            gic.write(REDISTRIBUTORS, base + 0x1_0080, 4, 0xffff_ffff);
            gic.write(REDISTRIBUTORS, base + 0x1_0100, 4, 1);
            gic.sgi(0, SgiRegister::Sgi1, 1 << vcpu);
            let mut cpu = gic.cpu_interface(vcpu).unwrap();
            cpu.registers.vmcr = 0xff << 24 | 2;
            gic.enter(&mut cpu);
            assert_eq!(loaded(&cpu), [0], "vCPU {vcpu}");
            gic.leave(&mut cpu);
            gic.write(REDISTRIBUTORS, base + 0x14, 4, 2);
        }
        gic.reset();
    }
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
