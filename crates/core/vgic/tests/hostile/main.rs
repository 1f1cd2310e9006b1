//! A guest that does as it likes: any register at any time, ends and deactivations of what it never took, vCPUs that are
//! not brought out when they are told to. No interrupt is ever in two list registers, nothing goes on for ever, and when
//! the guest comes to its senses, everything that is due arrives and ends.

#[path = "../common/hardware.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod hardware;
mod saved;
#[path = "../common/state.rs"]
mod state;

use hardware::{Cpu, intid};
use mayfly_vgic::{Config, CpuInterface, Frame, Read, SgiRegister, Vgic};
use proptest::prelude::*;

const VCPUS: usize = 3;
const SPIS: usize = 40;

#[derive(Clone, Debug)]
enum Step {
    Enter(usize),
    Leave(usize),
    Acknowledge(usize),
    End(usize, u32),
    Deactivate(usize, u32),
    Interface(usize, u64),
    Write(bool, u64, u64, u64),
    Read(usize, bool, u64, u64),
    Sgi(usize, bool, u64),
    Line(usize, u32, bool),
    Pulse(u32),
    TakeLinked(usize),
    WithdrawLinked(usize),
    IsPending(usize),
    Reset,
}

fn any_intid() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..20_u32, 2 => Just(27_u32), 6 => 32..44_u32, 1 => any::<u32>()]
}

