//! vCPUs on threads of their own, that take interrupts, are kicked and come off their CPUs, beside devices that pulse
//! lines, SGIs, and a guest that routes, disables, and turns groups off, all at once. Nothing is lost in the end, and no
//! interrupt is taken more often than it came.

#[path = "common/hardware.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod hardware;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use hardware::Cpu;
use mayfly_vgic::{Config, Frame, SgiRegister, Vgic};

const VCPUS: usize = 3;
const SPIS: usize = 40;
const PULSES: u64 = 4_000;

/// A number that looks drawn; the same in each run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

struct World {
    kicks: [AtomicBool; VCPUS],
    injected: Vec<AtomicU64>,
    taken: Vec<AtomicU64>,
    /// How often each vCPU has come off its CPU.
    rounds: [AtomicU64; VCPUS],
    done: AtomicBool,
}

impl World {
    fn new() -> Self {
        let counts = || (0..VCPUS * 16 + SPIS).map(|_| AtomicU64::new(0)).collect();
        let kicks = [const { AtomicBool::new(false) }; VCPUS];
        let rounds = [const { AtomicU64::new(0) }; VCPUS];
        Self { kicks, injected: counts(), taken: counts(), rounds, done: AtomicBool::new(false) }
    }

    fn place(vcpu: usize, intid: u32) -> usize {
        if intid < 16 { vcpu * 16 + intid as usize } else { VCPUS * 16 + intid as usize - 32 }
    }
}

/// Says that all is over when it is dropped, also by a panic: then no vCPU goes on, and nobody waits for one.
struct Over<'a>(&'a World);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.done.store(true, Ordering::Release);
    }
}

fn boot(gic: &Vgic<impl mayfly_vgic::Kick>) {
    gic.write(Frame::Distributor, 0, 4, 3);
    for word in [0, 4, 8] {
        gic.write(Frame::Distributor, 0x100 + word, 4, 0xffff_ffff);
        gic.write(Frame::Distributor, 0xc08 + word, 4, 0xaaaa_aaaa);
    }
    for vcpu in 0..VCPUS as u64 {
        gic.write(Frame::Redistributors, vcpu * 0x2_0000 + 0x14, 4, 0);
        gic.write(Frame::Redistributors, vcpu * 0x2_0000 + 0x1_0100, 4, 0xffff);
    }
    for spi in 32..32 + SPIS as u64 {
        gic.write(Frame::Distributor, 0x400 + spi, 1, spi * 8);
    }
}

fn run_vcpu(gic: &Vgic<impl mayfly_vgic::Kick>, world: &World, vcpu: usize) {
    let _over = Over(world);
    let (mut cpu, mut draw) = (gic.cpu_interface(vcpu).unwrap(), Draw(vcpu as u64 + 1));
    cpu.registers.vmcr = 0xff << 24 | 3;
    let mut running = Vec::new();
    loop {
        // Looked at before the last round, which then sees all that was injected.
        let last = world.done.load(Ordering::Acquire);
        gic.enter(&mut cpu);
        Cpu(&mut cpu.registers).check();
        for _ in 0..draw.below(8) + if last { 200 } else { 0 } {
            if world.kicks[vcpu].swap(false, Ordering::AcqRel)
                || Cpu(&mut cpu.registers).wants_maintenance()
            {
                gic.leave(&mut cpu);
                gic.enter(&mut cpu);
            }
            if (draw.below(2) == 0 || last)
                && let Some(intid) = Cpu(&mut cpu.registers).acknowledge()
            {
                world.taken[World::place(vcpu, intid)].fetch_add(1, Ordering::AcqRel);
                running.push(intid);
            }
            if (draw.below(2) == 0 || last)
                && let Some(intid) = running.pop()
            {
                Cpu(&mut cpu.registers).end(intid);
            }
        }
        gic.leave(&mut cpu);
        world.rounds[vcpu].fetch_add(1, Ordering::AcqRel);
        if last && running.is_empty() && !gic.is_pending(&cpu) {
            return;
        }
        thread::yield_now();
    }
}

