//! The steps by which TLBs are owed the invalidation of a frame that was replaced, and are paid.

use crate::{Checker, Killer, Mutant};

const LEDGER: &str = "core/stage2/src/owed/ledger.rs";
const FLUSH: &str = "core/stage2/src/flush.rs";

/// Of the ledger alone.
const fn loom(test: &'static str, says: &'static str) -> Killer {
    Killer::new(Checker::Loom, "stage2", ("lib", test), says)
}

const LATE: Killer = Killer::new(
    Checker::Test,
    "stage2",
    ("tree", "owed::what_comes_to_be_owed_during_an_invalidation_is_not_paid_by_that::arm"),
    "panicked",
);

const CHANGED: Killer = loom(
    "owed::ledger::tests::a_debt_is_struck_out_by_a_cpu_that_found_the_entry_changed",
    "it was paid before the change",
);

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        step: "what is due is asked before the invalidation",
        edits: &[(
            FLUSH,
            "            if let Some(below) = owed.due() {
                mmu.complete(mmu.issue(vmid, scope.clone()));
",
            "            mmu.complete(mmu.issue(vmid, scope.clone()));
            if let Some(below) = owed.due() {
",
        )],
        killer: LATE,
    },
    Mutant {
        step: "newer debts stay",
        edits: &[(
            LEDGER,
            "if number != 0 && number < below && is_paid(page, new) {",
            "if number != 0 && is_paid(page, new) {",
        )],
        killer: LATE,
    },
    Mutant {
        step: "the entry was changed before the next number is known [owe]",
        edits: &[(
            LEDGER,
            "self.next.store(number + 1, Ordering::Release);",
            "self.next.store(number + 1, Ordering::Relaxed);",
        )],
        killer: CHANGED,
    },
    Mutant {
        step: "who knows that finds the entry changed [due]",
        edits: &[(
            LEDGER,
            "Some(self.next.load(Ordering::Acquire))",
            "Some(self.next.load(Ordering::Relaxed))",
        )],
        killer: CHANGED,
    },
    Mutant {
        step: "the invalidation is complete before its debt is struck out [paid]",
        edits: &[(
            LEDGER,
            "place.number.store(0, Ordering::Release);",
            "place.number.store(0, Ordering::Relaxed);",
        )],
        killer: loom(
            "owed::ledger::tests::\
             the_old_frame_is_accessed_no_more_when_the_debt_is_open_no_more",
            "Causality violation",
        ),
    },
    Mutant {
        step: "and before it is counted no more",
        edits: &[(
            LEDGER,
            "self.open.fetch_sub(1, Ordering::Release);",
            "self.open.fetch_sub(1, Ordering::Relaxed);",
        )],
        killer: loom(
            "owed::ledger::tests::the_old_frame_is_accessed_no_more_when_nothing_is_due",
            "Causality violation",
        ),
    },
];
