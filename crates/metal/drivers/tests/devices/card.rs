use std::collections::HashSet;

use mayfly_drivers::{Broken, Card, DeviceStatus, DeviceType, FRAME_BYTES, Unusable};
use proptest::prelude::*;

use crate::fake::{Fake, Host, VERSION_1};

const RECEIVE: u16 = 0;
const SEND: u16 = 1;
const HEADER: usize = 12;
/// The buffers of each queue.
const BUFFERS: usize = 128;

fn card() -> (Fake, Card<Host, Fake>) {
    let device = Fake::new(DeviceType::Network, VERSION_1 | 0xffff_ffff, &[0; 12]);
    let card = Card::new(device.clone()).unwrap();
    (device, card)
}

/// The device receives a frame; whether it had a buffer.
fn comes(device: &Fake, frame: &[u8]) -> bool {
    let Some((number, parts)) = device.next(RECEIVE) else { return false };
    let mut bytes = vec![0; HEADER];
    bytes.extend_from_slice(frame);
    // Where the device has lied before, the driver has taken the buffer back.
    if (parts[0].len as usize) < bytes.len() {
        return false;
    }
    parts[0].write(&bytes);
    device.used(RECEIVE, number.into(), bytes.len() as u32);
    true
}

#[test]
fn frames_are_received_as_they_came_for_longer_than_the_rings_numbers_last() {
    let (device, mut card) = card();
    assert_eq!(device.0.lock().unwrap().taken, VERSION_1, "no offloads, no event index");
    for number in 0..70_000_u32 {
        assert!(comes(&device, &number.to_le_bytes()));
        let received = card.receive().unwrap().unwrap();
        assert_eq!(received.frame(), Some(&number.to_le_bytes()[..]));
        card.give_back(received);
        assert!(card.receive().unwrap().is_none());
    }
}

#[test]
fn it_has_as_many_buffers_as_it_was_given_and_what_comes_beyond_them_waits() {
    let (device, mut card) = card();
    for number in 0..BUFFERS {
        assert!(comes(&device, &[number as u8; 60]));
    }
    assert!(!comes(&device, &[0; 60]));
    let first = card.receive().unwrap().unwrap();
    assert!(!comes(&device, &[0; 60]), "one that is read is not the device's");
    card.give_back(first);
    assert!(comes(&device, &[1; 60]));
    let count = std::iter::from_fn(|| card.receive().unwrap()).count();
    assert_eq!(count, BUFFERS);
}

#[test]
fn it_interrupts_for_frames_when_it_is_listened_to_and_none_that_came_before_is_missed() {
    let (device, mut card) = card();
    assert!(device.is_listened_to(RECEIVE) && !device.is_listened_to(SEND));
    card.ignore();
    assert!(!device.is_listened_to(RECEIVE));
    assert!(!card.listen());
    assert!(device.is_listened_to(RECEIVE));
    card.ignore();
    comes(&device, &[0; 60]);
    assert!(card.listen(), "there is one by now");
}

#[test]
fn what_is_sent_is_a_header_that_asks_for_nothing_and_the_frame() {
    let (device, mut card) = card();
    for number in 0..1000_u32 {
        let mut out = card.room(7).unwrap().unwrap();
        let len = 60 + number as usize;
        out.frame(len).fill(number as u8);
        card.send(out);
        let (token, parts) = device.next(SEND).unwrap();
        assert_eq!((parts.len(), parts[0].is_written), (1, false));
        let bytes = parts[0].read();
        assert_eq!(bytes[..HEADER], [0; HEADER]);
        assert_eq!(bytes[HEADER..], vec![number as u8; len]);
        device.used(SEND, token.into(), 0);
    }
    let mut out = card.room(7).unwrap().unwrap();
    assert_eq!(out.frame(FRAME_BYTES + 1).len(), FRAME_BYTES);
    card.discard(out);
    let told = device.0.lock().unwrap().notified.iter().filter(|queue| **queue == SEND).count();
    assert_eq!(told, 1000);
}

