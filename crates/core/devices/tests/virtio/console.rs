//! A console: what is sent arrives whole and in order, what is typed waits for room, and no driver does harm.

use std::collections::VecDeque;

use mayfly_devices::memory::GuestMemory;
use mayfly_devices::virtio::{Console, Mmio, STATE, Served};
use proptest::prelude::*;

use crate::ALL;
use crate::guest::*;
use crate::queues::{self, Ring, SIZE, buffer, place};
use crate::saved::{load, save};
use crate::shown::Shown;
use crate::state::{any_forgery, config, forged};

const RECEIVE: usize = 0;
const TRANSMIT: usize = 1;

type Guest = queues::Guest<Console>;

impl Guest {
    fn new(features: u64) -> Self {
        Self::with(Mmio::new(Console::new()), features)
    }

    /// Sends bytes in pieces that end at these places.
    fn send(&mut self, bytes: &[u8], cuts: &[usize]) -> bool {
        self.offer_bytes(TRANSMIT, bytes, cuts)
    }

    fn make_room(&mut self, len: u32) -> bool {
        let at = buffer(RECEIVE, self.rings[RECEIVE].next);
        self.offer(RECEIVE, &[(at, len)], true)
    }

    /// What the driver has been given next.
    fn received(&mut self) -> Option<Vec<u8>> {
        let (head, len) = self.used(RECEIVE)?;
        Some(self.memory.get(buffer(RECEIVE, head as u16), len as usize))
    }

    fn output(&mut self, most: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; most];
        let count = self.device.next_output(&mut bytes, &self.memory)?;
        bytes.truncate(count);
        Some(bytes)
    }
}

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256) as u8).collect()
}

#[test]
fn a_driver_finds_a_console_with_two_queues_and_no_features_of_its_own() {
    let mut guest = Guest::new(VERSION_1);
    assert_eq!([0, 4, 8].map(|offset| get(&guest.device, offset)), [0x7472_6976, 2, 3]);
    for queue in 0..3 {
        set(&mut guest.device, 0x30, queue);
        assert_eq!(get(&guest.device, 0x34), if queue < 2 { 256 } else { 0 });
        assert_eq!(set(&mut guest.device, 0x50, queue), queue < 2, "a notification of {queue}");
    }
    for feature in 0..3 {
        assert!(!agree(&mut guest.device, VERSION_1 | 1 << feature), "{feature}");
    }
}

#[test]
fn a_chain_is_taken_in_pieces_and_given_back_with_its_last_byte() {
    let mut guest = Guest::new(VERSION_1);
    guest.send(&text(150), &[40, 90]);
    guest.send(b"next", &[]);
    for (at, len) in [(0, 64), (64, 64)] {
        assert_eq!(guest.output(64), Some(text(150)[at..at + len].to_vec()));
        assert_eq!((guest.used(TRANSMIT), guest.device.interrupt()), (None, false));
    }
    assert_eq!(guest.output(64), Some(text(150)[128..].to_vec()));
    assert_eq!((guest.used(TRANSMIT), guest.device.interrupt()), (Some((0, 0)), true));
    assert_eq!(guest.output(64), Some(b"next".to_vec()));
    assert_eq!(guest.used(TRANSMIT), Some((3, 0)));
    assert_eq!(guest.output(64), None);
    assert_eq!(guest.device.serve(&guest.memory), Served::Nothing, "it is asked for nothing else");
}

#[test]
fn what_is_typed_waits_for_room_and_then_for_more() {
    let mut guest = Guest::new(VERSION_1 | EVENT_FEATURE);
    assert_eq!(guest.device.receive(&text(70)), 64, "so much waits");
    assert_eq!(guest.device.receive(b"x"), 0);
    guest.device.deliver(&guest.memory);
    assert!(!guest.device.interrupt());
    assert!(guest.make_room(10), "its driver tells of room that was asked for");
    guest.device.deliver(&guest.memory);
    assert_eq!(guest.received(), Some(text(70)[..10].to_vec()));
    assert!(guest.device.interrupt());
    assert_eq!(guest.device.receive(&text(70)[64..]), 6);
    assert!(guest.make_room(100), "as much is left as was not delivered");
    guest.device.deliver(&guest.memory);
    assert_eq!(guest.received(), Some(text(70)[10..].to_vec()));
    assert!(!guest.make_room(100), "nothing waits, and room is not asked for");
}

