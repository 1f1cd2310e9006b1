//! A guest that does as it likes: any access of any width, anywhere, at any time, on any vCPU. Nothing panics, each access
//! does bounded work, and when the guest comes to its senses, interrupts arrive and end.

mod saved;
#[path = "../common/state.rs"]
mod state;

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicUsize, Ordering};

use mayfly_vapic::{
    APIC_BASE, Config, Event, Kick, LocalApic, MAX_VCPUS, Next, PART, PINS, TSC_DEADLINE, Time,
    Vapic,
};
use proptest::prelude::*;

const VCPUS: usize = 20;

/// Counts kicks since the last pause, the most of these, and pauses.
#[derive(Default)]
struct Counts {
    kicks: AtomicUsize,
    most: AtomicUsize,
    pauses: AtomicUsize,
}

impl Kick for &Counts {
    fn kick(&self, vcpu: usize) {
        assert!(vcpu < MAX_VCPUS);
        let kicks = self.kicks.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(kicks, Ordering::Relaxed);
    }

    fn pause(&self) {
        self.kicks.store(0, Ordering::Relaxed);
        self.pauses.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, u64, u64),
    Read(u64, u64),
    WriteMsr(u32, u64),
    ReadMsr(u32),
    WriteIoapic(u64, u64, u64),
    ReadIoapic(u64, u64),
    Entry(u64, u64),
    Line(usize, bool),
    Cr8(u8),
    Look,
    Accept,
}

