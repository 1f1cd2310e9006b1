//! The network card, and the frames that its driver gives it (virtio 1.2, 5.1).

use core::sync::atomic::AtomicU16;

use crate::random::Random;
use crate::virtio::{Driven, store, wild};

/// The card.
pub(crate) static CARD: Driven = Driven {
    at: 0x0a00_0400,
    features: 0x0027_99a3,
    written: 0,
    available: [const { AtomicU16::new(0) }; 3],
    fill: header,
};
/// The card's address, as the test gives it to this guest.
const MAC: u64 = 0x0f00_0000_5452;

/// What stands before a frame, and how that begins: to all cards, from this one. In half of all, what is left to do for
/// the device may make sense.
fn header(random: &mut Random, at: u64, _: u64, _: u64) {
    let left = if random.once_in(2) {
        let (flags, kind) = (random.below(2), random.one_of(&[0, 0, 1, 4]));
        flags
            | kind << 8
            | random.below(100) << 16
            | random.below(1500) << 32
            | random.below(100) << 48
    } else {
        0
    };
    store(at, wild(random, left));
    store(at + 8, random.below(20) | 0xffff_ffff << 32);
    store(at + 16, wild(random, MAC << 16 | 0xffff));
    store(at + 24, random.next());
}
