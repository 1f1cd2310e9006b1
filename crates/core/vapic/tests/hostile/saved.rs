//! States of APICs: what guests have made of them is loaded, and what nobody could have made is not.

use std::cell::RefCell;
use std::rc::Rc;

use mayfly_state::{State, Writer};
use mayfly_vapic::{Config, IOAPIC_STATE, LOCAL_STATE, LocalApic, Time, UnderWay, Vapic};
use proptest::prelude::*;

use crate::state::{loaded, saved};
use crate::{Counts, Step, VCPUS, any_step, come_to_senses, config, meanwhile, set_pin, step};

const CONFIG: Config = Config { vcpus: VCPUS, x2apic: true, tsc_deadline: true, physical_bits: 40 };

const LAST: Time = Time { clock: u64::MAX, tsc: u64::MAX };

/// On which vCPU, when, and what.
type Course = [(usize, u64, Step)];

fn any_course(most: usize) -> impl Strategy<Value = Vec<(usize, u64, Step)>> {
    prop::collection::vec((0..VCPUS, any::<u64>(), any_step()), 0..most)
}

fn go_on(vapic: &Vapic<&Counts>, apics: &mut [LocalApic], course: &Course) {
    for (vcpu, clock, each) in course {
        step(vapic, &mut apics[*vcpu], Time { clock: *clock, tsc: clock.rotate_left(7) }, each);
    }
}

/// The state of APICs after what a guest has done.
fn after(counts: &Counts, course: &Course) -> Vec<u8> {
    let vapic = Vapic::try_new(CONFIG, counts).unwrap();
    let mut apics: Vec<_> = (0..VCPUS).map(|vcpu| vapic.local_apic(vcpu).unwrap()).collect();
    go_on(&vapic, &mut apics, course);
    saved(&vapic, &apics).unwrap()
}

/// What is in the sections of a state: that of the IOAPIC, and those of vCPUs.
fn contents(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut sections = State::open(bytes).unwrap().sections();
    let mut all = Vec::new();
    for number in 0..=VCPUS as u32 {
        let section = match number {
            0 => sections.take(IOAPIC_STATE, 0),
            _ => sections.take(LOCAL_STATE, number - 1),
        };
        let mut section = section.unwrap();
        let mut bytes = Vec::new();
        while let Ok(byte) = section.u8("byte") {
            bytes.push(byte);
        }
        all.push(bytes);
    }
    all
}

/// A state with that in its sections.
fn state(contents: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0; 0x1_0000];
    let mut writer = Writer::new(&mut bytes);
    for (number, contents) in (0..).zip(contents) {
        let (kind, number) =
            if number == 0 { (IOAPIC_STATE, 0) } else { (LOCAL_STATE, number - 1) };
        writer.section(kind, number, |to| to.bytes(contents));
    }
    let len = writer.finish().unwrap();
    bytes.truncate(len);
    bytes
}

/// What is said of APICs whose `section` has `value` at `at`.
fn with(section: usize, at: usize, value: &[u8]) -> Result<(), String> {
    let counts = Counts::default();
    let mut contents = contents(&after(&counts, &[]));
    contents[section][at..at + value.len()].copy_from_slice(value);
    loaded(&state(&contents), CONFIG, &counts).map(|_| ()).map_err(|error| error.to_string())
}

/// Where fields are in the section of a vCPU.
const ICR: usize = 8;
const DEADLINE: usize = 24;
const INITIAL: usize = 32;
const BASE: usize = 36;
const IRR: usize = 48;
const ISR: usize = IRR + 64;
const LVT: usize = ISR + 32;
const SVR: usize = LVT + 24;
const EVENTS: usize = SVR + 12;
const MODE: usize = EVENTS + 4;
const WAITS: usize = MODE + 4;

#[test]
fn a_pin_that_no_guest_could_have_made_is_refused_by_its_number() {
    let pin = |word: u64| with(0, 24 + 8 * 3, &word.to_le_bytes());
    assert_eq!(pin(0xff00_0001_0001_efff & !(6 << 8)), Ok(()), "all that a pin may have");
    for (word, why) in [
        (1 << 12, "being delivered"),
        (1 << 17, "with a bit that there is not"),
        (1 << 33, "under way"),
        (1 << 34, "with a number"),
        (1 << 14, "an edge in service"),
        (1 << 14 | 1 << 15 | 4 << 8, "an NMI in service"),
    ] {
        let error = pin(word).expect_err(why);
        assert_eq!(error, format!("section `ioapic` 0 has {word:#x} as IOREDTBL of 3"));
    }
}

