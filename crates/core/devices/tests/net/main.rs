//! The network card: what the specification says, drivers that do not keep to it, and frames that are cut.

mod cards;
mod cuts;
mod hostile;
mod near;
mod saved;
mod senders;
#[path = "../common/shown.rs"]
mod shown;
#[path = "../common/state.rs"]
mod state;
mod told;

use std::collections::VecDeque;

use cards::*;
use mayfly_devices::virtio::Served;
use mayfly_devices::virtio::net::Lost;
use proptest::prelude::*;

fn frame(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 256) as u8).collect()
}

#[test]
fn a_driver_finds_a_card_with_its_address_and_three_queues() {
    let mut guest = Guest::new(0x2a, VERSION_1);
    assert_eq!([0, 4, 8].map(|offset| guest.get(offset)), [0x7472_6976, 2, 1]);
    assert_eq!([0x100, 0x104].map(|offset| guest.get(offset)), [2, 0x0001_2a00]);
    for queue in 0..4 {
        guest.set(0x30, queue);
        assert_eq!(guest.get(0x34), if queue < 3 { 256 } else { 0 });
    }
    for queue in 0..4 {
        assert_eq!(guest.set(0x50, queue), queue < 3, "a notification of queue {queue}");
    }
}

#[test]
fn features_that_need_another_are_not_taken_without_it() {
    let mut guest = Guest::new(1, VERSION_1);
    assert!(guest.agree(ALL));
    for (of, needs) in [(7, 1), (8, 1), (11, 0), (12, 0), (18, 17), (21, 17)] {
        assert!(guest.agree(VERSION_1 | 1 << of | 1 << needs));
        assert!(!guest.agree(VERSION_1 | 1 << of), "{of} without {needs}");
    }
    assert!(!guest.agree(VERSION_1 | 1 << 22), "several queues are not offered");
}

#[test]
fn a_frame_that_is_sent_is_received() {
    for features in [VERSION_1, ALL, ALL | EVENT_INDEX] {
        let (mut one, mut other) = (Guest::new(1, features), Guest::new(2, features));
        other.make_room(&[2048; 4]);
        for len in [14, 60, 1000, 1518] {
            one.send(PLAIN, &frame(len), &[5, 20]);
            assert_eq!(carry(&mut one, &mut other), Some(Ok(())));
            assert_eq!(one.used(TRANSMIT), Some((0, 0)));
            let (header, bytes) = other.received().unwrap();
            assert_eq!(
                (header, bytes),
                ([&PLAIN[..10], &[1, 0]].concat().try_into().unwrap(), frame(len))
            );
        }
        assert_eq!(carry(&mut one, &mut other), None);
        assert!(one.card.interrupt() && other.card.interrupt());
    }
}

#[test]
fn a_frame_that_is_to_be_cut_goes_on_as_it_is_into_several_buffers() {
    let (mut one, mut other) = (Guest::new(1, ALL), Guest::new(2, ALL));
    other.make_room(&[1536; 50]);
    let sent = header(34, 16, Some((1, 1448)));
    one.send(sent, &frame(60_000), &[12, 66]);
    assert_eq!(carry(&mut one, &mut other), Some(Ok(())));
    let (got, bytes) = other.received().unwrap();
    assert_eq!(bytes, frame(60_000));
    assert_eq!((&got[..10], got[10]), (&sent[..10], 40), "60,012 bytes in buffers of 1,536");
    assert_eq!(other.used(RECEIVE), None);
}

#[test]
fn a_receiver_without_room_loses_the_frame_and_its_buffers_stay() {
    let (mut one, mut other) = (Guest::new(1, ALL), Guest::new(2, ALL));
    other.make_room(&[1000, 500]);
    one.send(PLAIN, &frame(1518), &[]);
    assert_eq!(carry(&mut one, &mut other), Some(Err(Lost::NoRoom)));
    assert_eq!(one.used(TRANSMIT), Some((0, 0)), "its sender does not wait");
    assert_eq!(other.used(RECEIVE), None);
    one.send(PLAIN, &frame(1488), &[]);
    assert_eq!(carry(&mut one, &mut other), Some(Ok(())));
    assert_eq!(other.received().unwrap().1, frame(1488));
}

