//! The steps by which values with several users are freed.

use crate::{Checker, Killer, Mutant};

const SHARED: &str = "core/platform/src/memory/shared.rs";
const KEPT: &str = "core/platform/src/memory/kept.rs";

/// What an interpreter says of two accesses that nothing orders.
const fn race(test: &'static str) -> Killer {
    Killer::new(Checker::Miri, "platform", ("lib", test), "Data race detected")
}

const READ_BEFORE: Killer =
    race("memory::shared::tests::what_an_owner_has_read_it_has_read_before_another_frees_it");

const HANDLED_BEFORE: Killer =
    race("memory::kept::tests::what_was_read_by_a_handle_was_read_before_the_value_is_freed");

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        step: "the last owner of a value frees it",
        edits: &[(
            SHARED,
            "owners.fetch_sub(1, Ordering::Release) == 1",
            "owners.fetch_sub(1, Ordering::Release) == 0",
        )],
        killer: Killer::new(
            Checker::Test,
            "platform",
            (
                "lib",
                "memory::shared::tests::\
                 a_shared_value_is_dropped_with_its_last_owner_and_not_before",
            ),
            "left: ",
        ),
    },
    Mutant {
        step: "an owner that gives a value up has read it",
        edits: &[(
            SHARED,
            "owners.fetch_sub(1, Ordering::Release) == 1",
            "owners.fetch_sub(1, Ordering::Relaxed) == 1",
        )],
        killer: READ_BEFORE,
    },
    Mutant {
        step: "the last owner comes after that",
        edits: &[(SHARED, "            fence(Ordering::Acquire);\n", "")],
        killer: READ_BEFORE,
    },
    Mutant {
        step: "who gives a handle up has read the value [give up]",
        edits: &[(
            KEPT,
            "handles.fetch_sub(1, Ordering::Release);",
            "handles.fetch_sub(1, Ordering::Relaxed);",
        )],
        killer: HANDLED_BEFORE,
    },
    Mutant {
        step: "who finds no handle comes after that [find]",
        edits: &[(
            KEPT,
            "self.handles.load(Ordering::Acquire) == 0",
            "self.handles.load(Ordering::Relaxed) == 0",
        )],
        killer: HANDLED_BEFORE,
    },
];
