//! What deleting a memslot takes, under few vCPUs and under many.

use super::parts::{DELETION, kvm, machine, median};
use crate::table::{Line, Table};

const DOCUMENT: &str = "docs/slot-delete.md";

/// What of the deletion of a large slot is told, all roots invalidated.
const ALL_ROOTS: [&str; 8] = [
    "delete_cpu",
    "deletion_cpu",
    "root_load_ahead",
    "root_load_cpu",
    "refault_cpu",
    "until_freed",
    "until_freed_parked",
    "peak_tables",
];

pub(super) fn tables() -> [Table; 3] {
    let designs = || {
        vec![
            machine("`write-locked`", "write-locked"),
            machine("`read-locked`", "read-locked"),
            machine("`mayfly`", "mayfly"),
        ]
    };
    let of = |name, columns, lines| Table {
        document: DOCUMENT,
        name,
        arguments: DELETION,
        params: Vec::new(),
        columns,
        lines,
    };
    let all_roots = [4_u32, 16, 64, 128]
        .into_iter()
        .flat_map(|vcpus| ALL_ROOTS.map(move |name| line(vcpus, "all-roots", name)));
    let by_range = [4, 128].map(|vcpus| line(vcpus, "range", "delete_cpu"));
    let on_kvm = ["all-roots", "range"].into_iter().flat_map(|zap| {
        [4, 16].into_iter().flat_map(move |vcpus| {
            ["sparse_delete_cpu", "longest_pass"].map(|name| Line {
                title: format!("{vcpus} vCPUs, {zap}: `{name}`"),
                ..line(vcpus, zap, name)
            })
        })
    });
    [
        of("all-roots", designs(), all_roots.collect()),
        of("by-range", designs(), by_range.into()),
        of("on-kvm", vec![kvm("KVM")], on_kvm.collect()),
    ]
}

/// The median of what is measured under so many vCPUs.
fn line(vcpus: u32, zap: &'static str, name: &'static str) -> Line {
    Line {
        params: Some(vec![("vcpus", vcpus.into()), ("zap", zap.into())]),
        ..median(format!("{vcpus} vCPUs: `{name}`"), &[name])
    }
}
