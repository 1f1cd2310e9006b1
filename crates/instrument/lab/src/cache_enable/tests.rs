use std::time::Duration;

use mayfly_machine::scenario::Scenario;
use mayfly_record::{Host, nanoseconds};

use crate::mapping::Mapping;
use crate::progress::Silent;
use crate::undo::Undo;

use super::bring_up::{BOOT, Ground, Measured, Piece, SECONDARY, Shape};
use super::design::Design;
use super::names::REAL;
use super::rows::Row;
use super::*;

const VCPUS: u32 = 5;
const SMALL: Size = Size::blocks(6);
const EARLY: u64 = BOOT + 4 * SECONDARY;
/// What is mapped in the end, in bytes: of the first two blocks, what was written.
const IN_PAGES: u64 = EARLY + (8 << 20);
const IN_BLOCKS: u64 = 10 << 20;

fn shape(mapping: Mapping, lines: Lines) -> Shape {
    Shape { vcpus: VCPUS, memory: SMALL, mapping, lines }
}

fn up(design: Design, mapping: Mapping, lines: Lines) -> Measured {
    Ground::new(shape(mapping, lines)).unwrap().bring_up(design).unwrap()
}

#[test]
fn mayfly_flushes_what_each_vcpu_wrote_and_as_much_is_cleaned_as_under_any_rule() {
    for lines in [Lines::Real, Lines::Counted] {
        for (mapping, mapped) in [(Mapping::Pages, IN_PAGES), (Mapping::Blocks, IN_BLOCKS)] {
            let mayfly = up(Design::Mayfly, mapping, lines);
            assert_eq!(mayfly.boot.flushed, BOOT / 64);
            for secondary in &mayfly.secondaries {
                assert_eq!(secondary.flushed, SECONDARY / 64);
            }
            assert_eq!(mayfly.secondaries.len(), 4);
            let cleaned = mayfly.secondaries.iter().map(|piece| piece.cleaned).sum::<u64>();
            // What is touched in setting up is no part of it.
            assert_eq!(mayfly.boot.cleaned + cleaned, (mapped - (8 << 20)) / 64);
            assert_eq!(mayfly.lines.flushed, EARLY / 64);
            assert_eq!(mayfly.pages_flushed, EARLY / 4096);
            // A page that is mapped by its first write has its mark from the beginning.
            let mapped_by_blocks = if mapping == Mapping::Blocks { EARLY / 4096 - 1 } else { 0 };
            assert_eq!(mayfly.tracking_faults, mapped_by_blocks);
            for design in [Design::EveryVcpu, Design::Vcpu0Only, Design::FirstVcpu] {
                assert_eq!(up(design, mapping, lines).lines.cleaned, mapped / 64);
            }
            assert_eq!(mayfly.lines.cleaned, mapped / 64, "{mapping:?}");
            assert_eq!((mayfly.reads, mayfly.mismatches), (EARLY / 64, 0));
        }
    }
}

#[test]
fn the_older_rules_flush_all_that_is_mapped_for_whom_they_say() {
    let first = [BOOT, 2 << 20];
    for (mapping, first) in Mapping::ALL.into_iter().zip(first) {
        let every = up(Design::EveryVcpu, mapping, Lines::Counted);
        assert_eq!(every.boot.flushed, first / 64);
        // Of the other 8 MiB, a block is mapped when all are up.
        let flushed: Vec<u64> = every.secondaries.iter().map(|piece| piece.flushed).collect();
        assert!(
            flushed.iter().all(|flushed| (6 << 20..=8 << 20).contains(&(flushed * 64))),
            "{flushed:?}"
        );
        for design in [Design::Vcpu0Only, Design::FirstVcpu] {
            assert_eq!(up(design, mapping, Lines::Counted).lines.flushed, first / 64);
        }
        assert_eq!((every.pages_flushed, every.tracking_faults), (0, 0));
    }
}

#[test]
fn memory_is_mapped_by_and_by_and_all_of_it_in_the_end() {
    let at = |shape: Shape| (0..shape.vcpus).map(|up| shape.later_at(up) >> 20).collect::<Vec<_>>();
    let of = |vcpus, blocks| Shape {
        vcpus,
        memory: Size::blocks(blocks),
        ..shape(Mapping::Blocks, Lines::Counted)
    };
    assert_eq!(at(of(5, 6)), [6, 6, 6, 6, 8]);
    assert_eq!(at(of(5, 18)), [24, 26, 28, 30, 32]);
    assert_eq!((at(of(1, 18)), at(of(2, 2))), (vec![32], vec![0, 0]));
}

#[test]
fn each_line_that_a_vcpu_has_flushed_or_cleaned_on_its_way_up_is_in_the_modelled_time() {
    let line = cost::of_a_line().unwrap();
    let modelled = |flushed, cleaned| {
        let mut row = Row::default();
        let boot = Piece { time: Duration::ZERO, flushed, cleaned };
        row.note(Measured { boot, ..Measured::default() });
        let empty = ResultRow::new(NAME, Backend::Machine, "any");
        let shape = shape(Mapping::Pages, Lines::Counted);
        row.report(empty, Design::Vcpu0Only, shape, Some(line)).metrics[rows::MODELLED_BRING_UP].p50
    };
    let all = nanoseconds(line.times(3000));
    assert_eq!([modelled(3000, 0), modelled(0, 3000), modelled(1000, 2000)], [all; 3]);
}

