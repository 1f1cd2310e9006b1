//! The rules that the checker of traces holds a trace against.

use crate::{Checker, Killer, Mutant};

const fn rule(test: &'static str) -> Killer {
    Killer::new(Checker::Test, "hwtrace", ("single_rules", test), "left: ")
}

/// A fault that is found by no other rule: it says which one is missing.
const fn missed(test: &'static str, says: &'static str) -> Killer {
    Killer::new(Checker::Test, "hwtrace", ("missed", test), says)
}

/// An alarm where one order of the tickets breaks nothing.
const fn false_alarm(test: &'static str) -> Killer {
    Killer::new(Checker::Test, "hwtrace", ("no_alarm", test), "left: ")
}

/// The same, where an event may be of one life of a frame or of the next.
const fn another_life(test: &'static str) -> Killer {
    Killer::new(Checker::Test, "hwtrace", ("lives_overlap", test), "left: ")
}

/// A fault in what a table brings with it.
const fn comes(test: &'static str) -> Killer {
    Killer::new(Checker::Test, "hwtrace", ("comes_into_a_tree", test), "left: ")
}

/// A guest that is entered after the fault.
const fn enters(test: &'static str) -> Killer {
    Killer::new(Checker::Test, "hwtrace", ("enters_late", test), "left: ")
}

/// Break-before-make by way of another entry.
const fn elsewhere(test: &'static str) -> Killer {
    Killer::new(Checker::Test, "hwtrace", ("made_elsewhere", test), "left: ")
}

/// A page of a guest that is a table.
const fn page(test: &'static str) -> Killer {
    Killer::new(Checker::Test, "hwtrace", ("tables_and_pages", test), "left: ")
}

/// A table that two entries lead to, or may not.
const fn twice(test: &'static str) -> Killer {
    Killer::new(Checker::Test, "hwtrace", ("led_twice", test), "left: ")
}

/// What the checker goes by while it is not known what came first.
const fn in_doubt(test: &'static str) -> Killer {
    Killer::new(Checker::Test, "hwtrace", ("in_doubt", test), "left: ")
}

/// A rule that one order of the tickets keeps.
const fn one_order(test: &'static str, rule: &'static str) -> Killer {
    Killer::new(Checker::Test, "hwtrace", ("one_order", test), rule)
}

/// What a write may find that hardware has set.
const fn marked(test: &'static str) -> Killer {
    Killer::new(Checker::Test, "hwtrace", ("marked", test), "marked.rs")
}

