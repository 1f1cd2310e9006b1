//! The rules that the checker of traces holds a trace against.

use crate::{Checker, Killer, Mutant};

const fn rule(test: &'static str) -> Killer {
    Killer::new(Checker::Test, "hwtrace", ("single_rules", test), "left: ")
}

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        step: "a generation takes the numbers that are not kept",
        edits: &[(
            "core/hwtrace/src/checker/tenancies.rs",
            "!is_given && !self.generations.iter().any(is_over)",
            "!is_given && !self.generations.iter().take(0).any(is_over)",
        )],
        killer: rule("a_generation_takes_each_number_that_is_not_kept"),
    },
    Mutant {
        step: "a frame that is free is mapped nowhere",
        edits: &[(
            "core/hwtrace/src/checker/frames.rs",
            "in self.mapping(frame, order, tickets)",
            "in self.mapping(frame, order, tickets).into_iter().take(0)",
        )],
        killer: rule("a_frame_is_not_freed_while_it_is_mapped_for_a_guest"),
    },
    Mutant {
        step: "another memory type takes break-before-make",
        edits: &[(
            "core/hwtrace/src/entries.rs",
            "from.memory != to.memory || from.frame != to.frame && writable",
            "from.frame != to.frame && writable",
        )],
        killer: rule("a_memory_type_changes_by_way_of_an_absent_entry"),
    },
];
