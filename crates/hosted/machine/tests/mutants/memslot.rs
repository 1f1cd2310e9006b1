//! The steps of a slot's log of dirty pages.

use crate::{Checker, Killer, Mutant};

const DIRTY: &str = "core/memslot/src/dirty.rs";

const fn loom(test: &'static str) -> Killer {
    Killer::new(Checker::Loom, "memslot", ("loom", test), "left: ")
}

const WRITTEN_AGAIN: Killer =
    loom("a_page_written_again_before_a_harvest_is_copied_as_written_last_or_logged_again");

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        step: "a page is written before it is marked",
        edits: &[(
            DIRTY,
            "self.all[index].fetch_or(1 << (page % u64::from(u64::BITS)), Ordering::Release);",
            "self.all[index].fetch_or(1 << (page % u64::from(u64::BITS)), Ordering::Relaxed);",
        )],
        killer: WRITTEN_AGAIN,
    },
    Mutant {
        step: "also where it is marked already",
        edits: &[(
            DIRTY,
            "        self.all[index].fetch_or(1 << (page % u64::from(u64::BITS)), Ordering::Release);",
            "        if self.all[index].load(Ordering::Relaxed) >> (page % u64::from(u64::BITS)) & 1 == 0 {
            self.all[index].fetch_or(1 << (page % u64::from(u64::BITS)), Ordering::Release);
        }",
        )],
        killer: WRITTEN_AGAIN,
    },
    Mutant {
        step: "who harvests a mark finds what was written",
        edits: &[(
            DIRTY,
            "word.swap(0, Ordering::Acquire)",
            "word.swap(0, Ordering::Relaxed)",
        )],
        killer: WRITTEN_AGAIN,
    },
    Mutant {
        step: "so does who clears one",
        edits: &[(
            DIRTY,
            "word.fetch_and(!which, Ordering::Acquire) & which",
            "word.fetch_and(!which, Ordering::Relaxed) & which",
        )],
        killer: loom("a_page_whose_mark_is_cleared_is_copied_as_it_was_written_before_the_mark"),
    },
    Mutant {
        step: "and who reads one",
        edits: &[(
            DIRTY,
            "words.next().map_or(0, |word| word.load(Ordering::Acquire));",
            "words.next().map_or(0, |word| word.load(Ordering::Relaxed));",
        )],
        killer: loom("a_page_whose_mark_is_read_is_found_as_it_was_written_before_the_mark"),
    },
];