#[test]
fn a_driver_that_does_not_work_takes_nothing_and_one_that_begins_anew_is_given_nothing_old() {
    let mut guest = Guest::new(VERSION_1);
    assert!(guest.device.receives());
    assert_eq!(guest.device.receive(b"old"), 3);
    guest.send(&text(100), &[]);
    assert_eq!(guest.output(64), Some(text(64)));
    set(&mut guest.device, 0x70, 0);
    assert!(!guest.device.receives());
    assert_eq!((guest.device.receive(b"nobody"), guest.output(9)), (0, None));
    guest.begin(VERSION_1);
    guest.make_room(100);
    guest.device.deliver(&guest.memory);
    assert_eq!(guest.received(), None);
    guest.send(b"a chain of its own", &[]);
    assert_eq!(guest.output(64), Some(b"a chain of its own".to_vec()), "from its first byte on");
}

#[test]
fn a_queue_that_begins_anew_sends_from_the_first_byte_on() {
    let mut guest = Guest::new(VERSION_1);
    guest.send(&text(100), &[]);
    assert_eq!(guest.output(64), Some(text(64)));
    set(&mut guest.device, 0x30, TRANSMIT as u32);
    set(&mut guest.device, 0x44, 0);
    assert_eq!(guest.output(64), None);
    guest.rings[TRANSMIT] = Ring::default();
    guest.turn_on(TRANSMIT);
    guest.send(&text(100), &[]);
    assert_eq!(guest.output(64), Some(text(64)));
}

#[test]
fn a_queue_that_begins_anew_has_nothing_of_the_other_queue_sent_twice() {
    let mut guest = Guest::new(VERSION_1);
    guest.send(&text(100), &[]);
    assert_eq!(guest.output(64), Some(text(64)));
    set(&mut guest.device, 0x30, RECEIVE as u32);
    set(&mut guest.device, 0x44, 0);
    guest.rings[RECEIVE] = Ring::default();
    guest.turn_on(RECEIVE);
    assert_eq!(guest.output(64), Some(text(100)[64..].to_vec()));
    assert_eq!((guest.used(TRANSMIT), guest.output(64)), (Some((0, 0)), None));
}

#[test]
fn bytes_that_are_not_there_are_not_sent_and_their_chain_is_given_back() {
    let mut guest = Guest::new(VERSION_1);
    guest.offer(TRANSMIT, &[(0x1000, 5)], false);
    guest.send(b"here", &[]);
    assert_eq!(guest.output(64), Some(vec![]));
    assert_eq!(guest.used(TRANSMIT), Some((0, 0)));
    assert_eq!(guest.output(64), Some(b"here".to_vec()));
}

/// Its second piece is not there. What was taken of the first was sent.
#[test]
fn a_chain_that_ends_where_there_is_no_memory_is_given_back_at_that_place() {
    let mut guest = Guest::new(VERSION_1);
    let at = buffer(TRANSMIT, 0);
    guest.memory.put(at, &text(64));
    guest.offer(TRANSMIT, &[(at, 64), (0x1000, u32::MAX)], false);
    assert_eq!(guest.output(64), Some(text(64)));
    assert_eq!((guest.used(TRANSMIT), guest.output(64)), (None, Some(vec![])));
    assert_eq!(guest.used(TRANSMIT), Some((0, 0)));
}

#[test]
fn a_chain_that_has_shrunk_meanwhile_is_over() {
    let mut guest = Guest::new(VERSION_1);
    guest.send(&text(100), &[]);
    assert_eq!(guest.output(64), Some(text(64)));
    descriptor(&guest.memory, place(TRANSMIT, 0), 0, (buffer(TRANSMIT, 0), 9, 0, 0));
    assert_eq!((guest.output(64), guest.used(TRANSMIT)), (Some(vec![]), Some((0, 0))));
    guest.send(b"next", &[]);
    assert_eq!(guest.output(64), Some(b"next".to_vec()));
}