#[test]
fn a_sender_that_floods_leaves_half_of_the_buffers_to_others() {
    let (device, mut card) = card();
    let mut floods = 0;
    while let Some(out) = card.room(1).unwrap() {
        card.send(out);
        floods += 1;
    }
    assert_eq!(floods, BUFFERS / 2);
    let other = card.room(2).unwrap().expect("there is room for another");
    card.send(other);
    // When the device has sent them, all are free again.
    while let Some((token, _)) = device.next(SEND) {
        device.used(SEND, token.into(), 0);
    }
    let mut held = Vec::new();
    for _ in 0..BUFFERS {
        held.extend(card.room(3).unwrap());
    }
    assert!(held.len() >= BUFFERS / 2);
}

#[test]
fn lengths_that_no_buffer_has_are_no_frames() {
    let (device, mut card) = card();
    for written in [0, 11, 2049, u32::MAX] {
        let (number, _) = device.next(RECEIVE).unwrap();
        device.used(RECEIVE, number.into(), written);
        let received = card.receive().unwrap().unwrap();
        assert_eq!(received.frame(), None, "{written}");
        card.give_back(received);
    }
    let (number, _) = device.next(RECEIVE).unwrap();
    device.used(RECEIVE, number.into(), 12);
    assert_eq!(card.receive().unwrap().unwrap().frame(), Some(&[][..]));
    assert_eq!(device.0.lock().unwrap().stops, 0);
}

#[test]
fn a_buffer_that_the_device_was_not_given_breaks_it_for_good() {
    for number in [128, 200, 0xffff, u32::MAX] {
        let (device, mut card) = card();
        device.used(RECEIVE, number, 60);
        assert_eq!(card.receive().err(), Some(Broken::Rings), "{number}");
        assert_eq!(device.0.lock().unwrap().stops, 1);
        comes(&device, &[0; 60]);
        assert_eq!(card.receive().err(), Some(Broken::Rings));
        assert_eq!(card.room(1).err(), Some(Broken::Rings));
        assert!(!card.listen());
    }
    // One twice.
    let (device, mut card) = card();
    let (number, _) = device.next(RECEIVE).unwrap();
    device.used(RECEIVE, number.into(), 60);
    device.used(RECEIVE, number.into(), 60);
    assert!(card.receive().unwrap().is_some());
    assert_eq!(card.receive().err(), Some(Broken::Rings));
    // One that was not sent.
    let (device, mut card) = self::card();
    device.used(SEND, 0, 0);
    assert_eq!(card.room(1).err(), Some(Broken::Rings));
    assert_eq!(device.0.lock().unwrap().stops, 1);
}

#[test]
fn a_card_that_asks_for_its_reset_is_used_no_more() {
    let (device, mut card) = card();
    comes(&device, &[0; 60]);
    let out = card.room(1).unwrap().unwrap();
    assert_eq!(card.look(true), Ok(()));
    device.0.lock().unwrap().status |= DeviceStatus::DEVICE_NEEDS_RESET;
    assert_eq!(card.look(true), Err(Broken::NeedsReset));
    assert_eq!(device.0.lock().unwrap().stops, 1);
    assert!(device.0.lock().unwrap().status.is_empty());
    // Its status is that of a device after reset now; it is stopped once, and stays so.
    for _ in 0..2 {
        assert_eq!(card.look(true), Err(Broken::NeedsReset));
        assert_eq!(card.receive().err(), Some(Broken::NeedsReset));
        assert_eq!(card.room(1).err(), Some(Broken::NeedsReset));
        assert!(!card.listen());
    }
    card.send(out);
    assert!(device.next(SEND).is_none());
    assert_eq!(device.0.lock().unwrap().stops, 1);
}

#[test]
fn a_card_whose_interrupt_was_turned_off_is_used_no_more() {
    let (device, mut card) = card();
    assert_eq!(card.look(false), Err(Broken::Unheard));
    assert_eq!((card.look(true), device.0.lock().unwrap().stops), (Err(Broken::Unheard), 1));
}

