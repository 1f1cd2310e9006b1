//! The register map, by hand from the manuals: which registers there are in which mode, which are read and written, and how
//! wide.

use mayfly_vapic::{
    APIC_BASE, Config, Error, GeneralProtection, LocalApic, MAX_VCPUS, Mode, NoSuchPin, REGISTERS,
    TSC_DEADLINE, Time, Vapic,
};

const NOW: Time = Time { clock: 0, tsc: 0 };
const CONFIG: Config = Config { vcpus: 3, x2apic: true, tsc_deadline: true, physical_bits: 40 };
const ILLEGAL_REGISTER: u32 = 0x80;

type Apics = Vapic<fn(usize)>;

fn with(config: Config) -> (Apics, LocalApic) {
    let nobody: fn(usize) = |_| {};
    let vapic = Vapic::try_new(config, nobody).unwrap();
    let apic = vapic.local_apic(2).unwrap();
    (vapic, apic)
}

fn x2apic(config: Config) -> (Apics, LocalApic) {
    let (vapic, mut apic) = with(config);
    vapic.write_msr(&mut apic, APIC_BASE, 0xfee0_0c00, NOW).unwrap();
    (vapic, apic)
}

/// Number, whether it is read and written in memory, whether by MSRs, and what may be written there.
const MAP: [(u32, &str, &str, u64); 25] = [
    (0x02, "r", "r", 0),
    (0x03, "r", "r", 0),
    (0x08, "rw", "rw", 0xff),
    (0x0a, "r", "r", 0),
    (0x0b, "w", "w", 0),
    (0x0d, "rw", "r", 0),
    (0x0e, "rw", "", 0),
    (0x0f, "rw", "rw", 0x3ff),
    (0x10, "r", "r", 0),
    (0x17, "r", "r", 0),
    (0x18, "r", "r", 0),
    (0x1f, "r", "r", 0),
    (0x20, "r", "r", 0),
    (0x27, "r", "r", 0),
    (0x28, "rw", "rw", 0),
    (0x30, "rw", "rw", 0xffff_ffff_000c_dfff),
    (0x31, "rw", "", 0),
    (0x32, "rw", "rw", 0x7_10ff),
    (0x33, "rw", "rw", 0x1_17ff),
    (0x34, "rw", "rw", 0x1_17ff),
    (0x35, "rw", "rw", 0x1_f7ff),
    (0x37, "rw", "rw", 0x1_10ff),
    (0x38, "rw", "rw", 0xffff_ffff),
    (0x39, "r", "r", 0),
    (0x3e, "rw", "rw", 0xb),
];

#[test]
fn each_msr_is_read_and_written_as_the_manual_says_and_each_reserved_bit_is_a_fault() {
    for msr in 0x7f0..0x910_u32 {
        let number = msr.checked_sub(0x800).unwrap_or(u32::MAX);
        let (_, _, rights, bits) = match number {
            0x11..0x17 => MAP[8],
            0x19..0x1f => MAP[10],
            0x21..0x27 => MAP[12],
            0x36 => MAP[20],
            0x3f => (0x3f, "", "w", 0xff),
            _ => *MAP.iter().find(|line| line.0 == number).unwrap_or(&(0, "", "", 0)),
        };
        let (vapic, mut apic) = x2apic(CONFIG);
        let read = vapic.read_msr(&mut apic, msr, NOW);
        assert_eq!(read.is_ok(), rights.contains('r'), "{msr:#x}");
        assert!(read.is_ok() || read == Err(GeneralProtection));
        let write = vapic.write_msr(&mut apic, msr, 0, NOW);
        assert_eq!(write.is_ok(), rights.contains('w'), "{msr:#x}");
        for bit in 0..64 {
            let write = vapic.write_msr(&mut apic, msr, 1 << bit, NOW);
            assert_eq!(write.is_ok(), bits >> bit & 1 != 0, "bit {bit} of {msr:#x}");
        }
    }
}

#[test]
fn each_offset_of_the_page_is_read_and_written_by_whole_registers_alone() {
    for offset in 0..0x1010 {
        let number = offset as u32 / 16;
        let rights = match number {
            0x11..0x17 | 0x19..0x1f | 0x21..0x27 => "r",
            0x36 => "rw",
            _ => MAP.iter().find(|line| line.0 == number).map_or("", |line| line.1),
        };
        for len in [0, 1, 2, 3, 4, 5, 8, 16, u64::MAX] {
            let (vapic, mut apic) = with(CONFIG);
            // Enabled, so that the masks of the local vector table can be cleared.
            vapic.write(&mut apic, 0xf0, 4, 0x1ff, NOW);
            let whole = vapic.read(&mut apic, offset / 16 * 16, 4, NOW);
            let within = matches!(len, 1 | 2 | 4) && offset % 16 + len <= 4;
            let expected = if within && rights.contains('r') {
                let bytes = whole.to_le_bytes();
                let part = &bytes[(offset % 16) as usize..(offset % 16 + len) as usize];
                part.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
            } else {
                0
            };
            assert_eq!(vapic.read(&mut apic, offset, len, NOW), expected, "{len} at {offset:#x}");
            if offset < 0x1000 {
                vapic.write(&mut apic, 0x280, 4, 0, NOW);
                let error = if rights.is_empty() { ILLEGAL_REGISTER } else { 0 };
                assert_eq!(vapic.read(&mut apic, 0x280, 4, NOW), error, "{offset:#x}");
            }

            // What a register is written with is seen in it, for all that are read and written but two.
            let seen = rights == "rw" && !matches!(number, 0x28);
            let before = vapic.read(&mut apic, offset / 16 * 16, 4, NOW);
            let value = if number == 0x0f { 0x155 } else { !u64::from(before) };
            vapic.write(&mut apic, offset, len, value, NOW);
            let after = vapic.read(&mut apic, offset / 16 * 16, 4, NOW);
            let changes = seen && len == 4 && offset % 16 == 0;
            assert_eq!(after != before, changes, "{len} at {offset:#x}: {before:#x} {after:#x}");
        }
    }
}