#[test]
fn a_buffer_that_is_not_there_is_given_back_empty_and_what_is_typed_is_put_into_the_next() {
    let mut guest = Guest::new(VERSION_1 | EVENT_FEATURE);
    for _ in 1..SIZE {
        guest.offer(RECEIVE, &[(0x1000, 100)], true);
    }
    guest.make_room(3);
    guest.device.receive(b"typed");
    guest.device.deliver(&guest.memory);
    for head in 1..SIZE {
        assert_eq!(guest.used(RECEIVE), Some((u32::from(head) - 1, 0)));
    }
    assert_eq!((guest.received(), guest.received()), (Some(b"typ".to_vec()), None));
    assert!(guest.make_room(100), "the rest waits for room, which the driver is asked to tell of");
    guest.device.deliver(&guest.memory);
    assert_eq!(guest.received(), Some(b"ed".to_vec()));
}

#[test]
fn gigabytes_are_sent_a_piece_at_a_time() {
    let mut guest = Guest::new(ALL);
    let whole = (BASE, BYTES as u32);
    guest.offer(TRANSMIT, &[whole; SIZE as usize], false);
    for _ in 0..100 {
        *guest.memory.accesses.borrow_mut() = 0;
        assert_eq!(guest.output(64).map(|bytes| bytes.len()), Some(64));
        assert!(*guest.memory.accesses.borrow() < 40);
    }
}

#[test]
fn a_chain_of_the_wrong_direction_breaks_the_console_until_its_reset() {
    for (queue, writes) in [(RECEIVE, false), (TRANSMIT, true)] {
        let mut guest = Guest::new(VERSION_1);
        guest.offer(queue, &[(buffer(queue, 0), 10)], writes);
        assert_eq!(guest.device.receive(b"typed"), 5);
        guest.device.deliver(&guest.memory);
        assert_eq!(guest.output(64), None);
        assert!(guest.device.is_broken());
        assert_eq!(guest.device.receive(b"typed"), 0);
        guest.begin(VERSION_1);
        assert!(!guest.device.is_broken());
    }
}

