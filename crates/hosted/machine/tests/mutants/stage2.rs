//! The steps of the protocols of stage 2.

use crate::{Checker, Killer, Mutant};

const CELL: &str = "core/stage2/src/cell.rs";
const DISMANTLE: &str = "core/stage2/src/dismantle.rs";
const FLUSH: &str = "core/stage2/src/flush.rs";
const GRAVEYARD: &str = "core/stage2/src/graveyard.rs";
const LEDGER: &str = "core/stage2/src/owed/ledger.rs";
const MAP: &str = "core/stage2/src/map.rs";
const OWED: &str = "core/stage2/src/owed.rs";
const MARKED: &str = "core/stage2/src/marked.rs";
const PARKING: &str = "core/stage2/src/parking.rs";
const PICKED: &str = "core/stage2/src/picked.rs";
const PROTECT: &str = "core/stage2/src/protect.rs";
const PRUNE: &str = "core/stage2/src/prune.rs";
const RECLAIM: &str = "core/stage2/src/reclaim.rs";
const REPLACE: &str = "core/stage2/src/replace.rs";
const ROOT: &str = "core/stage2/src/root.rs";
const ROOTS: &str = "core/stage2/src/roots.rs";
const SEQUENCE: &str = "core/stage2/src/sequence.rs";
const SPLIT: &str = "core/stage2/src/split.rs";
const WRITTEN: &str = "core/stage2/src/written.rs";
const ZAP: &str = "core/stage2/src/zap.rs";

const fn loom(test: &'static str, says: &'static str) -> Killer {
    Killer::new(Checker::Loom, "stage2", ("loom", test), says)
}

const fn tree(test: &'static str, says: &'static str) -> Killer {
    Killer::new(Checker::Test, "stage2", ("tree", test), says)
}

const fn shared_cpus(test: &'static str, says: &'static str) -> Killer {
    Killer::new(Checker::Test, "machine", ("shared_cpus", test), says)
}

/// Of two who would take the same away, one comes second.
const COUNTED: Killer = Killer::new(
    Checker::Loom,
    "stage2",
    ("loom_counted", "who_finds_a_page_zapped_by_another_has_it_forgotten_when_he_is_done"),
    "TLBs remember it still",
);

