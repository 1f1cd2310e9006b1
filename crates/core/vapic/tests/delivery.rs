//! Single cases of what arrives, and of what does not, that random guests seldom come to.

use std::cell::RefCell;

use mayfly_vapic::{APIC_BASE, Config, Event, LocalApic, Look, Next, Time, Vapic};

const NOW: Time = Time { clock: 0, tsc: 0 };
const CONFIG: Config = Config { vcpus: 2, x2apic: true, tsc_deadline: true, physical_bits: 40 };

const EOI: u64 = 0xb0;
const SVR: u64 = 0xf0;
const ESR: u64 = 0x280;
const ICR: u64 = 0x300;
const LVT_ERROR: u64 = 0x370;
const TO_SELF: u64 = 1 << 18;

type Apics<'a> = Vapic<Box<dyn Fn(usize) + 'a>>;

/// The boot processor's APIC, enabled.
fn enabled(kicked: &RefCell<Vec<usize>>) -> (Apics<'_>, LocalApic) {
    let kick: Box<dyn Fn(usize)> = Box::new(|vcpu| kicked.borrow_mut().push(vcpu));
    let vapic = Vapic::try_new(CONFIG, kick).unwrap();
    let mut apic = vapic.local_apic(0).unwrap();
    vapic.write(&mut apic, SVR, 4, 0x1ff, NOW);
    (vapic, apic)
}

#[test]
fn what_a_vcpu_sends_to_itself_is_there_and_kicks_nobody() {
    let kicked = RefCell::new(Vec::new());
    let (vapic, mut apic) = enabled(&kicked);
    vapic.write(&mut apic, ICR, 4, TO_SELF | 0x41, NOW);
    assert_eq!(vapic.next(&apic), Next::Deliver(0x41));
    assert!(!vapic.is_stale(0) && kicked.borrow().is_empty());
    // To all: the other is kicked, though its APIC is disabled, by an NMI alone.
    vapic.write(&mut apic, ICR, 4, 2 << 18 | 0x42, NOW);
    assert!(!vapic.is_stale(1) && kicked.borrow().is_empty());
    vapic.write(&mut apic, ICR, 4, 2 << 18 | 4 << 8, NOW);
    assert!(vapic.is_stale(1) && !vapic.is_stale(0));
    assert_eq!(*kicked.borrow(), [1]);
}

#[test]
fn an_apic_that_was_off_has_forgotten_what_arrived() {
    let kicked = RefCell::new(Vec::new());
    let (vapic, mut apic) = enabled(&kicked);
    vapic.write_ioapic(0, 4, 0x10);
    vapic.write_ioapic(0x10, 4, 0x8041);
    vapic.set_line(0, true).unwrap();
    assert_eq!(
        (vapic.read(&mut apic, 0x220, 4, NOW), vapic.read(&mut apic, 0x1a0, 4, NOW)),
        (2, 2)
    );
    for base in [0xfee0_0000, 0xfee0_0800] {
        vapic.write_msr(&mut apic, APIC_BASE, base, NOW).unwrap();
    }
    assert_eq!(
        (vapic.read(&mut apic, 0x220, 4, NOW), vapic.read(&mut apic, 0x1a0, 4, NOW)),
        (0, 0)
    );
    assert_eq!(vapic.next(&apic), Next::Nothing);
}

/// The entry of pin 0.
fn set_pin(vapic: &Apics<'_>, to: u64, low: u64) {
    for (register, value) in [(0x11, to << 24), (0x10, low)] {
        vapic.write_ioapic(0, 4, register);
        vapic.write_ioapic(0x10, 4, value);
    }
}

fn in_service(vapic: &Apics<'_>) -> bool {
    vapic.write_ioapic(0, 4, 0x10);
    vapic.read_ioapic(0x10, 4) >> 14 & 1 != 0
}

