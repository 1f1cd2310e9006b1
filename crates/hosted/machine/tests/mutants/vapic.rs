//! The steps by which a vCPU finds what is sent to its local APIC, and a level-triggered interrupt finds its end.

use crate::{Checker, Killer, Mutant};

const MAILBOX: &str = "core/vapic/src/mailbox.rs";
const LOOK: &str = "core/vapic/src/look.rs";
const IOAPIC: &str = "core/vapic/src/ioapic.rs";

const fn loom(test: &'static str, says: &'static str) -> Killer {
    Killer::new(Checker::Loom, "vapic", ("loom", test), says)
}

const MODEL: Killer = Killer::new(
    Checker::Test,
    "vapic",
    ("model", "each_vcpu_is_given_what_the_manuals_give_it_and_reads_what_they_say"),
    "left: ",
);

const ASLEEP: Killer =
    loom("loom_a_vcpu_that_falls_asleep_sees_what_is_sent_or_is_woken", "it sleeps");

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        step: "what nobody has accepted is in service nowhere",
        edits: &[(IOAPIC, "entry.answered(sent, accepted)", "entry.answered(sent, true)")],
        killer: MODEL,
    },
    Mutant {
        step: "the end of a level-triggered interrupt is told to the IOAPIC",
        edits: &[(
            "core/vapic/src/local/access.rs",
            "if self.own(apic).is_level(vector) {",
            "if self.own(apic).is_level(vector) && apic.mode() == Mode::Disabled {",
        )],
        killer: MODEL,
    },
    Mutant {
        step: "an interrupt is known to be level-triggered when it has come",
        edits: &[(
            MAILBOX,
            "self.irr[word].fetch_or(bit, Ordering::AcqRel);",
            "self.irr[word].fetch_or(bit, Ordering::Acquire);",
        )],
        killer: loom(
            "loom_a_level_that_was_taken_is_ended_where_it_came_from",
            "its end was not told",
        ),
    },
    Mutant {
        step: "who takes an interrupt sees what was written before it came again",
        edits: &[(
            MAILBOX,
            "self.irr[word].fetch_and(!bit, Ordering::AcqRel);",
            "self.irr[word].fetch_and(!bit, Ordering::Relaxed);",
        )],
        killer: loom(
            "loom_an_interrupt_that_meets_its_acceptance_is_seen_by_it_or_comes_again",
            "what was written is missed",
        ),
    },
    Mutant {
        step: "who gives notice has sent",
        edits: &[(
            MAILBOX,
            "self.notice.swap(1, Ordering::AcqRel) == 0",
            "self.notice.swap(1, Ordering::Relaxed) == 0",
        )],
        killer: ASLEEP,
    },
    Mutant {
        step: "who takes the notice looks after that",
        edits: &[(
            MAILBOX,
            "    pub(crate) fn take_notice(&self) {
        self.notice.swap(0, Ordering::AcqRel);",
            "    pub(crate) fn take_notice(&self) {
        self.notice.swap(0, Ordering::Relaxed);",
        )],
        killer: ASLEEP,
    },
    Mutant {
        step: "the notice is taken before the vCPU looks",
        edits: &[
            (LOOK, "        mailbox.take_notice();\n        self.advance", "        self.advance"),
            (
                LOOK,
                "        Look { event, next: self.next(apic) }",
                "        let next = self.next(apic);
        self.own(apic).take_notice();
        Look { event, next }",
            ),
        ],
        killer: loom(
            "loom_a_vcpu_that_enters_has_what_was_sent_or_is_told_to_come_out",
            "it is not told",
        ),
    },
    Mutant {
        step: "what comes to a vCPU is added to what it has not taken",
        edits: &[(
            MAILBOX,
            "        self.change(|events| events.with(event));",
            "        let events = Events(self.events.load(Ordering::Acquire));
        self.events.store(events.with(event).0, Ordering::Release);",
        )],
        killer: loom("loom_a_vcpu_is_started_once_however_its_start_meets_what_it_does", "left: "),
    },
    Mutant {
        step: "what is under way when its entry is written is sent to where that points then",
        edits: &[(
            "core/vapic/src/ioapic/entry.rs",
            "if entry.is_level() { entry.sent_anew() }",
            "if entry.is_level() { entry.sent_if_due() }",
        )],
        killer: loom(
            "loom_a_level_that_nobody_takes_goes_to_whom_its_entry_names_meanwhile",
            "it is sent to nobody",
        ),
    },
    Mutant {
        step: "who sends after an APIC was enabled finds it enabled",
        edits: &[(IOAPIC, ".fetch_or(0, Ordering::AcqRel);", ".load(Ordering::Acquire);")],
        killer: loom(
            "loom_a_level_that_meets_its_apics_enabling_is_taken",
            "it is left with nobody",
        ),
    },
    Mutant {
        step: "an interrupt that comes after an INIT is known to have come to another life",
        edits: &[(MAILBOX, "self.address().life == life", "self.address().life == life || true")],
        killer: loom(
            "loom_a_level_that_meets_an_init_comes_again_after_it",
            "it is in service nowhere",
        ),
    },
    Mutant {
        step: "who sends after a life was over sees that it was",
        edits: &[(
            MAILBOX,
            "self.irr[word].fetch_or(bit, Ordering::AcqRel);",
            "self.irr[word].fetch_or(bit, Ordering::Release);",
        )],
        killer: loom(
            "loom_a_level_that_meets_an_init_comes_again_after_it",
            "it is in service nowhere",
        ),
    },
    Mutant {
        step: "a start-up clears what came late",
        edits: &[(LOOK, "self.begin_life(apic, [0; 8]);", "")],
        killer: loom(
            "loom_an_interrupt_that_meets_an_init_is_not_there_after_the_start",
            "it is of the former life",
        ),
    },
    Mutant {
        step: "a level-triggered interrupt that an APIC forgets has ended",
        edits: &[(LOOK, "if levels != [0; 8] {", "if levels == [0; 8] {")],
        killer: MODEL,
    },
];
