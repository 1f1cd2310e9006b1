//! The steps of the protocols of a VM.

use crate::{Checker, Killer, Mutant};

const FAULT: &str = "core/vm/src/fault.rs";
const MEMORY: &str = "core/vm/src/memory.rs";
const GOING_OVER: &str = "core/vm/src/going_over.rs";
const NOTIFIER: &str = "core/vm/src/notifier.rs";
const COPY_ON_WRITE: &str = "core/vm/src/copy_on_write.rs";
const WALK: &str = "core/stage2/src/walk.rs";
const VCPU: &str = "core/vm/src/vcpu.rs";
const KICKER: &str = "core/vm/src/kicker.rs";
const REQUESTS: &str = "core/vm/src/requests.rs";
const LIFE: &str = "core/vm/src/vm.rs";
const SEQUENCE: &str = "core/stage2/src/sequence.rs";

const fn loom(test: &'static str, says: &'static str) -> Killer {
    Killer::new(Checker::Loom, "vm", ("loom", test), says)
}

const fn shuttle(test: &'static str, says: &'static str) -> Killer {
    Killer::new(Checker::Shuttle, "vm", ("shuttle", test), says)
}

const fn vm(test: &'static str, says: &'static str) -> Killer {
    Killer::new(Checker::Test, "vm", ("vm", test), says)
}

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        step: "slots change when no invalidation is under way",
        edits: &[(
            SEQUENCE,
            "            if self.active.load(Ordering::Relaxed) == 0 {
",
            "            if true {
",
        )],
        killer: vm("notifier::slots_change_only_between_invalidations", "panicked"),
    },
    Mutant {
        step: "a fault samples the sequence before it looks for the slot",
        edits: &[
            (
                FAULT,
                "        let seen = self.stage2.sample();
        let slots",
                "        let slots",
            ),
            (
                FAULT,
                "let slot = slots.find_near(access.gpa.gfn(), last)?;",
                "let slot = slots.find_near(access.gpa.gfn(), last)?;
        let seen = self.stage2.sample();",
            ),
        ],
        killer: shuttle(
            "pairs::a_slot_that_is_gone_has_nothing_mapped_whatever_faults_are_under_way",
            "panicked",
        ),
    },
    Mutant {
        step: "a page is marked before the guest can write it",
        edits: &[(
            FAULT,
            "            slot.mark_dirty(gfn);
",
            "            let _ = gfn;
",
        )],
        killer: vm("dirty::a_page_that_is_harvested_is_logged_again_by_the_next_write", "left: "),
    },
    Mutant {
        step: "a harvest refuses the faults that have marked",
        edits: &[(MEMORY, "        self.stage2.refuse", "        let _ = || self.stage2.refuse")],
        killer: vm(
            "dirty::a_harvest_in_the_middle_of_a_fault_leaves_no_page_writable_and_unmarked",
            "panicked",
        ),
    },
    Mutant {
        step: "a harvest takes the right to write",
        edits: &[(
            MEMORY,
            "        self.stage2.write_protect_marked(hull, self.slice, count, word);
",
            "",
        )],
        killer: vm("dirty::a_page_that_is_harvested_is_logged_again_by_the_next_write", "panicked"),
    },
    Mutant {
        step: "switching a log on takes the right to write",
        edits: &[(
            MEMORY,
            "            self.stage2.write_protect(new.gfns(), self.slice, |_, _| ());
",
            "",
        )],
        killer: vm(
            "dirty::switching_the_log_on_protects_what_is_writable_and_splits_its_blocks",
            "panicked",
        ),
    },
    Mutant {
        step: "a page is changed that was announced",
        edits: &[(
            NOTIFIER,
            "            assert!(
                self.stage2",
            "            let _ = (
                self.stage2",
        )],
        killer: vm("notifier_in_place::a_page_is_changed_inside_an_invalidation_of_it", "panicked"),
    },
    Mutant {
        step: "a slot that is deleted is zapped",
        edits: &[(
            MEMORY,
            "            self.stage2.zap(announcement, gfns, Tables::Free, self.slice);
",
            "            drop((announcement, gfns));
",
        )],
        killer: vm("zap::nothing_is_mapped_through_a_slot_that_was_deleted_or_moved", "left: "),
    },
    Mutant {
        step: "memory is taken away from a slot that is leaving",
        edits: &[(MEMORY, "*self.leaving.lock(&*self.platform) = Some(old);", "drop(old);")],
        killer: vm("zap::memory_is_taken_away_from_a_slot_that_is_half_deleted", "panicked"),
    },
    Mutant {
        step: "who replaces all roots waits until vCPUs have left the old ones",
        edits: &[(
            GOING_OVER,
            "        self.reload_roots();
",
            "",
        )],
        killer: vm(
            "zap::a_vcpu_in_the_guest_comes_out_for_a_fresh_root_and_goes_back_in",
            "does not end",
        ),
    },
    Mutant {
        step: "nobody frees what all memory was mapped by before the host is through",
        edits: &[(
            GOING_OVER,
            "        GoingOver { invalidation, _old: old }
",
            "        drop(old);
        GoingOver { invalidation, _old: None }
",
        )],
        killer: vm(
            "notifier::all_memory_goes_over_without_a_visit_and_nothing_is_mapped_until_the_end",
            "panicked",
        ),
    },
    Mutant {
        step: "what is about to change is taken away",
        edits: &[(NOTIFIER, "        if change.takes_away() {", "        if false {")],
        killer: vm(
            "notifier::memory_is_zapped_wherever_it_is_mapped_and_nothing_else_is",
            "panicked",
        ),
    },
    Mutant {
        step: "writes are allowed when the old frame is used nowhere",
        edits: &[(NOTIFIER, "            if place.writable {", "            if true {")],
        killer: vm(
            "notifier_in_place::what_becomes_writable_stays_read_only_where_the_slot_is_or_logs_writes",
            "left: ",
        ),
    },
    Mutant {
        step: "a VM that ends is known to be ended before its vCPUs are asked",
        edits: &[
            (
                LIFE,
                "        self.destroyed.store(true, Ordering::Release);
",
                "",
            ),
            (
                LIFE,
                "            asked.ask_exit();
        }
        self.stage2.retire();",
                "            asked.ask_exit();
        }
        self.destroyed.store(true, Ordering::Release);
        self.stage2.retire();",
            ),
        ],
        killer: vm(
            "interrupts::a_vcpu_that_destroying_has_brought_out_does_not_go_in_again_while_others_are_asked",
            "comes_back_in",
        ),
    },
    Mutant {
        step: "a VM that ends asks its vCPUs",
        edits: &[(
            LIFE,
            "            asked.ask_exit();
        }
        self.stage2.retire();",
            "            let _ = asked;
        }
        self.stage2.retire();",
        )],
        killer: vm(
            "requests::destroying_a_vm_brings_every_vcpu_out_wherever_it_is",
            "does not end",
        ),
    },
    Mutant {
        step: "who asks executes [ask]",
        edits: &[(
            REQUESTS,
            "        // [ask]
        fence(Ordering::SeqCst);
",
            "",
        )],
        killer: loom("an_interrupt_brings_out_who_does_not_look", "deadlock"),
    },
    Mutant {
        step: "who waits until a vCPU is out looks again when it has left its mark",
        edits: &[(
            REQUESTS,
            "            if word.load(Ordering::Acquire) & RELOAD != 0 {
                platform.wait(mode, marked);
            }",
            "            platform.wait(mode, marked);",
        )],
        killer: loom(
            "a_vcpu_that_stays_in_the_guest_until_it_is_asked_comes_out_once_and_is_waited_for_no_longer",
            "deadlock",
        ),
    },
    Mutant {
        step: "a vCPU that comes out wakes who waits for that",
        edits: &[(REQUESTS, "        if marks & AWAITED != 0 {", "        if false {")],
        killer: loom("a_root_is_not_in_use_when_it_was_waited_for", "deadlock"),
    },
    Mutant {
        step: "a request that is taken releases what was done in the guest",
        edits: &[(
            REQUESTS,
            "self.line.word.fetch_and(!bits, Ordering::AcqRel)",
            "self.line.word.fetch_and(!bits, Ordering::Relaxed)",
        )],
        killer: loom("two_who_ask_are_both_right", "panicked"),
    },
    Mutant {
        step: "who asks a vCPU that is asleep has it look again",
        edits: &[(
            KICKER,
            "Whereabouts::Asleep => self.waiters.look_again(&*self.platform),",
            "Whereabouts::Asleep => {}",
        )],
        killer: vm(
            "interrupts::a_vcpu_that_waits_for_the_host_comes_out_when_it_is_asked",
            "does not end",
        ),
    },
    Mutant {
        step: "who changes a slot waits for those who have the slot of before",
        edits: &[(MEMORY, "Ok(Some(change.settle()))", "Ok(Some(change.edit))")],
        killer: vm(
            "zap::who_changes_a_slot_returns_when_nobody_has_the_slot_of_before_any_more",
            "left: ",
        ),
    },
    Mutant {
        step: "a page that is copied is announced",
        edits: &[(
            COPY_ON_WRITE,
            "                announce(place.gfns);",
            "                let _ = &announce;",
        )],
        killer: vm("copy_on_write::a_fault_that_has_found_the_old_frame_is_refused", "panicked"),
    },
    Mutant {
        step: "a page that is copied is looked for in all its places",
        edits: &[(COPY_ON_WRITE, "            None => true,", "            None => false,")],
        killer: vm(
            "copy_on_write::wherever_it_is_mapped_it_is_replaced_in_place_and_no_access_faults",
            "panicked",
        ),
    },
    Mutant {
        step: "a page that is copied may be in TLBs, though its entry is empty",
        edits: &[(WALK, "self.changing.load(Ordering::Acquire) > 0", "false")],
        killer: vm(
            "copy_on_write::where_tlbs_may_remember_the_old_frame_they_forget_it_before_the_new_one_is_found",
            "panicked",
        ),
    },
    Mutant {
        step: "a page that is copied may be about to be mapped, where its entry is frozen",
        edits: &[(
            WALK,
            "                State::Empty => break,
                State::Leaf | State::Frozen | State::Removed => return true,",
            "                State::Empty | State::Frozen => break,
                State::Leaf | State::Removed => return true,",
        )],
        killer: shuttle(
            "a_page_that_another_vcpu_is_about_to_map_is_copied_and_its_old_frame_is_not_used_again",
            "was used after it was taken away",
        ),
    },
    Mutant {
        step: "a page is found in its copy when no CPU reads the old frame any more",
        edits: &[(
            COPY_ON_WRITE,
            "        copy();
        if",
            "        copy();
        found();
        let found = || ();
        if",
        )],
        killer: shuttle(
            "so_it_does_when_its_pages_are_merged_and_copied_on_write_by_one_call",
            "panicked",
        ),
    },
    Mutant {
        step: "a vCPU whose page changes each time looks whether something is asked",
        edits: &[(
            VCPU,
            "                    Handled::Changed if self.kicker.requests().any() => break,
",
            "",
        )],
        killer: vm(
            "copy_on_write::a_vcpu_comes_out_though_the_host_changes_the_page_each_time",
            "does not end",
        ),
    },
];
