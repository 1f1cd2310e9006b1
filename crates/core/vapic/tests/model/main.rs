//! The APICs against the manuals without words and mailboxes: guests on four vCPUs that write any register by memory and by
//! MSRs, devices, IPIs and time. After each step each vCPU is given what the manuals would give it, and at the end each
//! register reads as it would.

mod naive;
mod registers;
mod saved;
#[path = "../common/state.rs"]
mod state;

use std::cell::RefCell;

use mayfly_vapic::{APIC_BASE, Config, Deadline, LocalApic, REGISTERS, TSC_DEADLINE, Time, Vapic};
use naive::{Machine, Mode, TSC_PER_TICK, VCPUS};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Page(usize, u32, u32),
    Msr(usize, u32, u64),
    Base(usize, u64),
    Deadline(usize, u64),
    Cr8(usize, u8),
    Accept(usize),
    /// The end of an interrupt, by whatever registers the APIC has.
    End(usize),
    Look(usize),
    Pin(usize, bool, u32),
    EndPins(u8),
    Line(usize, bool),
    Wait(u32),
}

/// Few enough that they meet, of three classes, and one that is illegal.
fn any_vector() -> impl Strategy<Value = u8> {
    prop_oneof![1 => Just(0x0f_u8), 6 => prop::sample::select(vec![0x20, 0x21, 0x31, 0x32, 0xfe])]
}

fn any_icr() -> impl Strategy<Value = u32> {
    let mode = prop::sample::select(vec![0_u32, 0, 0, 1, 1, 2, 4, 5, 6, 7]);
    let level = prop::sample::select(vec![0_u32, 1 << 14, 1 << 15, 3 << 14]);
    (any_vector(), mode, any::<bool>(), level, 0..4_u32).prop_map(
        |(vector, mode, logical, level, shorthand)| {
            u32::from(vector) | mode << 8 | u32::from(logical) << 11 | level | shorthand << 18
        },
    )
}

