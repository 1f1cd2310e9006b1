//! LPIs and the ITS: devices that send, vCPUs that enter and access registers, and the thread that serves.

use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use mayfly_vgic::{Config, CpuInterface, Frame, GuestTables, ItsConfig, Read, Served, Vgic};

use super::{Gic, World, beside, cpu, loaded};

const QUEUE: u64 = 0x1000;
const PROPERTIES: u64 = 0x2000;
const VALID: u64 = 1 << 63;

/// The guest's memory: what the commands of the queue are, and LPIs 0 and 1 are enabled.
struct Memory {
    commands: &'static [[u64; 4]],
    /// The guest has written them.
    are_there: AtomicBool,
    /// How many were read.
    read: AtomicUsize,
    /// Of the table of what is pending, the byte of LPIs 0 to 7.
    pending: AtomicUsize,
}

impl Memory {
    fn new(commands: &'static [[u64; 4]]) -> Self {
        Self {
            commands,
            are_there: AtomicBool::new(true),
            read: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
        }
    }
}

impl GuestTables for Memory {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        if into.len() == 32 {
            assert!(self.are_there.load(Ordering::Relaxed), "a command is read too early");
            self.read.fetch_add(1, Ordering::Relaxed);
            let words = self.commands[(address - QUEUE) as usize / 32];
            let bytes = words.iter().flat_map(|word| word.to_le_bytes());
            into.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        } else {
            // Those of LPIs 0 and 1.
            for (at, byte) in (address..).zip(into) {
                *byte = if at / 2 == PROPERTIES / 2 { 0xa1 } else { 0 };
            }
        }
        true
    }

    fn write(&self, _: u64, from: &[u8]) -> bool {
        self.pending.store(from[0].into(), Ordering::Relaxed);
        true
    }
}

/// Events 0 and 1 of device 0 are LPIs 0 and 1, of vCPU 0.
const MAPPED: [[u64; 4]; 4] =
    [[9, 0, VALID, 0], [8, 0, VALID, 0], [10, 8192 << 32, 0, 0], [10, 8193 << 32 | 1, 0, 0]];

fn model(work: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.max_branches = 20_000;
    builder.check(work);
}

/// A GIC whose guest has queued these commands, and has had the first `done` executed.
fn gic(world: &Arc<World>, memory: &Memory, done: u64) -> Arc<Gic> {
    let world = world.clone();
    let kick: Box<dyn Fn(usize) + Send + Sync> = Box::new(move |vcpu| {
        world.kicks[vcpu].fetch_add(1, Ordering::Relaxed);
    });
    let config = Config { vcpus: 1, spis: 1, list_registers: 2, linked: &[] };
    let its = ItsConfig { lpis: 64, device_bits: 1, event_bits: 1 };
    let gic = Vgic::try_with_its(config, its, kick).unwrap();
    gic.write(Frame::Distributor, 0, 4, 2);
    gic.write(Frame::Redistributors, 0x70, 8, PROPERTIES | 0xd);
    gic.write(Frame::Redistributors, 0x78, 8, 1 << 62);
    gic.write(Frame::Redistributors, 0, 4, 1);
    gic.write(Frame::Its, 0x80, 8, VALID | QUEUE);
    gic.write(Frame::Its, 0x100, 8, VALID);
    gic.write(Frame::Its, 0x108, 8, VALID);
    gic.write(Frame::Its, 0, 4, 1);
    gic.write(Frame::Its, 0x88, 8, 32 * done);
    assert_eq!(gic.serve_its(memory, &mut || ()), Served::Nothing);
    Arc::new(gic)
}

fn read(gic: &Gic, frame: Frame, offset: u64) -> u64 {
    match gic.read(0, frame, offset, 4) {
        Read::Value(value) => value,
        other => panic!("{offset:#x}: {other:?}"),
    }
}

fn interface(gic: &Gic) -> CpuInterface {
    let mut cpu = cpu(gic, 0);
    cpu.registers.vmcr |= 2;
    cpu
}

/// LPI 0 is sent, and its vCPU takes it.
fn take_one(gic: &Gic, cpu: &mut CpuInterface) {
    gic.send_msi(0, 0).unwrap();
    gic.enter(cpu);
    cpu.registers.lr[0] = 0;
    gic.leave(cpu);
}

