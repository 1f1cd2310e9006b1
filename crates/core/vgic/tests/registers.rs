//! The register map of the manual (Arm IHI 0069, 12.9 and 12.11): every offset of both frames, read and written by every
//! size of access.

use mayfly_vgic::{Config, DISTRIBUTOR_SIZE, Frame, REDISTRIBUTOR_SIZE, Read, Vgic, Write};
use proptest::prelude::*;

const VCPUS: usize = 3;
/// Not a multiple of 32: the last 24 that the guest is told of are not there.
const SPIS: usize = 40;

type Gic = Vgic<fn(usize)>;

fn gic() -> Gic {
    let config = Config { vcpus: VCPUS, spis: SPIS, list_registers: 4, linked: &[(27, 27)] };
    let nobody_runs: fn(usize) = |_| {};
    Vgic::try_new(config, nobody_runs).unwrap()
}

/// What a register is, at an offset that it begins at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Register {
    /// It reads so after reset, and of what is written these bits stay; 0 where that is told of elsewhere.
    Word { reset: u64, kept: u64 },
    /// The same, with 64 bits, which may be read and written by halves.
    Double { reset: u64, kept: u64 },
    /// A byte an interrupt.
    Bytes { kept: u64 },
}

use Register::{Bytes, Double, Word};

const ZERO: Option<Register> = Some(Word { reset: 0, kept: 0 });

const fn fixed(reset: u64) -> Register {
    Word { reset, kept: 0 }
}

/// A `GICv3`, designed by Arm, part 0x492 or 0x493, a `PrimeCell`.
fn identification(offset: u64, part: u64) -> Option<Register> {
    Some(fixed(match offset {
        0xffd0 => 0x44,
        0xffe0 => part,
        0xffe4 => 0xb4,
        0xffe8 => 0x3b,
        0xfff0 => 0x0d,
        0xfff4 => 0xf0,
        0xfff8 => 0x05,
        0xfffc => 0xb1,
        0xffd4..0x1_0000 => 0,
        _ => return None,
    }))
}

fn ones(count: u64) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// Of `fields` of a register, each of `bits`, those whose interrupt is one of `there`.
fn kept(first: u64, fields: u64, bits: u64, field: u64, there: std::ops::Range<u64>) -> u64 {
    (0..fields)
        .filter(|place| there.contains(&(first + place)))
        .fold(0, |all, place| all | field << (place * bits))
}

/// The register of a bank at `offset`, of which the interrupts in `there` exist.
fn bank(offset: u64, there: std::ops::Range<u64>) -> Option<Register> {
    let bits = kept((offset & 0x7f) * 8, 32, 1, 1, there.clone());
    Some(match offset {
        // Groups, and what enables; what is pending and active is cleared by other registers and has its own tests.
        0x080..0x180 => Word { reset: 0, kept: bits },
        0x180..0x400 => Word { reset: 0, kept: 0 },
        0x400..0x800 => Bytes { kept: kept(offset - 0x400, 4, 8, 0xf8, there) },
        0xc00..0xd00 => {
            let first = (offset - 0xc00) * 4;
            let reset = if first == 0 && there.start == 0 { 0xaaaa_aaaa } else { 0 };
            let programmable = there.start.max(16)..there.end;
            Word { reset, kept: kept(first, 16, 2, 2, programmable) }
        }
        _ => return None,
    })
}

fn distributor(offset: u64) -> Option<Register> {
    let spis = 32..32 + SPIS as u64;
    match offset {
        0x0000 => Some(Word { reset: 0x50, kept: 0x3 }),
        0x0004 => Some(fixed(0x0248_0002)),
        0x0008 => Some(fixed(0x4d00_043b)),
        0x000c | 0x0010 => ZERO,
        0x6100..0x7fe0 if offset.is_multiple_of(8) => {
            let intid = 32 + (offset - 0x6100) / 8;
            let kept = if spis.contains(&intid) { 0xff_ffff } else { 0 };
            Some(Double { reset: 0, kept })
        }
        0x6100..0x7fe0 => None,
        _ => bank(offset, spis).or_else(|| identification(offset, 0x92)),
    }
}

/// Of the redistributor of vCPU `vcpu`.
fn redistributor(vcpu: u64, offset: u64) -> Option<Register> {
    let last = u64::from(vcpu + 1 == VCPUS as u64) << 4;
    match offset {
        0x0000 | 0x0010 => ZERO,
        0x0004 => Some(fixed(0x4d00_043b)),
        0x0008 => Some(Double { reset: vcpu << 32 | vcpu << 8 | last, kept: 0 }),
        0x0014 => Some(Word { reset: 0, kept: 0 }),
        0x1_0000.. => {
            let offset = offset - 0x1_0000;
            let first = match offset {
                0x080..0x400 => (offset & 0x7f) * 8,
                0x400..0x800 => offset - 0x400,
                0xc00..0xd00 => (offset - 0xc00) * 4,
                _ => return None,
            };
            (first < 32).then(|| bank(offset, 0..32)).flatten()
        }
        _ => identification(offset, 0x93),
    }
}