#[test]
fn a_local_apic_that_no_guest_could_have_made_is_refused() {
    let local = |at: usize, value: &[u8]| with(2, at, value);
    for (at, value, of) in [
        (0, &[1][..], "0xfee00001 as IA32_APIC_BASE"),
        (ICR, &[0, 0x10], "0x1000 as ICR"),
        // A destination of 32 bits, in xAPIC mode.
        (ICR, &[0, 0, 0, 0, 1], "0x100000000 as ICR"),
        // Of more than it counts from, which is a division by zero in a timer that counts periodically.
        (BASE, &[1], "0x1 as count"),
        (DEADLINE, &[1], "0x10000 as timer"),
        (IRR, &[0, 0x80], "0x8000 as IRR of 0"),
        (ISR, &[0, 0, 3], "0x30000 as ISR"),
        (LVT, &[0, 1], "0x10100 as LVT of 0"),
        // Enabled in the table, and not as a whole.
        (LVT + 2, &[0], "0xff as SVR"),
        (SVR + 1, &[4], "0x4ff as SVR"),
        // A start-up that has not come, with a vector.
        (EVENTS, &[0, 1], "0x100 as events"),
        (MODE, &[3], "0x3 as mode"),
        (MODE + 2, &[16], "0x10 as DFR"),
    ] {
        assert_eq!(local(at, value), Err(format!("section `local-apic` 1 has {of}")));
    }
    let error = with(1, WAITS, &[1]).expect_err("the boot processor waits for nothing");
    assert_eq!(error, "section `local-apic` 0 has 0x1 as waits for its start-up");
    assert_eq!(local(INITIAL, &[9, 0, 0, 0, 9]), Ok(()), "a timer that counts");
    assert_eq!(local(EVENTS, &[0b1111, 0x9a]), Ok(()), "all that may come");
    assert_eq!(local(MODE, &[2]), Ok(()), "x2APIC mode");
    let counts = Counts::default();
    let bytes = contents(&after(&counts, &[]))[2].len();
    assert_eq!(bytes, WAITS + 1, "there is no field behind these");
}

#[test]
fn apics_of_another_machine_are_refused() {
    let counts = Counts::default();
    let bytes = after(&counts, &[]);
    for (config, of) in [
        (Config { vcpus: 21, ..CONFIG }, "0x14 as vCPUs"),
        (Config { physical_bits: 41, ..CONFIG }, "0x28 as bits of an address"),
        (Config { x2apic: false, ..CONFIG }, "0x1 as x2APIC mode"),
        (Config { tsc_deadline: false, ..CONFIG }, "0x1 as TSC deadline"),
    ] {
        let error = loaded(&bytes, config, &counts).map(|_| ()).expect_err(of);
        assert_eq!(error.to_string(), format!("section `ioapic` 0 has {of}"));
    }
}

#[test]
fn an_ioapic_with_an_interrupt_under_way_is_not_saved() {
    let said = Rc::new(RefCell::new(Vec::new()));
    let own = said.clone();
    let vapic = meanwhile(move |vapic, _| own.borrow_mut().push(saved(vapic, &[]).map(|_| ())));
    // Level-triggered, for all that have a logical name.
    set_pin(&vapic, 1, 0x80 << 24);
    set_pin(&vapic, 0, 0x8831);
    vapic.set_line(0, true).unwrap();
    assert_eq!(*said.borrow(), [Err(UnderWay { pin: 0 })]);
    assert_eq!(saved(&vapic, &[]).map(|_| ()), Ok(()));
}

#[test]
fn apics_with_any_bit_flipped_are_refused_or_work() {
    let counts = Counts::default();
    let mut contents = contents(&after(&counts, &[]));
    let (mut works, mut refused) = (0, 0);
    for section in 0..3 {
        for bit in 0..8 * contents[section].len() {
            contents[section][bit / 8] ^= 1 << (bit % 8);
            let bytes = state(&contents);
            contents[section][bit / 8] ^= 1 << (bit % 8);
            let Ok((vapic, mut apics)) = loaded(&bytes, CONFIG, &counts) else {
                refused += 1;
                continue;
            };
            works += 1;
            assert_eq!(saved(&vapic, &apics).unwrap(), bytes, "bit {bit} of section {section}");
            come_to_senses(&vapic, &mut apics, LAST);
        }
    }
    assert!(works > 1000 && refused > 1000, "{works} work, and {refused} are refused");
}

proptest! {
    #![proptest_config(config())]

    /// Whatever a guest has made of them; and what is loaded are APICs in which everything arrives and ends.
    #[test]
    fn what_is_loaded_is_what_was_saved(course in any_course(120), then in any_course(60)) {
        let counts = Counts::default();
        let bytes = after(&counts, &course);
        let (vapic, mut apics) = loaded(&bytes, CONFIG, &counts).unwrap();
        prop_assert_eq!(saved(&vapic, &apics).unwrap(), bytes);
        prop_assert!((0..VCPUS).all(|vcpu| vapic.is_stale(vcpu)), "each looks");
        go_on(&vapic, &mut apics, &then);
        come_to_senses(&vapic, &mut apics, LAST);
    }

    #[test]
    fn forged_apics_are_refused_or_work(
        course in any_course(40),
        forged in prop::collection::vec(
            (0..=VCPUS, any::<prop::sample::Index>(), prop_oneof![Just(1_u8), Just(0xf8), any::<u8>()]),
            1..4,
        ),
        len in prop_oneof![9 => Just(0_isize), 1 => -9..9_isize],
        then in any_course(60),
    ) {
        let counts = Counts::default();
        let mut contents = contents(&after(&counts, &course));
        for (section, at, byte) in forged {
            let at = at.index(contents[section].len());
            contents[section][at] = byte;
        }
        let last = contents.last_mut().unwrap();
        last.resize(last.len().saturating_add_signed(len), 0);
        let bytes = state(&contents);
        if let Ok((vapic, mut apics)) = loaded(&bytes, CONFIG, &counts) {
            prop_assert_eq!(saved(&vapic, &apics).unwrap(), bytes);
            go_on(&vapic, &mut apics, &then);
            come_to_senses(&vapic, &mut apics, LAST);
        }
    }
}