/// Registers that there are, mostly; those of a bit an interrupt most of all.
fn any_offset() -> impl Strategy<Value = u64> {
    let vcpu = prop_oneof![8 => 0..VCPUS as u64, 1 => any::<u64>()];
    let bank = prop_oneof![
        8 => (1..8_u64, 0..3_u64).prop_map(|(bank, word)| bank * 0x80 + word * 4),
        2 => (0..80_u64).prop_map(|byte| 0x400 + byte),
        1 => (0..5_u64).prop_map(|word| 0xc00 + word * 4),
        3 => (0..12_u64).prop_map(|spi| 0x6100 + spi * 8),
        1 => Just(0_u64),
        1 => Just(0x14_u64),
        1 => 0..0x1_0000_u64,
    ];
    (vcpu, any::<bool>(), bank).prop_map(|(vcpu, sgi_frame, offset)| {
        let frame = if sgi_frame { 0x1_0000 } else { 0 };
        vcpu.wrapping_mul(0x2_0000).wrapping_add(frame).wrapping_add(offset)
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let vcpu = || 0..VCPUS;
    let len = || prop_oneof![8 => Just(4_u64), 1 => Just(1), 1 => Just(8), 1 => any::<u64>()];
    let value =
        || prop_oneof![2 => Just(u64::MAX), 1 => Just(0), 2 => 0..16_u64, 2 => any::<u64>()];
    prop_oneof![
        6 => vcpu().prop_map(Step::Enter),
        4 => vcpu().prop_map(Step::Leave),
        8 => vcpu().prop_map(Step::Acknowledge),
        6 => (vcpu(), any_intid()).prop_map(|(vcpu, intid)| Step::End(vcpu, intid)),
        2 => (vcpu(), any_intid()).prop_map(|(vcpu, intid)| Step::Deactivate(vcpu, intid)),
        1 => (vcpu(), prop_oneof![3 => Just(0xff00_0003_u64), 1 => any::<u64>()])
            .prop_map(|(vcpu, vmcr)| Step::Interface(vcpu, vmcr)),
        12 => (any::<bool>(), any_offset(), len(), value())
            .prop_map(|(distributor, at, len, value)| Step::Write(distributor, at, len, value)),
        3 => (0..VCPUS + 1, any::<bool>(), any_offset(), len())
            .prop_map(|(vcpu, distributor, at, len)| Step::Read(vcpu, distributor, at, len)),
        4 => (0..VCPUS + 1, any::<bool>(), prop_oneof![(0..8_u64, 0..16_u64).prop_map(|(targets, sgi)| targets | sgi << 24), any::<u64>()])
            .prop_map(|(vcpu, group1, value)| Step::Sgi(vcpu, group1, value)),
        6 => (vcpu(), any_intid(), any::<bool>())
            .prop_map(|(vcpu, intid, high)| Step::Line(vcpu, intid, high)),
        4 => any_intid().prop_map(Step::Pulse),
        2 => vcpu().prop_map(Step::TakeLinked),
        1 => vcpu().prop_map(Step::WithdrawLinked),
        1 => vcpu().prop_map(Step::IsPending),
        1 => Just(Step::Reset),
    ]
}

type Gic = Vgic<fn(usize)>;

fn frame(distributor: bool) -> Frame {
    if distributor { Frame::Distributor } else { Frame::Redistributors }
}

fn step(gic: &Gic, cpus: &mut [CpuInterface], inside: &mut [bool; VCPUS], step: &Step) {
    match *step {
        Step::Enter(vcpu) => {
            gic.enter(&mut cpus[vcpu]);
            inside[vcpu] = true;
        }
        Step::Leave(vcpu) => {
            gic.leave(&mut cpus[vcpu]);
            inside[vcpu] = false;
        }
        Step::Acknowledge(vcpu) if inside[vcpu] => {
            Cpu(&mut cpus[vcpu].registers).acknowledge();
        }
        Step::End(vcpu, intid) if inside[vcpu] => {
            let count = cpus[vcpu].registers.hcr >> 27;
            // The hardware's count has five bits.
            if count < 31 {
                Cpu(&mut cpus[vcpu].registers).end(intid);
            }
        }
        Step::Acknowledge(_) | Step::End(..) => {}
        Step::Deactivate(vcpu, intid) => gic.deactivate(vcpu, intid),
        Step::Interface(vcpu, vmcr) => cpus[vcpu].registers.vmcr = vmcr,
        Step::Write(distributor, at, len, value) => {
            gic.write(frame(distributor), at, len, value);
        }
        Step::Read(vcpu, distributor, at, len) => {
            gic.read(vcpu, frame(distributor), at, len);
        }
        Step::Sgi(vcpu, group1, value) => {
            let register = if group1 { SgiRegister::Sgi1 } else { SgiRegister::Sgi0 };
            gic.sgi(vcpu, register, value);
        }
        // Numbers that there are not are errors, which change nothing.
        Step::Line(vcpu, intid, high) => {
            let _ = gic.set_ppi(vcpu, intid, high);
            let _ = gic.set_spi(intid, high);
        }
        Step::Pulse(intid) => {
            let _ = gic.pulse_spi(intid);
        }
        Step::TakeLinked(vcpu) => gic.take_linked(vcpu, 27).unwrap(),
        Step::WithdrawLinked(vcpu) => gic.withdraw_linked(vcpu, 27).unwrap(),
        Step::IsPending(vcpu) => {
            gic.is_pending(&cpus[vcpu]);
        }
        Step::Reset => {
            for vcpu in 0..VCPUS {
                gic.leave(&mut cpus[vcpu]);
                cpus[vcpu] = gic.cpu_interface(vcpu).unwrap();
                inside[vcpu] = false;
            }
            gic.reset();
        }
    }
}

/// No shared interrupt is in list registers of two vCPUs, and none twice in one's.
fn check(cpus: &mut [CpuInterface]) {
    let mut shared = Vec::new();
    for cpu in cpus {
        Cpu(&mut cpu.registers).check();
        for register in &cpu.registers.lr[..cpu.used()] {
            let intid = intid(*register);
            if register >> 62 != 0 && intid >= 32 {
                assert!(!shared.contains(&intid), "SPI {intid} is loaded twice");
                shared.push(intid);
            }
        }
        assert!(cpu.registers.lr[cpu.used()..].iter().all(|register| *register == 0));
    }
}

/// Lines low, nothing active, all enabled for vCPUs that take everything: until nothing is pending.
fn settle(gic: &Gic, cpus: &mut [CpuInterface]) {
    for cpu in &mut *cpus {
        gic.leave(cpu);
    }
    gic.write(Frame::Distributor, 0, 4, 3);
    for intid in 16..32 + SPIS as u32 {
        for vcpu in 0..VCPUS {
            let _ = gic.set_ppi(vcpu, intid, false);
        }
        let _ = gic.set_spi(intid, false);
    }
    let banks = (0..VCPUS as u64)
        .map(|vcpu| (Frame::Redistributors, vcpu * 0x2_0000 + 0x1_0000))
        .chain([(Frame::Distributor, 4), (Frame::Distributor, 8)]);
    for (frame, base) in banks.clone() {
        gic.write(frame, base + 0x380, 4, u64::MAX);
        gic.write(frame, base + 0x100, 4, u64::MAX);
    }
    for (vcpu, cpu) in cpus.iter_mut().enumerate() {
        gic.write(Frame::Redistributors, vcpu as u64 * 0x2_0000 + 0x14, 4, 0);
        *cpu = gic.cpu_interface(vcpu).unwrap();
        cpu.registers.vmcr = 0xff << 24 | 3;
    }
    for spi in 32..32 + SPIS as u64 {
        gic.write(Frame::Distributor, 0x400 + spi, 1, 0xa0);
        gic.write(Frame::Distributor, 0x6000 + spi * 8, 8, spi % 3);
    }
    for byte in 0..32 {
        for vcpu in 0..VCPUS as u64 {
            gic.write(Frame::Redistributors, vcpu * 0x2_0000 + 0x1_0400 + byte, 1, 0x80);
        }
    }
    for cpu in &mut *cpus {
        for round in 0.. {
            assert!(round < 200, "vCPU {} takes interrupts for ever", cpu.vcpu());
            gic.enter(cpu);
            let taken = Cpu(&mut cpu.registers).acknowledge();
            if let Some(taken) = taken {
                Cpu(&mut cpu.registers).end(taken);
            }
            gic.leave(cpu);
            if taken.is_none() {
                break;
            }
        }
        assert!(!gic.is_pending(cpu));
    }
    for (frame, base) in banks {
        for bank in [0x200, 0x300] {
            let left = gic.read(0, frame, base + bank, 4);
            assert_eq!(left, Read::Value(0), "left in {frame:?} at {:#x}", base + bank);
        }
    }
    for vcpu in 0..VCPUS as u64 {
        let ctlr = gic.read(0, Frame::Redistributors, vcpu * 0x2_0000, 4);
        assert_eq!(ctlr, Read::Value(0), "nothing is being taken back");
    }
    assert_eq!(gic.read(0, Frame::Distributor, 0, 4), Read::Value(0x53));
}

/// `PROPTEST_CASES` says how many more.
fn config() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    if asked { ProptestConfig::default() } else { ProptestConfig::with_cases(128) }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_guest_that_does_as_it_likes_harms_nothing(
        list_registers in 1..=4_usize,
        steps in prop::collection::vec(any_step(), 0..200),
    ) {
        let config = Config { vcpus: VCPUS, spis: SPIS, list_registers, linked: &[(27, 27)] };
        let nobody: fn(usize) = |_| {};
        let gic = Vgic::try_new(config, nobody).unwrap();
        let mut cpus: Vec<_> = (0..VCPUS).map(|vcpu| gic.cpu_interface(vcpu).unwrap()).collect();
        let mut inside = [false; VCPUS];
        for each in &steps {
            step(&gic, &mut cpus, &mut inside, each);
            check(&mut cpus);
            prop_assert!(cpus.iter().all(|cpu| cpu.used() <= list_registers));
        }
        settle(&gic, &mut cpus);
    }
}
