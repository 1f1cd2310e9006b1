//! A balloon: what its driver gives back is the embedder's before the driver hears of it, and no driver does harm.

use std::collections::BTreeSet;
use std::ops::Range;

use mayfly_devices::memory::GuestMemory;
use mayfly_devices::virtio::{Balloon, Contents, MOST_RANGES, Mmio, PAGE_BYTES, STATE, Served};
use mayfly_state::State;
use proptest::prelude::*;

use crate::ALL;
use crate::guest::*;
use crate::queues::{self, Ring, SIZE, buffer, place};
use crate::saved::{load, save};
use crate::shown::Shown;
use crate::state::{any_forgery, config, forged};

const INFLATE: usize = 0;
const DEFLATE: usize = 1;
const REPORT: usize = 2;

const POISON: u64 = 1 << 4;
const REPORTING: u64 = 1 << 5;

/// The registers of its configuration.
const TARGET: u64 = 0x100;
const ACTUAL: u64 = 0x104;
const POISON_VALUE: u64 = 0x10c;

type Guest = queues::Guest<Balloon>;

/// Pages that were given back.
type Given = Vec<(Range<u64>, Contents)>;

/// The same, and how many chains its driver had back by then of each queue.
type Seen = Vec<(Range<u64>, Contents, [u16; 3])>;

impl Guest {
    fn new(features: u64) -> Self {
        Self::with(Mmio::new(Balloon::new()), features)
    }

    /// Names pages in a chain of pieces that end at these places.
    fn name(&mut self, queue: usize, pages: &[u32], cuts: &[usize]) {
        let bytes: Vec<u8> = pages.iter().flat_map(|page| page.to_le_bytes()).collect();
        self.offer_bytes(queue, &bytes, cuts);
    }

    /// Has the device take pages once.
    fn take_seen(&mut self) -> (Served, Seen) {
        let Self { device, memory, .. } = self;
        let mut given = Seen::new();
        let served = device.take_pages(memory, |ranges, contents| {
            assert!(!ranges.is_empty() && ranges.len() <= MOST_RANGES);
            assert!(ranges.iter().all(|range| range.start < range.end));
            assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "{ranges:?}");
            let used = [0, 1, 2].map(|queue| memory.word(place(queue, 2) + 2));
            given.extend(ranges.iter().map(|range| (range.clone(), contents, used)));
        });
        (served, given)
    }

    fn take(&mut self) -> (Served, Given) {
        let (served, given) = self.take_seen();
        (served, given.into_iter().map(|(range, contents, _)| (range, contents)).collect())
    }

    fn has_used(&mut self) -> [bool; 3] {
        [0, 1, 2].map(|queue| self.used(queue).is_some())
    }
}

/// Pages of which it is the same what they read as, by the first ones and those behind the last.
fn given(ranges: &[(u64, u64)]) -> Given {
    ranges.iter().map(|&(start, end)| (start..end, Contents::Any)).collect()
}

#[test]
fn a_driver_finds_a_balloon_with_three_queues_and_three_features() {
    let mut guest = Guest::new(VERSION_1);
    assert_eq!([0, 4, 8].map(|offset| get(&guest.device, offset)), [0x7472_6976, 2, 5]);
    for queue in 0..4 {
        set(&mut guest.device, 0x30, queue);
        assert_eq!(get(&guest.device, 0x34), if queue < 3 { 256 } else { 0 });
        assert_eq!(set(&mut guest.device, 0x50, queue), queue < 3, "a notification of {queue}");
    }
    for feature in 0..7 {
        let is_there = [2, 4, 5].contains(&feature);
        assert_eq!(agree(&mut guest.device, VERSION_1 | 1 << feature), is_there, "{feature}");
    }
}

#[test]
fn pages_are_given_before_their_driver_hears_of_it() {
    let mut guest = Guest::new(ALL | REPORTING);
    guest.name(INFLATE, &[7, 8, 9, 3], &[6]);
    guest.offer(REPORT, &[(0x10_0000, 0x2000)], true);
    let (served, given) = guest.take_seen();
    assert_eq!(served, Served::One);
    let expected = [(3..4, Contents::Any, [0, 0, 0]), (7..10, Contents::Any, [0, 0, 0])];
    assert_eq!(given[..2], expected);
    assert_eq!(given[2], (0x100..0x102, Contents::Any, [1, 0, 0]));
    assert_eq!(guest.used(INFLATE), Some((0, 0)));
    assert_eq!(guest.used(REPORT), Some((0, 0)));
    assert!(guest.device.interrupt());
    assert_eq!(guest.take(), (Served::Nothing, Given::new()));
    assert_eq!(guest.device.serve(&guest.memory), Served::Nothing, "it is asked for nothing else");
}