#[test]
fn without_the_mode_of_a_deadline_there_is_no_bit_and_no_msr_for_it() {
    for tsc_deadline in [false, true] {
        let (vapic, mut apic) = x2apic(Config { tsc_deadline, ..CONFIG });
        assert_eq!(vapic.write_msr(&mut apic, 0x832, 1 << 18, NOW).is_ok(), tsc_deadline);
        assert_eq!(vapic.write_msr(&mut apic, TSC_DEADLINE, 1, NOW).is_ok(), tsc_deadline);
        assert_eq!(vapic.read_msr(&mut apic, TSC_DEADLINE, NOW).is_ok(), tsc_deadline);
    }
}

/// Every transition: SDM volume 3, 11.12.5; and every reserved bit.
#[test]
fn the_modes_change_as_the_manual_draws_it() {
    let modes = [(0x000, Mode::Disabled), (0x800, Mode::Xapic), (0xc00, Mode::X2apic)];
    let way_to = |mode: Mode| match mode {
        Mode::Disabled => vec![0xfee0_0000],
        Mode::Xapic => vec![],
        Mode::X2apic => vec![0xfee0_0c00],
    };
    for has_x2apic in [true, false] {
        for (bits, from) in modes {
            if from == Mode::X2apic && !has_x2apic {
                continue;
            }
            let at_from = || {
                let (vapic, mut apic) = with(Config { x2apic: has_x2apic, ..CONFIG });
                for value in way_to(from) {
                    vapic.write_msr(&mut apic, APIC_BASE, value, NOW).unwrap();
                }
                assert_eq!(apic.mode(), from);
                (vapic, apic)
            };
            for to in [0, 0x400, 0x800, 0xc00] {
                let legal = match (from, to) {
                    (_, 0) | (Mode::Disabled | Mode::Xapic, 0x800) => true,
                    (Mode::Xapic | Mode::X2apic, 0xc00) => has_x2apic,
                    _ => false,
                };
                let (vapic, mut apic) = at_from();
                let wrote = vapic.write_msr(&mut apic, APIC_BASE, 0x12_3456_7000 | to, NOW);
                assert_eq!(wrote.is_ok(), legal, "{from:?} to {to:#x}");
                let now = if legal { 0x12_3456_7000 | to } else { 0xfee0_0000 | bits };
                assert_eq!(vapic.read_msr(&mut apic, APIC_BASE, NOW), Ok(now));
                let page = (now & 0xc00 == 0x800).then_some(now & !0xfff);
                assert_eq!(apic.page(), page);
                assert_eq!(vapic.read(&mut apic, 0x20, 4, NOW) != 0, page.is_some());
                let msrs = vapic.read_msr(&mut apic, 0x802, NOW);
                assert_eq!(msrs.is_ok(), now & 0xc00 == 0xc00);
            }
            for bit in (0..64).filter(|bit| !(10..40).contains(bit)) {
                let (vapic, mut apic) = at_from();
                let wrote =
                    vapic.write_msr(&mut apic, APIC_BASE, 0xfee0_0000 | bits | 1 << bit, NOW);
                assert_eq!(wrote.is_ok(), bit == 8, "bit {bit}");
                let base = vapic.read_msr(&mut apic, APIC_BASE, NOW);
                assert_eq!(base, Ok(0xfee0_0000 | bits), "vCPU 2 is no boot processor");
            }
        }
    }
    let (vapic, _) = with(CONFIG);
    let mut first = vapic.local_apic(0).unwrap();
    assert_eq!(vapic.read_msr(&mut first, APIC_BASE, NOW), Ok(0xfee0_0900));
}

#[test]
fn the_page_of_registers_is_anywhere_in_the_guests_physical_addresses_and_nowhere_else() {
    for physical_bits in [32, 36, 40, 52] {
        let (vapic, mut apic) = with(Config { physical_bits, ..CONFIG });
        for bit in 12..64 {
            let base = 1 << bit | 0x800;
            let wrote = vapic.write_msr(&mut apic, APIC_BASE, base, NOW);
            assert_eq!(wrote.is_ok(), bit < physical_bits, "bit {bit} of {physical_bits}");
            if wrote.is_ok() {
                assert_eq!(apic.page(), Some(1 << bit));
                assert_eq!(vapic.read_msr(&mut apic, APIC_BASE, NOW), Ok(base));
            }
        }
    }
}