#[test]
fn loom_a_vcpu_that_enters_has_the_lpis_that_were_sent_or_is_told_to_come_out() {
    model(|| {
        let world = Arc::new(World::default());
        let memory = Memory::new(&MAPPED);
        let gic = gic(&world, &memory, 4);
        let mut cpu = interface(&gic);
        // An LPI that was taken before is looked at once more, and is nothing then: unless it comes meanwhile.
        take_one(&gic, &mut cpu);
        world.kicks[0].store(0, Ordering::Relaxed);
        let device = beside(&gic, move |gic| gic.send_msi(0, 0).unwrap());
        gic.enter(&mut cpu);
        let first = loaded(&cpu);
        device.join().unwrap();
        let is_told = gic.is_stale(0) && world.kicks[0].load(Ordering::Relaxed) > 0;
        assert!(first == [8192] || is_told, "it is neither given nor told");
        gic.leave(&mut cpu);
        gic.enter(&mut cpu);
        assert_eq!(loaded(&cpu), [8192], "it is lost");
    });
}

#[test]
fn loom_an_lpi_that_was_sent_while_another_was_taken_out_is_given() {
    model(|| {
        let world = Arc::new(World::default());
        let memory = Memory::new(&MAPPED);
        let gic = gic(&world, &memory, 4);
        let mut cpu = interface(&gic);
        take_one(&gic, &mut cpu);
        let device = beside(&gic, move |gic| gic.send_msi(0, 1).unwrap());
        gic.is_pending(&cpu);
        device.join().unwrap();
        assert!(gic.is_pending(&cpu), "it is lost");
    });
}

#[test]
fn loom_no_lpi_is_pending_at_a_redistributor_that_was_turned_off() {
    model(|| {
        let world = Arc::new(World::default());
        let memory = Memory::new(&MAPPED);
        let gic = gic(&world, &memory, 4);
        let device = beside(&gic, move |gic| gic.send_msi(0, 0).unwrap());
        let vcpu = beside(&gic, move |gic| gic.write(Frame::Redistributors, 0, 4, 0));
        gic.serve_its(&memory, &mut || ());
        device.join().unwrap();
        vcpu.join().unwrap();
        if gic.has_its_work() {
            gic.serve_its(&memory, &mut || ());
        }
        assert_eq!(read(&gic, Frame::Redistributors, 0) & 9, 0, "it is off");
        assert!(!gic.is_pending(&interface(&gic)), "an LPI is pending");
    });
}

#[test]
fn loom_an_lpi_that_was_pending_is_in_the_table_though_it_is_sent_while_lpis_are_turned_off() {
    model(|| {
        let world = Arc::new(World::default());
        let memory = Memory::new(&MAPPED);
        let gic = gic(&world, &memory, 4);
        gic.send_msi(0, 0).unwrap();
        let device = beside(&gic, move |gic| gic.send_msi(0, 0).unwrap());
        gic.write(Frame::Redistributors, 0, 4, 0);
        gic.serve_its(&memory, &mut || ());
        device.join().unwrap();
        assert_eq!(memory.pending.load(Ordering::Relaxed), 1, "it is lost");
        assert!(!gic.is_pending(&interface(&gic)), "it is pending");
    });
}

#[test]
fn loom_a_command_that_is_queued_is_executed_or_noted() {
    model(|| {
        let world = Arc::new(World::default());
        let memory = Arc::new(Memory::new(&MAPPED));
        memory.are_there.store(false, Ordering::Relaxed);
        let gic = gic(&world, &memory, 0);
        let vcpu = {
            let memory = memory.clone();
            beside(&gic, move |gic| {
                memory.are_there.store(true, Ordering::Relaxed);
                gic.write(Frame::Its, 0x88, 8, 32)
            })
        };
        gic.serve_its(&*memory, &mut || ());
        vcpu.join().unwrap();
        if gic.has_its_work() {
            gic.serve_its(&*memory, &mut || ());
        }
        assert_eq!(read(&gic, Frame::Its, 0x90), 32, "it is not executed");
    });
}

#[test]
fn loom_no_command_begins_once_the_guest_has_seen_that_the_its_is_quiescent() {
    model(|| {
        let world = Arc::new(World::default());
        let memory = Arc::new(Memory::new(&MAPPED));
        let gic = gic(&world, &memory, 0);
        gic.write(Frame::Its, 0x88, 8, 32);
        let serves = {
            let memory = memory.clone();
            beside(&gic, move |gic| gic.serve_its(&*memory, &mut || ()))
        };
        gic.write(Frame::Its, 0, 4, 0);
        let is_quiescent = read(&gic, Frame::Its, 0) >> 31 != 0;
        let before = memory.read.load(Ordering::Relaxed);
        serves.join().unwrap();
        let after = memory.read.load(Ordering::Relaxed);
        assert!(!is_quiescent || before == after, "a command began");
    });
}
