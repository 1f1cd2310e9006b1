//! What a guest receives of one sender beside others.

use mayfly_devices::memory::GuestMemory;
use mayfly_devices::virtio::net::{Frame, Lost, Net, Offload, Packet};
use mayfly_devices::virtio::{Mmio, STATE};
use proptest::prelude::*;

use crate::cards::*;
use crate::frame;
use crate::state::{loaded, saved};

/// Sends a frame of 60 bytes, which takes a buffer.
fn receive(guest: &mut Guest, from: u64) -> Result<(), Lost> {
    let (head, nothing) = (frame(60), Packet::new());
    let sent = Frame { head: &head, rest: 0..0, offload: Offload::default() };
    guest.card.receive(from, &sent, &nothing.in_memory(&guest.memory), &guest.memory)
}

/// Sends such frames until one is lost; how many were received.
fn flood(guest: &mut Guest, from: u64) -> usize {
    let mut count = 0;
    while count <= 2 * usize::from(SIZE) {
        match receive(guest, from) {
            Ok(()) => count += 1,
            Err(Lost::NoRoom) => return count,
            Err(why) => panic!("{why}"),
        }
    }
    panic!("no frame is lost");
}

/// One whose driver has waited for its second frame, and offers so many buffers then.
fn guest(features: u64, buffers: usize) -> Guest {
    let mut guest = Guest::new(1, features);
    wait(&mut guest);
    guest.make_room(&vec![2048; buffers]);
    guest
}

/// The frames that a driver takes which has just begun: it waits for the second.
const BEFORE: u16 = 2;

fn wait(guest: &mut Guest) {
    guest.make_room(&[2048; BEFORE as usize]);
    for _ in 0..BEFORE {
        assert_eq!(receive(guest, 0), Ok(()));
        assert!(guest.used(RECEIVE).is_some());
    }
    guest.set(0x64, 3);
    guest.wants_to_be_told_behind(RECEIVE, 0x8000);
}

#[test]
fn a_sender_without_an_end_leaves_a_third_of_the_buffers_for_others() {
    for (buffers, first, second) in [(64, 43, 15), (16, 11, 4), (3, 3, 0)] {
        let mut guest = guest(ALL | EVENT_INDEX, buffers);
        assert_eq!(
            [7, 8].map(|from| flood(&mut guest, from)),
            [first, second],
            "{buffers} buffers"
        );
        assert_eq!(flood(&mut guest, 7), 0);
    }
}

#[test]
fn what_a_driver_offers_again_is_for_all() {
    let mut guest = guest(ALL | EVENT_INDEX, 64);
    assert_eq!(flood(&mut guest, 7), 43);
    guest.make_room(&[2048; 43]);
    assert_eq!(flood(&mut guest, 7), 43);
}

#[test]
fn a_driver_that_has_taken_all_that_it_was_given_is_given_more() {
    let mut guest = guest(ALL | EVENT_INDEX, 64);
    assert_eq!(flood(&mut guest, 7), 43);
    guest.wants_to_be_told_behind(RECEIVE, BEFORE + 43);
    assert_eq!(flood(&mut guest, 7), 1);
    guest.wants_to_be_told_behind(RECEIVE, BEFORE + 44);
    assert_eq!(flood(&mut guest, 7), 1);
}

#[test]
fn a_driver_that_does_not_say_what_it_has_taken_is_given_all() {
    let mut guest = guest(ALL, 64);
    assert_eq!(flood(&mut guest, 7), 64);
}

#[test]
fn a_driver_that_begins_anew_has_nothing_of_anybody() {
    let mut guest = guest(ALL | EVENT_INDEX, 64);
    assert_eq!(flood(&mut guest, 7), 43);
    guest.begin(ALL | EVENT_INDEX);
    wait(&mut guest);
    guest.make_room(&[2048; 64]);
    assert_eq!([8, 7].map(|from| flood(&mut guest, from)), [43, 15]);
}

#[test]
fn a_driver_that_wants_to_be_told_of_several_frames_at_once_is_told() {
    // It sleeps until so many of its 64 buffers are used. It is told of none that it has not offered.
    for (chains, received) in [(43, 44), (47, 48), (63, 64), (64, 43), (42, 43)] {
        let mut guest = guest(ALL | EVENT_INDEX, 64);
        assert_eq!(flood(&mut guest, 7), 43);
        guest.wants_to_be_told_behind(RECEIVE, BEFORE + chains);
        assert_eq!(43 + flood(&mut guest, 7), received, "told behind {chains}");
        assert_eq!(guest.card.interrupt(), received != 43, "told behind {chains}");
    }
}

