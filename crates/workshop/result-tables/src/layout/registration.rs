//! What a VM's start takes, call by call, in every order.

use super::parts::{REGISTRATION, kvm, machine, median};
use crate::table::Table;

const DOCUMENT: &str = "docs/device-registration.md";

/// What is timed whichever comes first.
const CALLS: [&str; 12] = [
    "register",
    "first_memslot",
    "first_vcpu",
    "first_exit",
    "total",
    "later_memslot",
    "unregister",
    "busy_register",
    "busy_vcpu",
    "back_to_back_memslot",
    "back_to_back_unregister",
    "destroy",
];

pub(super) fn tables() -> [Table; 3] {
    [
        of("devices-first", &CALLS),
        of("vcpus-first", &["register", "first_memslot", "total"]),
        of("memory-first", &["first_memslot", "first_vcpu", "total", "later_memslot"]),
    ]
}

fn of(order: &'static str, calls: &[&'static str]) -> Table {
    Table {
        document: DOCUMENT,
        name: order,
        arguments: REGISTRATION,
        params: vec![("order", order.into())],
        columns: vec![
            machine("`synchronize`", "synchronize"),
            machine("`call-srcu`", "call-srcu"),
            machine("`keyed-on-vcpus`", "keyed-on-vcpus"),
            machine("`call-srcu-expedited`", "call-srcu-expedited"),
            machine("`mayfly`", "mayfly"),
            kvm("KVM"),
        ],
        lines: calls.iter().map(|name| median(format!("`{name}`"), &[name])).collect(),
    }
}
