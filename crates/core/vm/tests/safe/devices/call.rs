//! What is called of a board's devices next.

use proptest::prelude::*;

use mayfly_devices::virtio::net::{Checksum, Family, Offload, Segments};

use super::guest::{BASE, BYTES, DATA, SIZE};
use super::{CORES, FEATURES};
use crate::step::FEW;

/// What a card leaves to the other side: checksums, cutting, and frames in several buffers.
const CARD: u64 = 3 | 3 << 7 | 3 << 11 | 1 << 15;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A register of one of the devices, or none.
    Access {
        device: usize,
        offset: u64,
        value: u64,
        len: usize,
        writes: bool,
    },
    /// A driver turns a device on, as it should.
    Start {
        device: usize,
        features: u64,
    },
    /// A driver puts descriptors in place, and makes some available, with what a disk is asked for: kind and sector.
    Offer {
        descriptors: Vec<(u64, u32, u16, u16)>,
        heads: Vec<u16>,
        request: (u32, u64),
    },
    /// Whatever it finds, if its owner calls so often.
    Serve {
        device: usize,
        times: usize,
        misses: bool,
    },
    Reset {
        device: usize,
    },
    Take {
        misses: bool,
    },
    /// With the memory of this board, whose-ever the packet is.
    GiveBack {
        from: usize,
        /// Its driver is told later.
        untold: bool,
    },
    /// The driver is told of what it was given back.
    Tell,
    /// The packet, finished or not, to the card of this board.
    Receive {
        from: usize,
        finishes: bool,
    },
    Frame {
        head: Vec<u8>,
        rest: (u64, u64),
        offload: Offload,
    },
    Announce,
    Link {
        is_up: bool,
    },
    /// Where the card would put so many pieces of frames, and where its rings are.
    Room {
        pieces: usize,
    },
    Input {
        bytes: Vec<u8>,
        breaks: bool,
    },
    Clock {
        now: u64,
    },
    Call {
        caller: usize,
        arguments: [u64; 4],
    },
    Report {
        core: usize,
        outcome: u8,
    },
    Stir {
        bytes: Vec<u8>,
    },
}

fn descriptor() -> impl Strategy<Value = (u64, u32, u16, u16)> {
    let address = prop_oneof![8 => BASE..BASE + BYTES, 1 => any::<u64>()];
    let len = prop_oneof![8 => 0..600_u32, 1 => any::<u32>()];
    let flags = prop_oneof![8 => 0..4_u16, 1 => 0..8_u16, 1 => any::<u16>()];
    let next = prop_oneof![8 => 0..SIZE, 1 => any::<u16>()];
    (address, len, flags, next)
}

/// A chain as a driver makes it, of what the device reads and then what it writes.
fn chain() -> impl Strategy<Value = Vec<(u64, u32, u16, u16)>> {
    let len = || prop_oneof![Just(16_u32), Just(512), Just(1), Just(60), 1..600_u32];
    let part = |most| prop::collection::vec((0..16_u64, len()), 0..most);
    (any::<bool>(), part(3), part(3)).prop_map(|(has_header, read, written)| {
        // Of a disk's request, or of a frame with nothing left to be done.
        let header = has_header.then_some((0, 16));
        let read: Vec<_> = header.into_iter().chain(read).collect();
        let (count, reads) = (read.len() + written.len(), read.len());
        let parts = read.into_iter().chain(written).enumerate();
        let chain = parts.map(|(at, (place, len)): (usize, (u64, u32))| {
            let (next, writes) = (u16::from(at + 1 < count), u16::from(at >= reads) << 1);
            (DATA + place * 0x100, len, next | writes, at as u16 + 1)
        });
        chain.collect()
    })
}

fn offer_some() -> impl Strategy<Value = Step> {
    let descriptors = prop::collection::vec(descriptor(), 0..usize::from(SIZE));
    let heads = prop::collection::vec(prop_oneof![8 => 0..SIZE, 1 => any::<u16>()], 0..4);
    let offered = prop_oneof![1 => (descriptors, heads), 3 => (chain(), Just(vec![0]))];
    let kind = prop_oneof![Just(0_u32), Just(1), Just(4), Just(8), any::<u32>()];
    let sector = prop_oneof![8 => 0..9_u64, 1 => any::<u64>()];
    (offered, kind, sector).prop_map(|((descriptors, heads), kind, sector)| Step::Offer {
        descriptors,
        heads,
        request: (kind, sector),
    })
}

fn serve_some(device: usize) -> impl Strategy<Value = Step> {
    let misses = prop::bool::weighted(0.2);
    let served =
        (1..4_usize, misses).prop_map(move |(times, misses)| Step::Serve { device, times, misses });
    let taken = misses.prop_map(|misses| Step::Take { misses });
    prop_oneof![if device == 4 { 1 } else { 9 } => served, 2 => taken, 1 => received(), 1 => frame()]
}

