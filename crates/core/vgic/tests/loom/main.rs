//! The GIC under loom: who injects, or changes a register, against a vCPU that enters, leaves or falls asleep.

#![cfg(mayfly_loom)]

mod its;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread::{self, JoinHandle};

use mayfly_vgic::{Config, CpuInterface, Frame, Read, SgiRegister, Vgic};

const PENDING: u64 = 1 << 62;
const ACTIVE: u64 = 1 << 63;

/// What a kick does: it wakes who sleeps, and is counted.
#[derive(Default)]
struct World {
    sleeps: [AtomicBool; 2],
    woken: [AtomicBool; 2],
    kicks: [AtomicUsize; 2],
}

type Gic = Vgic<Box<dyn Fn(usize) + Send + Sync>>;

/// A GIC whose guest has turned on what the tests use: SGIs 0 and 1, PPI 16 as an edge, SPI 32 as an edge.
fn gic(vcpus: usize, world: &Arc<World>) -> Arc<Gic> {
    let world = world.clone();
    let kick: Box<dyn Fn(usize) + Send + Sync> = Box::new(move |vcpu| {
        world.kicks[vcpu].fetch_add(1, Ordering::Relaxed);
        if world.sleeps[vcpu].load(Ordering::Relaxed) {
            world.woken[vcpu].store(true, Ordering::Relaxed);
        }
    });
    let config = Config { vcpus, spis: 1, list_registers: 2, linked: &[] };
    let gic = Vgic::try_new(config, kick).unwrap();
    gic.write(Frame::Distributor, 0, 4, 1);
    gic.write(Frame::Distributor, 0xc08, 4, 2);
    gic.write(Frame::Distributor, 0x104, 4, 1);
    for vcpu in 0..vcpus as u64 {
        let base = vcpu * 0x2_0000;
        gic.write(Frame::Redistributors, base + 0x14, 4, 0);
        gic.write(Frame::Redistributors, base + 0x1_0c04, 4, 2);
        gic.write(Frame::Redistributors, base + 0x1_0100, 4, 0x1_0003);
    }
    Arc::new(gic)
}

fn cpu(gic: &Gic, vcpu: usize) -> CpuInterface {
    let mut cpu = gic.cpu_interface(vcpu).unwrap();
    cpu.registers.vmcr = 0xff << 24 | 1;
    // What setting it up has left to be looked at.
    gic.enter(&mut cpu);
    gic.leave(&mut cpu);
    cpu
}

fn loaded(cpu: &CpuInterface) -> Vec<u32> {
    cpu.registers.lr[..cpu.used()].iter().map(|register| *register as u32).collect()
}

/// A thread that works on the same GIC.
fn beside<R: 'static>(gic: &Arc<Gic>, work: impl FnOnce(&Gic) -> R + 'static) -> JoinHandle<R> {
    let gic = gic.clone();
    thread::spawn(move || work(&gic))
}

/// Threads that each send one of SGIs 0 and 1 to vCPU 0.
fn inject_both(gic: &Arc<Gic>) -> [JoinHandle<()>; 2] {
    [0, 1].map(|sgi| beside(gic, move |gic| gic.sgi(1, SgiRegister::Sgi1, sgi << 24 | 1)))
}

#[test]
fn loom_a_vcpu_that_falls_asleep_sees_what_is_pending_or_is_woken() {
    loom::model(|| {
        let world = Arc::new(World::default());
        let gic = gic(1, &world);
        let cpu = cpu(&gic, 0);
        let injectors = inject_both(&gic);
        world.sleeps[0].store(true, Ordering::Relaxed);
        let sees = gic.is_pending(&cpu);
        for injector in injectors {
            injector.join().unwrap();
        }
        assert!(sees || world.woken[0].load(Ordering::Relaxed));
        assert!(gic.is_pending(&cpu));
    });
}

