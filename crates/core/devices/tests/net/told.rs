//! When a driver is told of frames that it got back, where its card's interrupts are coalesced.

use mayfly_devices::virtio::net::{Net, Packet};
use mayfly_devices::virtio::{Mmio, STATE};
use proptest::prelude::*;

use crate::cards::*;
use crate::frame;
use crate::state::{loaded, saved};

/// Sends frames of so many bytes, one after the other, each of which the card gives back.
fn send(guest: &mut Guest, lengths: &[usize]) {
    let mut packet = Packet::new();
    for len in lengths {
        guest.send(PLAIN, &frame(*len), &[]);
        assert!(guest.card.take(&mut packet, &guest.memory));
        guest.card.give_back_untold(&packet, &guest.memory);
        // It has the frame back at once, whenever it is told.
        assert_eq!(guest.used(TRANSMIT), Some((0, 0)));
    }
}

/// One that wants to be told of each frame.
fn guest() -> Guest {
    Guest::new(1, ALL)
}

#[test]
fn a_driver_is_told_of_a_frame_when_it_receives_one() {
    let (mut one, mut other) = (guest(), Guest::new(2, ALL));
    send(&mut one, &[60]);
    assert!(!one.card.interrupt() && one.card.is_untold());
    one.make_room(&[2000]);
    other.send(PLAIN, &frame(60), &[]);
    assert_eq!(carry(&mut other, &mut one), Some(Ok(())));
    assert!(one.card.interrupt() && !one.card.is_untold());
}

#[test]
fn a_driver_is_told_of_a_frame_when_its_embedder_has_waited_long_enough() {
    let mut guest = guest();
    guest.card.tell_of_frames();
    assert!(!guest.card.interrupt(), "there is nothing to tell");
    send(&mut guest, &[60]);
    guest.card.tell_of_frames();
    assert!(guest.card.interrupt() && !guest.card.is_untold());
    guest.set(0x64, 1);
    guest.card.tell_of_frames();
    assert!(!guest.card.interrupt(), "it was told once");
}

#[test]
fn a_driver_is_told_at_once_of_much() {
    for (lengths, last) in [(vec![1500; 6], 5), (vec![60; 16], 15), (vec![14; 16], 15)] {
        let mut guest = guest();
        send(&mut guest, &lengths[..last]);
        assert!(!guest.card.interrupt(), "{last} frames of {} bytes", lengths[0]);
        send(&mut guest, &lengths[last..]);
        assert!(guest.card.interrupt(), "{} frames of {} bytes", lengths.len(), lengths[0]);
    }
}

#[test]
fn a_driver_that_does_not_want_to_be_told_is_not() {
    let mut guest = guest();
    guest.suppress(TRANSMIT);
    send(&mut guest, &[60]);
    assert!(!guest.card.is_untold());
    send(&mut guest, &[1500; 20]);
    assert!(!guest.card.interrupt());
}

#[test]
fn a_driver_that_begins_anew_is_told_of_nothing_before_that() {
    let mut guest = guest();
    send(&mut guest, &[60]);
    guest.begin(ALL);
    assert!(!guest.card.is_untold());
    guest.card.tell_of_frames();
    assert!(!guest.card.interrupt());
}

#[test]
fn a_driver_that_is_not_told_yet_is_told_by_the_card_that_goes_on() {
    let mut guest = guest();
    send(&mut guest, &[60]);
    let mut next = Mmio::new(Net::new([0; 6]));
    let state = saved(STATE, |to| guest.card.save(to).unwrap());
    loaded(&state, STATE, |from| next.load(from)).unwrap();
    assert!(next.interrupt() && !next.is_untold());
    let mut other = Mmio::new(Net::new([0; 6]));
    other.go_on_as(&guest.card).unwrap();
    assert!(other.interrupt() && !other.is_untold());
}

proptest! {
    /// Against a card that tells of each frame at once: one that coalesces tells no more often, and leaves nothing untold.
    #[test]
    fn a_card_that_coalesces_leaves_a_driver_that_waits_untold_of_no_more_than_8_kib(
        lengths in prop::collection::vec(14..1519_usize, 1..60),
    ) {
        let mut guest = guest();
        let (mut untold, mut told) = (0, 0);
        for len in lengths {
            send(&mut guest, &[len]);
            untold += len;
            if guest.card.interrupt() {
                guest.set(0x64, 1);
                (untold, told) = (0, told + 1);
            }
            prop_assert_eq!(guest.card.is_untold(), untold > 0);
            prop_assert!(untold < 8 << 10, "{} bytes", untold);
        }
        guest.card.tell_of_frames();
        prop_assert_eq!(guest.card.interrupt(), untold > 0);
    }
}
