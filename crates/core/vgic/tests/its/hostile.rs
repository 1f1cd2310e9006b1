//! A guest that does as it likes with its ITS: registers of any value and size at any time, commands that are random and
//! change while they are read, tables and queues anywhere, and vCPUs that are not brought out when they are told to. Nothing
//! panics or goes on for ever, each register write does little, no interrupt is in two list registers; and when the guest
//! comes to its senses, it is given its LPIs.

use std::cell::Cell;

use mayfly_vgic::{Frame, GuestTables, ItsConfig, PART, Served};
use proptest::prelude::*;

use crate::guest::{Gic, Guest, gic, interfaces};
use crate::hardware::Cpu;

const VCPUS: usize = 3;
const CONFIG: ItsConfig = ItsConfig { lpis: 64, device_bits: 2, event_bits: 3 };

/// Memory that is another at each look.
struct Changing {
    seed: Cell<u64>,
}

impl Changing {
    fn next(&self) -> u64 {
        // A linear congruence: any numbers will do.
        let next = self
            .seed
            .get()
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.seed.set(next);
        next >> 16
    }
}

impl GuestTables for Changing {
    fn read(&self, _: u64, into: &mut [u8]) -> bool {
        for byte in &mut *into {
            *byte = self.next() as u8;
        }
        if let Ok(command) = <&mut [u8; 32]>::try_from(&mut *into) {
            // Commands, mostly, of numbers that there are.
            let random = self.next();
            let words = [
                random & 0xf | (random >> 4 & 7) << 32,
                random >> 8 & 0xf | (8190 + (random >> 16 & 0x4f)) << 32,
                random >> 24 & 3 | (random >> 28 & 3) << 16 | random << 40 & 1 << 63,
                (random >> 32 & 3) << 16,
            ];
            for (chunk, word) in command.chunks_exact_mut(8).zip(words) {
                if random & 0xf00 != 0 {
                    chunk.copy_from_slice(&word.to_le_bytes());
                }
            }
        }
        !self.next().is_multiple_of(16)
    }

