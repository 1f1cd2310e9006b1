//! The steps of the SRCU protocol.

use crate::{Checker, Killer, Mutant};

const fn in_callbacks(test: &'static str, says: &'static str) -> Killer {
    Killer::new(Checker::Test, "srcu", ("in_callbacks", test), says)
}

pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        step: "a grace period passes the heavy barrier",
        edits: &[("core/srcu/src/domain.rs", "            self.world.heavy_barrier();\n", "")],
        killer: Killer::new(
            Checker::Machine,
            "srcu",
            (
                "cold_stores",
                "no_version_is_freed_under_a_reader_whose_announcement_is_in_its_store_buffer",
            ),
            "left: ",
        ),
    },
    Mutant {
        step: "an asymmetric reader that enters passes a compiler barrier",
        edits: &[(
            "core/srcu/src/reader.rs",
            "section.store(word + 1, Ordering::Release);
            compiler_barrier();",
            "section.store(word + 1, Ordering::Release);",
        )],
        killer: Killer::new(
            Checker::Emitted,
            "srcu",
            ("emitted_code", "a_readers_barriers_stand_where_the_protocol_has_them"),
            "not in this order",
        ),
    },
    Mutant {
        step: "a fenced reader that enters passes a fence",
        edits: &[("core/srcu/src/reader.rs", "            full_fence(line);\n", "")],
        killer: Killer::new(
            Checker::Emitted,
            "srcu",
            ("emitted_code", "a_readers_barriers_stand_where_the_protocol_has_them"),
            "not in this order",
        ),
    },
    Mutant {
        step: "what a fenced reader has for a fence on x86 is a locked instruction",
        edits: &[(
            "core/srcu/src/reader.rs",
            "        line.locked.swap(0, core::sync::atomic::Ordering::SeqCst);\n",
            "",
        )],
        killer: Killer::new(
            Checker::Emitted,
            "srcu",
            ("emitted_code", "a_readers_barriers_stand_where_the_protocol_has_them"),
            "\"SFPSFA\"",
        ),
    },
    Mutant {
        step: "an asymmetric reader that leaves passes a compiler barrier",
        edits: &[(
            "core/srcu/src/reader.rs",
            "        } else {
            compiler_barrier();
        }
        if line.awaited",
            "        }
        if line.awaited",
        )],
        killer: Killer::new(
            Checker::Emitted,
            "srcu",
            ("emitted_code", "a_readers_barriers_stand_where_the_protocol_has_them"),
            "not in this order",
        ),
    },
    Mutant {
        step: "a starting grace period looks for readers behind its fence",
        edits: &[(
            "core/srcu/src/domain.rs",
            "        fence(Ordering::SeqCst);
        if !self.fenced && !self.registry.is_empty() {",
            "        let is_empty = self.registry.is_empty();
        fence(Ordering::SeqCst);
        if !self.fenced && !is_empty {",
        )],
        killer: Killer::new(
            Checker::Loom,
            "srcu",
            (
                "loom_callbacks",
                "a_grace_period_without_heavy_barrier_has_no_reader_that_others_rely_on_it_for",
            ),
            "nothing ordered the two",
        ),
    },
    Mutant {
        step: "who would free at once looks for readers behind a fence",
        edits: &[(
            "core/srcu/src/domain.rs",
            "        fence(Ordering::SeqCst);
        self.registry.is_empty() && self.anonymous.is_empty()",
            "        self.registry.is_empty() && self.anonymous.is_empty()",
        )],
        killer: Killer::new(
            Checker::Loom,
            "srcu",
            ("loom", "what_is_dropped_at_once_for_want_of_readers_is_found_by_none_that_comes"),
            "Causality violation",
        ),
    },
    Mutant {
        step: "a reader that registers passes a fence",
        edits: &[(
            "core/srcu/src/registry.rs",
            "        // [registered]\n        fence(Ordering::SeqCst);\n",
            "",
        )],
        killer: Killer::new(
            Checker::Loom,
            "srcu",
            (
                "loom_registry",
                "a_writer_that_finds_nobody_registered_is_found_by_whoever_registers_later",
            ),
            "Causality violation",
        ),
    },
    Mutant {
        step: "a reader that goes has read before it is uncounted",
        edits: &[(
            "core/srcu/src/registry.rs",
            "self.0.fetch_sub(1, Ordering::Release);",
            "self.0.fetch_sub(1, Ordering::Relaxed);",
        )],
        killer: Killer::new(
            Checker::Loom,
            "srcu",
            ("loom_registry", "a_writer_that_finds_nobody_any_more_comes_after_what_they_read"),
            "Causality violation",
        ),
    },
    Mutant {
        step: "who asks for a grace period does so behind a fence",
        edits: &[(
            "core/srcu/src/domain.rs",
            "        // [request]\n        fence(Ordering::SeqCst);\n",
            "",
        )],
        killer: Killer::new(
            Checker::Loom,
            "srcu",
            ("loom", "of_two_synchronisers_neither_joins_a_grace_period_that_has_sampled"),
            "Causality violation",
        ),
    },
    Mutant {
        step: "what was unpublished before it was deferred is known to who collects it",
        edits: &[(
            "core/srcu/src/backlog.rs",
            "                head.as_ptr(),
                Ordering::AcqRel,",
            "                head.as_ptr(),
                Ordering::Relaxed,",
        )],
        killer: Killer::new(
            Checker::Loom,
            "srcu",
            (
                "loom_callbacks",
                "what_a_grace_period_under_way_comes_too_late_for_waits_for_the_next",
            ),
            "Causality violation",
        ),
    },
    Mutant {
        step: "who asks for haste does so before he looks whether readers have left",
        edits: &[(
            "core/srcu/src/deferral.rs",
            "        self.expedited.fetch_max(period, Ordering::Release);
        // [haste]
        fence(Ordering::SeqCst);\n",
            "        self.expedited.fetch_max(period, Ordering::Release);\n",
        )],
        killer: Killer::new(
            Checker::Loom,
            "srcu",
            (
                "lib",
                "worker::tests::\
             who_asks_for_haste_finds_that_the_reader_left_or_the_reader_finds_that_it_was_asked",
            ),
            "nobody calls the worker",
        ),
    },
    Mutant {
        step: "who finds nothing deferred comes after what the callbacks did",
        edits: &[(
            "core/srcu/src/backlog.rs",
            "self.held.now.fetch_sub(Amount::new(count, bytes).0, Ordering::Release);",
            "self.held.now.fetch_sub(Amount::new(count, bytes).0, Ordering::Relaxed);",
        )],
        killer: Killer::new(
            Checker::Loom,
            "srcu",
            ("loom_callbacks", "whoever_sees_that_nothing_is_deferred_sees_what_the_callbacks_did"),
            "Causality violation",
        ),
    },
    Mutant {
        step: "a barrier turns to the other phase",
        edits: &[("core/srcu/src/deferral.rs", "        self.gate().runners.turn();\n", "")],
        killer: Killer::new(
            Checker::Loom,
            "srcu",
            ("loom", "a_barrier_waits_for_callbacks_that_another_thread_is_running"),
            "Causality violation",
        ),
    },
    Mutant {
        step: "the last runner of a phase says that it is through",
        edits: &[("core/srcu/src/runners.rs", "        self.awaited = !are_through;\n", "")],
        killer: Killer::new(
            Checker::Loom,
            "srcu",
            ("loom_callbacks", "a_barrier_waits_for_two_threads_that_each_run_callbacks"),
            "deadlock",
        ),
    },
    Mutant {
        step: "a callback that asks for others runs none",
        edits: &[(
            "core/srcu/src/deferral.rs",
            "        if !gate.runners.is_any() {
            return false;
        }
        let is_asked = gate.runners.ask(self.world().context(), period);
",
            "        let is_asked = false;
        let _ = period;
",
        )],
        killer: in_callbacks(
            "a_callback_that_defers_itself_and_asks_for_that_runs_inside_no_other_and_keeps_nobody",
            "left: ",
        ),
    },
    Mutant {
        step: "the thread that runs it does what it asks for",
        edits: &[("core/srcu/src/runners.rs", "asked: runner.asked.get() }", "asked: 0 }")],
        killer: in_callbacks(
            "what_a_callback_asks_for_has_run_when_the_thread_returns_that_ran_the_callback",
            "left: ",
        ),
    },
    Mutant {
        step: "but no more than a share of it",
        edits: &[(
            "core/srcu/src/deferral.rs",
            "(until, most) = (asked, most.min(count.saturating_add(self.run_inline)));",
            "until = asked;",
        )],
        killer: in_callbacks(
            "a_callback_that_defers_itself_and_asks_for_that_runs_inside_no_other_and_keeps_nobody",
            "does not end",
        ),
    },
    Mutant {
        step: "a domain is taken off the roster with its last handle",
        edits: &[(
            "core/srcu/src/handle.rs",
            "            worker.forget(self.0);\n",
            "            let _ = worker;\n",
        )],
        killer: Killer::new(
            Checker::Miri,
            "srcu",
            (
                "grace_periods",
                "a_domain_goes_with_its_last_handle_though_its_worker_is_never_turned",
            ),
            "Undefined Behavior",
        ),
    },
];
