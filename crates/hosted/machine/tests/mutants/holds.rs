//! The steps by which a vCPU holds the root that it is in its guest on, and the reclaimer finds that it does.

use crate::{Checker, Killer, Mutant};

const HOLD: &str = "core/stage2/src/hold.rs";
const HOLDS: &str = "core/stage2/src/hold/holds.rs";
const RECLAIM: &str = "core/stage2/src/reclaim.rs";
const RETIRING: &str = "core/stage2/src/retiring.rs";

const fn loom_hold(test: &'static str, says: &'static str) -> Killer {
    Killer::new(Checker::Loom, "stage2", ("loom_hold", test), says)
}

const DESTROYED: Killer =
    loom_hold("a_vm_is_destroyed_under_a_vcpu_that_goes_in_and_out", "panicked");

const FINISHED: &str = "nobody_is_in_a_guest_on_a_root_whose_replacement_is_finished";
const WAITED_FOR: &str = "nobody_waits_for_a_vcpu_that_is_in_its_guest_on_the_new_root";

const fn tree(test: &'static str, says: &'static str) -> Killer {
    Killer::new(Checker::Test, "stage2", ("tree", test), says)
}

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        step: "a hold has no second holder",
        edits: &[(
            HOLD,
            "assert!(!resident.hold().taken.swap(true, Ordering::Acquire), \"the hold has a holder\");",
            "resident.hold().taken.swap(true, Ordering::Acquire);",
        )],
        killer: tree("hold::a_hold_has_one_holder_at_a_time", "it panics"),
    },
    Mutant {
        step: "a holder is one of the VM whose guest is entered",
        edits: &[(
            HOLD,
            "assert!(self.space.is(stage2.space()), \"the holder is one of another VM\");",
            "",
        )],
        killer: tree("hold::a_holder_enters_no_other_vms_guest", "it panics"),
    },
    Mutant {
        step: "a holder that goes gives the hold back",
        edits: &[(HOLD, "        hold.taken.store(false, Ordering::Release);\n", "")],
        killer: tree("hold::a_hold_has_one_holder_at_a_time", "the hold has a holder"),
    },
    Mutant {
        step: "and takes it off the list",
        edits: &[(HOLD, "list.swap_remove(at);", "let _ = at;")],
        killer: tree(
            "hold::a_vcpu_whose_holder_is_gone_is_looked_for_no_more_and_kept_by_nobody",
            "left: ",
        ),
    },
    Mutant {
        step: "a vCPU says on which root it goes in",
        edits: &[(
            HOLD,
            "        hold.root.store(root.as_ptr().cast(), Ordering::Release);
",
            "",
        )],
        killer: DESTROYED,
    },
    Mutant {
        step: "it does so before it looks whether it may",
        edits: &[(
            HOLD,
            "        hold.root.store(root.as_ptr().cast(), Ordering::Release);
        // [enter]
        fence(Ordering::SeqCst);
",
            "        // [enter]
        fence(Ordering::SeqCst);
        hold.root.store(root.as_ptr().cast(), Ordering::Release);
",
        )],
        killer: DESTROYED,
    },
    Mutant {
        step: "it executes [enter] in between",
        edits: &[(
            HOLD,
            "        // [enter]
        fence(Ordering::SeqCst);
",
            "",
        )],
        killer: DESTROYED,
    },
    Mutant {
        step: "it does not go in where the root is in its place no more",
        edits: &[(
            HOLD,
            "(stage2.present(role) == Some(root)).then_some(entered)",
            "Some(entered)",
        )],
        killer: DESTROYED,
    },
    Mutant {
        step: "who looks at holds executes [look] before",
        edits: &[(
            HOLDS,
            "        // [look]
        fence(Ordering::SeqCst);
",
            "",
        )],
        killer: loom_hold(FINISHED, "panicked"),
    },
    Mutant {
        step: "a reclaimer looks at holds",
        edits: &[(
            RECLAIM,
            "                    || root.space().holds.is_held(work.root.cast(), &*self.bell.mmu)
",
            "",
        )],
        killer: DESTROYED,
    },
    Mutant {
        step: "so does who replaces roots",
        edits: &[(
            RETIRING,
            "        stage2.roots.leaving(&stage2.space.leaving).for_each(|root| stage2.wait_left(root));
",
            "        let _ = stage2;
",
        )],
        killer: loom_hold(FINISHED, "panicked"),
    },
    Mutant {
        step: "and looks again when one has come out",
        edits: &[(
            RETIRING,
            "            self.mmu().wait(rung, before);
",
            "            return self.mmu().wait(rung, before);
",
        )],
        killer: tree(
            "hold::who_replaces_roots_waits_for_each_of_the_vcpus_that_are_in_their_guests",
            "it is finished while a vCPU is in its guest",
        ),
    },
    Mutant {
        step: "a vCPU that comes out empties its hold",
        edits: &[(
            HOLD,
            "        self.hold.root.store(null_mut(), Ordering::Release);
",
            "",
        )],
        // It is found to be inside where it has not said yet on which root.
        killer: loom_hold(WAITED_FOR, "deadlock"),
    },
    Mutant {
        step: "and with that goes what it did on the root",
        edits: &[(
            HOLD,
            "self.hold.root.store(null_mut(), Ordering::Release);",
            "self.hold.root.store(null_mut(), Ordering::Relaxed);",
        )],
        killer: DESTROYED,
    },
    Mutant {
        step: "which who finds the hold empty acquires",
        edits: &[(
            HOLDS,
            "self.root.load(Ordering::Acquire) == root",
            "self.root.load(Ordering::Relaxed) == root",
        )],
        killer: Killer::new(
            Checker::Loom,
            "stage2",
            (
                "lib",
                "hold::holds::tests::what_a_vcpu_did_on_a_root_came_before_its_hold_is_found_empty",
            ),
            "Causality violation",
        ),
    },
    Mutant {
        step: "a vCPU that is waited for is to tell when it comes out",
        edits: &[(HOLDS, "resident.tell_when_out() && hold.is_on(root)", "hold.is_on(root)")],
        killer: loom_hold(FINISHED, "deadlock"),
    },
    Mutant {
        step: "who has asked for that looks at the hold once more",
        edits: &[(
            HOLDS,
            "resident.tell_when_out() && hold.is_on(root)",
            "resident.tell_when_out()",
        )],
        killer: loom_hold(WAITED_FOR, "deadlock"),
    },
];
