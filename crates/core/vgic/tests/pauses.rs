//! What concerns all vCPUs is done in parts, between which the caller may look for interrupts.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use mayfly_vgic::{Config, Frame, ItsConfig, MAX_VCPUS, PART, Read, SgiRegister, Vgic, Write};

const SPIS: usize = 64;
const TO_ALL: u64 = 1 << 40;
const CTLR: u64 = 0;

/// How often vCPUs are kicked between two pauses, at most, and how many pauses there are.
fn parts(work: impl FnOnce(&Vgic<&dyn Fn(usize)>, &mut dyn FnMut())) -> (usize, usize) {
    let kicks = AtomicUsize::new(0);
    let kick: &dyn Fn(usize) = &|_| {
        kicks.fetch_add(1, Ordering::Relaxed);
    };
    let config = Config { vcpus: MAX_VCPUS, spis: SPIS, list_registers: 4, linked: &[] };
    let gic = Vgic::try_new(config, kick).unwrap();
    gic.write(Frame::Distributor, CTLR, 4, 2);
    // All have seen what there is.
    for vcpu in 0..MAX_VCPUS {
        let mut cpu = gic.cpu_interface(vcpu).unwrap();
        gic.enter(&mut cpu);
        gic.leave(&mut cpu);
        for register in [0x1_0080, 0x1_0100] {
            let offset = 0x2_0000 * vcpu as u64 + register;
            assert_eq!(gic.write(Frame::Redistributors, offset, 4, 0xffff), Write::Done);
        }
    }
    kicks.store(0, Ordering::Relaxed);
    let (most, pauses) = (Cell::new(0), Cell::new(0));
    let end_part = || most.set(most.get().max(kicks.swap(0, Ordering::Relaxed)));
    work(&gic, &mut || {
        end_part();
        pauses.set(pauses.get() + 1);
        // The GIC may be used meanwhile.
        assert!(matches!(gic.read(0, Frame::Distributor, CTLR, 4), Read::Value(_)));
        gic.set_spi(32, pauses.get() % 2 == 0).unwrap();
    });
    end_part();
    (most.get(), pauses.get())
}

#[test]
fn a_gic_is_made_for_a_few_vcpus_at_a_time() {
    let pauses = |vcpus: usize| {
        let config = Config { vcpus, spis: SPIS, list_registers: 4, linked: &[] };
        let mut pauses = 0;
        Vgic::try_with_pauses(config, None, |_: usize| (), &mut || pauses += 1).unwrap();
        pauses
    };
    assert_eq!([1, PART - 1, 64, MAX_VCPUS].map(pauses), [0, 0, 64 / PART, MAX_VCPUS / PART]);
}

#[test]
fn a_gic_is_copied_a_few_vcpus_and_some_words_at_a_time() {
    let pauses = |vcpus: usize, its: Option<ItsConfig>| {
        let config = Config { vcpus, spis: SPIS - 1, list_registers: 4, linked: &[] };
        let kick = |_: usize| ();
        let gic = Vgic::try_with_pauses(config, its, kick, &mut || ()).unwrap();
        let mut pauses = 0;
        gic.try_copy(kick, &mut || pauses += 1).unwrap();
        pauses
    };
    let its = ItsConfig { lpis: 128, device_bits: 4, event_bits: 8 };
    assert_eq!(
        [1, 64, MAX_VCPUS].map(|vcpus| pauses(vcpus, None)),
        [0, 64 / PART, MAX_VCPUS / PART]
    );
    assert_eq!(pauses(1, Some(its)), 128 / 64 + (1 << 12) / 64);
}

#[test]
fn an_sgi_to_all_kicks_a_few_vcpus_at_a_time() {
    let (most, pauses) =
        parts(|gic, pause| gic.sgi_with_pauses(3, SgiRegister::Sgi1, TO_ALL | 5 << 24, pause));
    assert_eq!(most, PART);
    assert_eq!(pauses, MAX_VCPUS / PART);
}

#[test]
fn an_sgi_to_a_list_kicks_a_few_vcpus_at_a_time() {
    let (most, pauses) =
        parts(|gic, pause| gic.sgi_with_pauses(3, SgiRegister::Sgi1, 5 << 24 | 0xffff, pause));
    assert_eq!((most, pauses), (PART, 1));
}

/// Each interrupt of a register may be for another vCPU.
#[test]
fn a_register_of_32_interrupts_kicks_a_few_vcpus_at_a_time() {
    let (most, pauses) = parts(|gic, pause| {
        for (offset, value) in [(0x84, u32::MAX), (0x104, u32::MAX)] {
            gic.write(Frame::Distributor, offset, 4, value.into());
        }
        for trigger in [0xc08, 0xc0c] {
            gic.write(Frame::Distributor, trigger, 4, 0xaaaa_aaaa);
        }
        for spi in 0..32 {
            let affinity = mayfly_vgic::affinity(spi as usize);
            gic.write(Frame::Distributor, 0x6100 + 8 * spi, 8, affinity);
        }
        let wrote = gic.write_with_pauses(Frame::Distributor, 0x204, 4, 0xffff_ffff, pause);
        assert_eq!(wrote, Write::Done);
    });
    assert_eq!((most, pauses), (PART, 3));
}

#[test]
fn groups_are_turned_off_for_a_few_vcpus_at_a_time() {
    let (most, pauses) = parts(|gic, pause| {
        for groups in [0, 2] {
            let wrote = gic.write_with_pauses(Frame::Distributor, CTLR, 4, groups, pause);
            assert_eq!(wrote, Write::Done);
        }
    });
    assert_eq!(most, PART);
    assert_eq!(pauses, 3 * MAX_VCPUS / PART + SPIS / PART);
}
