//! The steps by which a vCPU finds the interrupts that others have for it.

use crate::{Checker, Killer, Mutant};

const INBOX: &str = "core/vgic/src/inbox.rs";
const CPU: &str = "core/vgic/src/cpu.rs";
const BANK: &str = "core/vgic/src/frame/bank.rs";
const DISTRIBUTOR: &str = "core/vgic/src/frame/distributor.rs";

const fn loom(test: &'static str, says: &'static str) -> Killer {
    Killer::new(Checker::Loom, "vgic", ("loom", test), says)
}

const ENTERS: Killer =
    loom("loom_a_vcpu_that_enters_has_what_was_injected_or_is_told_to_come_out", "panicked");

const ASLEEP: Killer =
    loom("loom_a_vcpu_that_falls_asleep_sees_what_is_pending_or_is_woken", "panicked");

const LEFT: Killer = loom(
    "loom_what_is_under_way_no_more_is_found_as_it_was_left",
    "it is not found as its vCPU left it",
);

const TURNED_OFF: Killer = loom(
    "loom_a_group_that_is_turned_off_is_under_way_while_a_vcpu_has_an_interrupt_of_it",
    "panicked",
);

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        step: "an interrupt is pending before it is put into the inbox",
        edits: &[(
            INBOX,
            "word.fetch_or(1 << (intid % 32), Ordering::Release);",
            "word.fetch_or(1 << (intid % 32), Ordering::Relaxed);",
        )],
        killer: ENTERS,
    },
    Mutant {
        step: "who gives notice has put it there",
        edits: &[(
            INBOX,
            "self.notice.swap(1, Ordering::AcqRel) == 0",
            "self.notice.swap(1, Ordering::Relaxed) == 0",
        )],
        killer: ASLEEP,
    },
    Mutant {
        step: "who takes the notice looks after that",
        edits: &[(
            INBOX,
            "self.notice.swap(0, Ordering::AcqRel);",
            "self.notice.swap(0, Ordering::Relaxed);",
        )],
        killer: ASLEEP,
    },
    Mutant {
        step: "who takes an interrupt out finds it pending",
        edits: &[(
            INBOX,
            "each(index, word.swap(0, Ordering::AcqRel), &mut look);",
            "each(index, word.swap(0, Ordering::Relaxed), &mut look);",
        )],
        killer: ENTERS,
    },
    Mutant {
        step: "who has everything looked at hides nothing that others have put there",
        edits: &[(
            INBOX,
            "word.fetch_or(u32::MAX, Ordering::Release);",
            "word.store(u32::MAX, Ordering::Release);",
        )],
        killer: loom(
            "loom_a_group_that_is_turned_on_while_an_interrupt_comes_delivers_it",
            "left: ",
        ),
    },
    Mutant {
        step: "what is recalled no more was taken back",
        edits: &[(
            CPU,
            "self.recalled.fetch_sub(1, Ordering::Release);",
            "self.recalled.fetch_sub(1, Ordering::Relaxed);",
        )],
        killer: LEFT,
    },
    Mutant {
        step: "who finds nothing recalled finds that",
        edits: &[(
            BANK,
            "self.recalled.load(Ordering::Acquire) == 0",
            "self.recalled.load(Ordering::Relaxed) == 0",
        )],
        killer: LEFT,
    },
    Mutant {
        step: "an interrupt is counted as recalled before its word says so",
        edits: &[(
            "core/vgic/src/vgic.rs",
            "                self.recalled.fetch_add(1, Ordering::Relaxed);
            }
            Some(to)
        })?;
",
            "            }
            Some(to)
        })?;
        if counted {
            self.recalled.fetch_add(1, Ordering::Relaxed);
        }
",
        )],
        killer: loom(
            "loom_what_was_disabled_is_under_way_whoever_else_disables_something_and_comes_out",
            "vCPU 0 has not come out",
        ),
    },
    Mutant {
        step: "a vCPU that enters passes a fence before it looks whether the groups are on",
        edits: &[(CPU, "        fence(Ordering::SeqCst);\n", "")],
        killer: TURNED_OFF,
    },
    Mutant {
        step: "who turns a group off passes one before it looks what is loaded",
        edits: &[(DISTRIBUTOR, "        fence(Ordering::SeqCst);\n", "")],
        killer: TURNED_OFF,
    },
];
