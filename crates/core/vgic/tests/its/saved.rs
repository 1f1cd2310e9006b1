//! States of an ITS that was never saved so.

use proptest::prelude::*;

use crate::guest::Guest;

/// One that has mapped something, and has an LPI pending.
fn guest() -> Guest {
    let mut guest = Guest::new(2, 64, 2, 3, 4);
    guest.properties(5, 0xa1);
    guest.turn(0, true);
    guest.turn(1, true);
    for words in
        [[9, 0, 1 << 63 | 1 << 16, 0], [8, 2, 1 << 63, 0], [10, 8197 << 32 | 3, 0, 0], [3, 3, 0, 0]]
    {
        guest.command(words);
    }
    guest
}

/// The bytes of a state with others in it, whose checksum is right again.
fn changed(mut bytes: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    bytes[at] = value;
    // A state says in its error what its checksum is.
    if let Err(mayfly_vgic::mayfly_state::Error::Checksum { said, computed }) =
        mayfly_vgic::mayfly_state::State::open(&bytes)
    {
        let place = bytes
            .windows(4)
            .position(|window| window == said.to_le_bytes())
            .expect("the checksum is in the header");
        bytes[place..place + 4].copy_from_slice(&computed.to_le_bytes());
    }
    bytes
}

proptest! {
    #[test]
    fn a_state_that_was_changed_is_refused_or_is_one_of_a_machine_that_works(
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut guest = guest();
        let bytes = guest.saved();
        let at = 0x20 + at.index(bytes.len() - 0x20);
        if guest.load(&changed(bytes, at, value)).is_ok() {
            let again = guest.saved();
            prop_assert!(guest.load(&again).is_ok());
            for _ in 0..200 {
                guest.serve();
                (0..2).for_each(|vcpu| guest.enter(vcpu));
                (0..2).for_each(|vcpu| guest.leave(vcpu));
            }
        }
    }
}

#[test]
fn what_is_pending_is_so_in_the_machine_that_goes_on() {
    let mut guest = guest();
    guest.save_and_load();
    assert!(guest.is_pending(1) && !guest.is_pending(0));
    guest.enter(1);
    assert_eq!(guest.take(1), Some(8197));
    guest.leave(1);
    // And the event is still mapped.
    guest.gic.send_msi(0, 3).unwrap();
    guest.enter(1);
    assert_eq!(guest.take(1), Some(8197));
}

#[test]
fn commands_that_are_left_are_executed_by_the_machine_that_goes_on() {
    let mut guest = guest();
    guest.enter(1);
    assert_eq!(guest.take(1), Some(8197));
    guest.leave(1);
    guest.queue([3, 3, 0, 0]);
    guest.post();
    guest.save_and_load();
    assert!(guest.is_pending(1));
}