proptest! {
    #![proptest_config(config())]

    /// Against a model: a queue of bytes each way.
    #[test]
    fn bytes_arrive_in_order_whatever_their_pieces(
        features in prop_oneof![Just(VERSION_1), Just(VERSION_1 | EVENT_FEATURE)],
        steps in prop::collection::vec(
            prop_oneof![
                (1..300_usize).prop_map(Act::Send),
                (1..100_usize).prop_map(Act::Take),
                (0..90_usize).prop_map(Act::Type),
                (1..40_u32).prop_map(Act::Room),
                Just(Act::Restart),
            ],
            1..200,
        ),
    ) {
        let mut guest = Guest::new(features);
        let (mut sent, mut chains) = (VecDeque::<u8>::new(), VecDeque::<usize>::new());
        let (mut typed, mut room, mut seed) = (VecDeque::<u8>::new(), VecDeque::<usize>::new(), 0_u8);
        // The device has found nothing to send, and looks no more.
        let mut rests = true;
        let mut some = |len: usize| -> Vec<u8> {
            (0..len).map(|_| { seed = seed.wrapping_add(1); seed }).collect()
        };
        for step in steps {
            match step {
                Act::Send(_) if chains.len() == usize::from(SIZE) => {}
                Act::Send(len) => {
                    let bytes = some(len);
                    let is_told = guest.send(&bytes, &[]);
                    prop_assert!(is_told || !rests || features == VERSION_1);
                    rests = false;
                    sent.extend(bytes);
                    chains.push_back(len);
                }
                Act::Take(most) => {
                    let taken = guest.output(most);
                    let Some(left) = chains.front_mut() else {
                        prop_assert_eq!(taken, None);
                        rests = true;
                        continue;
                    };
                    let count = most.min(*left);
                    prop_assert_eq!(taken, Some(sent.drain(..count).collect::<Vec<_>>()));
                    *left -= count;
                    let is_over = *left == 0;
                    prop_assert_eq!(guest.used(TRANSMIT).is_some(), is_over);
                    if is_over {
                        chains.pop_front();
                    }
                }
                Act::Type(len) => {
                    let bytes = some(len);
                    let taken = guest.device.receive(&bytes);
                    prop_assert_eq!(taken, len.min(64 - typed.len()));
                    typed.extend(&bytes[..taken]);
                    guest.device.deliver(&guest.memory);
                }
                Act::Room(_) if room.len() == usize::from(SIZE) => {}
                Act::Room(len) => {
                    let is_told = guest.make_room(len);
                    prop_assert!(is_told || typed.is_empty() || features == VERSION_1);
                    room.push_back(len as usize);
                    guest.device.deliver(&guest.memory);
                }
                Act::Restart => {
                    guest.begin(features);
                    (sent, chains) = Default::default();
                    (typed, room) = Default::default();
                    rests = true;
                }
            }
            while !typed.is_empty() && let Some(len) = room.pop_front() {
                let count = len.min(typed.len());
                prop_assert_eq!(guest.received(), Some(typed.drain(..count).collect::<Vec<_>>()));
            }
            prop_assert_eq!(guest.received(), None);
        }
    }

    /// Whatever is in its rings: no panic, bounded work, and it works after its reset.
    #[test]
    fn a_console_survives_any_driver(steps in any_wild()) {
        let mut guest = Guest::new(ALL);
        guest.all(&steps);
        guest.begin(ALL);
        guest.send(b"works", &[]);
        prop_assert_eq!(guest.output(64), Some(b"works".to_vec()));
    }

    #[test]
    fn a_console_goes_on_as_the_one_that_was_saved(before in any_wild(), then in any_wild()) {
        let [mut guest, mut copy] = [Guest::new(ALL), Guest::new(ALL)];
        guest.all(&before);
        copy.all(&then);
        guest.goes_on(Mmio::new(Console::new()), copy, &then, Guest::wild);
    }

    #[test]
    fn a_forged_console_is_refused_or_works(
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

/// What a driver and an embedder do.
#[derive(Clone, Debug)]
enum Act {
    Send(usize),
    Take(usize),
    Type(usize),
    Room(u32),
    Restart,
}

/// The same of a driver that does as it likes.
#[derive(Clone, Debug)]
enum Wild {
    Register(u64, u32),
    Offer(usize, Vec<(u64, u32)>, bool),
    Descriptor(usize, u16, (u64, u32, u16, u16)),
    Word(u64, u16),
    Take(usize),
    Type(usize),
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
    let len = || prop_oneof![4 => 0..0x200_u32, 1 => any::<u32>()];
    let step = prop_oneof![
        1 => (0..0x44_u64, any::<u32>()).prop_map(|(at, value)| Wild::Register(at * 4, value)),
        8 => (0..2_usize, prop::collection::vec((address(), len()), 1..4), prop::bool::weighted(0.1))
            .prop_map(|(queue, pieces, is_wrong)| {
                Wild::Offer(queue, pieces, (queue == RECEIVE) != is_wrong)
            }),
        2 => (0..2_usize, 0..SIZE, (address(), len(), 0..8_u16, 0..SIZE + 2))
            .prop_map(|(queue, index, fields)| Wild::Descriptor(queue, index, fields)),
        1 => (0..0x4000_u64, any::<u16>()).prop_map(|(at, value)| Wild::Word(BASE + 2 * at, value)),
        6 => (1..100_usize).prop_map(Wild::Take),
        4 => (0..100_usize).prop_map(Wild::Type),
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

    fn wild(&mut self, step: &Wild) {
        *self.memory.accesses.borrow_mut() = 0;
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
            Wild::Take(most) => {
                self.output(*most);
                assert!(*self.memory.accesses.borrow() < 300, "a bounded amount of work");
            }
            Wild::Type(len) => {
                self.device.receive(&text(*len));
                self.device.deliver(&self.memory);
                // Each byte that waits may be put into a buffer of its own, which a chain of many is made of; and a whole
                // queue of them may be of no memory.
                assert!(
                    *self.memory.accesses.borrow() < (64 + 256) * 300,
                    "a bounded amount of work"
                );
            }
            Wild::Begin => self.begin(ALL),
        }
    }
}
