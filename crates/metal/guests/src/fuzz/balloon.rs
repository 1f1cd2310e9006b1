//! The balloon, and the pages that its driver gives back (virtio 1.2, 5.5).

use core::sync::atomic::AtomicU16;

use crate::random::Random;
use crate::virtio::{Driven, store, wild};

/// The balloon. Of the queue of reports, buffers are what is given back, and what is in them does not matter.
pub(crate) static BALLOON: Driven = Driven {
    at: 0x0a00_0800,
    features: 0x34,
    written: 2,
    available: [const { AtomicU16::new(0) }; 3],
    fill: pages,
};

/// Numbers of pages, of which some follow each other, and some are the rings'.
fn pages(random: &mut Random, at: u64, memory: u64, bytes: u64) {
    let mut page = (memory + random.below(bytes)) >> 12;
    for place in 0..16 {
        page = if random.once_in(4) { (memory + random.below(bytes)) >> 12 } else { page + 2 };
        let (first, second) = (wild(random, page), wild(random, page + 1));
        store(at + 8 * place, first & 0xffff_ffff | second << 32);
    }
}