#[test]
fn room_that_was_looked_at_is_there_for_the_next_frame() {
    let (mut one, mut other) = (Guest::new(1, ALL), Guest::new(2, ALL));
    let mut pieces = [(0, 0); 3];
    assert_eq!(other.card.next_room(&mut pieces, &other.memory), 0);
    other.make_room(&[1000, 500]);
    let at = |index: u64| buffers(RECEIVE) + 0x1000 * index;
    assert_eq!(other.card.next_room(&mut pieces, &other.memory), 2);
    assert_eq!(pieces, [(at(0), 1000), (at(1), 500), (0, 0)]);
    assert_eq!(other.card.next_room(&mut pieces[..1], &other.memory), 1);
    one.send(PLAIN, &frame(1488), &[]);
    assert_eq!(carry(&mut one, &mut other), Some(Ok(())));
    assert_eq!(other.received().unwrap().1, frame(1488));
    assert_eq!(other.card.next_room(&mut pieces, &other.memory), 0);
}

#[test]
fn a_driver_that_does_not_merge_takes_a_frame_in_one_buffer_or_not_at_all() {
    let (mut one, mut other) = (Guest::new(1, ALL), Guest::new(2, ALL & !MERGE));
    other.make_room(&[1000, 1530]);
    one.send(PLAIN, &frame(1518), &[]);
    assert_eq!(carry(&mut one, &mut other), Some(Err(Lost::TooLong)));
    one.send(PLAIN, &frame(988), &[]);
    assert_eq!(carry(&mut one, &mut other), Some(Ok(())));
    one.send(PLAIN, &frame(1518), &[]);
    assert_eq!(carry(&mut one, &mut other), Some(Ok(())));
    assert_eq!(other.received().unwrap().1, frame(988));
    assert_eq!(other.received().unwrap().1, frame(1518));
}

#[test]
fn a_card_accepts_what_its_driver_has_taken() {
    let mut sender = Guest::new(1, ALL);
    sender.send(header(34, 16, Some((4, 1400))), &frame(9000), &[]);
    let cut6 = offload(&mut sender).unwrap();
    sender.send(header(34, 6, None), &frame(900), &[]);
    let checksum = offload(&mut sender).unwrap();
    let accepts = |features| {
        let card = Guest::new(2, features).card;
        (card.accepts(&checksum), card.accepts(&cut6))
    };
    assert_eq!(accepts(VERSION_1), (false, false));
    assert_eq!(accepts(VERSION_1 | GUEST_CSUM), (true, false));
    assert_eq!(accepts(VERSION_1 | GUEST_CSUM | 1 << 7), (true, false), "that is version 4");
    assert_eq!(accepts(VERSION_1 | GUEST_CSUM | 1 << 8), (true, true));
}

#[test]
fn a_frame_is_not_given_back_to_a_driver_that_has_begun_anew() {
    let mut guest = Guest::new(1, ALL);
    guest.send(PLAIN, &frame(60), &[]);
    let mut packet = mayfly_devices::virtio::net::Packet::new();
    assert!(guest.card.take(&mut packet, &guest.memory));
    guest.begin(ALL);
    guest.card.give_back(&packet, &guest.memory);
    assert_eq!(guest.used(TRANSMIT), None);
    guest.send(PLAIN, &frame(60), &[]);
    assert!(guest.card.take(&mut packet, &guest.memory));
    guest.card.give_back(&packet, &guest.memory);
    assert_eq!(guest.used(TRANSMIT), Some((0, 0)));
}

#[test]
fn modes_are_taken_and_what_is_not_there_is_an_error() {
    for (bytes, answer) in [
        (&[0, 0, 1][..], 0),
        (&[0, 5, 0], 0),
        (&[0, 6, 0], 1),
        (&[1, 1, 2], 1),
        (&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0),
        (&[1, 0, 0, 0, 0, 0], 1),
        (&[3, 0], 0),
        (&[9, 9], 1),
    ] {
        let mut guest = Guest::new(1, ALL);
        assert_eq!(guest.ask(bytes), answer, "{bytes:?}");
    }
}

