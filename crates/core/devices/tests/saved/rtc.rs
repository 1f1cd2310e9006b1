//! The PL031.

use mayfly_devices::rtc::{Pl031, STATE};
use proptest::prelude::*;

use crate::state::{any_forgery, config, forged, loaded, saved};

/// An access at `now`, and how much later the next is.
type Step = (u64, Option<u32>, u64);

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let offset = prop_oneof![4 => (0..8_u64).prop_map(|word| 4 * word), 1 => Just(0xfe0)];
    let value = prop_oneof![any::<u32>(), 990..1010_u32, 0..2_u32];
    let step = (offset, prop::option::of(value), 0..6_u64);
    prop::collection::vec(step, 0..30)
}

fn step(clock: &mut Pl031, now: u64, (offset, value, _): Step) -> (u32, bool, Option<u32>) {
    let seen = match value {
        Some(value) => {
            clock.write(offset, value, now);
            0
        }
        None => clock.read(offset, now),
    };
    (seen, clock.interrupt(), clock.next_alarm(now))
}

fn save(clock: &Pl031) -> Vec<u8> {
    saved(STATE, |to| clock.save(to))
}

fn after(steps: &[Step]) -> (Pl031, u64) {
    let (mut clock, mut now) = (Pl031::new(), 1000);
    for each in steps {
        step(&mut clock, now, *each);
        now += each.2;
    }
    (clock, now)
}

#[test]
fn an_alarm_that_has_come_while_the_clock_was_saved_is_raised() {
    let mut clock = Pl031::new();
    clock.write(0x4, 1060, 1000);
    clock.write(0x10, 1, 1000);
    let mut other = loaded(&save(&clock), STATE, Pl031::load).unwrap();
    other.advance(1059);
    assert!(!other.interrupt());
    let mut other = loaded(&save(&clock), STATE, Pl031::load).unwrap();
    other.advance(5000);
    assert!(other.interrupt());
}

#[test]
fn a_clock_without_an_alarm_has_seen_no_second() {
    let bytes = saved(STATE, |to| {
        (0..3).for_each(|_| to.u32(0));
        (0..3).for_each(|_| to.flag(false));
        to.u64(7);
    });
    let error = loaded(&bytes, STATE, Pl031::load).unwrap_err();
    assert_eq!(error.to_string(), "section `pl031` 0 has 0x7 as last look");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_clock_goes_on_as_the_one_that_was_saved(
        before in any_steps(),
        frozen in 0..20_u64,
        then in any_steps(),
    ) {
        let (mut clock, now) = after(&before);
        let bytes = save(&clock);
        let mut other = loaded(&bytes, STATE, Pl031::load).unwrap();
        prop_assert_eq!(save(&other), bytes);
        let mut now = now + frozen;
        for each in &then {
            prop_assert_eq!(step(&mut clock, now, *each), step(&mut other, now, *each));
            now += each.2;
        }
    }

    #[test]
    fn a_forged_clock_is_refused_or_works(
        before in any_steps(),
        forgery in any_forgery(),
        then in any_steps(),
    ) {
        let (clock, mut now) = after(&before);
        let bytes = forged(&save(&clock), STATE, &forgery);
        if let Ok(mut clock) = loaded(&bytes, STATE, Pl031::load) {
            prop_assert_eq!(save(&clock), bytes);
            for each in &then {
                step(&mut clock, now, *each);
                now += each.2;
            }
        }
    }
}