#[test]
fn pages_that_leave_the_balloon_are_given_to_nobody() {
    let mut guest = Guest::new(VERSION_1);
    guest.name(DEFLATE, &[1, 2, 3], &[]);
    assert_eq!(guest.take(), (Served::One, Given::new()));
    assert_eq!(guest.has_used(), [false, true, false]);
    assert_eq!(guest.take().0, Served::Nothing);
}

#[test]
fn a_page_that_is_named_twice_is_given_once_and_order_does_not_matter() {
    let mut guest = Guest::new(VERSION_1);
    guest.name(INFLATE, &[9, 4, 9, 5, 4, 8, u32::MAX, 9], &[]);
    assert_eq!(guest.take().1, given(&[(4, 6), (8, 10), (0xffff_ffff, 0x1_0000_0000)]));
    guest.offer(REPORT, &[(0x5000, 0x2000), (0x2000, 0x3000), (0x4000, 0x1000)], true);
    assert_eq!(guest.take().1, given(&[(2, 7)]));
}

#[test]
fn as_many_pages_as_linux_names_in_a_chain_are_given_together_in_either_order() {
    for pages in [(1000..1256).collect::<Vec<u32>>(), (1000..1256).rev().collect()] {
        let mut guest = Guest::new(VERSION_1);
        guest.name(INFLATE, &pages, &[]);
        assert_eq!(guest.take().1, given(&[(1000, 1256)]));
        assert!(guest.has_used()[INFLATE]);
    }
}

#[test]
fn of_what_is_reported_the_whole_pages_are_given_wherever_they_are() {
    let mut guest = Guest::new(VERSION_1);
    for (piece, pages) in [
        ((0x1001, 0x1fff), Some((2, 3))),
        ((0x1001, 0x1ffe), None),
        ((0xfff, 0x1002), Some((1, 2))),
        ((0x8000, 0xfff), None),
        ((0x2000, u32::MAX), Some((2, 0x10_0001))),
        ((u64::MAX - 0x2000, 0x2000), Some((0xf_ffff_ffff_fffe, 0xf_ffff_ffff_ffff))),
    ] {
        guest.offer(REPORT, &[piece], true);
        assert_eq!(guest.take(), (Served::One, given(pages.as_slice())), "{piece:x?}");
        assert!(guest.has_used()[REPORT]);
    }
}

#[test]
fn pages_that_are_to_read_as_something_else_than_zeroes_stay_as_they_are() {
    for (value, expected) in [(0, Given::from([(5..6, Contents::Zeroes)])), (0xaa, Given::new())] {
        let mut guest = Guest::new(VERSION_1);
        assert!(agree(&mut guest.device, VERSION_1 | POISON | REPORTING));
        set(&mut guest.device, POISON_VALUE, value);
        for queue in 0..3 {
            guest.turn_on(queue);
        }
        guest.rings = Default::default();
        set(&mut guest.device, 0x70, 0xf);
        set(&mut guest.device, POISON_VALUE, 0xaa - value);
        assert_eq!(get(&guest.device, POISON_VALUE), value, "too late");
        guest.offer(REPORT, &[(0x5000, 0x1000)], true);
        assert_eq!(guest.take(), (Served::One, expected));
        assert!(guest.has_used()[REPORT]);
        guest.name(INFLATE, &[7], &[]);
        assert_eq!(guest.take().1, given(&[(7, 8)]), "what is in the balloon reads as nothing");
    }
}

#[test]
fn its_driver_is_told_what_it_asks_for_and_says_what_it_has() {
    let mut guest = Guest::new(VERSION_1);
    guest.device.ask_for(300);
    assert_eq!([get(&guest.device, TARGET), get(&guest.device, 0x60)], [300, 2]);
    set(&mut guest.device, 0x64, 2);
    guest.device.ask_for(300);
    assert!(!guest.device.interrupt(), "it is no other number");
    set(&mut guest.device, ACTUAL, 299);
    assert_eq!((get(&guest.device, ACTUAL), guest.device.device().actual()), (299, 299));
    set(&mut guest.device, TARGET, 1);
    assert_eq!(guest.device.device().target(), 300, "that is not for the driver to say");
    set(&mut guest.device, 0x70, 0);
    assert_eq!([TARGET, ACTUAL].map(|offset| get(&guest.device, offset)), [300, 0]);
    guest.device.ask_for(5);
    assert!(!guest.device.interrupt(), "no driver works");
    assert_eq!(get(&guest.device, TARGET), 5);
}

