//! Cards that are saved and loaded: each goes on as it would have, once nothing is under way.

use mayfly_devices::memory::BadAddress;
use mayfly_devices::virtio::net::{Frame, Net, Offload, Packet, Source};
use mayfly_devices::virtio::{Mmio, NotDrained, STATE};
use mayfly_state::{Error, Writer};
use proptest::prelude::*;

use crate::cards::*;
use crate::frame;
use crate::state::{any_forgery, config, forged, loaded, saved};

fn save(card: &Mmio<Net>) -> Vec<u8> {
    saved(STATE, |to| card.save(to).unwrap())
}

fn load(bytes: &[u8]) -> Result<Mmio<Net>, Error> {
    let mut card = Mmio::new(Net::new([2, 9, 9, 9, 9, 9]));
    loaded(bytes, STATE, |from| card.load(from))?;
    Ok(card)
}

/// A frame that comes from outside of any guest.
struct Bytes(Vec<u8>);

impl Source for Bytes {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), BadAddress> {
        into.copy_from_slice(&self.0[offset as usize..offset as usize + into.len()]);
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Step {
    Begin(bool),
    Register(u64, u32),
    Room(Vec<u32>),
    Send(usize),
    Take,
    Receive(usize),
    Offer(u32, u16, u64, u32, bool),
    Serve,
    Announce,
    Link(bool),
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let len = || prop_oneof![14..1519_usize, 14..80_usize];
    let register = prop_oneof![
        (0..0x44_u64, any::<u32>()).prop_map(|(at, value)| (4 * at, value)),
        prop_oneof![Just(0xb_u32), Just(0xf)].prop_map(|status| (0x70, status)),
        (0..4_u32).prop_map(|queue| (0x30, queue)),
        (0..2_u32).prop_map(|ready| (0x44, ready)),
        (0..4_u32).prop_map(|interrupts| (0x64, interrupts)),
    ];
    let piece = (0x3fff_0000..0x4022_0000_u64, any::<u16>());
    let step = prop_oneof![
        1 => any::<bool>().prop_map(Step::Begin),
        2 => register.prop_map(|(at, value)| Step::Register(at, value)),
        4 => prop::collection::vec(12..1600_u32, 0..4).prop_map(Step::Room),
        4 => len().prop_map(Step::Send),
        4 => Just(Step::Take),
        6 => len().prop_map(Step::Receive),
        1 => (0..3_u32, 0..64_u16, piece, any::<bool>())
            .prop_map(|(queue, head, (at, len), writes)| Step::Offer(queue, head, at, len.into(), writes)),
        2 => Just(Step::Serve),
        1 => Just(Step::Announce),
        1 => any::<bool>().prop_map(Step::Link),
    ];
    prop::collection::vec(step, 0..40)
}

/// Does a step, and says what its parties see of it: the guest at its registers, and the embedder.
fn step(guest: &mut Guest, step: &Step) -> (Vec<u32>, Option<Vec<u8>>, bool) {
    let mut seen = None;
    let mut done = false;
    match step {
        Step::Begin(merges) => guest.begin(STATUS | if *merges { ALL } else { ALL & !MERGE }),
        Step::Register(at, value) => done = guest.set(*at, *value),
        Step::Room(lengths) => guest.make_room(lengths),
        Step::Send(len) => guest.send(PLAIN, &frame(*len), &[5]),
        Step::Take => {
            let mut packet = Packet::new();
            done = guest.card.take(&mut packet, &guest.memory);
            seen = Some(packet.head().to_vec());
            if done {
                guest.card.give_back(&packet, &guest.memory);
            }
        }
        Step::Receive(len) => {
            let whole = Frame { head: &[], rest: 0..*len as u64, offload: Offload::default() };
            done = guest.card.receive(0, &whole, &Bytes(frame(*len)), &guest.memory).is_ok();
        }
        Step::Offer(queue, head, at, len, writes) => {
            guest.offer(*queue, *head, &[(*at, *len)], *writes);
        }
        Step::Serve => {
            guest.card.serve(&guest.memory);
        }
        Step::Announce => guest.card.announce(),
        Step::Link(is_up) => guest.card.set_link(*is_up),
    }
    let registers = (0..0x44).map(|word| guest.get(4 * word)).collect();
    (registers, seen, done)
}

fn after(steps: &[Step]) -> Guest {
    let mut guest = Guest::new(0x2a, ALL);
    for each in steps {
        step(&mut guest, each);
    }
    guest
}

#[test]
fn a_card_with_a_frame_under_way_is_saved_when_that_was_given_back_or_is_forgotten() {
    let under_way = |card: &Mmio<Net>| {
        let mut buffer = [0; 512];
        Writer::new(&mut buffer).section(STATE, 0, |to| card.save(to))
    };
    let mut guest = Guest::new(1, ALL);
    let (mut one, mut other) = (Packet::new(), Packet::new());
    for _ in 0..2 {
        guest.send(PLAIN, &frame(60), &[]);
    }
    assert!(guest.card.take(&mut one, &guest.memory));
    assert!(guest.card.take(&mut other, &guest.memory));
    let error = under_way(&guest.card).unwrap_err();
    assert_eq!(error, NotDrained { requests: 2 });
    guest.card.give_back(&one, &guest.memory);
    assert_eq!(under_way(&guest.card), Err(NotDrained { requests: 1 }));
    // Its driver stops it meanwhile, which takes no frame from the embedder's hands.
    guest.set(0x70, 0xb);
    assert_eq!(under_way(&guest.card), Err(NotDrained { requests: 1 }));
    guest.card.give_back(&other, &guest.memory);
    assert_eq!(under_way(&guest.card), Ok(()));

    guest.begin(ALL);
    guest.send(PLAIN, &frame(60), &[]);
    assert!(guest.card.take(&mut one, &guest.memory));
    guest.begin(ALL);
    assert_eq!(under_way(&guest.card), Ok(()), "the driver has begun anew");
    guest.card.give_back(&one, &guest.memory);
    assert_eq!(under_way(&guest.card), Ok(()));
}

#[test]
fn a_frame_that_was_taken_before_a_state_is_loaded_is_not_given_back_to_it() {
    let mut guest = Guest::new(1, ALL);
    let bytes = save(&guest.card);
    guest.send(PLAIN, &frame(60), &[]);
    let mut packet = Packet::new();
    assert!(guest.card.take(&mut packet, &guest.memory));
    loaded(&bytes, STATE, |from| guest.card.load(from)).unwrap();
    guest.card.give_back(&packet, &guest.memory);
    assert_eq!(guest.used(TRANSMIT), None);
    assert!(guest.card.take(&mut packet, &guest.memory), "it is sent again");
}

#[test]
fn a_card_keeps_the_address_that_its_guest_knows_and_what_it_was_told_of_its_network() {
    for is_up in [true, false] {
        let mut guest = Guest::new(0x2a, ALL | STATUS);
        guest.card.set_link(is_up);
        let mut card = load(&save(&guest.card)).unwrap();
        assert_eq!(card.device().mac(), [2, 0, 0, 0, 0, 0x2a]);
        let told = card.interrupt();
        card.set_link(is_up);
        assert_eq!(card.interrupt(), told, "that is no news");
        card.set_link(!is_up);
        assert!(card.interrupt());
    }
}

#[test]
fn a_card_with_a_frame_under_way_is_not_copied_and_its_copy_is_given_back_none() {
    let mut guest = Guest::new(1, ALL);
    guest.send(PLAIN, &frame(60), &[]);
    let mut packet = Packet::new();
    assert!(guest.card.take(&mut packet, &guest.memory));
    let mut copy = Mmio::new(Net::new([2, 9, 9, 9, 9, 9]));
    assert_eq!(copy.go_on_as(&guest.card), Err(NotDrained { requests: 1 }));
    assert_eq!(copy.device().mac(), [2, 9, 9, 9, 9, 9], "it is as it was");

    let other = Guest::new(1, ALL);
    guest.card.go_on_as(&other.card).unwrap();
    guest.card.give_back(&packet, &guest.memory);
    assert_eq!(guest.used(TRANSMIT), None);
    assert!(guest.card.take(&mut packet, &guest.memory), "it is sent again");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_card_goes_on_as_the_one_that_was_saved(before in any_steps(), then in any_steps()) {
        let mut guest = after(&before);
        let bytes = save(&guest.card);
        let mut copy = Mmio::new(Net::new([2, 8, 8, 8, 8, 8]));
        copy.go_on_as(&load(&bytes).unwrap()).unwrap();
        let mut other = guest.with_card(copy);
        prop_assert_eq!(save(&other.card), bytes);
        for each in &then {
            prop_assert_eq!(step(&mut guest, each), step(&mut other, each), "{:?}", each);
        }
        let all = |guest: &Guest| guest.memory.get(0x4000_0000, BYTES);
        prop_assert!(all(&guest) == all(&other));
    }

    #[test]
    fn a_forged_card_is_refused_or_works(
        before in any_steps(),
        forgery in any_forgery(),
        then in any_steps(),
    ) {
        let guest = after(&before);
        let bytes = forged(&save(&guest.card), STATE, &forgery);
        if let Ok(card) = load(&bytes) {
            prop_assert_eq!(save(&card), bytes);
            let mut guest = guest.with_card(card);
            for each in &then {
                step(&mut guest, each);
            }
        }
    }
}