fn any_msr() -> impl Strategy<Value = u32> {
    prop_oneof![
        10 => 0x800..0x840_u32,
        3 => Just(0x830_u32),
        2 => Just(APIC_BASE),
        1 => Just(TSC_DEADLINE),
        1 => any::<u32>(),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let offset = || prop_oneof![8 => (0..0x40_u64).prop_map(|register| register * 16), 1 => 0..0x1000_u64, 1 => any::<u64>()];
    let len = || prop_oneof![8 => Just(4_u64), 1 => 0..9_u64, 1 => any::<u64>()];
    let value = || {
        prop_oneof![
            2 => any::<u64>(),
            1 => prop::sample::select(vec![0, u64::MAX, 0x1ff, 0xfee0_0800, 0xfee0_0c00, 0xfee0_0000]),
            2 => (0..256_u64, 0..8_u64, 0..4_u64, any::<u32>()).prop_map(|(vector, mode, shorthand, to)| {
                vector | mode << 8 | shorthand << 18 | u64::from(to) << 32
            }),
        ]
    };
    let window = prop_oneof![4 => Just(0x10_u64), 1 => Just(0), 1 => Just(0x40), 1 => any::<u64>()];
    prop_oneof![
        8 => (offset(), len(), value()).prop_map(|(at, len, value)| Step::Write(at, len, value)),
        2 => (offset(), len()).prop_map(|(at, len)| Step::Read(at, len)),
        8 => (any_msr(), value()).prop_map(|(msr, value)| Step::WriteMsr(msr, value)),
        2 => any_msr().prop_map(Step::ReadMsr),
        3 => (window, len(), value()).prop_map(|(at, len, value)| Step::WriteIoapic(at, len, value)),
        2 => (0..0x50_u64, len()).prop_map(|(at, len)| Step::ReadIoapic(at, len)),
        4 => (0..0x40_u64, value()).prop_map(|(register, value)| Step::Entry(register, value)),
        4 => (0..PINS + 2, any::<bool>()).prop_map(|(pin, high)| Step::Line(pin, high)),
        1 => any::<u8>().prop_map(Step::Cr8),
        4 => Just(Step::Look),
        4 => Just(Step::Accept),
    ]
}

fn step(vapic: &Vapic<&Counts>, apic: &mut LocalApic, now: Time, step: &Step) {
    match *step {
        Step::Write(at, len, value) => vapic.write(apic, at, len, value, now),
        Step::Read(at, len) => {
            vapic.read(apic, at, len, now);
        }
        // A general-protection fault is an answer.
        Step::WriteMsr(msr, value) => {
            let _ = vapic.write_msr(apic, msr, value, now);
        }
        Step::ReadMsr(msr) => {
            let _ = vapic.read_msr(apic, msr, now);
        }
        Step::WriteIoapic(at, len, value) => vapic.write_ioapic(at, len, value),
        Step::ReadIoapic(at, len) => {
            vapic.read_ioapic(at, len);
        }
        Step::Entry(register, value) => {
            vapic.write_ioapic(0, 4, register);
            vapic.write_ioapic(0x10, 4, value);
        }
        Step::Line(pin, high) => assert_eq!(vapic.set_line(pin, high).is_err(), pin >= PINS),
        Step::Cr8(cr8) => vapic.set_cr8(apic, cr8),
        Step::Look => {
            vapic.look(apic, now);
        }
        Step::Accept => {
            let next = vapic.next(apic);
            let accepted = vapic.accept(apic);
            assert_eq!(accepted.map(Next::Deliver), Some(next).filter(|_| accepted.is_some()));
            assert!(accepted.is_none_or(|vector| vector >= 16), "{accepted:?} is no interrupt");
        }
    }
}

/// All vCPUs off and on again, started and enabled; all pins masked. Then everything arrives that is sent, and ends.
fn come_to_senses(vapic: &Vapic<&Counts>, apics: &mut [LocalApic], now: Time) {
    for pin in 0..PINS {
        vapic.set_line(pin, false).unwrap();
        for (register, value) in [(0x10, 1 << 16), (0x11, 0)] {
            vapic.write_ioapic(0, 4, register + 2 * pin as u64);
            vapic.write_ioapic(0x10, 4, value);
        }
    }
    for apic in &mut *apics {
        for base in [0xfee0_0000, 0xfee0_0800] {
            vapic.write_msr(apic, APIC_BASE, base, now).unwrap();
        }
    }
    for vcpu in 0..VCPUS {
        // Not what was sent to it before, all of which it takes first.
        while vapic.look(&mut apics[vcpu], now).event.is_some() {}
        let others = &mut apics[(vcpu + 1) % VCPUS];
        for icr in [0x4500, 0x4600] {
            vapic.write(others, 0x310, 4, (vcpu as u64) << 24, now);
            vapic.write(others, 0x300, 4, icr, now);
        }
        let own = &mut apics[vcpu];
        while vapic.look(own, now).event.is_some() {}
        assert!(!own.waits_for_startup(), "vCPU {vcpu} has not started");
        vapic.write(own, 0xf0, 4, 0x1ff, now);
        assert_eq!(vapic.next(own), Next::Nothing);
    }
    for (vcpu, own) in apics.iter_mut().enumerate() {
        for (register, value) in [(0x11, (vcpu as u64) << 24), (0x10, 0x8055)] {
            vapic.write_ioapic(0, 4, register);
            vapic.write_ioapic(0x10, 4, value);
        }
        for ends in 0..3 {
            vapic.set_line(0, ends < 2).unwrap();
            assert_eq!(vapic.accept(own), (ends < 2).then_some(0x55));
            vapic.write(own, 0xb0, 4, 0, now);
            // It is high still when the first two end, and low when the one has ended that came of the second.
            if ends == 1 {
                vapic.set_line(0, false).unwrap();
                assert_eq!(vapic.accept(own), Some(0x55));
                vapic.write(own, 0xb0, 4, 0, now);
            }
        }
        assert!(!vapic.is_stale(vcpu) || vapic.look(own, now).next == Next::Nothing);
    }
}

fn config() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    if asked { ProptestConfig::default() } else { ProptestConfig::with_cases(128) }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_guest_that_does_as_it_likes_harms_nothing(
        x2apic: bool, tsc_deadline: bool,
        steps in prop::collection::vec((0..VCPUS, any::<u64>(), any_step()), 0..200),
    ) {
        let counts = Counts::default();
        let config = Config { vcpus: VCPUS, x2apic, tsc_deadline, physical_bits: 40 };
        let vapic = Vapic::try_new(config, &counts).unwrap();
        let mut apics: Vec<_> = (0..VCPUS).map(|vcpu| vapic.local_apic(vcpu).unwrap()).collect();
        for (vcpu, clock, each) in &steps {
            counts.kicks.store(0, Ordering::Relaxed);
            counts.pauses.store(0, Ordering::Relaxed);
            // Time that goes back is an embedder's fault, and harms nothing either.
            let now = Time { clock: *clock, tsc: clock.rotate_left(7) };
            step(&vapic, &mut apics[*vcpu], now, each);
            // One message, or one a pin; each looks at all vCPUs twice at most.
            let pauses = counts.pauses.load(Ordering::Relaxed);
            prop_assert!(pauses <= PINS * 2 * (VCPUS / PART), "{pauses} pauses");
        }
        // One a message that names one vCPU, and those of a part of a message to many.
        let most = counts.most.load(Ordering::Relaxed);
        prop_assert!(most <= PINS + PART, "{} kicks without a pause", most);
        come_to_senses(&vapic, &mut apics, Time { clock: u64::MAX, tsc: u64::MAX });
    }
}

#[test]
fn a_message_to_all_kicks_a_few_vcpus_at_a_time() {
    let counts = Counts::default();
    let config = Config { vcpus: MAX_VCPUS, x2apic: true, tsc_deadline: true, physical_bits: 40 };
    let vapic = Vapic::try_new(config, &counts).unwrap();
    let mut first = vapic.local_apic(0).unwrap();
    vapic.write(&mut first, 0x300, 4, 3 << 18 | 4 << 8, Time::default());
    assert_eq!(counts.most.load(Ordering::Relaxed), PART);
    assert_eq!(counts.pauses.load(Ordering::Relaxed), MAX_VCPUS / PART);
    assert!((1..MAX_VCPUS).all(|vcpu| vapic.is_stale(vcpu)) && !vapic.is_stale(0));
}