#[test]
fn gigabytes_of_numbers_are_taken_a_piece_at_a_time() {
    let mut guest = Guest::new(ALL);
    // Pages far from each other.
    for at in (0..BYTES as u64 / 2).step_by(4) {
        guest.memory.put(BASE + BYTES as u64 / 2 + at, &(at as u32).to_le_bytes());
    }
    guest.offer(INFLATE, &[(BASE + BYTES as u64 / 2, BYTES as u32 / 2); SIZE as usize], false);
    for piece in 0..100 {
        *guest.memory.accesses.borrow_mut() = 0;
        let (served, given) = guest.take();
        let pages: Vec<_> = given.iter().map(|(range, _)| range.start).collect();
        let first = piece * MOST_RANGES as u64;
        let expected: Vec<_> = (first..first + MOST_RANGES as u64).map(|page| page * 4).collect();
        assert_eq!((served, pages), (Served::One, expected));
        assert!(*guest.memory.accesses.borrow() < 60);
    }
    assert_eq!(guest.has_used(), [false; 3]);
    // What was taken of it is nothing to the chains of a queue that begins anew.
    set(&mut guest.device, 0x30, INFLATE as u32);
    set(&mut guest.device, 0x44, 0);
    guest.rings[INFLATE] = Ring::default();
    guest.turn_on(INFLATE);
    guest.name(INFLATE, &[1, 2], &[]);
    assert_eq!(guest.take().1, given(&[(1, 3)]));
}

#[test]
fn numbers_that_cannot_be_had_are_none_and_the_driver_goes_on() {
    let mut guest = Guest::new(VERSION_1);
    for len in [1, 3] {
        guest.offer(INFLATE, &[(DATA, len)], false);
        assert_eq!(guest.take(), (Served::One, Given::new()), "no whole number");
        assert!(guest.has_used()[INFLATE]);
    }
    guest.offer(INFLATE, &[(BASE + BYTES as u64 - 2, 4)], false);
    assert_eq!(guest.take(), (Served::One, Given::new()));
    assert!(guest.has_used()[INFLATE]);
    assert!(!guest.device.is_broken());
}

#[test]
fn a_chain_of_the_wrong_direction_breaks_the_balloon_until_its_reset() {
    for (queue, writes) in [(INFLATE, true), (REPORT, false)] {
        let mut guest = Guest::new(VERSION_1);
        guest.offer(queue, &[(buffer(queue, 0), 0x1000)], writes);
        guest.name(DEFLATE, &[1], &[]);
        guest.take();
        assert!(guest.device.is_broken(), "{queue}");
        assert_eq!(guest.take(), (Served::Nothing, Given::new()));
        guest.begin(VERSION_1);
        assert!(!guest.device.is_broken());
    }
}

proptest! {
    #![proptest_config(config())]

    /// Against a model: sets of pages.
    #[test]
    fn exactly_the_pages_of_a_chain_are_given_whatever_their_order(
        features in prop_oneof![Just(VERSION_1), Just(ALL), Just(VERSION_1 | POISON)],
        steps in prop::collection::vec(
            prop_oneof![
                2 => any_pages().prop_map(Act::Inflate),
                1 => any_pages().prop_map(Act::Deflate),
                2 => prop::collection::vec((REPORTED..REPORTED + 100_000, 1..9_000_u32), 1..6)
                    .prop_map(Act::Report),
                4 => Just(Act::Take),
                1 => Just(Act::Restart),
            ],
            1..80,
        ),
    ) {
        let mut guest = Guest::new(features);
        let mut model = Model::default();
        for step in steps {
            match step {
                Act::Inflate(pages) if model.inflated.len() < 3 => {
                    guest.name(INFLATE, &pages, &[pages.len() * 2, pages.len()]);
                    model.inflated.push(pages);
                }
                Act::Deflate(pages) if model.deflated < 3 => {
                    guest.name(DEFLATE, &pages, &[]);
                    model.deflated += 1;
                }
                Act::Report(pieces) if model.reported.len() < 3 => {
                    guest.offer(REPORT, &pieces, true);
                    model.reported.push(pieces);
                }
                Act::Take => {
                    let taken = guest.take();
                    let used = guest.has_used();
                    model.takes(taken, used, features & POISON != 0)?;
                }
                Act::Restart => {
                    guest.begin(features);
                    model = Model::default();
                }
                _ => {}
            }
        }
    }

    /// Whatever is in its rings: no panic, bounded work, and it works after its reset.
    #[test]
    fn a_balloon_survives_any_driver(steps in any_wild()) {
        let mut guest = Guest::new(ALL);
        guest.all(&steps);
        guest.begin(ALL);
        guest.name(INFLATE, &[1], &[]);
        prop_assert_eq!(guest.take().1, given(&[(1, 2)]));
    }

    #[test]
    fn a_balloon_goes_on_as_the_one_that_was_saved(before in any_wild(), then in any_wild()) {
        let [mut guest, mut copy] = [Guest::new(ALL), Guest::new(ALL)];
        guest.all(&before);
        copy.all(&then);
        guest.goes_on(Mmio::new(Balloon::new()), copy, &then, Guest::wild);
    }

    #[test]
    fn a_forged_balloon_is_refused_or_works(
        before in any_wild(),
        forgery in any_forgery(),
        then in any_wild(),
    ) {
        let mut guest = Guest::new(ALL);
        guest.all(&before);
        let bytes = forged(&save(&guest.device), STATE, &forgery);
        if load(&mut guest.device, &bytes).is_ok() {
            prop_assert_eq!(save(&guest.device), bytes);
            guest.all(&then);
        }
    }
}

