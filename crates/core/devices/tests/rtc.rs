//! The PL031 by its register map, and its alarm against a naive model.

use mayfly_devices::rtc::Pl031;
use proptest::prelude::*;

#[test]
fn a_driver_recognises_a_pl031_of_revision_1_by_its_identification() {
    let mut clock = Pl031::new();
    let words: Vec<u32> = (0xfe0..=0xffc).step_by(4).map(|offset| clock.read(offset, 0)).collect();
    let fold = |words: &[u32]| words.iter().rev().fold(0, |all, byte| all << 8 | byte);
    assert_eq!(fold(&words[..4]), 0x0014_1031);
    assert_eq!(fold(&words[4..]), 0xb105_f00d);
}

#[test]
fn a_time_that_is_set_goes_on_from_there() {
    let mut clock = Pl031::new();
    clock.write(0x8, 100, 5_000);
    assert_eq!((clock.read(0, 5_000), clock.read(0, 5_060)), (100, 160));
    assert_eq!(clock.read(0x8, 5_060), 100);
    assert_eq!(clock.read(0xc, 5_060), 1, "it is on");
}

#[test]
fn what_is_reserved_reads_as_zero_and_ignores_writes() {
    let mut clock = Pl031::new();
    for offset in (0..0x1100).filter(|offset| ![0, 4, 8, 0xc, 0x10].contains(offset)) {
        let before = clock.read(offset, 0);
        assert!(before == 0 || (0xfe0..0x1000).contains(&offset), "{offset:#x}");
        clock.write(offset, u32::MAX, 0);
        assert_eq!(clock.read(offset, 0), before, "{offset:#x}");
    }
}

#[test]
fn an_alarm_that_nobody_set_never_comes() {
    let mut clock = Pl031::new();
    clock.write(0x10, 1, 0);
    for now in [0, 1, u64::from(u32::MAX), 1 << 32, 1 << 33] {
        clock.advance(now);
        assert!(!clock.interrupt() && clock.next_alarm(now).is_none());
    }
}

proptest! {
    #[test]
    fn the_alarm_comes_in_its_second_however_seldom_one_looks(
        set in any::<u32>(),
        start in 0..1_u64 << 33,
        ahead in 1..1000_u32,
        looks in prop::collection::vec(1..400_u64, 1..20),
    ) {
        let mut clock = Pl031::new();
        clock.write(0x8, set, start);
        clock.write(0x4, set.wrapping_add(ahead), start);
        clock.write(0x10, 1, start);
        prop_assert_eq!(clock.next_alarm(start), Some(ahead));
        let mut now = start;
        for step in looks {
            now += step;
            clock.advance(now);
            let due = now - start >= u64::from(ahead);
            prop_assert_eq!(clock.interrupt(), due);
            prop_assert_eq!(clock.read(0x18, now), u32::from(due));
        }
        clock.write(0x1c, 1, now);
        prop_assert!(!clock.interrupt());
    }
}