#[test]
fn a_vcpu_that_ends_an_interrupt_whose_line_is_high_is_not_kicked() {
    let kicked = RefCell::new(Vec::new());
    let (vapic, mut apic) = enabled(&kicked);
    set_pin(&vapic, 0, 0x8031);
    vapic.set_line(0, true).unwrap();
    assert_eq!(kicked.take(), [0], "by the device");
    vapic.look(&mut apic, NOW);
    assert_eq!(vapic.accept(&mut apic), Some(0x31));
    vapic.write(&mut apic, EOI, 4, 0, NOW);
    assert_eq!(vapic.next(&apic), Next::Deliver(0x31));
    assert!(kicked.take().is_empty() && !vapic.is_stale(0));
    // Who writes the IOAPIC is not known to it.
    vapic.write_ioapic(0x40, 4, 0x31);
    assert_eq!(kicked.take(), [0]);
}

#[test]
fn a_level_that_nobody_took_comes_when_an_apic_takes_it_or_when_it_is_asserted_again() {
    let kicked = RefCell::new(Vec::new());
    let (vapic, mut apic) = enabled(&kicked);
    let takes = |apic: &mut LocalApic, how: &str| {
        assert_eq!(vapic.accept(apic), Some(0x31), "{how}");
        assert!(in_service(&vapic));
        vapic.set_line(0, false).unwrap();
        vapic.write(apic, EOI, 4, 0, NOW);
        assert_eq!(vapic.accept(apic), None, "{how}: once");
        assert!(!in_service(&vapic));
    };
    let is_refused = |apic: &LocalApic| {
        vapic.set_line(0, true).unwrap();
        assert_eq!(vapic.next(apic), Next::Nothing);
        assert!(!in_service(&vapic));
    };
    set_pin(&vapic, 0, 0x8031);
    vapic.write(&mut apic, SVR, 4, 0xff, NOW);
    is_refused(&apic);
    vapic.write(&mut apic, SVR, 4, 0x1ff, NOW);
    takes(&mut apic, "enabled by SVR");
    // To logical IDs: one of the flat model, and one of a cluster.
    set_pin(&vapic, 0x12, 0x8831);
    is_refused(&apic);
    vapic.write(&mut apic, 0xd0, 4, 0x1a << 24, NOW);
    takes(&mut apic, "named by LDR");
    vapic.write(&mut apic, 0xe0, 4, 0x7fff_ffff, NOW);
    is_refused(&apic);
    vapic.write(&mut apic, 0xe0, 4, 0x0fff_ffff, NOW);
    takes(&mut apic, "named by DFR");
    // In x2APIC mode it is the member 0 of cluster 0.
    set_pin(&vapic, 0x01, 0x8831);
    is_refused(&apic);
    vapic.write_msr(&mut apic, APIC_BASE, 0xfee0_0c00, NOW).unwrap();
    assert_eq!(vapic.accept(&mut apic), Some(0x31), "named in x2APIC mode");
    vapic.set_line(0, false).unwrap();
    vapic.write_msr(&mut apic, 0x80b, 0, NOW).unwrap();
    for base in [0xfee0_0000, 0xfee0_0800] {
        vapic.write_msr(&mut apic, APIC_BASE, base, NOW).unwrap();
        is_refused(&apic);
    }
    vapic.write(&mut apic, 0xd0, 4, 1 << 24, NOW);
    assert_eq!(vapic.next(&apic), Next::Nothing, "disabled by SVR");
    vapic.write(&mut apic, SVR, 4, 0x1ff, NOW);
    takes(&mut apic, "enabled after it was off");
    vapic.set_line(0, true).unwrap();
    vapic.set_line(0, true).unwrap();
    takes(&mut apic, "asserted twice");
    // One that nobody can take is refused as often as it is asserted.
    set_pin(&vapic, 0, 0x8005);
    for _ in 0..2 {
        is_refused(&apic);
        vapic.look(&mut apic, NOW);
        vapic.write(&mut apic, ESR, 4, 0, NOW);
        assert_eq!(vapic.read(&mut apic, ESR, 4, NOW), 0x40);
    }
}

