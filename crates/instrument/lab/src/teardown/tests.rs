use std::time::Duration;

use mayfly_machine::address_space::Backing;
use mayfly_stage2::Role;

use super::machine::TableFormat;
use super::*;
use crate::before::teardown::PageCounts;
use crate::before::unmap::Tables;

const SMALL: Size = Size::blocks(24);
const PAGES: u64 = SMALL.bytes() / 4096;

fn ground(sample: Size) -> Ground {
    Ground::new(SMALL, sample.bytes()).unwrap()
}

fn leaves(mapping: Mapping) -> u64 {
    PAGES / mapping.level().pages()
}

#[test]
fn a_vm_is_mapped_throughout_in_leaves_of_the_mapping_by_faults_and_without() {
    let mut ground = ground(SMALL);
    for (mapping, tables) in [(Mapping::Pages, 3 + 24), (Mapping::Blocks, 3)] {
        let built = ground.build(SMALL, mapping).unwrap();
        assert_eq!(ground.tables(&built).leaves::<TableFormat>(), (leaves(mapping), PAGES));
        assert_eq!(built.counts.tables, tables, "{mapping:?}");
        assert_eq!((built.counts.roots, built.counts.leaves), (1, leaves(mapping)));
        assert_eq!((built.counts.reads, built.counts.mismatches), (4096, 0));
        ground.tear_down(built, Design::Mayfly).unwrap();
    }
}

#[test]
fn page_by_page_every_leaf_is_invalidated_and_every_line_cleaned() {
    let mut ground = ground(SMALL);
    for mapping in Mapping::ALL {
        let built = ground.build(SMALL, mapping).unwrap();
        let torn = ground.tear_down(built, Design::PerPage).unwrap();
        assert_eq!((torn.by_ipa, torn.by_vmid), (leaves(mapping), 1));
        assert_eq!(torn.lines, PAGES * 64);
        assert!(torn.reclaimed >= torn.returned);
        assert!(torn.walked.unwrap() + torn.cleaned <= torn.returned && !torn.cleaned.is_zero());
    }
}

#[test]
fn where_a_part_is_cleaned_the_rest_is_modelled() {
    let sample = Size::blocks(2);
    let mut ground = ground(sample);
    for mapping in Mapping::ALL {
        let built = ground.build(SMALL, mapping).unwrap();
        let torn = ground.tear_down(built, Design::PerPage).unwrap();
        assert_eq!((torn.by_ipa, torn.by_vmid), (leaves(mapping), 1));
        assert_eq!(torn.lines, sample.bytes() / 64);
        let mut row = Row::default();
        let (counts, cleaned) = (machine::Counts::default(), torn.cleaned);
        row.note(counts, torn, 12.0);
        let empty = ResultRow::new(NAME, Backend::Machine, "per-page");
        let row = row.report(empty, Design::PerPage, mapping, sample);
        let p50 = |metric| row.metrics[metric].p50;
        let cleaned = u64::try_from(cleaned.as_nanos()).unwrap();
        assert_eq!(p50("clean"), cleaned);
        assert!(
            p50("modelled_clean").abs_diff(cleaned * 12) <= 12,
            "24 MiB, of which 2 were cleaned"
        );
        assert!(p50("modelled_destroy") >= p50("modelled_clean") + p50("walk"));
        assert!(!row.metrics.contains_key("destroy"), "all of it was not cleaned");
    }
}

#[test]
fn arm64_leaves_every_entry_and_gives_up_one_reference_for_each() {
    let mut ground = ground(SMALL);
    for mapping in Mapping::ALL {
        let built = ground.build(SMALL, mapping).unwrap();
        let tables = ground.tables(&built);
        tables.count_entries::<TableFormat>();
        // The root has one entry, or as many as its 512 GiB are.
        assert_eq!(tables.arena.references(tables.top), 2);
        tables.put_entries::<TableFormat>(|| ());
        assert_eq!(tables.arena.references(tables.top), 1);
        assert_eq!(tables.leaves::<TableFormat>(), (leaves(mapping), PAGES));
        let torn = ground.tear_down(built, Design::Arm64).unwrap();
        assert_eq!((torn.by_ipa, torn.by_vmid, torn.lines), (0, 1, 0));
        assert!(torn.walked.is_some());
    }
}

#[test]
fn x86s_tdp_mmu_clears_every_leaf_and_counts_it_by_its_size() {
    let mut ground = ground(SMALL);
    for (mapping, expected) in [(Mapping::Pages, [PAGES, 0]), (Mapping::Blocks, [0, PAGES / 512])] {
        let built = ground.build(SMALL, mapping).unwrap();
        let pages = PageCounts::default();
        ground.tables(&built).zap_all::<TableFormat>(&pages);
        let counted = pages.map(|count| count.into_inner().unsigned_abs());
        assert_eq!(counted, [expected[0], expected[1], 0, 0]);
        assert_eq!(ground.tables(&built).leaves::<TableFormat>(), (0, 0));
        let torn = ground.tear_down(built, Design::TdpMmu).unwrap();
        assert_eq!((torn.by_ipa, torn.by_vmid, torn.lines), (0, 1, 0));
    }
}

#[test]
fn a_reclaimer_that_may_preempt_is_scheduled_as_before_afterwards() {
    let mut ground = ground(SMALL);
    let thread = ground.machine.reclaimer_thread().as_raw_nonzero().get();
    // SAFETY: takes no memory.
    let policy = || unsafe { libc::sched_getscheduler(thread) };
    let before = policy();
    let built = ground.build(SMALL, Mapping::Blocks).unwrap();
    let torn = ground.tear_down(built, Design::Preempting).unwrap();
    assert_eq!((torn.by_ipa, torn.by_vmid, torn.walked), (0, 1, None));
    assert_eq!(policy(), before);
    assert_eq!(before, libc::SCHED_BATCH);
}