/// A register, and a value that is mostly one of its own.
fn any_write() -> impl Strategy<Value = (u32, u32)> {
    let vector = || any_vector().prop_map(u32::from);
    let lvt = (0x32..0x38_u32, vector(), 0..8_u32)
        .prop_map(|(register, vector, mode)| (register, vector | mode << 16));
    prop_oneof![
        6 => any_icr().prop_map(|icr| (0x30, icr)),
        3 => prop::sample::select(vec![0_u32, 1, 2, 3, 4, 0x10, 0x12, 0xf0, 0xff])
            .prop_map(|to| (0x31, to << 24)),
        5 => Just((0x0b, 0)),
        2 => any::<u8>().prop_map(|tpr| (0x08, u32::from(tpr % 64))),
        1 => prop::sample::select(vec![0x1ff_u32, 0x1ff, 0x0ff]).prop_map(|svr| (0x0f, svr)),
        1 => prop::sample::select(vec![1_u32, 2, 3, 0x11, 0x12, 0x21]).prop_map(|ldr| (0x0d, ldr << 24)),
        1 => prop::sample::select(vec![u32::MAX, 0x0fff_ffff, 0x7fff_ffff]).prop_map(|dfr| (0x0e, dfr)),
        4 => lvt,
        2 => (0..20_u32).prop_map(|count| (0x38, count)),
        1 => prop::sample::select(vec![0_u32, 1, 2, 3, 8, 9, 0xa, 0xb]).prop_map(|to| (0x3e, to)),
        1 => Just((0x28, 0)),
        2 => vector().prop_map(|vector| (0x3f, vector)),
        2 => (0..0x40_u32, any::<u32>()),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let vcpu = || 0..VCPUS;
    // A few pins, of which some share a vector.
    let pin = || prop::sample::select(vec![0_usize, 1, 23]);
    let entry =
        (any_vector(), prop::sample::select(vec![0_u32, 0, 0, 1, 2, 4, 5, 6, 7]), 0..16_u32)
            .prop_map(|(vector, mode, rest)| {
                let masked = if rest == 0 { 1 << 16 } else { 0 };
                let (level, logical) = (u32::from(rest % 4 != 0) << 15, (rest >> 2 & 1) << 11);
                u32::from(vector) | mode << 8 | level | logical | masked
            });
    let narrow = prop::sample::select(vec![0_u32, 1, 2, 3, 4, 0x11, 0xff]);
    let wide = prop::sample::select(vec![0_u64, 1, 2, 3, 5, 0xf, 0xff, 0x1_0001, 0xffff_ffff]);
    let base = prop_oneof![
        6 => prop::sample::select(vec![0_u64, 0x400, 0x800, 0x800, 0xc00, 0xc00])
            .prop_map(|mode| 0xfee0_0000 | mode),
        1 => any::<u64>(),
        1 => any::<u64>().prop_map(|value| value & 0xff_ffff_fd00),
    ];
    prop_oneof![
        12 => (vcpu(), any_write()).prop_map(|(vcpu, (at, value))| Step::Page(vcpu, at, value)),
        8 => (vcpu(), any_write()).prop_map(|(vcpu, (at, value))| Step::Msr(vcpu, at, value.into())),
        6 => (vcpu(), any_icr(), wide)
            .prop_map(|(vcpu, icr, to)| Step::Msr(vcpu, 0x30, to << 32 | u64::from(icr))),
        1 => (vcpu(), 0..0x100_u32, any::<u64>()).prop_map(|(vcpu, at, value)| Step::Msr(vcpu, at, value)),
        2 => (vcpu(), base).prop_map(|(vcpu, value)| Step::Base(vcpu, value)),
        2 => (vcpu(), 0..2000_u64).prop_map(|(vcpu, at)| Step::Deadline(vcpu, at)),
        2 => (vcpu(), any::<u8>()).prop_map(|(vcpu, cr8)| Step::Cr8(vcpu, cr8)),
        12 => vcpu().prop_map(Step::Accept),
        8 => vcpu().prop_map(Step::End),
        8 => vcpu().prop_map(Step::Look),
        2 => (pin(), entry).prop_map(|(pin, value)| Step::Pin(pin, false, value)),
        2 => (pin(), narrow).prop_map(|(pin, to)| Step::Pin(pin, true, to << 24)),
        1 => any_vector().prop_map(Step::EndPins),
        10 => (pin(), any::<bool>()).prop_map(|(pin, high)| Step::Line(pin, high)),
        4 => (0..200_u32).prop_map(Step::Wait),
    ]
}

const CONFIG: Config = Config { vcpus: VCPUS, x2apic: true, tsc_deadline: true, physical_bits: 40 };

struct Beside<'a> {
    vapic: Vapic<Box<dyn Fn(usize) + 'a>>,
    apics: Vec<LocalApic>,
    model: Machine,
    kicked: &'a RefCell<Vec<usize>>,
}