type Work = dyn FnMut(&Vapic<Meanwhile>, usize);

/// What is done in a pause: others run meanwhile. It is called with the number of pauses before, and not in a pause of its
/// own.
struct Meanwhile {
    vapic: Weak<Vapic<Self>>,
    work: RefCell<Box<Work>>,
    pauses: AtomicUsize,
}

impl Kick for Meanwhile {
    fn kick(&self, _vcpu: usize) {}

    fn pause(&self) {
        let pauses = self.pauses.fetch_add(1, Ordering::Relaxed);
        if let (Some(vapic), Ok(mut work)) = (self.vapic.upgrade(), self.work.try_borrow_mut()) {
            work(&vapic, pauses);
        }
    }
}

fn meanwhile(work: impl FnMut(&Vapic<Meanwhile>, usize) + 'static) -> Rc<Vapic<Meanwhile>> {
    let config = Config { vcpus: PART, x2apic: true, tsc_deadline: true, physical_bits: 40 };
    Rc::new_cyclic(|vapic| {
        let work = RefCell::new(Box::new(work) as Box<_>);
        let kick = Meanwhile { vapic: vapic.clone(), work, pauses: AtomicUsize::new(0) };
        Vapic::try_new(config, kick).unwrap()
    })
}

fn set_pin<K: Kick>(vapic: &Vapic<K>, half: u64, value: u64) {
    vapic.write_ioapic(0, 4, 0x10 + half);
    vapic.write_ioapic(0x10, 4, value);
}

/// Nobody is enabled. Each time that the interrupt has been sent, and before that is found, its entry is another.
#[test]
fn an_entry_that_is_rewritten_each_time_it_is_sent_has_each_call_send_once() {
    for call in 0..3 {
        let count = Rc::new(RefCell::new(0));
        let own = count.clone();
        let vapic = meanwhile(move |vapic, pauses| {
            *own.borrow_mut() += 1;
            set_pin(vapic, 1, (pauses as u64 % 2 + 1) << 24);
        });
        set_pin(&vapic, 1, 0x80 << 24);
        set_pin(&vapic, 0, 0x8831);
        if call > 0 {
            vapic.set_line(0, true).unwrap();
        }
        *count.borrow_mut() = 0;
        match call {
            0 => vapic.set_line(0, true).unwrap(),
            1 => set_pin(&vapic, 0, 0x8832),
            _ => vapic.write_ioapic(0x40, 4, 0x31),
        }
        assert_eq!(*count.borrow(), 1, "call {call}");
    }
}

/// An interrupt of the lowest priority is for vCPU 1. When that was chosen, and before the interrupt arrives there, it is
/// initialised, or turned off.
#[test]
fn who_is_chosen_and_gone_by_then_accepts_nothing() {
    for off in [false, true] {
        let chosen = Rc::new(RefCell::new(None::<LocalApic>));
        let own = chosen.clone();
        let vapic = meanwhile(move |vapic, _| {
            let mut own = own.borrow_mut();
            let Some(chosen) = own.as_mut() else { return };
            if off {
                vapic.write_msr(chosen, APIC_BASE, 0xfee0_0000, Time::default()).unwrap();
            } else {
                vapic.look(chosen, Time::default());
            }
        });
        let now = Time::default();
        let mut first = vapic.local_apic(0).unwrap();
        let mut second = vapic.local_apic(1).unwrap();
        let mut send = |icr: u64| {
            vapic.write(&mut first, 0x310, 4, 1 << 24, now);
            vapic.write(&mut first, 0x300, 4, icr, now);
        };
        send(0x4600);
        assert_eq!(vapic.look(&mut second, now).event, Some(Event::Startup(0)));
        vapic.write(&mut second, 0xf0, 4, 0x1ff, now);
        set_pin(&vapic, 1, 1 << 24);
        set_pin(&vapic, 0, 0x8131);
        if !off {
            send(0x4500);
        }
        *chosen.borrow_mut() = Some(second);
        vapic.set_line(0, true).unwrap();
        vapic.write_ioapic(0, 4, 0x10);
        assert_eq!(vapic.read_ioapic(0x10, 4), 0x8131, "it is in service nowhere");
        let mut second = chosen.borrow_mut().take().unwrap();
        vapic.write_msr(&mut second, APIC_BASE, 0xfee0_0800, now).unwrap();
        assert_eq!(vapic.read(&mut second, 0x210, 4, now), 0, "IRR");
    }
}