#[test]
fn a_level_of_a_former_life_comes_again_in_the_next() {
    for (how, accepted) in [("INIT", false), ("INIT", true), ("off", false), ("off", true)] {
        let kicked = RefCell::new(Vec::new());
        let (vapic, mut apic) = enabled(&kicked);
        let mut second = vapic.local_apic(1).unwrap();
        set_pin(&vapic, 0, 0x8031);
        vapic.set_line(0, true).unwrap();
        if accepted {
            assert_eq!(vapic.accept(&mut apic), Some(0x31));
        }
        if how == "INIT" {
            vapic.write(&mut second, ICR, 4, 5 << 8, NOW);
            let look = vapic.look(&mut apic, NOW);
            assert_eq!(look, Look { event: Some(Event::Init), next: Next::Nothing });
        } else {
            for base in [0xfee0_0000, 0xfee0_0800] {
                vapic.write_msr(&mut apic, APIC_BASE, base, NOW).unwrap();
            }
        }
        assert!(!in_service(&vapic), "{how}: nobody ends it");
        assert_eq!(vapic.next(&apic), Next::Nothing);
        vapic.write(&mut apic, SVR, 4, 0x1ff, NOW);
        assert_eq!(vapic.accept(&mut apic), Some(0x31), "{how}, accepted: {accepted}");
    }
}

/// Cluster 1, member 0, of x2APIC mode has the bit of an LDR in xAPIC mode among its own.
#[test]
fn a_cluster_of_x2apic_mode_names_nobody_in_xapic_mode() {
    let kicked = RefCell::new(Vec::new());
    let (vapic, mut apic) = enabled(&kicked);
    let mut second = vapic.local_apic(1).unwrap();
    vapic.write(&mut apic, 0xd0, 4, 1 << 24, NOW);
    vapic.write_msr(&mut second, APIC_BASE, 0xfee0_0c00, NOW).unwrap();
    let mut send = |to: u64| vapic.write_msr(&mut second, 0x830, to << 32 | 0x831, NOW).unwrap();
    send(0x0001_0001);
    assert_eq!(vapic.next(&apic), Next::Nothing);
    send(0x0000_0001);
    assert_eq!(vapic.next(&apic), Next::Deliver(0x31));
}

#[test]
fn a_reset_forgets_all_but_the_lines() {
    let kicked = RefCell::new(Vec::new());
    let (vapic, mut apic) = enabled(&kicked);
    let mut second = vapic.local_apic(1).unwrap();
    vapic.write(&mut apic, 0x80, 4, 0x70, NOW);
    vapic.write(&mut apic, ICR, 4, TO_SELF | 0x41, NOW);
    set_pin(&vapic, 0, 0x8031);
    vapic.set_line(0, true).unwrap();
    for event in [4 << 8, 5 << 8, 6 << 8 | 0x12] {
        vapic.write(&mut apic, ICR, 4, 3 << 18 | event, NOW);
        vapic.write(&mut second, ICR, 4, event, NOW);
    }
    assert!(vapic.is_stale(0) && vapic.is_stale(1) && in_service(&vapic));
    vapic.reset();
    assert!(!vapic.is_stale(0) && !vapic.is_stale(1));
    let (mut apic, mut second) = (vapic.local_apic(0).unwrap(), vapic.local_apic(1).unwrap());
    for apic in [&mut apic, &mut second] {
        assert_eq!(vapic.look(apic, NOW), Look { event: None, next: Next::Nothing });
        assert_eq!((vapic.read(apic, 0x80, 4, NOW), apic.cr8()), (0, 0));
        let set = (0x100..0x280).step_by(16).find(|at| vapic.read(apic, *at, 4, NOW) != 0);
        assert_eq!(set, None, "ISR, TMR or IRR");
    }
    assert!(second.waits_for_startup() && !apic.waits_for_startup());
    vapic.write_ioapic(0, 4, 0x10);
    assert_eq!(vapic.read_ioapic(0x10, 4), 0x1_0000);
    // The line is high still: it comes as soon as its pin is set up anew.
    vapic.write(&mut apic, SVR, 4, 0x1ff, NOW);
    set_pin(&vapic, 0, 0x8051);
    assert_eq!(vapic.look(&mut apic, NOW).next, Next::Deliver(0x51));
}