/// A fault that comes with another one.
const fn beside(test: &'static str) -> Killer {
    Killer::new(Checker::Test, "hwtrace", ("beside_another", test), "beside_another.rs")
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
            "in mapped {",
            "in mapped.into_iter().take(0) {",
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
    Mutant {
        step: "a frame that is free is mapped by no entry",
        edits: &[(
            "core/hwtrace/src/checker/writes.rs",
            "if let Some(what) = free {",
            "if let Some(what) = free.filter(|_| false) {",
        )],
        killer: missed("a_frame_that_is_free_is_mapped", "free-frame at"),
    },
    Mutant {
        step: "a frame that is free is used by no guest",
        edits: &[(
            "core/hwtrace/src/checker/accesses.rs",
            r#"self.check_given(line, &frames, tickets, "a guest uses it");"#,
            "",
        )],
        killer: missed("a_frame_that_is_free_is_accessed", "free-frame at"),
    },
    Mutant {
        step: "a frame that is free becomes no table",
        edits: &[(
            "core/hwtrace/src/checker/arrivals.rs",
            "let free = free.map(|what| (Rule::FreeFrame, what));",
            "let free = free.map(|what| (Rule::FreeFrame, what)).filter(|_| false);",
        )],
        killer: missed("a_frame_that_is_free_is_linked_as_a_table", "free-frame at"),
    },
    Mutant {
        step: "a frame is given out once",
        edits: &[(
            "core/hwtrace/src/checker/frames.rs",
            "if let Some(frame) = self.lives.any_given(&frames, begin)",
            "if let Some(frame) = self.lives.any_given(&frames, begin).filter(|_| false)",
        )],
        killer: missed("a_frame_is_given_out_twice", "given-twice at"),
    },
    Mutant {
        step: "a table is mapped by no entry",
        edits: &[(
            "core/hwtrace/src/checker/arrivals.rs",
            "rules.extend(table.map(|what| (Rule::TableMapped, what)));",
            "rules.extend(table.map(|what| (Rule::TableMapped, what)).filter(|_| false));",
        )],
        killer: missed("a_guest_is_given_its_own_table", "table-mapped at"),
    },
    Mutant {
        step: "a page that is mapped becomes no table",
        edits: &[(
            "core/hwtrace/src/checker/arrivals.rs",
            "free.into_iter().chain(mapped.map(|what| (Rule::TableMapped, what))).collect()",
            "free.into_iter().chain(mapped.map(|what| (Rule::TableMapped, what)).filter(|_| false)).collect()",
        )],
        killer: missed("a_page_of_a_guest_becomes_a_table", "table-mapped at"),
    },
    Mutant {
        step: "a guest is entered under a number that its root has taken",
        edits: &[(
            "core/hwtrace/src/checker/guests.rs",
            "if !self.may_be_taken(vmid, (begin, end)) {",
            "if !self.may_be_taken(vmid, (begin, end)) && vmid == 0 {",
        )],
        killer: missed(
            "a_guest_is_entered_under_a_vmid_that_no_root_has_ever_taken",
            "vmid-not-taken at",
        ),
    },
    Mutant {
        step: "a root that is entered may be made by what is written down later",
        edits: &[
            (
                "core/hwtrace/src/checker/guests.rs",
                "if !self.tables.roots.contains_key(&top) && !self.hasten(end, |one| is_it(&one.event)) {",
                "if !self.tables.roots.contains_key(&top) && self.window.find(0, |one| is_it(&one.event)).is_none() {",
            ),
            // It is not certain that there is no root, either.
            (
                "core/hwtrace/src/checker/guests.rs",
                "was_there || !self.is_root_certain(top, (begin, end))",
                "was_there",
            ),
        ],
        killer: false_alarm(
            "a_guest_that_is_entered_while_its_root_is_made_takes_a_vmid_all_the_same",
        ),
    },
    Mutant {
        step: "a number may be taken by what is written down later",
        edits: &[(
            "core/hwtrace/src/checker/tenancies.rs",
            "if !self.hasten(end, |one| belongs(&one.event)) {",
            "if self.window.find(0, |one| belongs(&one.event)).is_none() {",
        )],
        killer: false_alarm("a_vmid_may_be_taken_while_a_guest_is_entered_under_it"),
    },
    Mutant {
        step: "a barrier orders a write before the invalidation of another processor",
        edits: &[(
            "core/hwtrace/src/checker/barriers.rs",
            "|| self.barrier_before(cpu, end).max(self.barrier_before(writer.cpu, end)) > written",
            "|| written < u64::MAX",
        )],
        killer: missed(
            "no_barrier_orders_a_write_before_the_invalidation_of_another_cpu",
            "no-barrier at",
        ),
    },
    Mutant {
        step: "a processor that has left a guest uses nothing of it",
        edits: &[(
            "core/hwtrace/src/checker/accesses.rs",
            "let is_outside = self.is_outside(tlb, vmid, tickets);",
            "let is_outside = self.is_outside(tlb, vmid, tickets) && tlb == u32::MAX;",
        )],
        killer: missed("a_tlb_is_used_by_a_cpu_that_has_left_the_guest", "access-outside at"),
    },
    Mutant {
        step: "a processor may have left a guest by what is written down later",
        edits: &[(
            "core/hwtrace/src/checker/guests.rs",
            "if !self.hasten_leave(*who, end) {",
            "if who.0 != u32::MAX {",
        )],
        killer: false_alarm("a_vmid_may_be_given_back_while_its_guest_is_left"),
    },
    Mutant {
        step: "a table that is free is not filled",
        edits: &[(
            "core/hwtrace/src/checker/trees.rs",
            "if self.is_free(table, (begin, end)) {",
            "if self.is_free(table, (begin, end)) && count == 0 {",
        )],
        killer: missed("a_table_is_filled_whose_frame_is_free", "write-after-free at"),
    },
    Mutant {
        step: "a table is free when walk caches have forgotten it",
        edits: &[(
            "core/hwtrace/src/checker/frames.rs",
            "Kind::Table(_) if stale.word.1 == ENTRIES => continue,",
            "Kind::Table(_) => continue,",
        )],
        killer: missed(
            "a_table_is_given_out_again_though_its_invalidation_is_never_complete",
            "table-freed at",
        ),
    },
    Mutant {
        step: "a frame that is given out again was invalidated",
        edits: &[(
            "core/hwtrace/src/checker/frames.rs",
            "stale.is_given |= is_before && has(stale.kind, stale.level, &frames);",
            "stale.is_given |= is_before && stale.is_given;",
        )],
        killer: missed(
            "a_frame_is_given_out_again_though_its_invalidation_is_never_complete",
            "frame-freed at",
        ),
    },
    Mutant {
        step: "an entry that maps a free frame is of a table that is certain",
        edits: &[(
            "core/hwtrace/src/checker/frames.rs",
            "} else if certain {",
            "} else if certain || line > 0 {",
        )],
        killer: another_life("a_page_may_have_been_mapped_before_its_table_became_a_root"),
    },
    Mutant {
        step: "an entry that maps a table is of a table that is certain",
        edits: &[(
            "core/hwtrace/src/checker/writes.rs",
            "in rules.into_iter().filter(|_| certain)",
            "in rules",
        )],
        killer: another_life("a_page_may_have_been_mapped_before_its_table_came_into_another_tree"),
    },
    Mutant {
        step: "a table is in doubt where the entry that leads to it is",
        edits: &[
            (
                "core/hwtrace/src/checker/writes.rs",
                "self.lives.doubt_link(below..below + 1, end);",
                "",
            ),
            ("core/hwtrace/src/checker/frames.rs", "&& self.is_walked(table, tickets)", ""),
        ],
        killer: another_life(
            "a_page_that_may_have_been_mapped_after_its_table_was_a_root_is_no_table",
        ),
    },
    Mutant {
        step: "a table ends at the latest when its frame is given out again",
        edits: &[(
            "core/hwtrace/src/checker/frames.rs",
            "if self.is_table_over(table, begin) {",
            "if self.is_table_over(table, begin) && begin == 0 {",
        )],
        killer: another_life(
            "a_root_that_may_have_been_freed_before_its_frame_is_given_out_again_is_none_any_more",
        ),
    },
    Mutant {
        step: "a table is in doubt where a write of it overlaps that its frame is given out",
        edits: &[(
            "core/hwtrace/src/checker/frames.rs",
            "self.lives.doubt(table..table + 1, end);",
            "",
        )],
        killer: another_life(
            "a_root_may_be_none_any_more_while_an_entry_is_written_of_the_table_that_comes_after",
        ),
    },
    Mutant {
        step: "a table that is put into a tree while its frame is given out is none of before",
        edits: &[
            (
                "core/hwtrace/src/tables.rs",
                "        table.reach = table.reach.max(tickets.1);\n",
                "",
            ),
            (
                "core/hwtrace/src/checker/arrivals.rs",
                "come.extend(below.map(|below| (below, certain)));",
                "come.extend(below.filter(|_| false).map(|below| (below, certain)));",
            ),
        ],
        killer: in_doubt("a_table_may_be_linked_while_its_frame_is_freed_and_given_out"),
    },
    Mutant {
        step: "a root that leads to another has it for certain",
        edits: &[
            (
                "core/hwtrace/src/checker/doubts.rs",
                "self.are_certain(&(table..table + 1), tickets)\n            && ",
                "",
            ),
            // Its own entry is not, either.
            ("core/hwtrace/src/checker/doubts.rs", "chain(by);", "chain(by.filter(|_| false));"),
        ],
        killer: another_life("a_root_may_have_its_frame_from_a_table_whose_entry_led_elsewhere"),
    },
    Mutant {
        step: "a root has for certain the entry that leads into another tree",
        edits: &[(
            "core/hwtrace/src/checker/doubts.rs",
            "chain(by);",
            "chain(by.filter(|_| false));",
        )],
        killer: another_life("a_root_may_have_its_frame_from_a_table_whose_entry_led_elsewhere"),
    },
    Mutant {
        step: "a table that a root leads to is in another tree for certain",
        edits: &[(
            "core/hwtrace/src/checker/doubts.rs",
            "last.into_iter()",
            "last.filter(|_| false).into_iter()",
        )],
        killer: twice("a_table_may_be_unlinked_while_a_root_is_made_that_leads_to_it"),
    },
    Mutant {
        step: "a table that is linked is no root since its frame may have been given out",
        edits: &[(
            "core/hwtrace/src/checker/doubts.rs",
            "self.are_certain(&(table..table + 1), tickets)\n            && ",
            "",
        )],
        killer: twice(
            "a_table_may_be_linked_whose_frame_may_have_been_given_out_since_it_was_a_root",
        ),
    },
    Mutant {
        step: "a walk comes for certain to the table of an entry",
        edits: &[(
            "core/hwtrace/src/checker/doubts.rs",
            "self.tables.path(word.0).into_iter().chain([word])",
            "[word].into_iter()",
        )],
        killer: twice("a_root_may_lead_to_a_table_no_more_whose_own_table_is_free"),
    },
    Mutant {
        step: "a walk comes by no other entry that is written meanwhile",
        edits: &[("core/hwtrace/src/checker/doubts.rs", "own == Some(word)", "own.is_some()")],
        killer: twice("a_table_may_lead_into_another_tree_no_more_when_it_comes_into_one"),
    },
    Mutant {
        step: "the place of a table that two entries may lead to is in doubt",
        edits: &[
            (
                "core/hwtrace/src/checker/writes.rs",
                "self.tables.table(table).may_be_elsewhere |= !is_certain;",
                "",
            ),
            (
                "core/hwtrace/src/checker/accesses.rs",
                "&& self.tables.are_in_place(root, words)",
                "",
            ),
        ],
        killer: twice(
            "a_guest_may_have_a_page_by_a_table_that_a_root_led_to_which_is_freed_meanwhile",
        ),
    },
    Mutant {
        step: "a guest may be entered before what it has is taken away",
        edits: &[(
            "core/hwtrace/src/checker/writes.rs",
            "self.hasten_enters(before.root, end);",
            "",
        )],
        killer: in_doubt("a_guest_may_use_a_page_that_was_unmapped_while_it_was_entered"),
    },
    Mutant {
        step: "a table may be unlinked before it is filled",
        edits: &[(
            "core/hwtrace/src/checker/trees.rs",
            "let is_led = !self.hasten_unlink(table, end);",
            "let is_led = self.is_placed(table);",
        )],
        killer: in_doubt(
            "a_guest_may_use_a_page_of_a_table_that_was_unlinked_while_it_was_filled_anew",
        ),
    },
    Mutant {
        step: "a table that is unlinked has its pages for certain",
        edits: &[(
            "core/hwtrace/src/checker/writes.rs",
            "&& gone.iter().all(is_known);",
            "&& (gone.is_empty() || gone.iter().any(is_known));",
        )],
        killer: in_doubt("a_page_that_its_table_may_never_have_had_in_a_tree_may_be_free"),
    },
    Mutant {
        step: "a table that an entry comes to lead to maps no frame that is free",
        edits: &[(
            "core/hwtrace/src/checker/writes.rs",
            "if let Some(below) = self.table_of(&comes) {",
            "if let Some(below) = self.table_of(&comes).filter(|_| false) {",
        )],
        killer: comes("a_free_frame_comes_into_a_tree_with_the_table_that_maps_it"),
    },
    Mutant {
        step: "a table that becomes a root maps no frame that is free",
        edits: &[(
            "core/hwtrace/src/checker/trees.rs",
            "self.check_arrivals(table, &arrival, true);",
            "self.check_arrivals(table, &arrival, line == 0);",
        )],
        killer: comes("a_free_frame_comes_into_a_tree_with_the_root_that_maps_it"),
    },
    Mutant {
        step: "a page that comes into a tree was cleaned",
        edits: &[(
            "core/hwtrace/src/checker/arrivals.rs",
            "if family.goes_past_caches() {",
            "if family.goes_past_caches() && frames.is_empty() {",
        )],
        killer: comes("a_frame_that_was_not_cleaned_comes_into_a_tree_with_the_table_that_maps_it"),
    },
    Mutant {
        step: "a guest that is entered has nothing that is free",
        edits: &[(
            "core/hwtrace/src/checker/guests.rs",
            "if is_first {",
            "if is_first && vmid == 0 {",
        )],
        killer: enters("a_guest_is_entered_for_the_first_time_when_its_page_is_free"),
    },
    Mutant {
        step: "a page that is mapped again after it was free is another",
        edits: &[(
            "core/hwtrace/src/checker/overdue.rs",
            "&& Since::Mapped(self.tables.since(found)) == *since",
            "",
        )],
        killer: enters("a_guest_is_entered_when_its_page_is_free_no_more_or_nowhere_mapped"),
    },
    Mutant {
        step: "TLBs have forgotten what another entry had at the guest frames of one that is made",
        edits: &[(
            "core/hwtrace/src/checker/forgotten.rs",
            "!stale.is_live() && stale.writer.tickets.1 < begin",
            "stale.writer.tickets.1 < begin && stale.word == made.word",
        )],
        killer: elsewhere("a_page_comes_for_one_that_tlbs_have_still_of_the_table_before"),
    },
    Mutant {
        step: "a block is made of pages that TLBs have forgotten",
        edits: &[(
            "core/hwtrace/src/checker/forgotten.rs",
            "family.breaks() && matches!(found.kind, Kind::Leaf(_))",
            "family.breaks() && matches!(found.kind, Kind::Table(_))",
        )],
        killer: elsewhere("a_block_comes_for_pages_that_tlbs_have_still"),
    },
    Mutant {
        step: "a page of a guest becomes no root",
        edits: &[(
            "core/hwtrace/src/checker/trees.rs",
            r#"self.check_unmapped(line, table, tickets, "is part of a root");"#,
            "let _ = table;",
        )],
        killer: page("a_guests_page_becomes_a_root"),
    },
    Mutant {
        step: "a page of a guest is not written as a table",
        edits: &[(
            "core/hwtrace/src/checker/writes.rs",
            r#"self.check_unmapped(line, table, tickets, "is written");"#,
            "",
        )],
        killer: page("a_table_is_written_whose_frame_a_guest_has_since"),
    },
    Mutant {
        step: "a page of a guest is not filled as a table",
        edits: &[(
            "core/hwtrace/src/checker/trees.rs",
            r#"self.check_unmapped(line, table, (begin, end), "is filled");"#,
            "",
        )],
        killer: page("a_table_is_written_whose_frame_a_guest_has_since"),
    },
    Mutant {
        step: "a table is filled before it is in a tree",
        edits: &[(
            "core/hwtrace/src/checker/trees.rs",
            "if is_led && self.is_placed_for_certain(table, (begin, end)) {",
            "if is_led && self.is_placed_for_certain(table, (begin, end)) && count == 0 {",
        )],
        killer: Killer::new(
            Checker::Test,
            "hwtrace",
            ("filled_late", "a_table_of_a_tree_is_filled"),
            "left: ",
        ),
    },
    Mutant {
        step: "a root that is gone is no table",
        edits: &[("core/hwtrace/src/checker/frames.rs", "&& self.is_walked(table, tickets)", "")],
        killer: page("a_root_that_is_gone_is_no_root_that_is_mapped"),
    },
    Mutant {
        step: "a table that is unlinked is one until walk caches have forgotten it",
        edits: &[(
            "core/hwtrace/src/checker/frames.rs",
            "stale.is_left_for_certain()",
            "!stale.is_left_for_certain()",
        )],
        killer: page("a_table_that_was_unlinked_is_mapped"),
    },
    Mutant {
        step: "a root may have come after it was gone",
        edits: &[(
            "core/hwtrace/src/checker/doubts.rs",
            "self.is_root_settled(top, tickets) && ",
            "",
        )],
        killer: one_order(
            "a_root_that_may_have_come_after_it_was_gone_is_there_when_its_frame_is_given_out",
            "root-gone",
        ),
    },
    Mutant {
        step: "a VMID may be another root's by what is written down later",
        edits: &[(
            "core/hwtrace/src/checker/stale.rs",
            "&& !self.may_be_reused(vmid, found.root, done)",
            "",
        )],
        killer: one_order(
            "a_table_may_be_freed_under_a_vmid_that_another_root_has_meanwhile",
            "table-freed",
        ),
    },
    Mutant {
        step: "what an invalidation may have come before stays in TLBs",
        edits: &[(
            "core/hwtrace/src/checker/stale.rs",
            "if !is_reached_for_certain {",
            "if false {",
        )],
        killer: one_order(
            "a_page_may_have_been_taken_away_after_an_invalidation_that_is_complete",
            "stale-access",
        ),
    },
    Mutant {
        step: "a root that is free is one until it is gone",
        edits: &[(
            "core/hwtrace/src/checker/overdue.rs",
            "Since::Led(None) => true,",
            "Since::Led(None) => self.tables.get(table).is_none_or(|table| table.place.is_none()),",
        )],
        killer: beside("a_guest_is_entered_when_its_root_is_free_and_has_become_a_table"),
    },
    Mutant {
        step: "a table that is free is one until it is unlinked",
        edits: &[(
            "core/hwtrace/src/checker/overdue.rs",
            "self.table_of(&above).is_none()",
            "self.tables.get(table).is_none_or(|table| table.place.is_none())",
        )],
        killer: beside("a_guest_is_entered_when_its_table_is_free_and_has_become_another_one"),
    },
    Mutant {
        step: "a table whose format is not known may be marked",
        edits: &[(
            "core/hwtrace/src/checker/marks.rs",
            "map_or(ANY_MARKS, Family::marks)",
            "map_or(0, Family::marks)",
        )],
        killer: marked(
            "an_entry_that_leads_to_its_own_table_may_have_been_marked_before_another_is_written",
        ),
    },
    Mutant {
        step: "hardware sets no bits that it does not set in the format of the table",
        edits: &[(
            "core/hwtrace/src/checker/marks.rs",
            "find(|one| one.bits & !marks != 0)",
            "find(|_| false)",
        )],
        killer: marked(
            "hardware_has_set_no_bit_that_it_does_not_set_in_the_format_that_a_table_comes_to_have",
        ),
    },
    Mutant {
        step: "a mark that is missing keeps no write from coming after it",
        edits: &[("core/hwtrace/src/checker/writes.rs", "&& !self.is_mark(other)", "")],
        killer: marked("what_may_be_a_mark_keeps_nothing_from_coming_after_it"),
    },
    Mutant {
        step: "a mark changes only the bits that it is of",
        edits: &[("core/hwtrace/src/checker/writes.rs", "new ^= self.present(word) ^ old;", "")],
        killer: marked("of_what_may_be_a_mark_only_that_counts_which_it_changes"),
    },
    Mutant {
        step: "walk caches may have forgotten all of a VMID",
        edits: &[(
            "core/hwtrace/src/checker/frames.rs",
            "&& !self.may_have_been_over(vmid, (stale.writer.tickets.0, end))",
            "",
        )],
        killer: one_order(
            "a_frame_may_be_used_after_all_is_invalidated_that_led_to_it_as_a_table",
            "table-mapped",
        ),
    },
    Mutant {
        step: "of what a root has left behind no rule asks for more",
        edits: &[(
            "core/hwtrace/src/checker/frames.rs",
            "stale.remains != Remains::No",
            "stale.is_live()",
        )],
        killer: one_order(
            "what_was_not_invalidated_when_its_root_was_gone_may_be_free",
            "frame-freed",
        ),
    },
    Mutant {
        step: "what takes the place of a page may be mapped when its VMID is another root's",
        edits: &[(
            "core/hwtrace/src/checker/forgotten.rs",
            "&& !self.may_be_reused(vmid, made.root, end)",
            "",
        )],
        killer: one_order(
            "a_page_may_be_mapped_after_its_vmid_is_another_roots",
            "break-before-make",
        ),
    },
    Mutant {
        step: "a CPU may go into another guest before its root is gone",
        edits: &[("core/hwtrace/src/checker/guests.rs", " && !goes_elsewhere(who)", "")],
        killer: one_order(
            "a_cpu_may_have_gone_into_another_guest_when_a_root_is_gone",
            "root-gone",
        ),
    },
    Mutant {
        step: "the guest whose entry asks for an invalidation may have been entered before",
        edits: &[(
            "core/hwtrace/src/checker/invalidations.rs",
            "|| self.taking.iter().any(enters)",
            "",
        )],
        killer: one_order(
            "another_guest_may_have_been_entered_before_all_of_its_vmid_was_invalidated",
            "stale-access",
        ),
    },
    Mutant {
        step: "a frame that becomes a table at once was not cleaned",
        edits: &[(
            "core/hwtrace/src/checker/arrivals.rs",
            "self.are_given_for_certain(&(frame..frame + 1), tickets)",
            "self.are_certain(&(frame..frame + 1), tickets)",
        )],
        killer: beside("a_frame_is_mapped_that_was_not_cleaned_and_becomes_a_table_at_once"),
    },
    Mutant {
        step: "a frame that is given out again before the guest is entered is freed",
        edits: &[(
            "core/hwtrace/src/checker/overdue.rs",
            "stale.is_given = self.lives",
            "let _ = self.lives",
        )],
        killer: beside("a_guest_is_entered_that_has_a_frame_which_was_given_out_again"),
    },
    Mutant {
        step: "a write that waits ends with its table when the frame is given out",
        edits: &[(
            "core/hwtrace/src/checker/frames.rs",
            "for table in self.tables_in(&frames) {\n            if",
            "for table in self.tables.known_in(&frames) {\n            if",
        )],
        killer: Killer::new(
            Checker::Test,
            "hwtrace",
            ("lives_overlap", "a_write_that_waits_ends_with_its_table_when_the_frame_is_given_out"),
            "lives_overlap.rs",
        ),
    },
    Mutant {
        step: "an entry is in no table for certain whose frame may be given out",
        edits: &[("core/hwtrace/src/checker/frames.rs", "stale.certain = false;", "")],
        killer: one_order(
            "an_entry_may_be_in_a_root_whose_frame_is_given_out_or_not",
            "free-frame",
        ),
    },
    Mutant {
        step: "an invalidation may come after a table is given out",
        edits: &[(
            "core/hwtrace/src/checker/invalidations.rs",
            "|| self.window.frames_of(&frames, end).next().is_some()",
            "",
        )],
        killer: one_order(
            "a_table_may_be_given_out_before_what_it_had_is_invalidated",
            "frame-freed",
        ),
    },
    Mutant {
        step: "a CPU may go into a guest again after it has left",
        edits: &[(
            "core/hwtrace/src/checker/invalidations.rs",
            "stay.left.is_none_or(|(left, _)| left < stay.entered)",
            "stay.entered > stay.out",
        )],
        killer: one_order(
            "a_guest_may_have_been_entered_again_after_it_was_left_and_its_root_gone",
            "stale-access",
        ),
    },
    Mutant {
        step: "what may have been a mark is one when the format is known",
        edits: &[(
            "core/hwtrace/src/checker/marks.rs",
            "may_come_later && are_present",
            "false && are_present",
        )],
        killer: marked(
            "what_may_have_been_a_mark_is_none_that_is_missing_when_the_format_is_known",
        ),
    },
    Mutant {
        step: "what a table that may be free had may be there still",
        edits: &[(
            "core/hwtrace/src/checker/writes.rs",
            "self.mixed.extend(self.exposed(before.root));",
            "",
        )],
        killer: one_order(
            "a_page_may_be_unmapped_in_a_table_that_is_free_and_be_used_still",
            "stale-access",
        ),
    },
    Mutant {
        step: "a write that another one asks for may take away what a guest has",
        edits: &[("core/hwtrace/src/checker/writes.rs", "self.mixed.insert(vmid);", "")],
        killer: one_order(
            "a_guest_may_have_what_is_unmapped_for_a_write_that_came_before_it_was_entered",
            "stale-access",
        ),
    },
    Mutant {
        step: "another root may be entered later under a VMID",
        edits: &[(
            "core/hwtrace/src/checker/guests.rs",
            "exposure.since.min(exposure.entered) >= begin",
            "exposure.since >= begin && exposure.since != u64::MAX",
        )],
        killer: one_order(
            "a_vmid_may_be_another_roots_of_which_it_is_not_known_when_it_was_entered",
            "frame-freed",
        ),
    },
    Mutant {
        step: "what a frame was a table by may be invalidated before a CPU goes in again",
        edits: &[(
            "core/hwtrace/src/checker/frames.rs",
            "self.may_have_been_over(vmid, (stale.writer.tickets.0, end))",
            "self.may_be_over(vmid, tickets)",
        )],
        killer: one_order(
            "a_root_that_is_free_may_be_no_table_when_another_one_in_its_frame_is_gone",
            "table-mapped",
        ),
    },
    Mutant {
        step: "what is free may be invalidated with all of its VMID before a CPU goes in",
        edits: &[(
            "core/hwtrace/src/checker/stale.rs",
            "|| !stale.is_live() && self.may_have_been_over(vmid, (since, limit + 1))",
            "",
        )],
        killer: one_order(
            "a_table_may_be_free_where_no_guest_is_entered_until_all_of_its_vmid_is_invalidated",
            "table-freed",
        ),
    },
    Mutant {
        step: "what may be a mark is written all the same",
        edits: &[(
            "core/hwtrace/src/checker/writes.rs",
            "self.is_change(table, old, new)",
            "!self.is_same(table, old, new)",
        )],
        killer: marked("what_is_no_mark_in_the_format_of_its_table_has_been_written"),
    },
    Mutant {
        step: "an entry that is there still ends where the frame of its table is given out",
        edits: &[(
            "core/hwtrace/src/checker/frames.rs",
            "if self.stale.values().flatten().any(is_of) {",
            "if self.stale.values().flatten().filter(|_| false).any(is_of) {",
        )],
        killer: one_order(
            "an_entry_may_be_in_no_table_any_more_whose_frame_is_given_out_while_it_is_freed",
            "free-frame",
        ),
    },
];