#[test]
fn what_was_written_is_lost_while_the_apic_is_off_and_kept_into_x2apic_mode() {
    let (vapic, mut apic) = with(CONFIG);
    for (offset, value) in [(0xf0, 0x1ff), (0x80, 0x21), (0x350, 0x700), (0xd0, 0xff00_0000)] {
        vapic.write(&mut apic, offset, 4, value, NOW);
    }
    vapic.write_msr(&mut apic, APIC_BASE, 0xfee0_0c00, NOW).unwrap();
    for (msr, value) in [(0x80f, 0x1ff), (0x808, 0x21), (0x835, 0x700), (0x80d, 1 << 2)] {
        assert_eq!(vapic.read_msr(&mut apic, msr, NOW), Ok(value), "{msr:#x}");
    }
    vapic.write_msr(&mut apic, APIC_BASE, 0xfee0_0000, NOW).unwrap();
    vapic.write_msr(&mut apic, APIC_BASE, 0xfee0_0800, NOW).unwrap();
    for (offset, value) in [(0xf0, 0xff), (0x80, 0), (0x350, 0x1_0000), (0xd0, 0)] {
        assert_eq!(vapic.read(&mut apic, offset, 4, NOW), value, "{offset:#x}");
    }
}

#[test]
fn the_ioapic_is_written_by_whole_registers_and_read_by_parts() {
    let (vapic, _) = with(CONFIG);
    let select = |register| vapic.write_ioapic(0, 1, register);
    for (register, value) in [(0, 0x0f00_0000), (1, 0x17_0020), (2, 0x0f00_0000), (3, 0), (0xff, 0)]
    {
        select(register);
        vapic.write_ioapic(0x10, 4, u64::MAX);
        select(if register == 1 { 0 } else { register });
        select(register);
        assert_eq!(vapic.read_ioapic(0x10, 4), if register == 2 { 0x0f00_0000 } else { value });
        assert_eq!(u64::from(vapic.read_ioapic(0, 4)), register);
    }
    for pin in 0..24 {
        select(0x11 + 2 * pin);
        vapic.write_ioapic(0x10, 4, u64::MAX);
        assert_eq!(vapic.read_ioapic(0x10, 4), 0xff00_0000);
        select(0x10 + 2 * pin);
        assert_eq!(vapic.read_ioapic(0x10, 4), 0x1_0000);
        vapic.write_ioapic(0x10, 4, u64::MAX);
        assert_eq!(vapic.read_ioapic(0x10, 4), 0x1_afff);
        assert_eq!([0, 1, 2, 3].map(|byte| vapic.read_ioapic(0x10 + byte, 1)), [0xff, 0xaf, 1, 0]);
        assert_eq!(vapic.read_ioapic(0x11, 2), 0x1af);
        for (offset, len) in [(0x10, 1), (0x10, 2), (0x10, 8), (0x11, 4), (0x14, 4), (0x20, 4)] {
            vapic.write_ioapic(offset, len, 0);
            assert_eq!(vapic.read_ioapic(0x10, 4), 0x1_afff, "{len} at {offset:#x}");
        }
    }
    for offset in (0..0x1010).chain([u64::MAX]) {
        for len in [0, 1, 2, 3, 4, 8, u64::MAX] {
            let first = offset & 0xf;
            let there = offset < 0x20 && matches!(len, 1 | 2 | 4) && first + len <= 4;
            let read = vapic.read_ioapic(offset, len);
            assert!(there || read == 0, "{len} at {offset:#x}");
        }
    }
}

#[test]
fn what_cannot_be_made_is_refused_and_says_what_could() {
    let nobody: fn(usize) = |_| {};
    let made = |vcpus, physical_bits| {
        Vapic::try_new(Config { vcpus, physical_bits, ..CONFIG }, nobody).map(|vapic| vapic.vcpus())
    };
    assert_eq!(made(MAX_VCPUS, 52), Ok(255));
    for vcpus in [0, 256, usize::MAX] {
        assert_eq!(made(vcpus, 40), Err(Error::Vcpus(vcpus)));
    }
    for bits in [0, 31, 53, u32::MAX] {
        assert_eq!(made(1, bits), Err(Error::PhysicalBits(bits)));
    }
    assert_eq!(Error::Vcpus(0).to_string(), "0 vCPUs cannot be named by interrupts: 1 to 255 can");
    let (vapic, _) = with(CONFIG);
    assert!(vapic.local_apic(3).is_none());
    assert_eq!(vapic.set_line(24, true), Err(NoSuchPin(24)));
    assert_eq!(NoSuchPin(24).to_string(), "the IOAPIC has no pin 24: it has 0 to 23");
    assert_eq!(REGISTERS, 0x800..0x900);
}