fn received() -> impl Strategy<Value = Step> {
    (0..2_usize, any::<bool>()).prop_map(|(from, finishes)| Step::Receive { from, finishes })
}

fn frame() -> impl Strategy<Value = Step> {
    let head = prop::collection::vec(any::<u8>(), 0..64);
    let end = || prop_oneof![8 => 0..3000_u64, 1 => any::<u64>()];
    (head, (end(), end()), offload()).prop_map(|(head, rest, offload)| Step::Frame {
        head,
        rest,
        offload,
    })
}

fn features() -> impl Strategy<Value = u64> {
    // What all of them have, what a card has too, and what there is not.
    prop_oneof![2 => Just(FEATURES), 2 => Just(1 << 32), 2 => Just(FEATURES | CARD), 1 => any::<u64>()]
}

/// A driver that begins to work, and does.
fn drives() -> impl Strategy<Value = Vec<Step>> {
    (2..5_usize, features()).prop_flat_map(|(device, features)| {
        let works = prop::collection::vec((offer_some(), serve_some(device)), 1..5);
        works.prop_map(move |works| {
            let works = works.into_iter().flat_map(|(offer, serve)| [offer, serve]);
            std::iter::once(Step::Start { device, features }).chain(works).collect()
        })
    })
}

fn offload() -> impl Strategy<Value = Offload> {
    let number = || prop_oneof![8 => 0..80_u16, 1 => any::<u16>()];
    let checksum = (number(), number()).prop_map(|(start, offset)| Checksum { start, offset });
    let family = prop_oneof![Just(Family::V4), Just(Family::V6)];
    let segments = (family, number(), number()).prop_map(|(family, size, headers)| Segments {
        family,
        size,
        headers,
    });
    (prop::option::of(checksum), prop::option::of(segments))
        .prop_map(|(checksum, segments)| Offload { checksum, segments })
}

/// A few calls.
pub(crate) fn some() -> impl Strategy<Value = Vec<Step>> {
    prop_oneof![prop::collection::vec(any_call(), 1..FEW), drives()]
}

fn any_call() -> impl Strategy<Value = Step> {
    let device = 0..5_usize;
    let offset = prop_oneof![
        6 => (0..0x48_u64).prop_map(|register| register * 4),
        1 => 0..0x1000_u64,
        1 => any::<u64>(),
    ];
    let value = prop_oneof![3 => 0..16_u64, 1 => Just(u64::MAX), 2 => any::<u64>()];
    let len = prop_oneof![6 => Just(4_usize), 2 => 0..9_usize];
    let bytes = prop::collection::vec(any::<u8>(), 0..64);
    let now = prop_oneof![4 => 0..100_u64, 1 => any::<u64>()];
    let core = 0..CORES + 1;
    let of_arm = [0x8000_0000, 0x8000_0001, 0x8000_8000, 0x8000_7fff, 0x8000_3fff_u64];
    let function = prop_oneof![
        2 => Just(0xc400_0003_u64),
        3 => (0..0x15_u64, any::<bool>())
            .prop_map(|(function, wide)| 0x8400_0000 | u64::from(wide) << 30 | function),
        1 => prop::sample::select(of_arm.to_vec()),
        1 => any::<u64>(),
    ];
    let argument = || prop_oneof![3 => 0..4_u64, 1 => any::<u64>()];
    prop_oneof![
        12 => (device.clone(), offset, value, len, any::<bool>()).prop_map(
            |(device, offset, value, len, writes)| {
                Step::Access { device, offset, value, len, writes }
            }
        ),
        2 => (2..5_usize, features())
            .prop_map(|(device, features)| Step::Start { device, features }),
        4 => offer_some(),
        4 => (2..5_usize).prop_flat_map(serve_some),
        1 => device.prop_map(|device| Step::Reset { device }),
        2 => (0..2_usize, any::<bool>()).prop_map(|(from, untold)| Step::GiveBack { from, untold }),
        1 => Just(Step::Tell),
        2 => received(),
        2 => frame(),
        1 => Just(Step::Announce),
        1 => any::<bool>().prop_map(|is_up| Step::Link { is_up }),
        1 => (0..20_usize).prop_map(|pieces| Step::Room { pieces }),
        2 => (bytes.clone(), any::<bool>())
            .prop_map(|(bytes, breaks)| Step::Input { bytes, breaks }),
        2 => now.prop_map(|now| Step::Clock { now }),
        4 => (core.clone(), function, prop::array::uniform3(argument())).prop_map(
            |(caller, function, [one, two, three])| {
                Step::Call { caller, arguments: [function, one, two, three] }
            }
        ),
        2 => (core, 0..4_u8).prop_map(|(core, outcome)| Step::Report { core, outcome }),
        1 => bytes.prop_map(|bytes| Step::Stir { bytes }),
    ]
}
