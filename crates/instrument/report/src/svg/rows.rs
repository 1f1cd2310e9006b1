//! What a picture shows of each experiment.
//!
//! The rest of this crate shows whatever a record names. A picture that fits a screen has to choose, and this list is the
//! choice. An experiment that is not on it is not drawn; what a record does not have is left out.

/// What is drawn of one experiment.
#[derive(Clone, Copy, Debug)]
pub struct Pictured {
    /// The experiment's name.
    pub experiment: &'static str,
    /// What is measured, in a line.
    pub caption: &'static str,
    /// The parameters that a reader has to know: how large the VM was.
    pub sizes: &'static [&'static str],
    /// The metric's names. Of each row the first is drawn that it has.
    pub metrics: &'static [&'static str],
    /// The variant of the earlier design on the software machine.
    pub before: &'static str,
    /// What that design is called.
    pub before_title: &'static str,
}

/// Every experiment that is drawn, in the order from the top.
pub const PICTURED: [Pictured; 5] = [
    Pictured {
        experiment: "device-registration",
        caption: "the first memslot after devices were registered",
        sizes: &["devices"],
        metrics: &["first_memslot"],
        before: "call-srcu",
        before_title: "as Linux v6.18",
    },
    Pictured {
        experiment: "cache-enable",
        caption: "until every vCPU has turned its caches on",
        sizes: &["vcpus", "memory"],
        metrics: &["bring_up", "modelled_bring_up"],
        before: "every-vcpu",
        before_title: "a flush for every vCPU",
    },
    Pictured {
        experiment: "slot-delete",
        caption: "CPU time of the call that deletes a memslot",
        sizes: &["vcpus", "memory"],
        metrics: &["delete_cpu"],
        before: "read-locked",
        before_title: "as Linux since v6.9",
    },
    Pictured {
        experiment: "teardown",
        caption: "until the call that destroys a VM returns",
        sizes: &["memory", "mapping"],
        metrics: &["destroy", "modelled_destroy"],
        before: "per-page",
        before_title: "as arm64 until 2019",
    },
    Pictured {
        experiment: "page-merge",
        caption: "page faults of guests while the host merges pages",
        sizes: &["vms"],
        metrics: &["guest_faults"],
        before: "invalidate",
        before_title: "zapped, as in Linux",
    },
];
