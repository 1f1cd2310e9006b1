//! Single cases of what arrives, and of what does not, that random guests seldom come to.

use std::cell::RefCell;

use mayfly_vapic::{APIC_BASE, Config, LocalApic, Next, Time, Vapic};

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