    fn write(&self, _: u64, _: &[u8]) -> bool {
        self.next().is_multiple_of(2)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Enter(usize),
    Leave(usize),
    Acknowledge(usize),
    Write(Frame, u64, u64, u64),
    Read(Frame, u64, u64),
    Serve,
    Message(u32, u32),
    IsPending(usize),
    Reset,
}

fn any_step() -> impl Strategy<Value = Step> {
    let vcpu = || 0..VCPUS;
    let len = || prop_oneof![4 => Just(4_u64), 4 => Just(8), 1 => any::<u64>()];
    let value = || {
        prop_oneof![
            3 => Just(1_u64), 1 => Just(0), 3 => (0..128_u64).prop_map(|command| command * 32),
            2 => (0..4_u64).prop_map(|pages| 1 << 63 | pages), 1 => Just(u64::MAX), 2 => any::<u64>(),
        ]
    };
    let place = || {
        prop_oneof![
            8 => prop::sample::select(vec![0_u64, 0x80, 0x84, 0x88, 0x88, 0x88, 0x8c, 0x90, 0x100, 0x108, 0x10c, 0x138, 0x1_0040])
                .prop_map(|at| (Frame::Its, at)),
            1 => (0..0x3_0000_u64).prop_map(|at| (Frame::Its, at)),
            6 => (0..=VCPUS as u64, prop::sample::select(vec![0_u64, 0, 0x14, 0x70, 0x74, 0x78, 0x7c]))
                .prop_map(|(vcpu, at)| (Frame::Redistributors, vcpu * 0x2_0000 + at)),
            1 => Just((Frame::Distributor, 0)),
        ]
    };
    prop_oneof![
        4 => vcpu().prop_map(Step::Enter),
        3 => vcpu().prop_map(Step::Leave),
        4 => vcpu().prop_map(Step::Acknowledge),
        12 => (place(), len(), value())
            .prop_map(|((frame, at), len, value)| Step::Write(frame, at, len, value)),
        2 => (place(), len()).prop_map(|((frame, at), len)| Step::Read(frame, at, len)),
        12 => Just(Step::Serve),
        4 => (0..5_u32, 0..9_u32).prop_map(|(device, event)| Step::Message(device, event)),
        1 => vcpu().prop_map(Step::IsPending),
        1 => Just(Step::Reset),
    ]
}

/// A pause in which others use the GIC.
fn meddle(gic: &Gic, random: u64) {
    match random % 8 {
        0 => drop(gic.send_msi(random as u32 >> 8 & 3, random as u32 >> 12 & 7)),
        1 => drop(gic.write(Frame::Its, 0, 4, random >> 8 & 1)),
        2 => drop(gic.write(Frame::Its, 0x80, 8, random << 32 | random >> 16 & 3)),
        3 => drop(gic.write(Frame::Its, 0x88, 8, random & 0xfe0)),
        4 => drop(gic.write(Frame::Redistributors, (random >> 8 & 1) << 17, 4, random >> 9 & 1)),
        5 => assert_eq!(
            gic.serve_its(&Changing { seed: Cell::new(random) }, &mut || {}),
            Served::More
        ),
        _ => {}
    }
}

fn run(seed: u64, steps: &[Step]) {
    let memory = Changing { seed: Cell::new(seed) };
    let gic = gic(VCPUS, CONFIG, 2);
    let mut cpus = interfaces(&gic);
    let mut inside = [false; VCPUS];
    for step in steps {
        match *step {
            Step::Enter(vcpu) => {
                gic.enter(&mut cpus[vcpu]);
                inside[vcpu] = true;
                Cpu(&mut cpus[vcpu].registers).check();
            }
            Step::Leave(vcpu) => {
                gic.leave(&mut cpus[vcpu]);
                inside[vcpu] = false;
            }
            Step::Acknowledge(vcpu) if inside[vcpu] => {
                let mut cpu = Cpu(&mut cpus[vcpu].registers);
                if let Some(intid) = cpu.acknowledge() {
                    cpu.end(intid);
                }
            }
            Step::Acknowledge(_) => {}
            Step::Write(frame, at, len, value) => {
                let mut pauses = 0;
                gic.write_with_pauses(frame, at, len, value, &mut || pauses += 1);
                assert!(frame == Frame::Distributor || pauses <= 1, "{pauses} for {step:?}");
            }
            Step::Read(frame, at, len) => drop(gic.read(0, frame, at, len)),
            Step::Serve => {
                let mut pauses = 0;
                let served = gic.serve_its(&memory, &mut || {
                    pauses += 1;
                    meddle(&gic, memory.next());
                });
                // Of each redistributor, two tables of properties and what is pending twice; then commands.
                let most = VCPUS * (2 * CONFIG.lpis / PART + 3 * CONFIG.lpis)
                    + PART * (CONFIG.lpis / PART + 2);
                assert!(pauses <= most, "{pauses} of {most}");
                assert!(served == Served::Nothing || gic.has_its_work());
            }
            Step::Message(device, event) => drop(gic.send_msi(device, event)),
            Step::IsPending(vcpu) => drop(gic.is_pending(&cpus[vcpu])),
            Step::Reset => {
                for (cpu, inside) in cpus.iter_mut().zip(&mut inside) {
                    gic.leave(cpu);
                    *inside = false;
                }
                gic.reset();
                cpus = interfaces(&gic);
            }
        }
    }
    for cpu in &mut cpus {
        gic.leave(cpu);
    }
    let mut guest = Guest::on(gic, cpus, CONFIG, 2);
    comes_to_its_senses(&mut guest);
}

/// Turns everything off, and on again with other tables; then each vCPU takes an LPI.
fn comes_to_its_senses(guest: &mut Guest) {
    for vcpu in 0..VCPUS {
        guest.write(Frame::Redistributors, vcpu as u64 * 0x2_0000, 4, 0);
        guest.write(Frame::Redistributors, vcpu as u64 * 0x2_0000 + 0x14, 4, 0);
    }
    guest.write(Frame::Its, 0, 4, 0);
    while guest.serve() != Served::Nothing {}
    (0..VCPUS).for_each(|lpi| guest.properties(lpi, 0xa1));
    guest.begin();
    for vcpu in 0..VCPUS {
        guest.pending_table(vcpu, 0, true);
        guest.turn(vcpu, true);
        guest.command([9, 0, 1 << 63 | (vcpu as u64) << 16 | vcpu as u64, 0]);
    }
    guest.command([8, 2, 1 << 63, 0]);
    for vcpu in 0..VCPUS as u64 {
        guest.command([10, vcpu | (8192 + vcpu) << 32, vcpu, 0]);
        guest.command([3, vcpu, 0, 0]);
    }
    for vcpu in 0..VCPUS {
        assert!(guest.is_pending(vcpu));
        guest.enter(vcpu);
        assert_eq!(guest.take(vcpu), Some(8192 + vcpu as u32));
        guest.leave(vcpu);
        assert!(!guest.is_pending(vcpu));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if std::env::var_os("PROPTEST_CASES").is_some() { ProptestConfig::default().cases } else { 64 },
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_guest_that_does_as_it_likes_is_given_its_lpis_when_it_comes_to_its_senses(
        seed in any::<u64>(),
        steps in prop::collection::vec(any_step(), 0..if cfg!(miri) { 32 } else { 200 }),
    ) {
        run(seed, &steps);
    }
}

/// The longest queue of the commands with the most work: some of it is done at a time.
#[test]
fn a_queue_that_is_full_is_done_in_parts() {
    let gic = gic(VCPUS, CONFIG, 2);
    let memory = Changing { seed: Cell::new(7) };
    gic.write(Frame::Its, 0x100, 8, 1 << 63);
    gic.write(Frame::Its, 0x108, 8, 1 << 63);
    gic.write(Frame::Its, 0x80, 8, 1 << 63 | 0xff);
    gic.write(Frame::Its, 0, 4, 1);
    gic.write(Frame::Its, 0x88, 8, 0xf_ffe0);
    let mut calls = 0;
    while gic.serve_its(&memory, &mut || {}) != Served::Nothing {
        calls += 1;
    }
    assert_eq!(calls, 0x8000 / PART - 1);
}