#[test]
fn a_device_that_cannot_be_used_says_why() {
    let with = |change: &dyn Fn(&mut crate::fake::State)| {
        let device = Fake::new(DeviceType::Network, VERSION_1, &[0; 12]);
        change(&mut device.0.lock().unwrap());
        let made = Card::<Host, _>::new(device.clone()).err();
        assert!(device.0.lock().unwrap().status.is_empty(), "it is left stopped");
        made
    };
    assert_eq!(with(&|state| state.offers = 0), Some(Unusable::Legacy));
    assert_eq!(with(&|state| state.resets_after = usize::MAX), Some(Unusable::Reset));
    assert_eq!(with(&|state| state.legacy = true), Some(Unusable::Legacy));
    assert_eq!(with(&|state| state.agrees = false), Some(Unusable::Features));
    assert!(matches!(with(&|state| state.most = 64), Some(Unusable::Queue(_))));
}

#[test]
fn a_card_may_take_its_time_for_a_reset() {
    let device = Fake::new(DeviceType::Network, VERSION_1, &[0; 12]);
    device.0.lock().unwrap().resets_after = 1000;
    assert!(Card::<Host, _>::new(device).is_ok());
}

#[derive(Clone, Debug)]
enum Step {
    Comes(u8),
    /// The device says that it has used this, with that length.
    Says(u16, u32, u32),
    Jumps(u16, u16),
    Receive,
    GiveBack(prop::sample::Index),
    Room(u64),
    Send(prop::sample::Index),
    Sent,
    Listen,
}

fn any_step() -> impl Strategy<Value = Step> {
    let lie = prop_oneof![
        (0..2_u16, prop_oneof![0..140_u32, any::<u32>()], any::<u32>())
            .prop_map(|(queue, number, len)| Step::Says(queue, number, len)),
        (0..2_u16, any::<u16>()).prop_map(|(queue, count)| Step::Jumps(queue, count)),
    ];
    prop_oneof![
        10 => any::<u8>().prop_map(Step::Comes),
        1 => lie,
        10 => Just(Step::Receive),
        8 => any::<prop::sample::Index>().prop_map(Step::GiveBack),
        8 => (0..3_u64).prop_map(Step::Room),
        8 => any::<prop::sample::Index>().prop_map(Step::Send),
        6 => Just(Step::Sent),
        2 => Just(Step::Listen),
    ]
}

proptest! {
    /// Whatever the device says, no buffer has two owners, and a device that was found out stays stopped.
    #[test]
    fn no_buffer_has_two_owners(steps in prop::collection::vec(any_step(), 0..400)) {
        let (device, mut card) = card();
        let (mut received, mut out) = (Vec::new(), Vec::new());
        let mut is_broken = false;
        for step in steps {
            match step {
                Step::Comes(byte) if !is_broken => {
                    comes(&device, &[byte; 60]);
                }
                Step::Says(queue, number, len) => device.used(queue, number, len),
                Step::Jumps(queue, count) => device.jump(queue, count),
                Step::Receive => match card.receive() {
                    Ok(taken) => {
                        prop_assert!(!is_broken);
                        received.extend(taken);
                    }
                    Err(_) => is_broken = true,
                },
                Step::GiveBack(which) if !received.is_empty() => {
                    card.give_back(received.swap_remove(which.index(received.len())));
                }
                Step::Room(sender) => match card.room(sender) {
                    Ok(taken) => {
                        prop_assert!(!is_broken);
                        out.extend(taken);
                    }
                    Err(_) => is_broken = true,
                },
                Step::Send(which) if !out.is_empty() => {
                    card.send(out.swap_remove(which.index(out.len())));
                }
                Step::Sent if !is_broken => {
                    if let Some((token, _)) = device.next(SEND) {
                        device.used(SEND, token.into(), 0);
                    }
                }
                Step::Listen => {
                    card.listen();
                }
                _ => {}
            }
            let mut places = HashSet::new();
            for frame in &received {
                let frame = frame.frame().unwrap_or_default();
                prop_assert!(frame.is_empty() || places.insert(frame.as_ptr()));
            }
            for frame in &mut out {
                prop_assert!(places.insert(frame.frame(1).as_ptr()));
            }
            let stops = device.0.lock().unwrap().stops;
            prop_assert_eq!(stops, u32::from(is_broken));
        }
    }
}
