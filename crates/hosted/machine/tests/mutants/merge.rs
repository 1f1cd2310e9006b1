//! The rules by which pages are merged, and the order of the steps.

use crate::{Checker, Killer, Mutant};

const MERGER: &str = "core/merge/src/merger.rs";
const STEPS: &str = "core/merge/src/steps.rs";
const CONTENTS: &str = "core/merge/src/contents.rs";
const ITEMS: &str = "core/merge/src/items.rs";

const fn test(name: &'static str) -> Killer {
    Killer::new(Checker::Test, "merge", ("model", name), "panicked")
}

const MODEL: Killer =
    test("nothing_is_lost_or_merged_across_groups_and_counts_are_those_of_a_recount");

const fn loom(test: &'static str) -> Killer {
    Killer::new(Checker::Loom, "merge", ("loom", test), "panicked")
}

const GUEST: &str = "what_a_guest_writes_while_its_page_is_merged_is_not_lost";
const DEVICE: &str = "what_a_device_writes_while_its_page_is_merged_is_not_lost";

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        step: "the right to write is taken away before contents are compared",
        edits: &[(
            STEPS,
            "    change.protect();\n    change.close();\n    change.compare();\n",
            "    change.close();\n    change.compare();\n    change.protect();\n",
        )],
        killer: loom(GUEST),
    },
    Mutant {
        step: "a guest cannot write while contents are compared",
        edits: &[(STEPS, "    change.protect();\n", "")],
        killer: loom(GUEST),
    },
    Mutant {
        step: "devices cannot write while contents are compared",
        edits: &[(
            STEPS,
            "    change.close();\n    change.compare();\n",
            "    change.compare();\n    change.close();\n",
        )],
        killer: loom(DEVICE),
    },
    Mutant {
        step: "a page is merged within its group",
        edits: &[(
            MERGER,
            "let key = Key { group: self.items.group(at), sum };",
            "let key = Key { group: Group(self.items.group(at).0 & 2), sum };",
        )],
        killer: MODEL,
    },
    Mutant {
        step: "a page that waits for an equal is of the same group still",
        edits: &[(MERGER, "group(other) == Some(key.group)", "group(other).is_some()")],
        killer: MODEL,
    },
    Mutant {
        step: "what becomes stable is none of the stable frames",
        edits: &[(MERGER, "!is_shared && has_room", "has_room")],
        killer: Killer::new(
            Checker::Test,
            "machine",
            (
                "merger",
                "a_shared_frame_that_comes_to_where_a_page_waits_for_an_equal_is_counted_once_and_stays_full",
            ),
            "panicked",
        ),
    },
    Mutant {
        step: "a frame has no more pages than it may",
        edits: &[(MERGER, "pages + self.run.coming(frame) <", "pages <")],
        killer: test("no_frame_has_more_pages_than_it_may_where_pages_are_merged_together"),
    },
    Mutant {
        step: "frames that no page has are given up",
        edits: &[(MERGER, "host.references(Pfn::new(frame)) > 1;", "true;")],
        killer: MODEL,
    },
    Mutant {
        step: "few of a sum are compared",
        edits: &[(MERGER, "const MOST_COMPARED: usize = 8;", "const MOST_COMPARED: usize = 64;")],
        killer: test("a_look_at_a_page_compares_few_however_many_have_its_sum"),
    },
    Mutant {
        step: "pages that are taken out are not counted any more",
        edits: &[(ITEMS, "self.counts[range.items.get(at).kind() as usize] -= 1;", "")],
        killer: Killer::new(
            Checker::Test,
            "merge",
            (
                "lib",
                "items::tests::pages_added_twice_are_there_once_and_keep_what_is_known_of_them",
            ),
            "panicked",
        ),
    },
    Mutant {
        step: "nobody chooses pages of one sum without its key",
        edits: &[(CONTENTS, "word.wrapping_add(*key)", "word.wrapping_add(self.key[0])")],
        killer: Killer::new(
            Checker::Test,
            "merge",
            ("lib", "contents::tests::a_sum_is_that_of_the_formula"),
            "panicked",
        ),
    },
    Mutant {
        step: "pages that have had no equal for long are looked at in the same passes",
        edits: &[(
            ITEMS,
            "pass.is_multiple_of(item.passes(most))",
            "(pass + at.page).is_multiple_of(item.passes(most))",
        )],
        killer: Killer::new(
            Checker::Test,
            "merge",
            (
                "lib",
                "items::tests::the_longer_a_page_has_no_equal_the_fewer_passes_look_at_it_and_all_such_pages_meet",
            ),
            "panicked",
        ),
    },
];