/// An embedder's mistake, which harms nothing: it is taken for vCPU 0's.
#[test]
fn a_local_apic_of_a_larger_vm_harms_nothing() {
    let kicked = RefCell::new(Vec::new());
    let (vapic, apic) = enabled(&kicked);
    let nobody: fn(usize) = |_| {};
    let larger = Vapic::try_new(Config { vcpus: 9, ..CONFIG }, nobody).unwrap();
    let mut ninth = larger.local_apic(8).unwrap();
    vapic.look(&mut ninth, NOW);
    for at in (0..0x1000).step_by(16) {
        vapic.read(&mut ninth, at, 4, NOW);
        vapic.write(&mut ninth, at, 4, 0x1ff, NOW);
    }
    vapic.write(&mut ninth, ICR, 4, TO_SELF | 0x41, NOW);
    vapic.accept(&mut ninth);
    for base in [0xfee0_0000, 0xfee0_0800, 0xfee0_0c00] {
        vapic.write_msr(&mut ninth, APIC_BASE, base, NOW).unwrap();
    }
    vapic.look(&mut ninth, NOW);
    assert!(kicked.borrow().iter().all(|vcpu| *vcpu < 2), "{kicked:?}");
    assert_eq!((ninth.vcpu(), apic.vcpu()), (8, 0));
}

/// SDM volume 3, 11.5.3: a write of ESR shows what has come since the last, and arms its interrupt again.
#[test]
fn errors_are_shown_by_a_write_and_the_first_after_it_is_an_interrupt() {
    let kicked = RefCell::new(Vec::new());
    let (vapic, mut apic) = enabled(&kicked);
    vapic.write(&mut apic, LVT_ERROR, 4, 0x51, NOW);
    let wrong = |apic: &mut LocalApic| vapic.write(apic, ICR, 4, TO_SELF | 5, NOW);
    let takes = |apic: &mut LocalApic| {
        let taken = vapic.accept(apic);
        vapic.write(apic, EOI, 4, 0, NOW);
        taken
    };
    let shown = |apic: &mut LocalApic| {
        vapic.write(apic, ESR, 4, 0, NOW);
        vapic.read(apic, ESR, 4, NOW)
    };
    wrong(&mut apic);
    assert_eq!(vapic.read(&mut apic, ESR, 4, NOW), 0, "not before a write");
    assert_eq!(takes(&mut apic), Some(0x51));
    wrong(&mut apic);
    assert_eq!(takes(&mut apic), None, "the second before a write");
    assert_eq!(shown(&mut apic), 0x20, "an illegal vector was sent");
    wrong(&mut apic);
    assert_eq!(takes(&mut apic), Some(0x51), "the first after it");
    assert_eq!(shown(&mut apic), 0x20);
    assert_eq!(shown(&mut apic), 0, "nothing since");
    vapic.read(&mut apic, 0x2f0, 4, NOW);
    assert_eq!(takes(&mut apic), Some(0x51));
    assert_eq!(shown(&mut apic), 0x80, "an illegal register");
    // One that arrives is an error of the one at which it does, when that looks.
    vapic.write_ioapic(0, 4, 0x10);
    vapic.write_ioapic(0x10, 4, 0x0005);
    vapic.set_line(0, true).unwrap();
    assert_eq!(vapic.look(&mut apic, NOW).next, Next::Deliver(0x51));
    assert_eq!(shown(&mut apic), 0x40, "an illegal vector was received");
    // An entry for errors that is illegal itself makes no more of them.
    vapic.write(&mut apic, LVT_ERROR, 4, 0x01, NOW);
    assert_eq!(takes(&mut apic), Some(0x51), "of the one that was received");
    wrong(&mut apic);
    assert_eq!(takes(&mut apic), None);
    assert_eq!(shown(&mut apic), 0x60);
}
