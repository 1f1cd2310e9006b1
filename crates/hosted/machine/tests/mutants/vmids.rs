//! The steps by which VMIDs are given out, and taken back.

use crate::{Checker, Killer, Mutant};

const VMID: &str = "core/stage2/src/vmid.rs";
const NUMBERS: &str = "core/stage2/src/vmid/numbers.rs";
const ROOT_TAG: &str = "core/stage2/src/vmid/root_tag.rs";
const LINE: &str = "core/stage2/src/vmid/line.rs";
const VACATE: &str = "core/platform/src/vacate.rs";

const fn loom_vmid(test: &'static str, says: &'static str) -> Killer {
    Killer::new(Checker::Loom, "stage2", ("loom_vmid", test), says)
}

const fn loom_vacate(test: &'static str, says: &'static str) -> Killer {
    Killer::new(Checker::Loom, "stage2", ("loom_vacate", test), says)
}

const fn vmid(test: &'static str, says: &'static str) -> Killer {
    Killer::new(Checker::Test, "stage2", ("vmid", test), says)
}

const fn shared_cpus(test: &'static str, says: &'static str) -> Killer {
    Killer::new(Checker::Test, "machine", ("shared_cpus", test), says)
}

/// With whatever else its number belongs to since.
const GONE: &str = "a_root_that_goes_takes_no_cpu_from_the_root_that_has_its_number_since";

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        step: "a vCPU is told that another of its VM was on the CPU",
        edits: &[(
            ROOT_TAG,
            "flush: before != mark && before != 0",
            "flush: before != mark && before != 0 && false",
        )],
        killer: shared_cpus(
            "what_a_vcpu_left_before_that_of_another_vm_came_is_flushed_for_the_next_of_its_own",
            "met unflushed",
        ),
    },
    Mutant {
        step: "who invalidates executes [issue] before it loads the tag",
        edits: &[(
            VMID,
            "self.shared.observing(|| fence(Ordering::SeqCst), |()| Some(Step::Barrier));",
            "",
        )],
        killer: loom_vmid(
            "no_translation_of_a_root_entered_for_the_first_time_misses_a_change",
            "panicked",
        ),
    },
    Mutant {
        step: "a CPU that changes its line executes [enter]",
        edits: &[(
            LINE,
            "            // [enter]
            fence(Ordering::SeqCst);
",
            "",
        )],
        killer: loom_vmid(
            "no_translation_of_a_root_entered_for_the_first_time_misses_a_change",
            "panicked",
        ),
    },
    Mutant {
        step: "a roll-over has all TLBs forget",
        edits: &[(
            VMID,
            "        mmu.invalidate_all_vmids();
",
            "",
        )],
        killer: vmid(
            "rules::a_roll_over_forgets_once_and_leaves_numbers_with_the_roots_that_cpus_name",
            "left: ",
        ),
    },
    Mutant {
        step: "and then begins the generation",
        edits: &[(
            VMID,
            "self.shared.generation.store(next, Ordering::Release)",
            "self.shared.generation.store(next, Ordering::Relaxed)",
        )],
        killer: loom_vmid(
            "a_vcpu_that_joins_a_running_one_during_a_roll_over_gets_its_number",
            "panicked",
        ),
    },
    Mutant {
        step: "a roll-over keeps the numbers that lines show",
        edits: &[(
            NUMBERS,
            "        number.replace(held, Held::kept(generation + 1))",
            "        let _ = held; true",
        )],
        killer: vmid(
            "rules::a_number_is_kept_for_a_cpu_that_is_never_left_and_for_those_that_join_it_in_any_generation",
            "left: ",
        ),
    },
    Mutant {
        step: "who claims a number in vain gives it back",
        edits: &[(
            VMID,
            "        if !tag.replace(old, new) {
            self.shared.release(new);
        }",
            "        tag.replace(old, new);",
        )],
        killer: loom_vmid("a_number_that_two_cpus_claimed_for_one_root_is_not_lost", "panicked"),
    },
    Mutant {
        step: "a retired root's number is free",
        edits: &[(VMID, "        self.shared.release(tag.take());", "        let _ = tag.take();")],
        killer: vmid(
            "rules::a_retired_roots_number_is_free_at_once_also_where_it_was_kept",
            "left: ",
        ),
    },
    Mutant {
        step: "a number that another has kept since is not the root's",
        edits: &[(
            NUMBERS,
            "self.since.load(Ordering::Acquire) <= tag.generation()",
            "true || self.since.load(Ordering::Acquire) <= tag.generation()",
        )],
        killer: vmid("rules::a_root_whose_number_another_has_kept_since_gets_a_new_one", "left: "),
    },
    Mutant {
        step: "a CPU that goes to another root names none first",
        edits: &[(
            ROOT_TAG,
            "            self.vmids.shared.mmu.vacate(cpu, number);
",
            "            let _ = (cpu, number);
",
        )],
        killer: vmid(
            "rules::a_cpu_that_changes_roots_needs_no_second_number_to_do_so_and_vacates_the_first",
            "left: ",
        ),
    },
    Mutant {
        step: "and then its number goes from the line",
        edits: &[(
            ROOT_TAG,
            "            self.vmids.shared.mmu.vacate(cpu, number);
            if line.clear(seen) {
",
            "            if line.clear(seen) {
                self.vmids.shared.mmu.vacate(cpu, number);
",
        )],
        killer: loom_vmid(
            "a_cpu_that_goes_to_another_root_walks_from_the_last_under_no_number_that_is_given_out_anew",
            "a translation of another root",
        ),
    },
    Mutant {
        step: "a CPU that names a root which is about to be freed names none before",
        edits: &[(VMID, "        mmu.vacate_all(&mut named, number);\n", "        let _ = (&mmu, &mut named);\n")],
        killer: vmid(
            "rules::a_root_is_taken_from_every_cpu_that_names_it_and_from_no_other_before_it_is_retired",
            "left: ",
        ),
    },
    Mutant {
        step: "and the number goes from its line after that",
        edits: &[(
            VMID,
            "let mut named = lines.all().filter(|(_, line)| shows(line).is_some()).map(|(cpu, _)| cpu);",
            "let mut named = lines.all().filter(|(_, line)| shows(line).is_some_and(|shown| line.clear(shown))).map(|(cpu, _)| cpu);",
        )],
        killer: loom_vmid(
            "a_root_is_retired_while_the_cpu_that_names_it_is_idle_and_another_claims_its_number",
            "panicked",
        ),
    },
    Mutant {
        step: "a CPU that shows the number for another root is left alone",
        edits: &[(VMID, ".filter(|_| numbers.is_of(tag.load()))", "")],
        killer: loom_vmid(GONE, "a CPU was taken"),
    },
    Mutant {
        step: "what a line shows was claimed before",
        edits: &[(
            LINE,
            "Tag(self.0.load(Ordering::Acquire))",
            "Tag(self.0.load(Ordering::Relaxed))",
        )],
        killer: loom_vmid(GONE, "a CPU was taken"),
    },
    Mutant {
        step: "a CPU that gives a number up has done with it",
        edits: &[(
            LINE,
            "compare_exchange(seen.0, cleared, Ordering::Release,",
            "compare_exchange(seen.0, cleared, Ordering::Relaxed,",
        )],
        killer: loom_vmid(
            "unseen::what_a_cpu_did_under_a_number_that_it_gave_up_comes_before_what_others_do_under_it",
            "Causality violation",
        ),
    },
    Mutant {
        step: "a roll-over finds who claimed what a line shows",
        edits: &[(
            LINE,
            "fetch_add(Tag::GENERATION, Ordering::Acquire)",
            "fetch_add(Tag::GENERATION, Ordering::Relaxed)",
        )],
        killer: loom_vmid(
            "unseen::a_number_that_a_cpu_has_just_claimed_is_found_by_the_roll_over_of_another",
            "Causality violation",
        ),
    },
    Mutant {
        step: "and the CPU that has it show that says so",
        edits: &[(
            LINE,
            "compare_exchange(seen.0, tag.0, Ordering::Release,",
            "compare_exchange(seen.0, tag.0, Ordering::Relaxed,",
        )],
        killer: loom_vmid(GONE, "a CPU was taken"),
    },
    Mutant {
        step: "the CPUs that name it are asked at once",
        edits: &[(
            VMID,
            "mmu.vacate_all(&mut named, number);",
            "named.for_each(|cpu| mmu.vacate(cpu, number));",
        )],
        killer: vmid(
            "rules::all_cpus_that_name_a_root_which_is_retired_are_asked_at_once",
            "left: ",
        ),
    },
    Mutant {
        step: "a CPU that was asked vacates before it says so",
        edits: &[(
            VACATE,
            "            vacate(Vmid(vmid as u16));
            // [heeded]
            self.0.store(0, Ordering::Release);
",
            "            self.0.store(0, Ordering::Release);
            vacate(Vmid(vmid as u16));
",
        )],
        killer: loom_vacate(
            "no_cpu_names_a_root_when_all_have_been_waited_for",
            "Causality violation",
        ),
    },
    Mutant {
        step: "and it has when that is seen",
        edits: &[(
            VACATE,
            "self.0.store(0, Ordering::Release)",
            "self.0.store(0, Ordering::Relaxed)",
        )],
        killer: loom_vacate(
            "no_cpu_names_a_root_when_all_have_been_waited_for",
            "Causality violation",
        ),
    },
    Mutant {
        step: "by the CPU that has asked",
        edits: &[(VACATE, "word.load(Ordering::Acquire)", "word.load(Ordering::Relaxed)")],
        killer: loom_vacate(
            "no_cpu_names_a_root_when_all_have_been_waited_for",
            "Causality violation",
        ),
    },
    Mutant {
        step: "what another CPU has asked is not lost",
        edits: &[(
            VACATE,
            "while word.compare_exchange(0, wanted, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            meanwhile();
        }",
            "word.store(wanted, Ordering::Relaxed);",
        )],
        killer: loom_vacate("two_that_ask_one_cpu_are_both_heeded", "panicked"),
    },
    Mutant {
        step: "all are waited for",
        edits: &[(VACATE, "for Asked(word) in words {", "for Asked(word) in &words[..2] {")],
        killer: loom_vacate(
            "no_cpu_names_a_root_when_all_have_been_waited_for",
            "Causality violation",
        ),
    },
    Mutant {
        step: "a CPU that waits for a roll-over stays its vCPU's",
        edits: &[(
            VMID,
            "            self.shared.mmu.spin();
            return;
",
            "            drop(self.shared.rollover.lock(&*self.shared.mmu));
            return;
",
        )],
        killer: loom_vmid(
            "a_vcpu_that_joins_a_running_one_during_a_roll_over_gets_its_number",
            "gives its CPU up",
        ),
    },
];