impl Beside<'_> {
    fn new(kicked: &RefCell<Vec<usize>>) -> Beside<'_> {
        let kick: Box<dyn Fn(usize)> = Box::new(|vcpu| kicked.borrow_mut().push(vcpu));
        let vapic = Vapic::try_new(CONFIG, kick).unwrap();
        let apics = (0..VCPUS).map(|vcpu| vapic.local_apic(vcpu).unwrap()).collect();
        Beside { vapic, apics, model: Machine::new(), kicked }
    }

    fn now(&self) -> Time {
        Time { clock: self.model.clock, tsc: self.model.clock * TSC_PER_TICK }
    }

    fn step(&mut self, step: &Step) {
        let now = self.now();
        let Self { vapic, apics, model, .. } = self;
        match *step {
            Step::Page(vcpu, at, value) => {
                vapic.write(&mut apics[vcpu], u64::from(at) * 16, 4, value.into(), now);
                model.write_page(vcpu, at, value);
            }
            Step::Msr(vcpu, at, value) => {
                let wrote = vapic.write_msr(&mut apics[vcpu], REGISTERS.start + at, value, now);
                assert_eq!(wrote.is_err(), model.write_msr(vcpu, at, value));
            }
            Step::Base(vcpu, value) => {
                let wrote = vapic.write_msr(&mut apics[vcpu], APIC_BASE, value, now);
                assert_eq!(wrote.is_err(), model.write_base(vcpu, value));
            }
            Step::Deadline(vcpu, at) => {
                vapic.write_msr(&mut apics[vcpu], TSC_DEADLINE, at, now).unwrap();
                model.apics[vcpu].set_deadline(at, now.tsc);
            }
            Step::Cr8(vcpu, cr8) => {
                vapic.set_cr8(&mut apics[vcpu], cr8);
                let tpr = &mut model.apics[vcpu].tpr;
                if *tpr >> 4 != cr8 & 0xf {
                    *tpr = cr8 << 4;
                }
            }
            Step::Accept(vcpu) => {
                let expected = match model.apics[vcpu].next() {
                    mayfly_vapic::Next::Deliver(vector) => Some(vector),
                    _ => None,
                };
                assert_eq!(vapic.accept(&mut apics[vcpu]), expected);
                if let Some(vector) = expected {
                    model.apics[vcpu].irr.remove(&vector);
                    model.apics[vcpu].isr.insert(vector);
                }
            }
            Step::End(vcpu) => match model.apics[vcpu].mode {
                Mode::Off => {}
                Mode::Page => self.step(&Step::Page(vcpu, 0x0b, 0)),
                Mode::Msrs => self.step(&Step::Msr(vcpu, 0x0b, 0)),
            },
            Step::Look(vcpu) => self.look(vcpu),
            Step::Pin(pin, upper, value) => {
                vapic.write_ioapic(0, 4, 0x10 + 2 * pin as u64 + u64::from(upper));
                vapic.write_ioapic(0x10, 4, value.into());
                model.write_pin(pin, upper, value);
            }
            Step::EndPins(vector) => {
                vapic.write_ioapic(0x40, 4, vector.into());
                model.end_pins(vector);
            }
            Step::Line(pin, high) => {
                vapic.set_line(pin, high).unwrap();
                model.set_line(pin, high);
            }
            Step::Wait(ticks) => {
                model.wait(ticks);
                let now = self.now();
                for apic in &mut self.apics {
                    self.vapic.read_msr(apic, APIC_BASE, now).unwrap();
                }
            }
        }
    }

    fn look(&mut self, vcpu: usize) {
        let now = self.now();
        self.kicked.borrow_mut().retain(|kicked| *kicked != vcpu);
        let look = self.vapic.look(&mut self.apics[vcpu], now);
        assert_eq!(look.event, self.model.look(vcpu));
        assert_eq!(look.next, self.model.apics[vcpu].next());
        assert!(!self.vapic.is_stale(vcpu));
    }

    fn check(&mut self) {
        for vcpu in 0..VCPUS {
            let (apic, model) = (&self.apics[vcpu], &self.model.apics[vcpu]);
            assert_eq!(self.vapic.next(apic), model.next(), "vCPU {vcpu}");
            assert_eq!(apic.waits_for_startup(), model.waits);
            assert_eq!(apic.cr8(), model.tpr >> 4);
            assert_eq!(apic.page(), (model.mode == Mode::Page).then_some(model.page));
            // One kick for a notice.
            let kicks = self.kicked.borrow().iter().filter(|kicked| **kicked == vcpu).count();
            assert_eq!(kicks, usize::from(self.vapic.is_stale(vcpu)), "vCPU {vcpu}");
            let counts = model.has_counter() && model.count > 0;
            let armed = counts || model.has_deadline() && model.deadline > 0;
            let shown = armed && model.lvt[0] & 0x1_0000 == 0 && !model.waits;
            let deadline = apic.deadline();
            assert_eq!(deadline.is_some(), shown, "vCPU {vcpu}");
            assert!(deadline.is_none_or(|at| match at {
                Deadline::Clock(at) => at > self.model.clock,
                Deadline::Tsc(at) => at == model.deadline,
            }));
        }
    }

    fn check_registers(&mut self) {
        let now = self.now();
        for vcpu in 0..VCPUS {
            let mode = self.model.apics[vcpu].mode;
            for number in 0..0x100 {
                let expected = self.model.read(vcpu, number);
                let apic = &mut self.apics[vcpu];
                let msr = self.vapic.read_msr(apic, REGISTERS.start + number, now).ok();
                assert_eq!(msr, expected.filter(|_| mode == Mode::Msrs), "MSR {number:#x}");
                let page = self.vapic.read(apic, u64::from(number) * 16, 4, now);
                let expected = expected.filter(|_| mode == Mode::Page).unwrap_or(0);
                assert_eq!(u64::from(page), expected, "{number:#x} of vCPU {vcpu}");
                if mode == Mode::Page && !Machine::has(mode, number) {
                    self.model.apics[vcpu].error(7);
                }
            }
            let apic = &mut self.apics[vcpu];
            assert_eq!(self.vapic.read_msr(apic, APIC_BASE, now), Ok(self.model.base(vcpu)));
            let deadline = self.model.apics[vcpu].deadline;
            assert_eq!(self.vapic.read_msr(apic, TSC_DEADLINE, now), Ok(deadline));
        }
        for (pin, model) in self.model.pins.iter().enumerate() {
            let read = |upper: u64| {
                self.vapic.write_ioapic(0, 4, 0x10 + 2 * pin as u64 + upper);
                self.vapic.read_ioapic(0x10, 4)
            };
            let low = model.low | u32::from(model.in_service) << 14;
            assert_eq!((read(0), read(1)), (low, u32::from(model.to) << 24), "pin {pin}");
        }
    }
}