/// The chain that is next was taken up to within a number of a page, which no balloon does.
#[test]
fn a_state_that_was_saved_within_a_number_of_a_page_is_refused_or_taken_to_its_end() {
    for taken in [1, 2, 3, 5] {
        let mut guest = Guest::new(VERSION_1);
        guest.name(INFLATE, &[7, 8], &[]);
        let mut fields = Vec::new();
        let bytes = save(&guest.device);
        let mut section = State::open(&bytes).unwrap().sections().take(STATE, 0).unwrap();
        while let Ok(byte) = section.u8("byte") {
            fields.push(byte);
        }
        let at = fields.len() - size_of::<u64>();
        fields[at..].copy_from_slice(&u64::to_le_bytes(taken));
        let forged = crate::state::saved(STATE, |to| to.bytes(&fields));
        if load(&mut guest.device, &forged).is_err() {
            continue;
        }
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            guest.take();
            let _ = done.send(());
        });
        let waited = is_done.recv_timeout(std::time::Duration::from_secs(5));
        assert!(waited.is_ok(), "pages are taken for ever from byte {taken} on");
    }
}

/// From here on are pages that are reported, and below those that are inflated.
const REPORTED: u64 = 0x10_0000;

/// Numbers of pages, of which some follow each other.
fn any_pages() -> impl Strategy<Value = Vec<u32>> {
    let run = (0..200_u32, 1..40_u32).prop_map(|(first, count)| (first..first + count).collect());
    let any = prop::collection::vec(0..256_u32, 1..40);
    let runs = prop::collection::vec(prop_oneof![run, any], 1..20);
    runs.prop_map(|runs: Vec<Vec<u32>>| runs.concat())
}

/// What a well-behaved driver and an embedder do.
#[derive(Clone, Debug)]
enum Act {
    Inflate(Vec<u32>),
    Deflate(Vec<u32>),
    Report(Vec<(u64, u32)>),
    Take,
    Restart,
}

/// Chains that were made available, and not used; and what was given so far of the first that inflates.
#[derive(Default)]
struct Model {
    inflated: Vec<Vec<u32>>,
    deflated: usize,
    reported: Vec<Vec<(u64, u32)>>,
    given: BTreeSet<u64>,
    takes: usize,
}

