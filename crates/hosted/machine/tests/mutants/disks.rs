//! What has a disk keep what was flushed, and keeps a guest on its own disk.
//!
//! That a flush of a partition is passed on to the machine's disk is said in code for the bare machine, which no test of a process
//! runs. `make metal-cuts` fails without it.

use crate::{Checker, Killer, Mutant};

const FLIGHTS: &str = "metal/hypervisor/src/flights.rs";
const BLOCK: &str = "core/devices/src/virtio/block.rs";
const REQUEST: &str = "core/devices/src/virtio/block/request.rs";
const REMOTE: &str = "core/devices/src/virtio/block/remote.rs";
const DISK: &str = "metal/drivers/src/disk.rs";
const STORE: &str = "workshop/power-cuts/src/store.rs";
const SERVE: &str = "workshop/power-cuts/src/serve.rs";

const fn virtio(test: &'static str) -> Killer {
    Killer::new(Checker::Test, "devices", ("virtio", test), "panicked")
}

const CARRIED_OUT: Killer = Killer::new(
    Checker::Test,
    "hypervisor",
    ("lib", "flights::tests::each_request_is_carried_out_once"),
    "panicked",
);

const CLEARED: Killer = Killer::new(
    Checker::Test,
    "drivers",
    ("devices", "disk::a_disk_is_cleared_as_it_offers_and_not_beyond_its_end"),
    "panicked",
);

const LEFT: Killer = Killer::new(
    Checker::Test,
    "power-cuts",
    ("store", "a_cut_leaves_what_was_flushed_or_written_since"),
    "panicked",
);

const UNDER_WAY: Killer = Killer::new(
    Checker::Test,
    "power-cuts",
    ("server", "a_flush_is_not_for_what_is_under_way"),
    "panicked",
);

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        step: "a request whose data is to be kept has a flush behind it",
        edits: &[(FLIGHTS, "is_to_flush: keeps,", "is_to_flush: keeps && false,")],
        killer: CARRIED_OUT,
    },
    Mutant {
        step: "that flush begins when all pieces have ended",
        edits: &[(
            FLIGHTS,
            "(self.is_to_flush && self.pieces == 0).then_some",
            "self.is_to_flush.then_some",
        )],
        killer: CARRIED_OUT,
    },
    Mutant {
        step: "a write of a driver that does not flush is to be kept",
        edits: &[(
            BLOCK,
            "    features & feature::FLUSH == 0\n",
            "    features & !features != 0\n",
        )],
        killer: virtio(
            "remote::what_a_driver_writes_that_does_not_flush_is_kept_before_it_is_answered",
        ),
    },
    Mutant {
        step: "a range that is cleared is on the disk",
        edits: &[(
            REQUEST,
            "let fits = len.is_multiple_of(SECTOR) && ends <= sectors;",
            "let fits = len.is_multiple_of(SECTOR) && ends != u64::from(sectors == 0);",
        )],
        killer: virtio("clearing::a_range_that_is_not_there_or_too_long_or_not_alone_is_an_error"),
    },
    Mutant {
        step: "it is no longer than was offered",
        edits: &[(REQUEST, ".filter(|_| count <= most.into())", ".filter(|_| most > 0)")],
        killer: virtio("clearing::a_range_that_is_not_there_or_too_long_or_not_alone_is_an_error"),
    },
    Mutant {
        step: "nothing is cleared for a driver that has not taken the feature",
        edits: &[(
            REMOTE,
            "if agreed & feature == 0 { 0 } else { most }",
            "if agreed & feature == u64::MAX { 0 } else { most }",
        )],
        killer: virtio("clearing::what_was_not_taken_or_is_not_known_is_not_supported"),
    },
    Mutant {
        step: "the machine's disk is cleared by no more than it takes at a time",
        edits: &[(
            DISK,
            "len.is_multiple_of(SECTOR as u64) && len <= most\n",
            "len.is_multiple_of(SECTOR as u64) && most > 0\n",
        )],
        killer: CLEARED,
    },
    Mutant {
        step: "a flush makes nothing durable that was written after it was asked for",
        edits: &[(
            STORE,
            "|version| version.request <= until",
            "|version| version.request <= until + 1",
        )],
        killer: LEFT,
    },
    Mutant {
        step: "a flush is for what was answered before it came",
        edits: &[(SERVE, "store.flush(moment);", "store.flush(store.now().max(moment));")],
        killer: UNDER_WAY,
    },
];
