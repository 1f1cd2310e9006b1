//! States of an ITS that was never saved so.

use mayfly_vgic::{Frame, Read, Served};
use proptest::prelude::*;

use crate::guest::{Guest, QUEUE};

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
            for _ in 0..if cfg!(miri) { 8 } else { 200 } {
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

/// As two vCPUs may leave it that write `GITS_CBASER` and `GITS_CWRITER` at the same time: the queue is shorter than it was
/// when the end was compared with it.
#[test]
fn an_end_that_is_out_of_the_queue_is_loaded_and_nothing_is_read_there() {
    let mut guest = guest();
    guest.write(Frame::Its, 0, 4, 0);
    let queue = 1 << 63 | QUEUE;
    guest.write(Frame::Its, 0x80, 8, queue | 1);
    guest.write(Frame::Its, 0x88, 8, 0x1fe0);
    let bytes = guest.saved();
    let at = bytes.windows(8).position(|window| window == (queue | 1).to_le_bytes()).unwrap();
    guest.load(&changed(bytes, at, 0)).unwrap();
    assert_eq!(guest.read(Frame::Its, 0x88, 8), Read::Value(0x1fe0));
    guest.write(Frame::Its, 0, 4, 1);
    assert_eq!(guest.serve(), Served::Nothing);
    assert_eq!(guest.read(Frame::Its, 0x90, 8), Read::Value(0));
    let again = guest.saved();
    guest.load(&again).unwrap();
    // A guest that begins anew has its commands executed.
    guest.write(Frame::Its, 0, 4, 0);
    guest.begin();
    guest.command([5, 0, 0, 0]);
}
