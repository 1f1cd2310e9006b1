//! Senders and receivers that do not keep to the specification: nothing breaks but their own card.

use std::ops::Range;

use mayfly_devices::memory::GuestMemory;
use mayfly_devices::virtio::net::{Frame, Lost, Offload, Packet, finish};
use proptest::prelude::*;

use crate::cards::*;
use crate::frame;

#[test]
fn a_header_that_makes_no_sense_is_a_malformed_packet_and_the_card_works_on() {
    let mut guest = Guest::new(1, ALL);
    let too_long = frame(1519);
    let cases: [([u8; HEADER], &[u8]); 10] = [
        (PLAIN, &too_long[..13]),
        (PLAIN, &too_long),
        (header(100, 0, None), &too_long[..101]),
        (header(u16::MAX, u16::MAX, None), &too_long[..1000]),
        (header(34, 16, Some((2, 1000))), &too_long[..1000]),
        (header(34, 16, Some((0x81, 1000))), &too_long[..1000]),
        (header(34, 16, Some((1, 0))), &too_long[..1000]),
        (header(34, 16, Some((1, 31))), &too_long[..1000]),
        ([0, 1, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0], &too_long[..1000]),
        ([2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &too_long[..1000]),
    ];
    for (header, bytes) in cases {
        guest.send(header, bytes, &[]);
        assert!(offload(&mut guest).is_err(), "{header:?}, {} bytes", bytes.len());
        assert_eq!(guest.used(TRANSMIT), Some((0, 0)));
    }
    guest.send(PLAIN, &too_long[..60], &[]);
    assert!(offload(&mut guest).is_ok());
}

#[test]
fn what_was_not_agreed_on_is_malformed() {
    let mut guest = Guest::new(1, VERSION_1);
    guest.send(header(34, 16, None), &frame(100), &[]);
    assert!(offload(&mut guest).is_err());
    let mut guest = Guest::new(1, VERSION_1 | CSUM);
    guest.send(header(34, 16, Some((1, 500))), &frame(100), &[]);
    assert!(offload(&mut guest).is_err());
}

#[test]
fn a_packet_that_the_device_is_to_write_or_without_a_header_breaks_the_card() {
    for (pieces, writes) in
        [(&[(buffers(TRANSMIT), 100)][..], true), (&[(buffers(TRANSMIT), 11)], false)]
    {
        let mut guest = Guest::new(1, ALL);
        guest.offer(TRANSMIT, 0, pieces, writes);
        assert!(!guest.card.take(&mut Packet::new(), &guest.memory));
        assert!(guest.card.is_broken());
    }
}

/// What one packet left to be done is not taken for what the next leaves, which breaks the card.
#[test]
fn a_packet_that_is_taken_after_another_and_breaks_the_card_goes_to_nobody() {
    let mut guest = Guest::new(1, ALL);
    let mut packet = Packet::new();
    guest.send(header(34, 16, None), &frame(100), &[]);
    assert!(guest.card.take(&mut packet, &guest.memory));
    assert!(packet.offload().is_ok());
    guest.offer(TRANSMIT, 1, &[(buffers(TRANSMIT), 11)], false);
    assert!(!guest.card.take(&mut packet, &guest.memory));
    assert!(packet.offload().is_err());
}

#[test]
fn a_frame_whose_range_ends_before_it_begins_has_its_head_alone() {
    let mut guest = Guest::new(1, ALL);
    guest.make_room(&[2048]);
    let head = frame(60);
    let sent = Frame { head: &head, rest: Range { start: 9, end: 3 }, offload: Offload::default() };
    assert_eq!(sent.len(), 60);
    let nothing = Packet::new();
    guest.card.receive(0, &sent, &nothing.in_memory(&guest.memory), &guest.memory).unwrap();
    assert_eq!(guest.received().unwrap().1, head);
    let endless = Frame { rest: 0..u64::MAX, ..sent };
    assert_eq!(endless.len(), u64::MAX);
    guest.make_room(&[2048]);
    let received =
        guest.card.receive(0, &endless, &nothing.in_memory(&guest.memory), &guest.memory);
    assert_eq!(received, Err(Lost::Unreadable));
}

/// The switch looks at addresses that the guest may change meanwhile.
#[test]
fn what_a_frame_begins_with_is_read_once() {
    let (mut one, mut other) = (Guest::new(1, ALL), Guest::new(2, ALL));
    other.make_room(&[2048]);
    one.send(PLAIN, &frame(60), &[20]);
    let mut packet = Packet::new();
    assert!(one.card.take(&mut packet, &one.memory));
    one.memory.write(buffers(TRANSMIT) + HEADER as u64, &[0xee; 60]).unwrap();
    assert_eq!(packet.head()[..], frame(60)[..14]);
    let sent = Frame { head: &[], rest: 0..60, offload: packet.offload().unwrap() };
    other.card.receive(0, &sent, &packet.in_memory(&one.memory), &other.memory).unwrap();
    let (_, bytes) = other.received().unwrap();
    assert_eq!((&bytes[..14], &bytes[14..]), (&frame(60)[..14], &[0xee; 46][..]));
}

#[test]
fn a_sender_whose_memory_is_not_there_leaves_its_receiver_as_it_was() {
    let (mut one, mut other) = (Guest::new(1, ALL), Guest::new(2, ALL));
    other.make_room(&[2048]);
    one.memory.write(buffers(TRANSMIT), &PLAIN).unwrap();
    one.offer(TRANSMIT, 0, &[(buffers(TRANSMIT), 40), (0x1000, 500)], false);
    assert_eq!(carry(&mut one, &mut other), Some(Err(Lost::Unreadable)));
    assert_eq!(other.used(RECEIVE), None);
    one.send(PLAIN, &frame(60), &[]);
    assert_eq!(carry(&mut one, &mut other), Some(Ok(())));
    assert_eq!(other.received().unwrap().1, frame(60));
}

#[test]
fn a_receiver_whose_memory_is_not_there_gets_its_buffers_back_empty() {
    let (mut one, mut other) = (Guest::new(1, ALL), Guest::new(2, ALL));
    other.make_room(&[40]);
    other.offer(RECEIVE, 7, &[(0x1000, 2048)], true);
    other.offer(RECEIVE, 8, &[(buffers(RECEIVE) + 0x8000, 2048)], true);
    one.send(PLAIN, &frame(60), &[]);
    assert_eq!(carry(&mut one, &mut other), Some(Err(Lost::Unwritable)));
    assert_eq!([other.used(RECEIVE), other.used(RECEIVE)], [Some((0, 0)), Some((7, 0))]);
    one.send(PLAIN, &frame(60), &[]);
    assert_eq!(carry(&mut one, &mut other), Some(Ok(())));
    assert_eq!(other.received().unwrap().1, frame(60));
}

#[test]
fn a_buffer_that_is_to_be_read_or_too_short_for_a_header_breaks_the_receivers_card_alone() {
    for (len, writes) in [(2048, false), (11, true)] {
        let (mut one, mut other) = (Guest::new(1, ALL), Guest::new(2, ALL));
        other.offer(RECEIVE, 0, &[(buffers(RECEIVE), len)], writes);
        one.send(PLAIN, &frame(60), &[]);
        assert_eq!(carry(&mut one, &mut other), Some(Err(Lost::NotWorking)));
        assert!(other.card.is_broken() && !one.card.is_broken());
        assert_eq!(one.used(TRANSMIT), Some((0, 0)));
    }
}

#[test]
fn a_frame_takes_64_buffers_at_most() {
    let (mut one, mut other) = (Guest::new(1, ALL), Guest::new(2, ALL));
    other.make_room(&[20; 64]);
    one.send(PLAIN, &frame(1270), &[]);
    assert_eq!(carry(&mut one, &mut other), Some(Err(Lost::TooLong)), "64 of 20 bytes are 1,280");
    one.send(PLAIN, &frame(1268), &[]);
    assert_eq!(carry(&mut one, &mut other), Some(Ok(())));
}

proptest! {
    /// Whatever is in the header, in the frame and in the descriptors: no panic, bounded work, and a good neighbour's card
    /// stays whole.
    #[test]
    fn a_sender_that_does_as_it_likes_harms_nobody(
        header in any::<[u8; HEADER]>(),
        bytes in prop::collection::vec(any::<u8>(), 0..4000),
        pieces in prop::collection::vec((0..0x21_0000_u64, any::<u16>()), 1..5),
        is_plain in any::<bool>(),
        features in prop_oneof![Just(ALL), Just(VERSION_1), Just(ALL & !MERGE)],
    ) {
        let (mut one, mut other) = (Guest::new(1, ALL), Guest::new(2, features));
        other.make_room(&[1536; 40]);
        if is_plain {
            one.send(header, &bytes, &[]);
        } else {
            let pieces: Vec<_> =
                pieces.into_iter().map(|(at, len)| (0x4000_0000 + at, u32::from(len))).collect();
            one.offer(TRANSMIT, 0, &pieces, false);
        }
        let mut packet = Packet::new();
        if one.card.take(&mut packet, &one.memory) && let Ok(offload) = packet.offload() {
            let source = packet.in_memory(&one.memory);
            let mut frames = 0;
            let mut give = |frame: &Frame<'_>| {
                frames += 1;
                let _ = other.card.receive(0, frame, &source, &other.memory);
                true
            };
            let _ = finish(packet.len(), &offload, &source, &mut give);
            give(&Frame { head: &[], rest: 0..packet.len(), offload });
            prop_assert!(frames <= 2 + 0xffff / 32);
        }
        one.card.give_back(&packet, &one.memory);
        prop_assert!(!other.card.is_broken());
    }
}