#[test]
fn loom_a_vcpu_that_enters_has_what_was_injected_or_is_told_to_come_out() {
    loom::model(|| {
        let world = Arc::new(World::default());
        let gic = gic(1, &world);
        let mut cpu = cpu(&gic, 0);
        // Of these alone, not of those that set it up.
        world.kicks[0].store(0, Ordering::Relaxed);
        let injectors = inject_both(&gic);
        gic.enter(&mut cpu);
        let first = loaded(&cpu);
        for injector in injectors {
            injector.join().unwrap();
        }
        assert!(first.len() == 2 || gic.is_stale(0) && world.kicks[0].load(Ordering::Relaxed) > 0);
        gic.leave(&mut cpu);
        gic.enter(&mut cpu);
        assert_eq!(loaded(&cpu), [0, 1]);
    });
}

#[test]
fn loom_an_edge_that_meets_its_acknowledgement_comes_again() {
    loom::model(|| {
        let world = Arc::new(World::default());
        let gic = gic(1, &world);
        let mut cpu = cpu(&gic, 0);
        gic.sgi(1, SgiRegister::Sgi1, 1);
        gic.enter(&mut cpu);
        let injector = beside(&gic, move |gic| gic.sgi(1, SgiRegister::Sgi1, 1));
        cpu.registers.lr[0] ^= PENDING | ACTIVE;
        gic.leave(&mut cpu);
        gic.enter(&mut cpu);
        injector.join().unwrap();
        gic.leave(&mut cpu);
        gic.enter(&mut cpu);
        assert_eq!(cpu.registers.lr[0] & (PENDING | ACTIVE), PENDING | ACTIVE);
    });
}

#[test]
fn loom_an_interrupt_that_is_disabled_while_its_vcpu_comes_out_is_not_taken_again() {
    loom::model(|| {
        let world = Arc::new(World::default());
        let gic = gic(1, &world);
        let mut cpu = cpu(&gic, 0);
        gic.sgi(1, SgiRegister::Sgi1, 1);
        gic.enter(&mut cpu);
        let other = beside(&gic, move |gic| gic.write(Frame::Redistributors, 0x1_0180, 4, 1));
        gic.leave(&mut cpu);
        gic.enter(&mut cpu);
        other.join().unwrap();
        assert!(loaded(&cpu).is_empty() || gic.is_stale(0));
        gic.leave(&mut cpu);
        gic.enter(&mut cpu);
        assert!(loaded(&cpu).is_empty());
    });
}

#[test]
fn loom_an_interrupt_that_is_routed_away_goes_to_one_vcpu() {
    loom::model(|| {
        let world = Arc::new(World::default());
        let gic = gic(2, &world);
        let (mut first, mut second) = (cpu(&gic, 0), cpu(&gic, 1));
        gic.pulse_spi(32).unwrap();
        let router = beside(&gic, move |gic| gic.write(Frame::Distributor, 0x6100, 8, 1));
        let other = beside(&gic, move |gic| {
            gic.enter(&mut second);
            second
        });
        gic.enter(&mut first);
        router.join().unwrap();
        let mut second = other.join().unwrap();
        assert!(loaded(&first).len() + loaded(&second).len() < 2, "it is in one");
        assert!(loaded(&first).is_empty() || gic.is_stale(0), "vCPU 0 gives it up");
        gic.leave(&mut first);
        assert!(loaded(&second) == [32] || gic.is_stale(1), "vCPU 1 has it, or is told");
        gic.leave(&mut second);
        gic.enter(&mut second);
        assert_eq!(loaded(&second), [32]);
    });
}

#[test]
fn loom_a_group_that_is_turned_on_while_an_interrupt_comes_delivers_it() {
    loom::model(|| {
        let world = Arc::new(World::default());
        let gic = gic(1, &world);
        let mut cpu = cpu(&gic, 0);
        gic.write(Frame::Distributor, 0, 4, 0);
        gic.enter(&mut cpu);
        gic.leave(&mut cpu);
        let other = beside(&gic, move |gic| gic.write(Frame::Distributor, 0, 4, 1));
        let injector = beside(&gic, move |gic| gic.sgi(1, SgiRegister::Sgi1, 1));
        gic.enter(&mut cpu);
        other.join().unwrap();
        injector.join().unwrap();
        assert!(loaded(&cpu) == [0] || gic.is_stale(0));
        gic.leave(&mut cpu);
        gic.enter(&mut cpu);
        assert_eq!(loaded(&cpu), [0]);
    });
}

