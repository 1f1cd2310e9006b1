//! Orders that are weakened, and which checker may be the one that misses them.
//!
//! Under shuttle every order is sequentially consistent, and a processor may give more than is asked of it. So an order
//! counts as needed where loom misses it, or Miri, which both give a load older values; or herd7, for which
//! `scripts/litmus` leaves out what a litmus test says that it needs.
//!
//! Neither loom nor Miri knows the barrier that one thread has all CPUs execute, and its counterpart, which is a barrier
//! for the compiler alone: under loom both are fences. A mutant of these is exempted here, by name. The exemption says
//! which litmus tests and which other tests stand for loom. This test only looks that they are there, and what they say that
//! herd7 finds. What proves it is `scripts/litmus`, which runs them under herd7.

use std::fs;
use std::path::Path;

use crate::{Checker, Killer, Mutant, all, workspace};

/// From what asks for nothing to what asks for all.
const STRENGTHS: [(&str, u32); 5] = [
    ("Ordering::Relaxed", 0),
    ("Ordering::Acquire", 1),
    ("Ordering::Release", 1),
    ("Ordering::AcqRel", 2),
    ("Ordering::SeqCst", 3),
];

/// What orders the accesses around it, for a processor or for the compiler.
const BARRIERS: [&str; 3] = ["fence(", "compiler_barrier()", "heavy_barrier()"];

/// A mutant that neither loom nor Miri can miss, and what stands for them, all of `crates/core/srcu`.
#[derive(Debug)]
struct Exempt {
    step: &'static str,
    /// Litmus tests, and what herd7 has to find.
    litmus: &'static [(&'static str, &'static str)],
    /// Files of tests, and a test of each. One is the mutant's killer.
    tests: &'static [(&'static str, &'static str)],
}

/// What `membarrier(2)` does to the reader's CPU, in each place of its program: with it nothing fails, without it
/// something does.
const MEMBARRIER: &[(&str, &str)] = &[
    ("SRCU+interrupt-before", "Never"),
    ("SRCU+interrupt-between", "Never"),
    ("SRCU+interrupt-after", "Never"),
    ("SRCU+switched-in", "Never"),
    ("SRCU+switched-out", "Never"),
    ("SRCU+switched-out-between", "Never"),
    ("SRCU+compiler-barrier", "Sometimes"),
];

/// What a full fence on each side does: with it nothing fails, with a compiler barrier on the reader's something does.
const FENCED: &[(&str, &str)] = &[("SRCU+fenced", "Never"), ("SRCU+compiler-barrier", "Sometimes")];

/// That the compiler leaves the reader's accesses in the order that the litmus tests and the executions begin with.
const EMITTED: &[(&str, &str)] = &[
    ("emitted_code", "a_readers_barriers_stand_where_the_protocol_has_them"),
    ("store_buffers", "a_reader_without_a_fence_and_membarrier_never_fail"),
];

const EXEMPT: &[Exempt] = &[
    Exempt {
        step: "a grace period passes the heavy barrier",
        litmus: MEMBARRIER,
        tests: &[
            (
                "cold_stores",
                "no_version_is_freed_under_a_reader_whose_announcement_is_in_its_store_buffer",
            ),
            ("store_buffers", "without_the_interrupt_both_fail"),
        ],
    },
    Exempt { step: "a fenced reader that enters passes a fence", litmus: FENCED, tests: EMITTED },
    Exempt {
        step: "an asymmetric reader that enters passes a compiler barrier",
        litmus: MEMBARRIER,
        tests: EMITTED,
    },
    Exempt {
        step: "an asymmetric reader that leaves passes a compiler barrier",
        litmus: MEMBARRIER,
        tests: EMITTED,
    },
];

/// Whether some edit leaves a barrier out, or asks for less order in what is there before and after it.
fn is_weakened(mutant: &Mutant) -> bool {
    let barriers = |text: &str| BARRIERS.iter().map(|of| text.matches(of).count()).sum::<usize>();
    let count = |text: &str| text.matches("Ordering::").count();
    let relaxed = |text: &str| text.matches("Ordering::Relaxed").count();
    let strength = |text: &str| {
        let of = |(order, each): &(&str, u32)| text.matches(order).count() as u32 * each;
        STRENGTHS.iter().map(of).sum::<u32>()
    };
    mutant.edits.iter().any(|(_, from, to)| {
        barriers(to) < barriers(from)
            || relaxed(to) > relaxed(from)
            || count(to) == count(from) && strength(to) < strength(from)
    })
}