#[test]
fn vcpus_that_write_more_than_there_is_are_refused() {
    let shape = Shape { vcpus: 256, memory: Size::UNIT, ..shape(Mapping::Pages, Lines::Counted) };
    let error = Ground::new(shape).err().unwrap().to_string();
    assert!(error.contains("256 vCPUs") && error.contains("2 MiB"), "{error}");
}

#[test]
fn the_proposals_read_stale_where_a_secondary_relies_on_its_own_writes_and_others_nowhere() {
    let designs =
        ["every-vcpu", "vcpu0-only", "first-vcpu", "mayfly"].map(|n| Design::of(n).unwrap());
    let rows = verdict::rows(&designs, &mut Silent).unwrap();
    for row in &rows {
        assert!(row.checks.iter().all(|check| check.ok), "{}: {:?}", row.variant, row.checks);
        assert_eq!(row.counters["scenarios"], Scenario::all().count() as u64);
        let own = row.findings.iter().find(|found| found.name == "stale_in_own-writes");
        let is_stale = ["vcpu0-only", "first-vcpu"].contains(&row.variant.as_str());
        assert_eq!(own.is_some(), is_stale, "{}", row.variant);
        if let Some(own) = own {
            let why = "a line in the cache hides what memory has";
            assert!(own.detail.contains("vCPU 1") && own.detail.contains(why), "{own:?}");
        }
    }
    let later = |row: &&ResultRow| {
        row.findings.iter().any(|found| found.name == "stale_in_vcpu-0-comes-later")
    };
    assert_eq!(rows.iter().filter(later).count(), 2);
}

#[test]
fn checks_fail_where_counts_are_off() {
    let (mapping, lines) = (Mapping::Pages, Lines::Counted);
    let failed = |design, up: Measured| {
        let mut row = Row::default();
        row.note(up);
        let empty = ResultRow::new(NAME, Backend::Machine, "any");
        let row = row.report(empty, design, shape(mapping, lines), None);
        row.checks.into_iter().filter(|c| !c.ok).map(|c| c.name).collect::<Vec<_>>()
    };
    let right = up(Design::Mayfly, mapping, lines);
    assert!(failed(Design::Mayfly, right.clone()).is_empty());
    let with = |change: fn(&mut Measured)| {
        let mut wrong = right.clone();
        change(&mut wrong);
        wrong
    };
    let exactly = ["exactly_what_was_written_is_flushed"];
    assert_eq!(failed(Design::Mayfly, with(|up| up.lines.flushed += 1)), exactly);
    assert_eq!(failed(Design::Mayfly, with(|up| up.pages_flushed -= 1)), exactly);
    let more = with(|up| up.lines.cleaned += 64);
    assert_eq!(failed(Design::Mayfly, more), ["mapped_once_cleaned_once"]);
    assert_eq!(failed(Design::Mayfly, with(|up| up.mismatches = 1)), ["guest_reads"]);
    assert_eq!(failed(Design::EveryVcpu, right), ["everything_flushed_for_every_vcpu"]);
    let stale = verdict::Verdict { scenarios: 3, reads: 9, stale: Vec::new() };
    let row = stale.report(ResultRow::new(NAME, Backend::Machine, "any"), Design::FirstVcpu);
    assert!(!row.checks[0].ok, "a rule that is known to be stale has to be seen to be");
    assert!(row.checks[0].detail.contains("; not in anothers-off, "), "{:?}", row.checks[0]);
}

#[test]
fn memory_on_kvm_is_as_the_machines_but_never_above_half_of_what_is_available() {
    let gib = |gibs: u64| Some(gibs << 30);
    assert_eq!(kvm::default_size(None), REAL);
    assert_eq!(kvm::default_size(gib(64)), REAL);
    assert_eq!(kvm::default_size(Some(256 << 20)).to_string(), "128 MiB");
    assert_eq!(kvm::default_size(Some(0)), Size::UNIT);
}

#[test]
fn vcpus_on_arm64s_kvm_read_what_they_wrote_before_their_caches_were_on() {
    if cfg!(not(target_arch = "aarch64")) || mayfly_kvm::Kvm::open().is_err() {
        return;
    }
    let (vcpus, memory) = (vec![3], vec![Size::blocks(2)]);
    let params = crate::params::Params { vcpus, memory, ..Default::default() };
    let request = Request {
        variants: &[&Variant::KERNEL],
        params: &params,
        host: &Host::default(),
        undo: &Undo::default(),
        pass: 0,
    };
    let rows = CacheEnable.run(&request, &mut Silent).unwrap();
    assert_eq!(rows.len(), Mapping::ALL.len());
    for row in rows.iter().filter(|row| row.skipped.is_none()) {
        assert_eq!(row.metrics[rows::SECONDARY].count, 2);
        assert_eq!(row.checks[0].detail, "68 reads, 0 wrong");
        assert!(row.checks[0].ok);
    }
}