#[test]
fn a_queue_that_begins_anew_has_nothing_of_anybody() {
    let mut guest = guest(ALL | EVENT_INDEX, 64);
    // Nothing is put into the ring, but its device has seen 64 buffers.
    let sent = Frame { head: &[], rest: 0..60, offload: Offload::default() };
    let lost = {
        let (nothing, elsewhere) = (Packet::new(), Guest::new(2, ALL));
        let source = nothing.in_memory(&elsewhere.memory);
        guest.card.receive(7, &sent, &source, &guest.memory)
    };
    assert_eq!(lost, Err(Lost::Unreadable));
    guest.begin_queue(RECEIVE);
    wait(&mut guest);
    guest.make_room(&[2048; 16]);
    for _ in 0..2 {
        assert_eq!(flood(&mut guest, 7), 11);
        guest.make_room(&[2048; 11]);
    }
}

#[test]
fn a_ring_that_makes_no_sense_breaks_the_card_of_a_driver_that_does_not_wait_too() {
    for jump in [65, 255, 256, 257, 300, 0x8000, 0xffff] {
        let mut guest = guest(ALL | EVENT_INDEX, 64);
        assert_eq!(flood(&mut guest, 7), 43);
        guest.wants_to_be_told_behind(RECEIVE, 0x8000);
        guest.claims_available(RECEIVE, (BEFORE + 43).wrapping_add(jump));
        assert_eq!(receive(&mut guest, 7), Err(Lost::NotWorking), "{jump}");
        assert!(guest.card.is_broken(), "{jump}");
    }
}

#[test]
fn a_ring_that_is_not_there_breaks_the_card() {
    let mut guest = Guest::new(1, ALL | EVENT_INDEX);
    guest.set(0x30, RECEIVE);
    guest.set(0x44, 0);
    guest.set(0x94, 0x7fff_ffff);
    guest.set(0x44, 1);
    assert_eq!(receive(&mut guest, 7), Err(Lost::NotWorking));
    assert!(guest.card.is_broken());
}

#[test]
fn a_sender_has_the_buffers_that_cannot_be_written_for_it() {
    let mut guest = guest(ALL | EVENT_INDEX, 32);
    for head in 32..64 {
        guest.offer(RECEIVE, head, &[(0x1000, 2048)], true);
    }
    // Each of the first has one, 7 has 16 of the others, and each of the last has one of 9.
    let others = |guest: &mut Guest, count: u64| {
        (8..8 + count).map(|from| receive(guest, from).err()).collect::<Vec<_>>()
    };
    assert_eq!(others(&mut guest, 32), [None; 32]);
    for _ in 0..16 {
        assert_eq!(receive(&mut guest, 7), Err(Lost::Unwritable));
    }
    assert_eq!(others(&mut guest, 9), [Some(Lost::Unwritable); 9]);
    assert_eq!(receive(&mut guest, 7), Err(Lost::NoRoom), "of 7 that are free");
    assert_eq!(others(&mut guest, 1), [Some(Lost::Unwritable)]);
}

#[test]
fn a_card_that_goes_on_as_it_was_saved_has_nothing_of_anybody() {
    let mut guest = guest(ALL | EVENT_INDEX, 64);
    guest.wants_to_be_told_behind(RECEIVE, 0x8000);
    assert_eq!(flood(&mut guest, 7), 43);
    let bytes = saved(STATE, |to| guest.card.save(to).unwrap());
    loaded(&bytes, STATE, |from| guest.card.load(from)).unwrap();
    // It waits for the next frame, and does not say so again.
    guest.wants_to_be_told_behind(RECEIVE, BEFORE + 43);
    assert_eq!(receive(&mut guest, 0), Ok(()));
    guest.wants_to_be_told_behind(RECEIVE, 0x8000);
    assert_eq!([7, 8].map(|from| flood(&mut guest, from)), [14, 5], "of 20 buffers");
}

#[test]
fn a_sender_is_not_charged_for_another_whose_number_is_like_its_own() {
    for apart in [64, 256, 1 << 16] {
        let mut guest = guest(ALL | EVENT_INDEX, 64);
        guest.wants_to_be_told_behind(RECEIVE, 0x8000);
        assert_eq!(flood(&mut guest, 7), 43);
        assert_eq!(flood(&mut guest, 7 + apart), 15, "{apart}");
    }
}