/// All vCPUs started, all APICs enabled with a logical destination, and pins that name them: what guests do first, and where
/// most of it happens.
fn boot(beside: &mut Beside<'_>) {
    for vcpu in 0..VCPUS {
        if vcpu > 0 {
            beside.step(&Step::Page(0, 0x31, (vcpu as u32) << 24));
            beside.step(&Step::Page(0, 0x30, 0x4600 | 0x9a));
        }
        beside.step(&Step::Look(vcpu));
        beside.step(&Step::Page(vcpu, 0x0f, 0x1ff));
        beside.step(&Step::Page(vcpu, 0x0d, 1 << (24 + vcpu)));
        beside.check();
        assert!(!beside.apics[vcpu].waits_for_startup());
    }
    // Two that are level-triggered, with one vector, and an edge.
    for (pin, low, to) in [(0, 0x8031, 1), (1, 0x8931, 2), (23, 0x0021, 0)] {
        beside.step(&Step::Pin(pin, true, to << 24));
        beside.step(&Step::Pin(pin, false, low));
    }
}

/// `PROPTEST_CASES` says how many more.
fn config() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    if asked { ProptestConfig::default() } else { ProptestConfig::with_cases(128) }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn each_vcpu_is_given_what_the_manuals_give_it_and_reads_what_they_say(
        booted in prop::bool::weighted(0.8),
        x2apic in any::<bool>(),
        steps in prop::collection::vec(any_step(), 0..150),
    ) {
        let kicked = RefCell::new(Vec::new());
        let mut beside = Beside::new(&kicked);
        if booted {
            boot(&mut beside);
            for vcpu in 0..VCPUS {
                beside.step(&Step::Base(vcpu, if x2apic { 0xfee0_0c00 } else { 0xfee0_0800 }));
            }
        }
        for step in &steps {
            beside.step(step);
            beside.check();
        }
        beside.check_registers();
    }
}
