//! The steps by which versions of a bus share their tables.

use crate::{Checker, Killer, Mutant};

const TABLE: &str = "core/iobus/src/table.rs";

/// What an interpreter says of two accesses that nothing orders.
const fn race(test: &'static str) -> Killer {
    Killer::new(Checker::Miri, "iobus", ("lib", test), "Data race detected")
}

const IN_PLACE: Killer =
    race("table::tests::what_others_read_of_a_table_they_have_read_before_it_is_changed_in_place");

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        step: "a table that is shared is copied before it is changed",
        edits: &[(
            TABLE,
            "self.owners().is_some_and(|owners| owners.load(Ordering::Acquire) != 1)",
            "false",
        )],
        killer: Killer::new(
            Checker::Test,
            "iobus",
            (
                "lib",
                "table::tests::a_table_is_as_a_sorted_list_and_one_that_shares_it_stays_as_it_was",
            ),
            "panicked",
        ),
    },
    Mutant {
        step: "who finds that it has a table alone comes after the reads of others",
        edits: &[(
            TABLE,
            "owners.load(Ordering::Acquire) != 1",
            "owners.load(Ordering::Relaxed) != 1",
        )],
        killer: IN_PLACE,
    },
    Mutant {
        step: "who gives a table up has read it",
        edits: &[(
            TABLE,
            "owners.fetch_sub(1, Ordering::Release)",
            "owners.fetch_sub(1, Ordering::Relaxed)",
        )],
        killer: IN_PLACE,
    },
    Mutant {
        step: "who frees it comes after that",
        edits: &[(TABLE, "        fence(Ordering::Acquire);\n", "")],
        killer: race("table::tests::what_others_read_of_a_table_they_have_read_before_it_is_freed"),
    },
    Mutant {
        step: "who shares a table is counted",
        edits: &[(
            TABLE,
            "            owners.fetch_add(1, Ordering::Relaxed);\n",
            "            let _ = owners;\n",
        )],
        killer: IN_PLACE,
    },
];
