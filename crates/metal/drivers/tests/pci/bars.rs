//! Addresses for the registers of functions.

use proptest::prelude::*;

use mayfly_drivers::pci::{Bar, MOST_BARS, NotUsed, Place, Window, Windows};

const PAGE: u64 = 4096;
/// The end of what a BAR of 32 bits can say.
const NARROW_END: u64 = 1 << 32;

fn bar(bytes: u64, is_wide: bool, is_prefetchable: bool) -> Bar {
    Bar { bytes, is_wide, is_prefetchable }
}

/// As QEMU's `virt` has them, with `highmem=on`; and one that processors see elsewhere.
fn windows() -> [Window; 3] {
    let window = |bus, cpu, bytes, is_prefetchable| Window { bus, cpu, bytes, is_prefetchable };
    [
        window(0x1000_0000, 0x1000_0000, 0x2eff_0000, false),
        window(0x80_0000_0000, 0x80_0000_0000, 0x80_0000_0000, false),
        window(0x4000_0000, 0x60_4000_0000, 0x2000_0000, true),
    ]
}

#[test]
fn a_wide_bar_leaves_the_low_addresses_to_others_and_has_them_where_there_are_no_others() {
    let mut all = Windows::new(windows());
    let taken = |place: Option<Place>| place.map(|place| (place.bus, place.cpu));
    assert_eq!(taken(all.take(&bar(0x4000, true, true))), Some((0x80_0000_0000, 0x80_0000_0000)));
    assert_eq!(taken(all.take(&bar(0x1000, false, false))), Some((0x1000_0000, 0x1000_0000)));
    let [low, ..] = windows();
    let mut all = Windows::new([low]);
    assert_eq!(taken(all.take(&bar(0x4000, true, true))), Some((0x1000_0000, 0x1000_0000)));
}

#[test]
fn a_bar_that_may_not_be_read_ahead_is_in_no_window_where_others_are() {
    let [.., ahead] = windows();
    let mut all = Windows::new([ahead]);
    assert_eq!(all.take(&bar(0x1000, false, false)), None);
    let place = all.take(&bar(0x1000, false, true)).unwrap();
    assert_eq!((place.bus, place.cpu), (0x4000_0000, 0x60_4000_0000), "it is seen elsewhere");
}

#[test]
fn sizes_that_no_bar_has_are_refused_and_so_is_one_that_is_larger_than_the_window() {
    let mut all = Windows::new(windows());
    let mut with = |bytes, is_wide| {
        let mut bars = [None; MOST_BARS];
        bars[2] = Some(bar(bytes, is_wide, false));
        all.take_all(&bars).map(|_| ())
    };
    for bytes in [0, 8, 24, 0x1001, u64::MAX] {
        assert_eq!(with(bytes, true), Err(NotUsed::Bar(2)), "{bytes:#x}");
    }
    for (bytes, is_wide) in [(1 << 63, true), (1 << 40, true), (1 << 31, false), (1 << 30, false)] {
        assert_eq!(with(bytes, is_wide), Err(NotUsed::NoRoom(2)), "{bytes:#x}");
    }
    assert_eq!(with(1 << 38, true), Ok(()));
}

#[test]
fn a_function_that_does_not_fit_takes_nothing() {
    let [low, ..] = windows();
    let mut all = Windows::new([low]);
    let mut bars = [Some(bar(0x1000, false, false)); MOST_BARS];
    bars[5] = Some(bar(1 << 30, false, false));
    assert_eq!(all.take_all(&bars), Err(NotUsed::NoRoom(5)));
    assert_eq!(all.take(&bar(0x1000, false, false)).unwrap().bus, low.bus);
}

fn any_window() -> impl Strategy<Value = Window> {
    let start = prop_oneof![0..1_u64 << 33, (1_u64 << 52) - 8..1 << 52];
    (start, -16..16_i64, 0..1_u64 << 14, any::<bool>()).prop_map(|(page, off, pages, ahead)| {
        let cpu = page.saturating_add_signed(off << 4).min((1 << 52) - 1) * PAGE;
        Window { bus: page * PAGE, cpu, bytes: pages * PAGE, is_prefetchable: ahead }
    })
}

fn any_bar() -> impl Strategy<Value = Bar> {
    (0..64_u32, any::<bool>(), any::<bool>()).prop_map(|(shift, is_wide, ahead)| {
        bar(1 << shift.min(if is_wide { 63 } else { 31 }), is_wide, ahead)
    })
}

proptest! {
    #[test]
    fn bars_are_aligned_inside_of_a_window_and_never_overlap(
        windows in prop::collection::vec(any_window(), 0..4),
        bars in prop::collection::vec(any_bar(), 0..64),
    ) {
        let apart = |one: &Window, other: &Window| {
            one.bus + one.bytes <= other.bus || other.bus + other.bytes <= one.bus
        };
        prop_assume!(windows.iter().all(|window| window.bus.checked_add(window.bytes).is_some()));
        prop_assume!((0..windows.len()).all(|at| {
            windows[..at].iter().all(|other| apart(&windows[at], other))
        }));
        let mut all = Windows::new(windows.iter().copied());
        let mut taken: Vec<Place> = Vec::new();
        for bar in &bars {
            let Some(place) = all.take(bar) else { continue };
            prop_assert!(place.bus.is_multiple_of(bar.bytes) && place.bytes >= bar.bytes);
            prop_assert!(place.cpu.is_multiple_of(PAGE) && place.bytes.is_multiple_of(PAGE));
            prop_assert!(place.bus != 0 && place.cpu != 0);
            prop_assert!(bar.is_wide || place.bus + bar.bytes <= NARROW_END);
            let holds = windows.iter().any(|window| {
                window.bus <= place.bus
                    && place.bus + place.bytes <= window.bus + window.bytes
                    && place.bus - window.bus == place.cpu - window.cpu
                    && (bar.is_prefetchable || !window.is_prefetchable)
            });
            prop_assert!(holds, "{place:x?} is in no window");
            for other in &taken {
                prop_assert!(place.bus + place.bytes <= other.bus || other.bus + other.bytes <= place.bus);
            }
            taken.push(place);
        }
    }

    /// As many as the window has room for: nothing is lost between BARs of one size.
    #[test]
    fn a_window_is_given_to_its_end(shift in 12..20_u32, count in 1..40_u64) {
        let bytes = 1_u64 << shift;
        let window = Window { bus: 1 << 31, cpu: 1 << 31, bytes: bytes * count, is_prefetchable: false };
        let mut all = Windows::new([window]);
        let given = (0..=count).filter(|_| all.take(&bar(bytes, false, false)).is_some()).count();
        prop_assert_eq!(given as u64, count);
    }
}
