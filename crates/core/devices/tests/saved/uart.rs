//! The PL011.

use mayfly_devices::pl011::{Pl011, STATE};
use mayfly_state::Error;
use proptest::prelude::*;

use crate::state::{any_forgery, config, forged, loaded, saved};

#[derive(Clone, Debug)]
enum Step {
    Read(u64),
    Write(u64, u32),
    Receive(Vec<u8>),
    Break,
}

fn any_step() -> impl Strategy<Value = Step> {
    let offset = || prop_oneof![4 => (0..0x13_u64).prop_map(|word| 4 * word), 1 => Just(0xfe0)];
    let value = prop_oneof![any::<u32>(), 0..0x400_u32, Just(0x70_u32), Just(0x381)];
    prop_oneof![
        4 => offset().prop_map(Step::Read),
        4 => (offset(), value).prop_map(|(offset, value)| Step::Write(offset, value)),
        3 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Step::Receive),
        1 => Just(Step::Break),
    ]
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(any_step(), 0..40)
}

/// What a party outside sees of a step, and the interrupt line after it.
fn step(uart: &mut Pl011, step: &Step) -> (u32, bool) {
    let seen = match step {
        Step::Read(offset) => uart.read(*offset),
        Step::Write(offset, value) => uart.write(*offset, *value).map_or(0x100, u32::from),
        Step::Receive(bytes) => uart.receive(bytes) as u32,
        Step::Break => uart.receive_break().into(),
    };
    (seen, uart.interrupt())
}

fn save(uart: &Pl011) -> Vec<u8> {
    saved(STATE, |to| uart.save(to))
}

/// A UART after steps, from open on.
fn after(steps: &[Step]) -> Pl011 {
    let mut uart = Pl011::new();
    uart.write(0x2c, 0x70);
    for each in steps {
        step(&mut uart, each);
    }
    uart
}

#[test]
fn the_bytes_of_a_uart_are_as_the_page_about_them_says() {
    let mut uart = after(&[]);
    uart.receive(b"ab");
    let mut expected = vec![0];
    for register in [0_u32, 0, 0, 0, 0x70, 0x301, 0x12, 0, 0x40, 0, 2] {
        expected.extend(register.to_le_bytes());
    }
    expected.extend([b'a', 0, b'b', 0]);
    assert_eq!(save(&uart), saved(STATE, |to| to.bytes(&expected)));
}

#[test]
fn a_fifo_that_is_longer_than_it_can_be_is_refused() {
    let state = |line_control: u32, entries: u32, entry: u16| {
        saved(STATE, move |to| {
            to.flag(false);
            for register in [0, 0, 0, 0, line_control, 0x301, 0x12, 0, 0, 0, entries] {
                to.u32(register);
            }
            (0..entries.min(40)).for_each(|_| to.u16(entry));
        })
    };
    let load = |bytes: &[u8]| loaded(bytes, STATE, Pl011::load).map(|_| ());
    assert_eq!(load(&state(0x10, 32, 0x4ff)), Ok(()));
    for (line_control, entries) in [(0x10, 33), (0x10, u32::MAX), (0, 2)] {
        let error = load(&state(line_control, entries, 0)).unwrap_err();
        assert!(matches!(error, Error::Invalid { field: "received entries", .. }), "{error}");
    }
    let error = load(&state(0x10, 1, 0x100)).unwrap_err();
    assert_eq!(error.to_string(), "section `pl011` 0 has 0x100 as received entry of 0");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_uart_goes_on_as_the_one_that_was_saved(before in any_steps(), then in any_steps()) {
        let mut uart = after(&before);
        let bytes = save(&uart);
        let mut other = loaded(&bytes, STATE, Pl011::load).unwrap();
        prop_assert_eq!(save(&other), bytes);
        for each in &then {
            prop_assert_eq!(step(&mut uart, each), step(&mut other, each), "{:?}", each);
        }
        prop_assert_eq!(save(&uart), save(&other));
    }

    #[test]
    fn a_forged_uart_is_refused_or_works(
        before in any_steps(),
        forgery in any_forgery(),
        then in any_steps(),
    ) {
        let bytes = forged(&save(&after(&before)), STATE, &forgery);
        if let Ok(mut uart) = loaded(&bytes, STATE, Pl011::load) {
            prop_assert_eq!(save(&uart), bytes, "all of it was taken");
            for each in &then {
                step(&mut uart, each);
            }
            prop_assert!(loaded(&save(&uart), STATE, Pl011::load).is_ok());
        }
    }
}