/// A driver that polls, and wants to be told of nothing: with the event index that is an index far behind, or zero for ever. It has
/// begun its queue anew, in which one has waited before.
fn polls(event: u16) -> Guest {
    let mut guest = guest(ALL | EVENT_INDEX, 0);
    guest.begin_queue(RECEIVE);
    guest.wants_to_be_told_behind(RECEIVE, event);
    guest.make_room(&[2048; 64]);
    guest
}

/// It takes all that it was given.
fn poll(guest: &mut Guest, event: u16) -> usize {
    let count = core::iter::from_fn(|| guest.used(RECEIVE)).count();
    guest.wants_to_be_told_behind(RECEIVE, event);
    count
}

#[test]
fn a_driver_that_polls_and_offers_buffers_late_goes_on_to_receive() {
    for event in [0, 0x8000] {
        let (mut guest, mut left) = (polls(event), 64);
        for turn in 0..100 {
            let _ = flood(&mut guest, 7);
            let count = poll(&mut guest, event);
            assert!(count > 0, "nothing comes from turn {turn} on; {left} buffers are free");
            left -= count;
            // It offers all again when less than a quarter of them is left.
            if left < 16 {
                guest.make_room(&vec![2048; 64 - left]);
                left = 64;
            }
        }
    }
}

#[test]
fn a_driver_that_polls_and_keeps_fewer_buffers_than_at_first_goes_on_to_receive() {
    for event in [0, 0x8000] {
        let mut guest = polls(event);
        for from in 0..20 {
            let _ = flood(&mut guest, from);
        }
        poll(&mut guest, event);
        // From now on it has eight: as many as it takes are offered again.
        guest.make_room(&[2048; 8]);
        for turn in 0..100 {
            let _ = flood(&mut guest, 7);
            let count = poll(&mut guest, event);
            assert!(count > 0, "nothing comes from turn {turn} on");
            guest.make_room(&vec![2048; count]);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Receive(u64, usize),
    Room(usize),
    Take,
    Word(u64, u16),
    Look,
    BeginQueue,
    Begin(bool),
    Save,
    Copy,
}

fn any_step() -> impl Strategy<Value = Step> {
    let word = (0..5_u64).prop_map(|at| [2, 4, 10, 4 + 128, 4 + 126][at as usize]);
    prop_oneof![
        12 => (0..70_u64, 14..9000_usize).prop_map(|(from, len)| Step::Receive(from, len)),
        6 => (0..64_usize).prop_map(Step::Room),
        3 => Just(Step::Take),
        2 => (word, prop_oneof![any::<u16>(), 0..200_u16]).prop_map(|(at, value)| Step::Word(at, value)),
        1 => Just(Step::Look),
        1 => Just(Step::BeginQueue),
        1 => any::<bool>().prop_map(Step::Begin),
        1 => Just(Step::Save),
        1 => Just(Step::Copy),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the driver writes into its ring, and whenever its card begins anew or is another: no panic, and a driver that begins
    /// anew has nothing of anybody.
    #[test]
    fn a_driver_that_does_as_it_likes_with_its_ring_is_survived(steps in prop::collection::vec(any_step(), 0..120)) {
        let mut guest = Guest::new(1, ALL | EVENT_INDEX);
        let ring = 0x4000_4000;
        for step in steps {
            match step {
                Step::Receive(from, len) => {
                    let head = frame(len);
                    let sent = Frame { head: &head, rest: 0..0, offload: Offload::default() };
                    let nothing = Packet::new();
                    let source = nothing.in_memory(&guest.memory);
                    let _ = guest.card.receive(from, &sent, &source, &guest.memory);
                }
                Step::Room(count) => guest.make_room(&vec![1536; count]),
                Step::Take => while guest.used(RECEIVE).is_some() {},
                Step::Word(at, value) => guest.memory.store_release(ring + at, value).unwrap(),
                Step::Look => {
                    let _ = guest.card.next_room(&mut [(0, 0); 20], &guest.memory);
                }
                Step::BeginQueue => guest.begin_queue(RECEIVE),
                Step::Begin(says) => guest.begin(ALL | if says { EVENT_INDEX } else { 0 }),
                Step::Save => {
                    let bytes = saved(STATE, |to| guest.card.save(to).unwrap());
                    loaded(&bytes, STATE, |from| guest.card.load(from)).unwrap();
                }
                Step::Copy => {
                    let mut card = Mmio::new(Net::new([2, 9, 9, 9, 9, 9]));
                    card.go_on_as(&guest.card).unwrap();
                    guest.card = card;
                }
            }
        }
        guest.begin(ALL | EVENT_INDEX);
        wait(&mut guest);
        guest.make_room(&[2048; 64]);
        prop_assert_eq!(flood(&mut guest, 7), 43);
    }
}