#[test]
fn nothing_is_lost_and_nothing_comes_twice_while_everybody_does_everything() {
    let world = World::new();
    let kick = |vcpu: usize| world.kicks[vcpu].store(true, Ordering::Release);
    let config = Config { vcpus: VCPUS, spis: SPIS, list_registers: 2, linked: &[] };
    let gic = Vgic::try_new(config, kick).unwrap();
    boot(&gic);

    thread::scope(|scope| {
        let over = Over(&world);
        let vcpus: Vec<_> = (0..VCPUS)
            .map(|vcpu| {
                let (gic, world) = (&gic, &world);
                scope.spawn(move || run_vcpu(gic, world, vcpu))
            })
            .collect();
        let mut others = Vec::new();
        for device in 0..2 {
            let (gic, world) = (&gic, &world);
            others.push(scope.spawn(move || {
                let mut draw = Draw(100 + device);
                for _ in 0..PULSES {
                    let spi = 32 + draw.below(SPIS as u64) as u32;
                    world.injected[World::place(0, spi)].fetch_add(1, Ordering::AcqRel);
                    gic.pulse_spi(spi).unwrap();
                    let (target, sgi) = (draw.below(VCPUS as u64) as usize, draw.below(16) as u32);
                    world.injected[World::place(target, sgi)].fetch_add(1, Ordering::AcqRel);
                    gic.sgi(VCPUS, SgiRegister::Sgi1, u64::from(sgi) << 24 | 1 << target);
                }
            }));
        }
        let guest = &gic;
        others.push(scope.spawn(move || {
            let mut draw = Draw(7);
            for _ in 0..PULSES {
                let (at, value) = (4 * (1 + draw.below(2)), draw.below(1 << 32));
                guest.write(Frame::Distributor, 0x180 + at, 4, value);
                let spi = draw.below(SPIS as u64);
                guest.write(Frame::Distributor, 0x6100 + 8 * spi, 8, draw.below(VCPUS as u64));
                guest.write(Frame::Distributor, 0x420 + spi, 1, draw.below(256));
                guest.write(Frame::Distributor, 0, 4, draw.below(4));
                let _ = guest.read(VCPUS, Frame::Distributor, 0x304, 4);
                guest.write(Frame::Distributor, 0x100 + at, 4, value);
            }
        }));
        for other in others {
            other.join().unwrap();
        }
        // What was disabled is on again, and each interrupt comes once more.
        boot(&gic);
        for spi in 32..32 + SPIS as u32 {
            world.injected[World::place(0, spi)].fetch_add(1, Ordering::AcqRel);
            gic.pulse_spi(spi).unwrap();
        }
        // Who has one loaded that is another's now gives it up, so that no vCPU is handed one after its last look.
        let seen = world.rounds.each_ref().map(|rounds| rounds.load(Ordering::Acquire));
        for (rounds, seen) in world.rounds.iter().zip(seen) {
            while rounds.load(Ordering::Acquire) < seen + 2 {
                assert!(!world.done.load(Ordering::Acquire), "a vCPU has ended");
                thread::yield_now();
            }
        }
        drop(over);
        for vcpu in vcpus {
            vcpu.join().unwrap();
        }
    });

    for (place, (injected, taken)) in world.injected.iter().zip(&world.taken).enumerate() {
        let (injected, taken) = (injected.load(Ordering::Acquire), taken.load(Ordering::Acquire));
        assert!(taken <= injected, "{place}: {taken} of {injected}");
        assert!(taken > 0 || injected == 0, "{place} was never taken of {injected}");
    }
    for (frame, offset) in [
        (Frame::Distributor, 0x204),
        (Frame::Distributor, 0x208),
        (Frame::Redistributors, 0x1_0200),
        (Frame::Redistributors, 0x3_0200),
        (Frame::Redistributors, 0x5_0200),
    ] {
        let pending = gic.read(0, frame, offset, 4);
        assert_eq!(pending, mayfly_vgic::Read::Value(0), "nothing waits at {offset:#x}");
        let active = gic.read(0, frame, offset + 0x100, 4);
        assert_eq!(active, mayfly_vgic::Read::Value(0), "nothing runs at {offset:#x}");
    }
}
