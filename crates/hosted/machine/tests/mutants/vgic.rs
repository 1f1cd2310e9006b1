//! The steps by which a vCPU finds the interrupts that others have for it.

use crate::{Checker, Killer, Mutant};

const INBOX: &str = "core/vgic/src/inbox.rs";
const CPU: &str = "core/vgic/src/cpu.rs";
const BANK: &str = "core/vgic/src/frame/bank.rs";
const ITS: &str = "core/vgic/src/frame/its.rs";
const LPI: &str = "core/vgic/src/its/lpi.rs";
const TABLES: &str = "core/vgic/src/its/tables.rs";
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

const LPI_SENT: Killer = loom(
    "its::loom_a_vcpu_that_enters_has_the_lpis_that_were_sent_or_is_told_to_come_out",
    "it is lost",
);

const LPI_OFF: Killer =
    loom("its::loom_no_lpi_is_pending_at_a_redistributor_that_was_turned_off", "an LPI is pending");

const QUEUED: Killer = loom("its::loom_a_command_that_is_queued_is_executed_or_noted", "panicked");

const QUIESCENT: Killer = loom(
    "its::loom_no_command_begins_once_the_guest_has_seen_that_the_its_is_quiescent",
    "a command began",
);

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        step: "who takes an LPI out looks at it once more",
        edits: &[(
            INBOX,
            "                    if is_due(FIRST_LPI + lpi) {
",
            "                    if false {
",
        )],
        killer: LPI_SENT,
    },
    Mutant {
        step: "and sees it as who has put it there",
        edits: &[(
            INBOX,
            "word.fetch_and(!bit, Ordering::AcqRel);",
            "word.fetch_and(!bit, Ordering::Relaxed);",
        )],
        killer: LPI_SENT,
    },
    Mutant {
        step: "who takes the bit of a word of LPIs out looks at that word once more",
        edits: &[(
            INBOX,
            "                if word.load(Ordering::Relaxed) != 0 {
                    summary",
            "                if false {
                    summary",
        )],
        killer: LPI_SENT,
    },
    Mutant {
        step: "and sees the LPIs in it",
        edits: &[(
            INBOX,
            "summary.fetch_and(!(1 << place), Ordering::AcqRel);",
            "summary.fetch_and(!(1 << place), Ordering::Relaxed);",
        )],
        killer: LPI_SENT,
    },
    Mutant {
        step: "an LPI's own bit is set before that of its word",
        edits: &[(
            INBOX,
            "word.fetch_or(1 << (lpi % WORD), Ordering::Release);
                (self.words.len() - 1) * WORD + lpi / WORD",
            "let at = (self.words.len() - 1) * WORD + lpi / WORD;
                self.words[at / WORD].fetch_or(1 << (at % WORD), Ordering::Release);
                word.fetch_or(1 << (lpi % WORD), Ordering::Release);
                return;",
        )],
        killer: LPI_SENT,
    },
    Mutant {
        step: "who has sent an LPI looks whether its redistributor takes LPIs",
        edits: &[(
            LPI,
            "if before.is_pending_at(route) || step(before) == before || own.lpis.accepts() {",
            "if true {",
        )],
        killer: LPI_OFF,
    },
    Mutant {
        step: "and passes a fence before that",
        edits: &[(
            LPI,
            "        fence(Ordering::SeqCst);
        let route = affinity(vcpu) as u32;
        // One",
            "        let route = affinity(vcpu) as u32;
        // One",
        )],
        killer: LPI_OFF,
    },
    Mutant {
        step: "who turns LPIs off passes one before it looks which are pending",
        edits: &[(
            LPI,
            "            fence(Ordering::SeqCst);
            self.write_pending",
            "            self.write_pending",
        )],
        killer: LPI_OFF,
    },
    Mutant {
        step: "the note that there is work comes after what makes it",
        edits: &[(
            ITS,
            "                    its.cwriter.store(end, Ordering::Release);
                    its.has_work();
",
            "                    its.has_work();
                    its.cwriter.store(end, Ordering::Release);
",
        )],
        killer: QUEUED,
    },
    Mutant {
        step: "the note is taken before the work is looked for",
        edits: &[(
            "core/vgic/src/its/work.rs",
            "        its.take_work();
        let served = self.serve_alone(its, memory, pause);
",
            "        let served = self.serve_alone(its, memory, pause);
        its.take_work();
",
        )],
        killer: QUEUED,
    },
    Mutant {
        step: "who notes work releases it",
        edits: &[(
            TABLES,
            "self.work.swap(1, Ordering::AcqRel);",
            "self.work.swap(1, Ordering::Relaxed);",
        )],
        killer: QUEUED,
    },
    Mutant {
        step: "who takes the note acquires it",
        edits: &[(
            TABLES,
            "self.work.swap(0, Ordering::AcqRel);",
            "self.work.swap(0, Ordering::Relaxed);",
        )],
        killer: QUEUED,
    },
    Mutant {
        step: "a command is in memory before the end of the queue is behind it",
        edits: &[(
            ITS,
            "its.cwriter.store(end, Ordering::Release);",
            "its.cwriter.store(end, Ordering::Relaxed);",
        )],
        killer: QUEUED,
    },
    Mutant {
        step: "who serves is busy before it takes the note",
        edits: &[
            ("core/vgic/src/its/work.rs", "        its.take_work();\n", ""),
            (
                "core/vgic/src/its/work.rs",
                "        let Some(mut busy) = its.begin() else {",
                "        its.take_work();
        let Some(mut busy) = its.begin() else {",
            ),
        ],
        killer: QUIESCENT,
    },
    Mutant {
        step: "who turns the ITS off notes it after that",
        edits: &[(
            ITS,
            "                its.enabled.store((value & CTLR_ENABLED) as u32, Ordering::Release);
                its.has_work();
",
            "                its.has_work();
                its.enabled.store((value & CTLR_ENABLED) as u32, Ordering::Release);
",
        )],
        killer: QUIESCENT,
    },
    Mutant {
        step: "an interrupt is pending before it is put into the inbox",
        edits: &[(
            INBOX,
            "word.fetch_or(1 << (at % WORD), Ordering::Release);",
            "word.fetch_or(1 << (at % WORD), Ordering::Relaxed);",
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
            "word.fetch_or(u64::MAX, Ordering::Release);",
            "word.store(u64::MAX, Ordering::Release);",
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
            "self.recalled.load(Ordering::Acquire) != 0",
            "self.recalled.load(Ordering::Relaxed) != 0",
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