#[test]
fn loom_an_interrupt_of_a_group_that_is_turned_off_and_on_while_a_vcpu_enters_is_given_or_told() {
    loom::model(|| {
        let world = Arc::new(World::default());
        let gic = gic(1, &world);
        let mut cpu = cpu(&gic, 0);
        gic.sgi(1, SgiRegister::Sgi1, 1);
        let other = beside(&gic, move |gic| {
            gic.write(Frame::Distributor, 0, 4, 0);
            gic.write(Frame::Distributor, 0, 4, 1);
        });
        gic.enter(&mut cpu);
        other.join().unwrap();
        assert!(loaded(&cpu) == [0] || gic.is_stale(0), "it is neither given nor told");
        gic.leave(&mut cpu);
        gic.enter(&mut cpu);
        assert_eq!(loaded(&cpu), [0], "it is lost");
    });
}

/// `RWP` of the distributor: something that was turned off may be taken still.
fn is_under_way(gic: &Gic) -> bool {
    let Read::Value(ctlr) = gic.read(0, Frame::Distributor, 0, 4) else {
        panic!("GICD_CTLR has a value")
    };
    ctlr >> 31 != 0
}

#[test]
fn loom_what_was_disabled_is_under_way_whoever_else_disables_something_and_comes_out() {
    loom::model(|| {
        let world = Arc::new(World::default());
        let gic = gic(2, &world);
        let (mut first, mut second) = (cpu(&gic, 0), cpu(&gic, 1));
        gic.sgi(2, SgiRegister::Sgi1, 0b11);
        gic.enter(&mut first);
        gic.enter(&mut second);
        let disable = |gic: &Gic, vcpu: u64| {
            gic.write(Frame::Redistributors, vcpu * 0x2_0000 + 0x1_0180, 4, 1)
        };
        disable(&gic, 0);
        let other = beside(&gic, move |gic| disable(gic, 1));
        let leaver = beside(&gic, move |gic| gic.leave(&mut second));
        assert!(is_under_way(&gic), "vCPU 0 has not come out");
        other.join().unwrap();
        leaver.join().unwrap();
        assert!(is_under_way(&gic), "vCPU 0 has not come out");
        gic.leave(&mut first);
        assert!(!is_under_way(&gic));
    });
}

/// The guest is told so, and then reads whether the interrupt is active: that is known by then.
#[test]
fn loom_what_is_under_way_no_more_is_found_as_it_was_left() {
    loom::model(|| {
        let world = Arc::new(World::default());
        let gic = gic(2, &world);
        let mut cpu = cpu(&gic, 0);
        gic.sgi(2, SgiRegister::Sgi1, 1);
        gic.enter(&mut cpu);
        assert_eq!(loaded(&cpu), [0]);
        gic.write(Frame::Redistributors, 0x1_0180, 4, 1);
        cpu.registers.lr[0] ^= PENDING | ACTIVE;
        let leaver = beside(&gic, move |gic| gic.leave(&mut cpu));
        if !is_under_way(&gic) {
            let active = gic.read(1, Frame::Redistributors, 0x1_0300, 4);
            assert_eq!(active, Read::Value(1), "it is not found as its vCPU left it");
        }
        leaver.join().unwrap();
    });
}

#[test]
fn loom_a_group_that_is_turned_off_is_under_way_while_a_vcpu_has_an_interrupt_of_it() {
    loom::model(|| {
        let world = Arc::new(World::default());
        let gic = gic(1, &world);
        let mut cpu = cpu(&gic, 0);
        gic.sgi(1, SgiRegister::Sgi1, 1);
        let other = beside(&gic, move |gic| {
            gic.write(Frame::Distributor, 0, 4, 0);
            is_under_way(gic)
        });
        gic.enter(&mut cpu);
        let under_way = other.join().unwrap();
        // The kick's interrupt may be on its way still.
        assert!(loaded(&cpu).is_empty() || under_way, "the guest is told that it is taken no more");
        gic.leave(&mut cpu);
        gic.enter(&mut cpu);
        assert!(loaded(&cpu).is_empty());
    });
}