#[test]
fn a_driver_announces_itself_when_it_is_asked_to_and_knows_how() {
    let mut guest = Guest::new(1, ALL);
    guest.card.announce();
    assert_eq!((guest.get(0x60), guest.get(0x104) >> 16), (2, 3));
    assert_eq!(guest.ask(&[3, 0]), 0);
    assert_eq!(guest.get(0x104) >> 16, 1);
    let mut guest = Guest::new(1, VERSION_1);
    guest.card.announce();
    assert_eq!((guest.get(0x60), guest.get(0x104) >> 16), (0, 1));
}

#[test]
fn the_rings_of_queues_that_are_on_are_where_the_driver_has_put_them() {
    let mut guest = Guest::new(1, ALL);
    let rings: Vec<_> = guest.card.rings().collect();
    let of = |queue: u64| [0x4000_4000 + 0x1_0000 * queue, 0x4000_8000 + 0x1_0000 * queue];
    let bytes = [6 + 2 * 64, 6 + 8 * 64];
    let right = (0..3).flat_map(|queue| of(queue).into_iter().zip(bytes));
    assert_eq!(rings, right.collect::<Vec<_>>());
    guest.set(0x30, TRANSMIT);
    guest.set(0x44, 0);
    assert_eq!(guest.card.rings().count(), 4);
    guest.set(0x70, 0);
    assert_eq!(guest.card.rings().count(), 0);
}

#[test]
fn what_a_card_shows_of_itself_changes_in_the_words_that_it_says() {
    let mut guest = Guest::new(1, ALL | STATUS);
    let mut shown = shown::Shown::new(&guest.card);
    guest.card.set_link(false);
    shown.is_served(&guest.card);
    guest.card.announce();
    shown.is_served(&guest.card);
    assert_eq!(guest.ask(&[3, 0]), 0);
    shown.is_served(&guest.card);
    guest.set(0x30, TRANSMIT);
    shown.is_written(&guest.card);
    guest.set(0x44, 0);
    shown.is_written(&guest.card);
    guest.set(0x70, 0);
    shown.is_written(&guest.card);
}

#[test]
fn a_driver_that_looks_is_told_when_its_network_goes_and_comes() {
    let mut guest = Guest::new(1, ALL | STATUS);
    let mut seen = |is_up| {
        guest.card.set_link(is_up);
        let seen = (guest.get(0x60), guest.get(0x104) >> 16);
        guest.set(0x64, seen.0);
        seen
    };
    assert_eq!([true, false, false, true].map(&mut seen), [(0, 1), (2, 0), (0, 0), (2, 1)]);
    seen(false);
    guest.begin(ALL | STATUS);
    assert_eq!(guest.get(0x104) >> 16, 0, "a reset brings no network");
    let mut guest = Guest::new(1, ALL);
    guest.card.set_link(false);
    assert_eq!(guest.get(0x60), 0, "its driver does not look");
}

proptest! {
    #[test]
    fn frames_arrive_whole_and_in_order_whatever_buffers_there_are(
        merges in any::<bool>(),
        rounds in prop::collection::vec(
            (14..1519_usize, prop::collection::vec(0..400_usize, 0..5), prop::collection::vec(12..1600_u32, 0..4)),
            1..60,
        ),
    ) {
        let features = if merges { ALL } else { ALL & !MERGE };
        let (mut one, mut other) = (Guest::new(1, ALL), Guest::new(2, features));
        let mut room = VecDeque::<u32>::new();
        for (len, cuts, lengths) in rounds {
            if room.is_empty() {
                other.make_room(&lengths);
                room.extend(&lengths);
            }
            one.send(PLAIN, &frame(len), &cuts);
            let received = carry(&mut one, &mut other).unwrap();
            prop_assert!(one.used(TRANSMIT).is_some());
            let total = len as u32 + HEADER as u32;
            let mut needs = 0;
            let mut there = 0;
            while there < total && needs < room.len() && (merges || needs == 0) {
                there += room[needs];
                needs += 1;
            }
            let fits = there >= total;
            prop_assert_eq!(received.is_ok(), fits, "{} bytes into {:?}", total, room);
            if fits {
                room.drain(..needs);
                prop_assert_eq!(other.received().unwrap().1, frame(len));
            }
            prop_assert_eq!(other.used(RECEIVE), None);
            if !fits {
                // Its driver takes none of what it has given back.
                other.begin(features);
                room.clear();
            }
        }
        prop_assert!(matches!(one.card.serve(&one.memory), Served::Nothing));
    }
}