impl Model {
    fn takes(
        &mut self,
        (served, given): (Served, Given),
        used: [bool; 3],
        is_poisoned: bool,
    ) -> Result<(), TestCaseError> {
        let has_any = !self.inflated.is_empty() || self.deflated > 0 || !self.reported.is_empty();
        prop_assert_eq!(served == Served::One, has_any);
        let zeroes = if is_poisoned { Contents::Zeroes } else { Contents::Any };
        let (mut inflated, mut reported) = (BTreeSet::new(), BTreeSet::new());
        for (range, contents) in given {
            let is_reported = range.start >= REPORTED / PAGE_BYTES;
            prop_assert_eq!(contents, if is_reported { zeroes } else { Contents::Any });
            if is_reported { &mut reported } else { &mut inflated }.extend(range);
        }
        prop_assert_eq!(used[DEFLATE], self.deflated > 0);
        self.deflated = self.deflated.saturating_sub(1);

        let whole = |(address, bytes): (u64, u32)| {
            (address / PAGE_BYTES..=(address + u64::from(bytes)) / PAGE_BYTES).filter(move |page| {
                page * PAGE_BYTES >= address
                    && (page + 1) * PAGE_BYTES <= address + u64::from(bytes)
            })
        };
        prop_assert_eq!(used[REPORT], !self.reported.is_empty());
        let pieces = if used[REPORT] { self.reported.remove(0) } else { Vec::new() };
        prop_assert_eq!(reported, pieces.into_iter().flat_map(whole).collect());

        let Some(first) = self.inflated.first() else {
            prop_assert!(inflated.is_empty() && !used[INFLATE]);
            return Ok(());
        };
        self.takes += 1;
        self.given.extend(inflated);
        let all: BTreeSet<u64> = first.iter().map(|page| u64::from(*page)).collect();
        prop_assert!(self.given.is_subset(&all));
        prop_assert!(self.takes <= first.len().div_ceil(MOST_RANGES), "so many at a time");
        if used[INFLATE] {
            prop_assert_eq!(&self.given, &all);
            self.inflated.remove(0);
            (self.given, self.takes) = Default::default();
        }
        Ok(())
    }
}

/// What a driver does that does as it likes.
#[derive(Clone, Debug)]
enum Wild {
    Register(u64, u32),
    Offer(usize, Vec<(u64, u32)>, bool),
    Descriptor(usize, u16, (u64, u32, u16, u16)),
    Word(u64, u16),
    Take,
    Ask(u32),
    Begin,
}

fn any_wild() -> impl Strategy<Value = Vec<Wild>> {
    let address = || {
        prop_oneof![
            8 => (0..BYTES as u64).prop_map(|offset| BASE + offset),
            1 => (0..64_u64).prop_map(|before| BASE + BYTES as u64 - before),
            1 => any::<u64>(),
        ]
    };
    let len = || prop_oneof![4 => 0..0x4000_u32, 1 => any::<u32>()];
    let step = prop_oneof![
        1 => (0..0x48_u64, any::<u32>()).prop_map(|(at, value)| Wild::Register(at * 4, value)),
        8 => (0..3_usize, prop::collection::vec((address(), len()), 1..4), prop::bool::weighted(0.1))
            .prop_map(|(queue, pieces, is_wrong)| {
                Wild::Offer(queue, pieces, (queue == REPORT) != is_wrong)
            }),
        2 => (0..3_usize, 0..SIZE, (address(), len(), 0..8_u16, 0..SIZE + 2))
            .prop_map(|(queue, index, fields)| Wild::Descriptor(queue, index, fields)),
        1 => (0..0x6000_u64, any::<u16>()).prop_map(|(at, value)| Wild::Word(BASE + 2 * at, value)),
        6 => Just(Wild::Take),
        1 => any::<u32>().prop_map(Wild::Ask),
        1 => Just(Wild::Begin),
    ];
    prop::collection::vec(step, 0..80)
}

impl Guest {
    fn all(&mut self, steps: &[Wild]) {
        let mut shown = Shown::new(&self.device);
        for step in steps {
            self.wild(step);
            match step {
                Wild::Register(..) | Wild::Begin => shown.is_written(&self.device),
                _ => shown.is_served(&self.device),
            }
        }
    }

    /// Does a step. Returns what was given.
    fn wild(&mut self, step: &Wild) -> Given {
        match step {
            Wild::Register(at, value) => {
                set(&mut self.device, *at, *value);
            }
            Wild::Offer(queue, pieces, writes) => {
                self.offer(*queue, pieces, *writes);
            }
            Wild::Descriptor(queue, index, fields) => {
                descriptor(&self.memory, place(*queue, 0), *index, *fields);
            }
            Wild::Word(at, value) => self.memory.store_release(*at, *value).unwrap(),
            Wild::Take => {
                *self.memory.accesses.borrow_mut() = 0;
                let (_, given) = self.take();
                // Three chains of as many pieces as there may be, and a piece of numbers, each in a piece of its own.
                assert!(
                    *self.memory.accesses.borrow() < 3 * 300 + 256 + 50,
                    "a bounded amount of work"
                );
                return given;
            }
            Wild::Ask(pages) => self.device.ask_for(*pages),
            Wild::Begin => self.begin(ALL),
        }
        Given::new()
    }
}