/// What is wrong with who misses a mutant, if something is.
fn objection(mutant: &Mutant, exempt: &[Exempt]) -> Option<String> {
    let Killer { binary, test, .. } = mutant.killer;
    let knows_weaker = matches!(binary.by, Checker::Loom | Checker::Miri);
    let exemption = exempt.iter().find(|exempt| exempt.step == mutant.step);
    match (is_weakened(mutant) && !knows_weaker, exemption) {
        (false, None) => None,
        (false, Some(_)) => Some(format!("{mutant}: exempted for nothing")),
        (true, None) => Some(format!("{mutant}: missed by a checker that knows no weaker order")),
        (true, Some(exempt)) => {
            let is_named = binary.package == "srcu" && exempt.tests.contains(&(binary.file, test));
            (!is_named).then(|| format!("{mutant}: the exemption names another test"))
        }
    }
}

/// What an exemption names and is not there, or says something else.
fn missing(exempt: &Exempt, srcu: &Path) -> Vec<String> {
    let read = |path: String| fs::read_to_string(srcu.join(path)).unwrap_or_default();
    let litmus = exempt.litmus.iter().filter(|(name, result)| {
        !read(format!("litmus/{name}.litmus")).contains(&format!(" * Result: {result}\n"))
    });
    let tests = exempt.tests.iter().filter(|(file, test)| {
        !read(format!("tests/{file}.rs")).contains(&format!("#[test]\nfn {test}()"))
            && !read(format!("tests/{file}.rs")).contains(&format!("\"]\nfn {test}()"))
    });
    litmus.chain(tests).map(|(name, what)| format!("{}: {name}, {what}", exempt.step)).collect()
}

#[test]
fn an_order_that_is_weakened_is_missed_by_a_checker_that_knows_weaker_ones() {
    let objections: Vec<_> = all().filter_map(|mutant| objection(mutant, EXEMPT)).collect();
    assert!(objections.is_empty(), "{}", objections.join("\n"));
    let srcu = workspace().join("crates/core/srcu");
    for exempt in EXEMPT {
        assert!(all().any(|mutant| mutant.step == exempt.step), "no mutant: {}", exempt.step);
        assert_eq!(missing(exempt, &srcu), Vec::<String>::new());
        assert!(!exempt.litmus.is_empty(), "herd7 stands for loom");
    }
}

#[test]
fn a_planted_mutant_that_nobody_who_knows_weaker_orders_misses_is_found() {
    const WEAKER: &[(&str, &str, &str)] = &[
        (
            "",
            "section.store(1, Ordering::Release);\ncompiler_barrier();",
            "section.store(1, Ordering::Release);",
        ),
        ("", "self.world.heavy_barrier();\n", ""),
        ("", "compiler_fence(Ordering::SeqCst);\n", ""),
        ("", "fence(Ordering::SeqCst);\n", ""),
        ("", "fence(Ordering::SeqCst);", "fence(Ordering::Acquire);"),
        ("", "load(Ordering::Acquire)", "load(Ordering::Relaxed)"),
        ("", "swap(1, Ordering::AcqRel)", "swap(1, Ordering::Acquire)"),
        ("", "store(1, Ordering::SeqCst)", "store(1, Ordering::Release)"),
    ];
    const OTHER: (&str, &str, &str) = ("", "a.store(1, Ordering::Release);", "");
    let planted = |edit: &'static (&str, &str, &str), by, file| Mutant {
        step: "planted",
        edits: std::slice::from_ref(edit),
        killer: Killer::new(by, "srcu", (file, "a_test"), ""),
    };
    let others = [Checker::Test, Checker::Machine, Checker::Emitted, Checker::Shuttle];
    let exempt = [Exempt { step: "planted", litmus: MEMBARRIER, tests: &[("of_srcu", "a_test")] }];
    for edit in WEAKER {
        for by in others {
            assert!(objection(&planted(edit, by, "of_srcu"), &[]).is_some(), "{edit:?} by {by:?}");
            assert!(objection(&planted(edit, by, "of_srcu"), &exempt).is_none(), "{edit:?}");
            assert!(objection(&planted(edit, by, "another"), &exempt).is_some(), "{edit:?}");
        }
        for by in [Checker::Loom, Checker::Miri] {
            assert!(objection(&planted(edit, by, "of_srcu"), &[]).is_none(), "{edit:?} by {by:?}");
            assert!(objection(&planted(edit, by, "of_srcu"), &exempt).is_some(), "for nothing");
        }
    }
    // What is left out with its order, or put elsewhere, is no weaker order.
    assert!(objection(&planted(&OTHER, Checker::Test, "of_srcu"), &[]).is_none());
    // And what an exemption names has to be there, and to say so.
    let srcu = workspace().join("crates/core/srcu");
    let named = Exempt {
        step: "planted",
        litmus: &[("SRCU+no-such", "Never"), ("SRCU+compiler-barrier", "Never")],
        tests: &[("store_buffers", "no_such_test")],
    };
    assert_eq!(missing(&named, &srcu).len(), 3);
}