const BY_REFERENCE: Killer = loom(
    "roots::what_is_done_with_a_root_by_a_reference_comes_before_it_is_freed",
    "Causality violation",
);

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        step: "pages that are passed over in runs have no mark",
        edits: &[(WRITTEN, " && !entry.to_leaf(run.level).written", "")],
        killer: tree(
            "written::all_marks_are_told_however_many_and_however_short_the_slices",
            "panicked",
        ),
    },
    Mutant {
        step: "a fault that fills an empty entry executes [install] when it has frozen it",
        edits: &[(
            MAP,
            "        // [install]
        fence(Ordering::SeqCst);
        let permitted = space",
            "        let permitted = space",
        )],
        killer: loom(
            "faults::a_fault_that_goes_the_short_way_leaves_nothing_stale_behind",
            "panicked",
        ),
    },
    Mutant {
        step: "a fault that changes what is there executes it, too",
        edits: &[(
            MAP,
            "        // [install]
        fence(Ordering::SeqCst);
        if !space.sequence",
            "        if !space.sequence",
        )],
        killer: loom("faults::a_fault_that_is_not_found_at_work_is_refused", "panicked"),
    },
    Mutant {
        step: "a fault asks again when it has frozen the entry",
        edits: &[(
            MAP,
            "let permitted = space.sequence.permits(gfns, seen);",
            "let permitted = { let _ = (gfns, seen); true };",
        )],
        killer: loom(
            "faults::a_fault_that_asked_before_an_invalidation_leaves_nothing_stale_behind",
            "panicked",
        ),
    },
    Mutant {
        step: "a fault that is refused puts back what was there",
        edits: &[(
            MAP,
            "space.parking.thaw(cell, entry, mmu);",
            "space.parking.thaw(cell, Entry::EMPTY, mmu);",
        )],
        killer: tree(
            "overlap::a_fault_that_an_invalidation_overtakes_makes_no_table::ept",
            "left: ",
        ),
    },
    Mutant {
        step: "a fault that changes what is there asks again, too",
        edits: &[(
            MAP,
            "        if !space.sequence.permits(gfns, seen) {
            space.parking.thaw(cell, entry, mmu);",
            "        if false {
            space.parking.thaw(cell, entry, mmu);",
        )],
        killer: tree(
            "overlap::a_fault_that_an_invalidation_overtakes_makes_no_table::ept",
            "left: ",
        ),
    },
    Mutant {
        step: "an invalidation executes [announce] before it loads entries",
        edits: &[(
            SEQUENCE,
            "            self.announce(&mut marks, places)
        };
        // [announce]
        fence(Ordering::SeqCst);
",
            "            self.announce(&mut marks, places)
        };
",
        )],
        killer: loom("faults::a_fault_that_is_not_found_at_work_is_refused", "panicked"),
    },
    Mutant {
        step: "a change of memslots executes [announce] too",
        edits: &[(
            SEQUENCE,
            "                drop(marks);
                // [announce]
                fence(Ordering::SeqCst);
                return done;",
            "                drop(marks);
                return done;",
        )],
        killer: loom("faults::a_fault_that_is_not_found_at_work_is_refused", "panicked"),
    },
    Mutant {
        step: "an invalidation announces its ranges",
        edits: &[(
            SEQUENCE,
            "self.ranges.take(&gfns, &mut taking.taken);",
            "let _ = &mut taking.taken;",
        )],
        killer: tree(
            "refusal::a_fault_is_refused_where_an_invalidation_is_under_way_and_not_beside_it",
            "left: ",
        ),
    },
    Mutant {
        step: "what is taken away was announced",
        edits: &[(
            SEQUENCE,
            "announced.sequence == self.own
            && announced.words.have(gfns)
            && self.ranges.have(&announced.ranges, gfns)",
            "{ let _ = gfns; announced.sequence == self.own }",
        )],
        killer: tree("announced::nothing_is_taken_away_that_was_not_announced", "panicked"),
    },
    Mutant {
        step: "what is taken away was announced in this VM",
        edits: &[(
            SEQUENCE,
            "announced.sequence == self.own
            && announced.words",
            "announced.words",
        )],
        killer: tree("announced::nothing_is_taken_away_that_was_not_announced", "panicked"),
    },
    Mutant {
        step: "where ranges share a place, faults are refused at what counts as announced",
        edits: &[(SEQUENCE, "            && announced.words.have(gfns)\n", "")],
        killer: Killer::new(
            Checker::Test,
            "vm",
            (
                "reentrance",
                "between_ranges_that_share_a_place_nothing_is_announced_at_which_faults_are_not_refused",
            ),
            "a fault there is not refused",
        ),
    },
    Mutant {
        step: "a sequence is told from those that lay there before",
        edits: &[(
            SEQUENCE,
            "own: SEQUENCES.fetch_add(1, core::sync::atomic::Ordering::Relaxed),",
            "own: SEQUENCES.load(core::sync::atomic::Ordering::Relaxed),",
        )],
        killer: tree("announced::an_announcement_that_outlives_its_vm_is_no_later_vms", "panicked"),
    },
    Mutant {
        step: "an invalidation takes a number when it ends",
        edits: &[(
            SEQUENCE,
            "            self.number(&mut marks, announced.words, 1);
",
            "            announced.words.each(|word| {
                marks[word] -= 1;
                self.words[word].store(if marks[word] > 0 { MARK } else { 0 }, Ordering::Release);
            });
",
        )],
        killer: tree(
            "refusal::a_fault_that_asked_the_host_before_an_invalidation_is_refused_after_it",
            "left: ",
        ),
    },
    Mutant {
        step: "a change of memslots takes a number",
        edits: &[(
            SEQUENCE,
            "        words.add(gfns);
        self.number(marks, words, 0);",
            "        let _ = (&mut words, marks, gfns);",
        )],
        killer: tree(
            "refusal::a_fault_that_found_the_slots_of_before_is_refused_after_they_changed",
            "left: ",
        ),
    },
    Mutant {
        step: "a word stays marked until the last invalidation of its regions ends",
        edits: &[(
            SEQUENCE,
            "let mark = if marks[word] > 0 { MARK } else { 0 };",
            "let mark = { let _ = marks; 0 };",
        )],
        killer: tree(
            "refusal::a_fault_is_refused_until_the_last_of_several_invalidations_ends",
            "left: ",
        ),
    },
    Mutant {
        step: "who ends an invalidation looks for those who wait behind a fence",
        edits: &[(
            SEQUENCE,
            "        self.ended.0.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
",
            "        self.ended.0.fetch_add(1, Ordering::Relaxed);
",
        )],
        killer: loom("faults::a_fault_that_waits_for_an_invalidation_sees_its_end", "deadlock"),
    },
    Mutant {
        step: "who waits for an invalidation says so first",
        edits: &[(
            SEQUENCE,
            "        self.waiters.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
",
            "        self.waiters.fetch_add(1, Ordering::Relaxed);
",
        )],
        killer: loom("faults::a_fault_that_waits_for_an_invalidation_sees_its_end", "deadlock"),
    },
    Mutant {
        step: "what TLBs may not find changed is absent until they have forgotten it",
        edits: &[(
            MAP,
            "                self.forget(gfns.start, level);
",
            "                let _ = ();
",
        )],
        killer: tree(
            "in_place::another_frame_comes_by_way_of_an_absent_entry_on_arm_and_in_place_by_ept",
            "left: ",
        ),
    },
    Mutant {
        step: "a fault that moves a page invalidates where it was",
        edits: &[(
            MAP,
            "            changing = Some(Changing::begin(self));
            flush.add(gfns.start, level);",
            "            changing = Some(Changing::begin(self));",
        )],
        killer: tree(
            "in_place::other_rights_come_in_place_and_the_old_ones_are_invalidated",
            "left: ",
        ),
    },
    Mutant {
        step: "a fault that moves a page is counted until that is done",
        edits: &[(
            MAP,
            "            changing = Some(Changing::begin(self));
            flush.add(gfns.start, level);",
            "            flush.add(gfns.start, level);",
        )],
        killer: tree(
            "overlap::who_finds_nothing_to_take_from_what_a_fault_has_moved_invalidates_what_was_there_ept",
            "the page is writable still",
        ),
    },
    Mutant {
        step: "a fault that widens a leaf says so",
        edits: &[(
            MAP,
            "            mapped = Mapped::Relaxed;",
            "            mapped = Mapped::Installed;",
        )],
        killer: tree(
            "in_place::who_maps_more_rights_is_told_that_tlbs_may_go_on_without_them_where_that_is_so",
            "left: ",
        ),
    },
    Mutant {
        step: "what is below a block is taken apart",
        edits: &[(
            MAP,
            "            self.dismantle(table, below_of(level), &mut flush);
        }
        match changing",
            "            let _ = table;
        }
        match changing",
        )],
        killer: tree("strides::a_collapse_goes_with_the_pages_below_it::ept", "left: "),
    },
    Mutant {
        step: "a block that is split is absent until TLBs have forgotten it",
        edits: &[(
            SPLIT,
            "            self.forget(gfn, level);
",
            "            let _ = gfn;
",
        )],
        killer: tree(
            "in_place::a_block_is_split_by_way_of_an_absent_entry_on_arm_and_without_an_invalidation_by_ept",
            "left: ",
        ),
    },
    Mutant {
        step: "who splits a block and comes second frees his table",
        edits: &[(
            SPLIT,
            "            self.free_table(table);
            return;",
            "            return;",
        )],
        killer: loom("tables::two_faults_that_split_one_block_lose_nothing_of_it", "assertion"),
    },
    Mutant {
        step: "the entries of a table that is taken out are removed",
        edits: &[(
            DISMANTLE,
            "} else if cell.replace(entry, Entry::REMOVED) {",
            "} else if cell.replace(entry, entry) {",
        )],
        killer: tree("overlap::a_fault_in_a_table_that_gives_way_meanwhile_starts_again", "left: "),
    },
    Mutant {
        step: "who takes a table out waits for entries that are frozen",
        edits: &[(
            DISMANTLE,
            "if entry == Entry::FROZEN || entry == Entry::AWAITED {",
            "if false {",
        )],
        killer: loom(
            "tables::a_fault_in_a_table_that_gives_way_to_a_block_ends_in_the_tree",
            "panicked",
        ),
    },
    Mutant {
        step: "who finds another at work invalidates what it has visited",
        edits: &[(
            FLUSH,
            "            flush.add_range(visited);
",
            "            let _ = (&mut flush, visited);
",
        )],
        killer: tree(
            "overlap::a_zap_that_finds_another_not_invalidated_yet_invalidates_itself::ept",
            "the page is in use still",
        ),
    },
    Mutant {
        step: "operations count themselves",
        edits: &[
            (
                FLUSH,
                "        root.changing.fetch_add(1, Ordering::Relaxed);",
                "        root.changing.fetch_add(0, Ordering::Relaxed);",
            ),
            (
                FLUSH,
                "self.root.changing.fetch_sub(1, Ordering::Release);",
                "self.root.changing.fetch_sub(0, Ordering::Release);",
            ),
        ],
        killer: tree(
            "overlap::a_write_protection_that_finds_another_not_invalidated_yet_invalidates_itself::ept",
            "the page is writable still",
        ),
    },
    Mutant {
        step: "the smallest leaf says how far apart invalidations are",
        edits: &[(
            FLUSH,
            "        self.smallest = self.smallest.min(level);
        self.largest",
            "        self.largest",
        )],
        killer: tree(
            "strides::leaves_of_several_sizes_go_with_the_smallest_and_without_a_hint::arm",
            "left: ",
        ),
    },
    Mutant {
        step: "under a table that is taken out walk caches are invalidated",
        edits: &[(
            FLUSH,
            "        self.smallest = self.smallest.min(level);
        self.tables = true;",
            "        self.smallest = self.smallest.min(level);",
        )],
        killer: tree(
            "strides::a_table_that_is_removed_goes_with_its_smallest_leaves_over_all_that_it_stood_for::arm",
            "left: ",
        ),
    },
    Mutant {
        step: "an entry that is broken is frozen until TLBs have forgotten it",
        edits: &[(
            FLUSH,
            "            self.forget(at.gfn, at.level);
            self.space().parking.thaw(at.cell, new, self.mmu());",
            "            self.space().parking.thaw(at.cell, new, self.mmu());
            self.forget(at.gfn, at.level);",
        )],
        killer: tree(
            "overlap::the_rest_of_a_zapped_block_is_mapped_only_when_tlbs_have_forgotten_it::ept",
            "a page beside a block in the TLBs",
        ),
    },
    Mutant {
        step: "where pages are picked, all that TLBs remember is forgotten at the end",
        edits: &[(PICKED, "        if done {", "        if false {")],
        killer: tree(
            "picked::every_root_is_forgotten_as_a_whole_at_the_end_also_where_nothing_was_mapped",
            "Scope",
        ),
    },
    Mutant {
        step: "a page that is picked becomes absent",
        edits: &[(
            FLUSH,
            "entry.state(run.level) != State::Leaf || !cell.replace(entry, Entry::EMPTY)",
            "entry.state(run.level) != State::Leaf",
        )],
        killer: loom(
            "picked::a_page_that_goes_back_is_found_in_its_copy_by_no_fault_that_asked_before",
            "the copy may be another's from now on",
        ),
    },
    Mutant {
        step: "what a zap takes is invalidated",
        edits: &[(
            ZAP,
            "            self.flush.add(at.gfn, at.level);
        } else if",
            "        } else if",
        )],
        killer: tree(
            "overlap::a_zapped_leaf_is_told_of_when_tlbs_have_forgotten_it::ept",
            "in use still",
        ),
    },
    Mutant {
        step: "a zap leaves tables where too many await readers",
        edits: &[(
            ZAP,
            "if dead + prune::tables_below(at.level) > graveyard::BOUND {",
            "if false {",
        )],
        killer: tree(
            "prune::nobody_waits_for_a_reader_to_zap_and_what_hangs_is_taken_out_when_he_is_gone",
            "panicked",
        ),
    },
    Mutant {
        step: "a buried table waits for readers",
        edits: &[(
            GRAVEYARD,
            "            if !is_over(cookie) {
                return false;
            }
",
            "            let _ = (cookie, is_over);
",
        )],
        killer: loom("tables::a_walker_never_reads_a_table_that_a_zap_has_freed", "panicked"),
    },
    Mutant {
        step: "who thaws an entry that is awaited changes the word",
        edits: &[(
            PARKING,
            "        word.fetch_add(1, Ordering::Release);
",
            "",
        )],
        killer: loom("tables::whoever_waits_for_a_frozen_entry_is_woken", "deadlock"),
    },
    Mutant {
        step: "and wakes",
        edits: &[(
            PARKING,
            "        mmu.wake(word);
",
            "",
        )],
        killer: loom("tables::whoever_waits_for_a_frozen_entry_is_woken", "deadlock"),
    },
    Mutant {
        step: "who waits loads the word before the entry",
        edits: &[(
            PARKING,
            "            let seen = word.load(Ordering::Acquire);
            let entry = cell.load();
            if !is_frozen(entry) {
                return;
            }
",
            "            let entry = cell.load();
            if !is_frozen(entry) {
                return;
            }
            let seen = word.load(Ordering::Acquire);
",
        )],
        killer: loom("tables::whoever_waits_for_a_frozen_entry_is_woken", "deadlock"),
    },
    Mutant {
        step: "what loses the right to write is invalidated",
        edits: &[(
            PROTECT,
            "            self.entries += 1;
            self.flush.add(at.gfn, at.level);
",
            "            self.entries += 1;
",
        )],
        killer: tree(
            "replace::a_page_of_a_writable_block_is_protected_by_itself_if_there_is_memory::ept",
            "panicked",
        ),
    },
    Mutant {
        step: "what a harvest takes the right to write from is invalidated",
        edits: &[(
            MARKED,
            "            self.flush.add_run(lowest, Level::PAGE, count);
",
            "",
        )],
        killer: tree("marked::tlbs_forget_what_was_marked_before_the_call_returns", "panicked"),
    },
    Mutant {
        step: "a table is one of the pages that are protected",
        edits: &[(MARKED, "Some((first, table)) if first == start", "Some((_, table)) if true")],
        killer: tree(
            "marked::what_is_marked_and_nothing_else_loses_the_right_to_write",
            "panicked",
        ),
    },
    Mutant {
        step: "a page that is aged stays dirty",
        edits: &[(
            PROTECT,
            "Leaf { accessed: false, ..leaf }",
            "Leaf { accessed: false, dirty: false, ..leaf }",
        )],
        killer: tree(
            "in_place::a_page_that_is_aged_loses_nothing_but_that_it_was_accessed",
            "left: ",
        ),
    },
    Mutant {
        step: "and only where they are empty",
        edits: &[(PRUNE, "if !root.is_empty(table, below) {", "if false {")],
        killer: tree(
            "prune::nobody_waits_for_a_reader_to_zap_and_what_hangs_is_taken_out_when_he_is_gone",
            "panicked",
        ),
    },
    Mutant {
        step: "another frame comes in place where nobody may write",
        edits: &[(
            REPLACE,
            "            && !present.permissions.contains(Permissions::WRITE)
",
            "",
        )],
        killer: tree("replace::what_would_be_noticed_is_not_done_in_place::ept", "panicked"),
    },
    Mutant {
        step: "and with the same contents",
        edits: &[(
            REPLACE,
            "            && with.same_contents
",
            "",
        )],
        killer: tree("replace::what_would_be_noticed_is_not_done_in_place::ept", "panicked"),
    },
    Mutant {
        step: "and in the place of the frame that it replaces",
        edits: &[(
            REPLACE,
            "let in_place = present.pfn == with.old
            && with",
            "let in_place = with",
        )],
        killer: tree("replace::a_page_of_another_frame_is_zapped::ept", "panicked"),
    },
    Mutant {
        step: "a right is given back by way of a frozen entry",
        edits: &[
            (
                REPLACE,
                "        if !at.cell.replace(at.entry, Entry::FROZEN) {
            return false;
        }
        // [install]
        fence(Ordering::SeqCst);
",
                "        fence(Ordering::SeqCst);
",
            ),
            (
                REPLACE,
                "        space.parking.thaw(at.cell, new, root.mmu());
        true",
                "        at.cell.replace(at.entry, new)",
            ),
        ],
        killer: loom(
            "faults::a_right_that_is_given_back_is_not_given_behind_who_takes_it_away",
            "panicked",
        ),
    },
    Mutant {
        step: "who gives a right back executes [install]",
        edits: &[(
            REPLACE,
            "            return false;
        }
        // [install]
        fence(Ordering::SeqCst);
",
            "            return false;
        }
",
        )],
        killer: loom(
            "faults::a_right_that_is_given_back_is_not_given_behind_who_takes_it_away",
            "panicked",
        ),
    },
    Mutant {
        step: "and asks whether another takes it away",
        edits: &[(
            REPLACE,
            "if space.sequence.is_shared(",
            "if false && space.sequence.is_shared(",
        )],
        killer: tree(
            "replace::no_right_is_given_while_somebody_else_may_be_taking_it::ept",
            "left: ",
        ),
    },
    Mutant {
        step: "a fault pays what is owed before it gives the right to write",
        edits: &[(
            OWED,
            "        self.space().owed.pay_for(gfns, &(pfn..Pfn::new(end)), self.mmu());
",
            "        let _ = (gfns, pfn..Pfn::new(end));
",
        )],
        killer: tree(
            "owed::a_fault_that_gives_the_right_to_write_pays_before_anybody_finds_it::ept",
            "panicked",
        ),
    },
    Mutant {
        step: "the host's giving it is paid for too",
        edits: &[(
            REPLACE,
            "        self.space.owed.pay_for(&page, &frame, self.mmu());
",
            "        let _ = (&page, &frame);
",
        )],
        killer: tree(
            "owed::the_right_to_write_that_the_host_gives_is_paid_for_before::ept",
            "panicked",
        ),
    },
    Mutant {
        step: "so is what else is in the frame",
        edits: &[(
            LEDGER,
            "gfns.contains(&page.gfn()) || pfns.contains(&new)",
            "gfns.contains(&page.gfn()) || pfns.contains(&new) && false",
        )],
        killer: tree(
            "owed::a_page_that_is_mapped_twice_is_paid_for_at_both_places::ept",
            "panicked",
        ),
    },
    Mutant {
        step: "another frame is owed when the one before is paid for",
        edits: &[(
            REPLACE,
            "            root.pay_for_page(at.gfn);
",
            "",
        )],
        killer: tree(
            "owed::another_frame_is_paid_for_before_where_it_is_owed_and_with_it_where_not::ept",
            "panicked",
        ),
    },
    Mutant {
        step: "a root is in its second place before it leaves the first",
        edits: &[(
            ROOTS,
            "            leaving.of(role).store(old.cast(), Ordering::Release);
            // [leave]
            match current.compare_exchange(old, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return old,",
            "            // [leave]
            match current.compare_exchange(old, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    leaving.of(role).store(old.cast(), Ordering::Release);
                    return old;
                }",
        )],
        killer: loom(
            "roots::an_operation_on_a_range_misses_no_root_while_all_are_replaced",
            "panicked",
        ),
    },
    Mutant {
        step: "a retired root waits for readers",
        edits: &[(
            RECLAIM,
            "if readers.is_some_and(|cookie| !self.is_over(&root.space().srcu, cookie)) {",
            "if readers.is_some_and(|_| false) {",
        )],
        killer: tree("reclaim::a_root_is_kept_while_a_reader_may_have_found_it", "panicked"),
    },
    Mutant {
        step: "and for references",
        edits: &[(
            RECLAIM,
            "root.references() > 1
                    || ",
            "",
        )],
        killer: loom(
            "roots::a_root_is_reclaimed_after_its_last_reference_and_not_before",
            "panicked",
        ),
    },
    Mutant {
        step: "it leaves its second place, and waits once more",
        edits: &[(
            RECLAIM,
            "                *readers = Some(root.space().srcu.cookie());
            }",
            "                break;
            }",
        )],
        killer: loom(
            "roots::a_destroyed_vms_root_is_not_freed_under_an_operation_on_a_range",
            "panicked",
        ),
    },
    Mutant {
        step: "all under its VMID is invalidated",
        edits: &[(
            RECLAIM,
            "            root.invalidate_tlb(Scope::All);
",
            "",
        )],
        killer: tree(
            "reclaim::a_destroyed_vm_is_invalidated_once_for_each_root_that_was_entered",
            "left: ",
        ),
    },
    Mutant {
        step: "its VMID is free again",
        edits: &[(
            RECLAIM,
            "            root.space().vmids.retire(root.tag());
",
            "",
        )],
        killer: tree("reclaim::the_vmid_of_a_root_that_is_reclaimed_is_given_out_again", "left: "),
    },
    Mutant {
        step: "the VMID is free after the invalidation, and not before",
        edits: &[(
            RECLAIM,
            "                root.invalidate_tlb(Scope::All);
                root.space().vmids.retire(root.tag());",
            "                root.space().vmids.retire(root.tag());
                root.invalidate_tlb(Scope::All);",
        )],
        killer: tree(
            "reclaim::a_destroyed_vm_is_invalidated_once_for_each_root_that_was_entered",
            "left: ",
        ),
    },
    Mutant {
        step: "before that, no CPU names it",
        edits: &[(
            RECLAIM,
            "            root.space().vmids.leave(root.tag());
",
            "",
        )],
        killer: shared_cpus(
            "no_cpu_names_a_root_that_is_gone_on_arm",
            "a CPU still names a root that is freed",
        ),
    },
    Mutant {
        step: "an operation that is counted no more has invalidated",
        edits: &[(
            FLUSH,
            "self.root.changing.fetch_sub(1, Ordering::Release);",
            "self.root.changing.fetch_sub(1, Ordering::Relaxed);",
        )],
        killer: COUNTED,
    },
    Mutant {
        step: "who finds an entry changed finds who has changed it counted",
        edits: &[(
            CELL,
            "Entry::from_bits(self.word.load(Ordering::Acquire))",
            "Entry::from_bits(self.word.load(Ordering::Relaxed))",
        )],
        killer: COUNTED,
    },
    Mutant {
        step: "an invalidation pays under its own VMID alone",
        edits: &[(
            LEDGER,
            "            page.vmid() == vmid
                && match",
            "            (page.vmid() == vmid || true)
                && match",
        )],
        killer: tree("owed::what_is_invalidated_in_one_root_pays_for_no_other::ept", "left: "),
    },
    Mutant {
        step: "a missing page is not mapped the short way where something is owed",
        edits: &[(
            MAP,
            "            || space.owed.is_in_use()
",
            "",
        )],
        killer: tree(
            "owed::a_missing_page_in_a_frame_of_which_something_is_owed_is_not_mapped_the_short_way::ept",
            "left: ",
        ),
    },
    Mutant {
        step: "who takes out empty tables announces that",
        edits: &[(
            PRUNE,
            "|announce| announce(gfns.clone())",
            "|announce| announce(gfns.start..gfns.start)",
        )],
        killer: tree(
            "prune::no_fault_makes_anything_where_a_table_is_taken_out_until_tlbs_have_forgotten_it",
            "left: ",
        ),
    },
    Mutant {
        step: "what was done to a table before it was buried was done before it is freed",
        edits: &[(
            GRAVEYARD,
            "compare_exchange(fresh, first, Ordering::Release, Ordering::Relaxed)",
            "compare_exchange(fresh, first, Ordering::Relaxed, Ordering::Relaxed)",
        )],
        killer: Killer::new(
            Checker::Loom,
            "stage2",
            (
                "lib",
                "graveyard::tests::\
             what_was_done_to_a_table_before_it_was_buried_was_done_before_it_is_freed",
            ),
            "Causality violation",
        ),
    },
    Mutant {
        step: "who gives a reference up has done what it did with the root",
        edits: &[(
            ROOT,
            "self.references.fetch_sub(1, Ordering::Release);",
            "self.references.fetch_sub(1, Ordering::Relaxed);",
        )],
        killer: BY_REFERENCE,
    },
];
