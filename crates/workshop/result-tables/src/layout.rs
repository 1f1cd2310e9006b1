//! Which tables there are, and in which document each stands.

mod deletion;
mod parts;
mod registration;

use serde_json::Value;

pub(crate) use self::parts::RESULTS;
use self::parts::{DELETION, REGISTRATION, kvm, machine, median};
use crate::statistic::Statistic;
use crate::table::{Line, Table};

/// Every table, grouped by document, in the order in which the tables stand there.
pub fn tables() -> Vec<Table> {
    let results = vec![starting(), caches(), deleting(), merging(), ending()];
    results.into_iter().chain(registration::tables()).chain(deletion::tables()).collect()
}

/// The arguments of `mayfly run` that measure all tables: one command for each experiment.
pub fn commands() -> Vec<&'static str> {
    let mut commands: Vec<&str> = Vec::new();
    for table in tables() {
        if !commands.contains(&table.arguments) {
            commands.push(table.arguments);
        }
    }
    commands
}

fn starting() -> Table {
    Table {
        document: RESULTS,
        name: "starting-a-vm",
        arguments: REGISTRATION,
        params: vec![("order", "devices-first".into())],
        columns: vec![
            machine("before v6.18", "synchronize"),
            machine("v6.18", "call-srcu"),
            machine("expedited", "call-srcu-expedited"),
            machine("Mayfly", "mayfly"),
            kvm("this host's KVM"),
        ],
        lines: vec![
            median("registering a device", &["register"]),
            median("then the first memslot", &["first_memslot"]),
            median(
                "a memslot right after a registration, vCPUs running",
                &["back_to_back_memslot"],
            ),
            median(
                "unregistering right after a registration, vCPUs running",
                &["back_to_back_unregister"],
            ),
            median("from no VM to its first MMIO exit", &["total"]),
        ],
    }
}

fn caches() -> Table {
    Table {
        document: RESULTS,
        name: "turning-caches-on",
        arguments: "cache-enable --memory 256MiB --backend machine",
        params: vec![
            ("vcpus", 64.into()),
            ("memory", (256_u64 << 20).into()),
            ("mapping", "4KiB".into()),
        ],
        columns: vec![
            machine("every vCPU", "every-vcpu"),
            machine("vCPU 0 only", "vcpu0-only"),
            machine("the first vCPU", "first-vcpu"),
            machine("Mayfly", "mayfly"),
        ],
        lines: vec![
            median("all vCPUs up", &["bring_up", "modelled_bring_up"]),
            median("lines flushed for a VM", &["lines_flushed"]),
            Line {
                params: Some(vec![("lines", "oracle".into())]),
                ..median("scenarios of what guests rely on", &["scenarios"])
            },
            Line {
                params: Some(vec![("lines", "oracle".into())]),
                ..median("of which stale data was read in", &["scenarios_stale"])
            },
        ],
    }
}

fn deleting() -> Table {
    Table {
        document: RESULTS,
        name: "deleting-a-memslot",
        arguments: DELETION,
        params: vec![("vcpus", 128.into()), ("zap", "all-roots".into())],
        columns: vec![
            machine("Linux to v6.8", "write-locked"),
            machine("since v6.9", "read-locked"),
            machine("Mayfly", "mayfly"),
        ],
        lines: vec![
            median(
                "others that a vCPU finds before it when it loads its root, p50",
                &["root_load_ahead"],
            ),
            Line { statistic: Statistic::P99, ..median("the same, p99", &["root_load_ahead"]) },
            median("processor time of that load, p50", &["root_load_cpu"]),
            median("the wait in it, p50", &["root_load_wait"]),
            Line {
                statistic: Statistic::Longest,
                ..median("the same, longest", &["root_load_wait"])
            },
            median("processor time of the deleting call, p50", &["delete_cpu"]),
        ],
    }
}

fn merging() -> Table {
    Table {
        document: RESULTS,
        name: "merging-pages",
        arguments: "page-merge --backend machine",
        params: vec![("format", "EPT".into())],
        columns: vec![
            machine("zapped (Linux)", "invalidate"),
            machine("replaced where Linux's `change_pte` could", "change-pte"),
            machine("Mayfly", "mayfly"),
        ],
        lines: vec![
            median("faults of guests, in a round", &["guest_faults"]),
            median("while a change was under way", &["window_faults"]),
            median("entries written", &["entries_written"]),
            median("TLB invalidations", &["tlb_invalidations"]),
        ],
    }
}

fn ending() -> Table {
    Table {
        document: RESULTS,
        name: "ending-a-vm",
        arguments: "teardown --memory 64GiB --backend machine",
        params: vec![("memory", (64_u64 << 30).into()), ("mapping", "4KiB".into())],
        columns: vec![
            machine("today (arm64, v6.18)", "arm64-v6.18"),
            machine("page by page (arm64 to 2019)", "per-page"),
            machine("without what nobody needs", "elided"),
            machine("Mayfly", "mayfly"),
        ],
        lines: vec![
            median("until the call returns, p50", &["modelled_destroy", "destroy"]),
            median("until all tables are free, p50", FREED),
            Line {
                params: Some(in_blocks()),
                ..median(
                    "in blocks of 2 MiB: until the call returns, p50",
                    &["modelled_destroy", "destroy"],
                )
            },
            Line {
                params: Some(in_blocks()),
                ..median("in blocks of 2 MiB: until all tables are free, p50", FREED)
            },
            median("invalidations by address, in all rounds", &["tlbi_ipa"]),
            median("invalidations by VMID, in all rounds", &["tlbi_vmid"]),
        ],
    }
}

/// Where the end is only modelled, the caller frees every table itself before the call returns.
const FREED: &[&str] = &["reclaimed", "modelled_destroy"];

/// The parameters of a VM whose 64 GiB are mapped in blocks.
fn in_blocks() -> Vec<(&'static str, Value)> {
    vec![("memory", (64_u64 << 30).into()), ("mapping", "2MiB".into())]
}
