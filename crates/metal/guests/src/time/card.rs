//! A guest that floods its network: it sends the longest frames to all, without an end (virtio 1.2, 5.1).

use core::ptr::with_exposed_provenance;

use super::devices::say;
use super::queue::{Queue, Rings, SIZE};

const CARD: usize = 0x0a00_0400;
/// The queue of what the card sends.
const TRANSMIT: u32 = 1;
/// What stands before a frame: nothing is left to do for the card.
const HEADER: usize = 12;
const FRAME: usize = 1514;

/// Sends without an end, if there is a card.
pub(super) fn flood() {
    static mut RINGS: Rings = Rings::new();
    static mut BYTES: [u8; HEADER + FRAME] = [0; HEADER + FRAME];
    let bytes = (&raw mut BYTES).cast::<u8>();
    // SAFETY: one vCPU has this.
    let queue = unsafe { Queue::begin(CARD, 1, TRANSMIT, &raw mut RINGS, |_| Some(0)) };
    let Some(mut queue) = queue else {
        return say("guest: FAILED: there is no card\r\n");
    };
    for at in 0..6 {
        // SAFETY: within the frame, whose first bytes are where it goes to and where it comes from; the latter is in
        // the card's configuration. What follows is a type that is for experiments.
        unsafe {
            let own = with_exposed_provenance::<u8>(CARD + 0x100 + at).read_volatile();
            bytes.add(HEADER + at).write_volatile(0xff);
            bytes.add(HEADER + 6 + at).write_volatile(own);
        }
    }
    for (at, byte) in [(12, 0x88), (13, 0xb5)] {
        // SAFETY: as above.
        unsafe { bytes.add(HEADER + at).write_volatile(byte) };
    }
    (0..SIZE).for_each(|place| queue.describe(place, (bytes.addr(), HEADER + FRAME, 0)));
    say("guest: floods its network\r\n");
    loop {
        queue.offer(0..SIZE);
        while !queue.is_done() {
            core::hint::spin_loop();
        }
    }
}