/// What an access of `len` bytes at `offset` reads after reset, and keeps, if it reaches a register.
fn access(at: impl Fn(u64) -> Option<Register>, offset: u64, len: u64) -> Option<(u64, u64)> {
    if !offset.is_multiple_of(len) {
        return None;
    }
    let word = offset & !3;
    match (at(word), at(offset & !7), len) {
        (Some(Bytes { kept }), _, 4) => Some((0, kept)),
        (Some(Bytes { kept }), _, 1) => Some((0, kept >> (8 * (offset & 3)) & 0xff)),
        (Some(Word { reset, kept }), _, 4) | (_, Some(Double { reset, kept }), 8) => {
            Some((reset, kept))
        }
        (_, Some(Double { reset, kept }), 4) => {
            let half = 8 * (offset & 4);
            Some((reset >> half & ones(32), kept >> half & ones(32)))
        }
        _ => None,
    }
}

fn check(frame: Frame, base: u64, size: u64, at: impl Fn(u64) -> Option<Register>) {
    let gic = gic();
    let mut registers = 0;
    for offset in 0..size {
        for len in [1, 2, 4, 8] {
            let (place, read) = (base + offset, gic.read(0, frame, base + offset, len));
            let Some((reset, kept)) = access(&at, offset, len) else {
                assert_eq!(read, Read::Reserved, "{len} bytes at {place:#x}");
                let write = gic.write(frame, place, len, 0);
                assert_eq!(write, Write::Reserved, "{len} bytes at {place:#x}");
                continue;
            };
            registers += 1;
            assert_eq!(read, Read::Value(reset), "{len} bytes at {place:#x}");
            if kept != 0 {
                // Of these a zero changes nothing, and the register behind them clears.
                let sets = (0x100..0x180).contains(&(offset & 0xffff));
                for value in [u64::MAX, 0x5555_5555_5555_5555, 0] {
                    assert_eq!(gic.write(frame, place, len, value), Write::Done);
                    let read = gic.read(0, frame, place, len);
                    let expected = Read::Value(reset & !kept | value & kept);
                    assert_eq!(read, expected, "{len} bytes at {place:#x}, {value:#x}");
                    if sets {
                        gic.write(frame, place + 0x80, len, u64::MAX);
                        assert_eq!(gic.read(0, frame, place, len), Read::Value(0), "{place:#x}");
                    }
                }
            }
        }
    }
    assert!(registers > 60, "the map has registers");
}

#[test]
fn the_distributor_is_as_in_the_manual_at_every_offset_and_size() {
    check(Frame::Distributor, 0, DISTRIBUTOR_SIZE, distributor);
}

#[test]
fn each_redistributor_is_as_in_the_manual_at_every_offset_and_size() {
    for vcpu in 0..VCPUS as u64 {
        let base = vcpu * REDISTRIBUTOR_SIZE;
        check(Frame::Redistributors, base, REDISTRIBUTOR_SIZE, |offset| {
            redistributor(vcpu, offset)
        });
    }
}

#[test]
fn behind_the_frames_there_is_nothing() {
    let gic = gic();
    let end = VCPUS as u64 * REDISTRIBUTOR_SIZE;
    for (frame, end) in [(Frame::Distributor, DISTRIBUTOR_SIZE), (Frame::Redistributors, end)] {
        for offset in [end, end + 8, end + 0x1_0100, 1 << 40, u64::MAX - 7] {
            assert_eq!(gic.read(0, frame, offset, 4), Read::Reserved, "{offset:#x}");
            assert_eq!(gic.write(frame, offset, 4, u64::MAX), Write::Reserved, "{offset:#x}");
        }
    }
}

#[test]
fn a_linux_finds_a_gicv3_with_the_spis_and_the_redistributors_that_there_are() {
    let gic = gic();
    let Read::Value(typer) = gic.read(0, Frame::Distributor, 4, 4) else { panic!("a register") };
    assert_eq!(((typer & 0x1f) + 1) * 32, 96, "SPIs 32 to 71, rounded up");
    assert_eq!(typer >> 17 & 1, 0, "no LPIs");
    assert_eq!(gic.read(0, Frame::Distributor, 0xffe8, 4), Read::Value(0x3b), "ArchRev 3");
    for vcpu in 0..VCPUS as u64 {
        let typer = gic.read(0, Frame::Redistributors, vcpu * REDISTRIBUTOR_SIZE + 8, 8);
        let last = if vcpu == 2 { 0x10 } else { 0 };
        assert_eq!(typer, Read::Value(vcpu << 32 | vcpu << 8 | last));
    }
}

proptest! {
    #[test]
    fn any_access_of_any_vcpu_has_an_answer(
        accesses in prop::collection::vec(
            (
                any::<usize>(),
                any::<bool>(),
                prop_oneof![4 => 0..0x7_0000_u64, 1 => any::<u64>()],
                prop_oneof![4 => prop::sample::select(vec![1_u64, 2, 4, 8]), 1 => any::<u64>()],
                any::<u64>(),
            ),
            0..100
        )
    ) {
        let gic = gic();
        let mut cpus: Vec<_> = (0..VCPUS).map(|vcpu| gic.cpu_interface(vcpu).unwrap()).collect();
        for (vcpu, distributor, offset, len, value) in accesses {
            let frame = if distributor { Frame::Distributor } else { Frame::Redistributors };
            let write = gic.write(frame, offset, len, value);
            if gic.read(vcpu, frame, offset, len) == Read::Reserved && write == Write::Done {
                prop_assert!(false, "{len} bytes at {offset:#x} are written and not read");
            }
            gic.deactivate(vcpu, value as u32);
            let cpu = &mut cpus[vcpu % VCPUS];
            if value & 1 == 0 {
                gic.enter(cpu);
                prop_assert!(cpu.used() <= 4);
            } else {
                gic.leave(cpu);
            }
        }
    }
}