#[test]
fn elided_clears_every_leaf_with_one_invalidation_and_returns_with_all_tables_free() {
    let mut ground = ground(SMALL);
    let built = ground.build(SMALL, Mapping::Pages).unwrap();
    let tables = ground.tables(&built);
    let mut cleared = 0;
    tables.unmap::<TableFormat>(|_, level, _| cleared += level.pages());
    assert_eq!((cleared, tables.leaves::<TableFormat>()), (PAGES, (0, 0)));
    let torn = ground.tear_down(built, Design::Elided).unwrap();
    assert_eq!((torn.by_ipa, torn.by_vmid, torn.lines, torn.cleaned), (0, 1, 0, Duration::ZERO));
}

#[test]
fn mayfly_returns_with_every_leaf_in_place_and_frees_what_nobody_refers_to() {
    let mut ground = ground(SMALL);
    for mapping in Mapping::ALL {
        let built = ground.build(SMALL, mapping).unwrap();
        let root = built.root(Role::MAIN).unwrap();
        let arena = std::sync::Arc::clone(ground.machine.hardware().arena());
        let in_use = arena.in_use();
        let asked = ground.machine.hardware().tlbs().counts();
        built.destroy();
        // The tables are waited for by nobody: they cannot be freed before this reference goes.
        let tables = Tables { arena: &arena, top: root.top() };
        assert_eq!(tables.leaves::<TableFormat>(), (leaves(mapping), PAGES));
        assert_eq!(arena.in_use(), in_use);
        assert_eq!(ground.machine.hardware().tlbs().counts(), asked);
        drop(root);
        ground.wait_at_rest().unwrap();
        assert_eq!(ground.machine.hardware().tlbs().counts().vmids, asked.vmids + 1);
    }
}

#[test]
fn the_reclaimers_thread_is_woken_for_many_tables_and_not_for_few() {
    // 200 of them in pages, and one for each GiB in blocks.
    let size = Size::blocks(200);
    let mut ground = Ground::new(size, 0).unwrap();
    for (mapping, is_woken) in [(Mapping::Pages, true), (Mapping::Blocks, false)] {
        for design in [Design::Mayfly, Design::Preempting] {
            let built = ground.build(size, mapping).unwrap();
            assert_eq!(built.counts.tables > 128, is_woken);
            let turns = ground.machine.reclaimer().turns();
            let torn = ground.tear_down(built, design).unwrap();
            assert_eq!((torn.by_vmid, torn.lines), (1, 0));
            if is_woken {
                // Unless it had freed all of it before anybody looked.
                assert!(torn.woken.is_none_or(|woken| woken <= torn.reclaimed));
                assert!(ground.machine.reclaimer().turns() > turns);
            } else {
                assert_eq!(torn.woken, None);
            }
        }
    }
}

#[test]
fn only_a_page_that_leaves_by_a_device_past_the_caches_is_cleaned() {
    let ground = ground(SMALL);
    let expected = maintenance::Cleaned { swap_out: 64, ..Default::default() };
    for mapping in Mapping::ALL {
        assert_eq!(maintenance::observe(&ground.machine, mapping).unwrap(), expected);
    }
    let memory = ground.machine.map_backed(4096, Backing::Pages).unwrap();
    assert!(!ground.machine.space().reclaim(memory.hva()), "nothing is there yet");
}

#[test]
fn checks_fail_where_counts_are_off() {
    let counts = machine::Counts { roots: 1, tables: 2, leaves: 512, reads: 1, mismatches: 0 };
    let right = machine::Torn { by_vmid: 1, ..Default::default() };
    let failed = |design, counts, torn| {
        let mut measured = Row::default();
        measured.note(counts, torn, 1.0);
        let empty = ResultRow::new(NAME, Backend::Machine, "any");
        let row = measured.report(empty, design, Mapping::Pages, SMALL);
        let failed = row.checks.into_iter().filter(|check| !check.ok).map(|check| check.name);
        failed.collect::<Vec<_>>()
    };
    assert!(failed(Design::Mayfly, counts, right.clone()).is_empty());
    let twice = machine::Torn { by_vmid: 2, ..right.clone() };
    assert_eq!(failed(Design::Elided, counts, twice), ["tlb_invalidations"]);
    let by_ipa = machine::Torn { by_ipa: 1, ..right.clone() };
    assert_eq!(failed(Design::Mayfly, counts, by_ipa), ["tlb_invalidations"]);
    let cleaned = machine::Torn { lines: 64, ..right.clone() };
    assert_eq!(failed(Design::Mayfly, counts, cleaned), ["no_line_cleaned"]);
    let missed = machine::Torn { by_ipa: 512, lines: 512 * 64 - 1, ..right.clone() };
    assert_eq!(failed(Design::PerPage, counts, missed), ["all_lines_cleaned"]);
    let stale = machine::Counts { mismatches: 1, ..counts };
    assert_eq!(failed(Design::Mayfly, stale, right), ["guest_reads"]);
    let cleaned = maintenance::Cleaned { swap_out: 63, coherent_swap_out: 1, block_over_table: 1 };
    let row = ResultRow::new(NAME, Backend::Machine, "any");
    assert!(rows::report_maintenance(row, cleaned).checks.iter().all(|check| !check.ok));
}
