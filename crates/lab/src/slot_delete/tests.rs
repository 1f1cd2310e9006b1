use std::sync::Arc;

use mayfly_machine::Machine;
use mayfly_record::Host;
use mayfly_vm::SlotZap;

use super::mayfly::Mayfly;
use super::rounds::{Measured, measure};
use super::watch::Watch;
use super::*;
use crate::before::tdp_mmu::{Locking, TdpMmu};
use crate::params::Params;
use crate::progress::Silent;
use crate::undo::Undo;

const TINY: Shape = Shape { vcpus: 4, deletions: 2, memory: Size::blocks(4) };

const ROUNDS: u32 = 3;

/// The rows of the machine for these parameters.
fn rows(params: &Params) -> Vec<ResultRow> {
    let variants: Vec<&'static Variant> = SlotDelete
        .variants()
        .iter()
        .filter(|variant| variant.backend == Backend::Machine)
        .collect();
    let host = Host { cpus: 3, ..Host::default() };
    let request = Request { variants: &variants, params, host: &host, undo: &Undo::default() };
    SlotDelete.run(&request, &mut Silent).unwrap()
}

/// As [`TINY`].
fn tiny() -> Params {
    Params {
        vcpus: vec![TINY.vcpus],
        rounds: Some(ROUNDS),
        memory: vec![TINY.memory],
        ..Params::default()
    }
}

fn locked(locking: Locking, slot_zap: SlotZap) -> Measured {
    let machine = Machine::new().unwrap();
    let watch = Arc::new(Watch::new(Arc::clone(machine.hardware()), TINY.vcpus));
    let design = TdpMmu::new(&machine, &watch, locking, slot_zap, TINY.deletions);
    measure(design, &machine, TINY).unwrap()
}

fn mayfly(hindered: u32) -> Measured {
    let machine = Machine::new().unwrap();
    let watch = Arc::new(Watch::new(Arc::clone(machine.hardware()), TINY.vcpus));
    watch.hinder(hindered);
    let design = Mayfly::new(&machine, &watch, SlotZap::AllRoots).unwrap();
    measure(design, &machine, TINY).unwrap()
}

#[test]
fn every_variant_gives_a_row_for_each_way_to_zap_with_its_metrics_and_checks() {
    let rows = rows(&tiny());
    let names: Vec<_> = rows
        .iter()
        .map(|row| (row.variant.as_str(), row.params["zap"].as_str().unwrap()))
        .collect();
    let expected: Vec<_> = ["all-roots", "range"]
        .into_iter()
        .flat_map(|zap| [WRITE_LOCKED, READ_LOCKED, Variant::BASELINE].map(|name| (name, zap)))
        .collect();
    assert_eq!(names, expected);
    for row in rows {
        let all_roots = row.params["zap"] == "all-roots";
        let count = |metric| row.metrics.get(metric).map(|summary| summary.count);
        assert_eq!(count(metrics::DELETE), Some(6));
        assert_eq!(row.metrics[metrics::DELETE].rounds, 3, "{}", row.variant);
        assert_eq!(count(metrics::CREATE), Some(6));
        assert_eq!(count(metrics::GUEST_STALL), Some(24));
        assert!(count(metrics::ZAP_SLICE).is_some());
        // Each vCPU loads its root once a deletion, if all are invalidated; each metric of it has as many.
        let loads = [
            metrics::ROOT_LOAD,
            metrics::ROOT_LOAD_WAIT,
            metrics::ROOT_LOAD_AHEAD,
            metrics::ROOT_LOAD_CPU,
        ];
        for metric in loads {
            assert_eq!(count(metric), all_roots.then_some(24), "{} {metric}", row.variant);
        }
        for check in &row.checks {
            // On a processor that others use as well, a slice may be long.
            assert!(check.ok || check.name == "slices_bounded", "{} {check:?}", row.variant);
        }
        let checks: Vec<_> = row.checks.iter().map(|check| check.name.as_str()).collect();
        assert!(checks.contains(&"reads_correct") && checks.contains(&"deleted_stays_deleted"));
        let is_mayfly = row.variant == Variant::BASELINE;
        assert_eq!(checks.contains(&"root_loads_wait_for_nobody"), is_mayfly);
        assert!(row.uncompared.contains(metrics::DELETE), "more vCPUs than processors");
        assert!(!row.uncompared.contains(metrics::ROOT_LOAD_CPU));
    }
}

#[test]
fn with_a_processor_for_each_vcpu_times_are_compared() {
    let params = Params { vcpus: vec![1], zaps: vec![Zap::AllRoots], ..tiny() };
    for row in rows(&params) {
        assert!(row.uncompared.iter().eq([metrics::ZAP_SLICE]), "{:?}", row.uncompared);
    }
}

#[test]
fn a_wait_on_the_way_to_a_root_is_caught() {
    let row = || ResultRow::new(NAME, Backend::Machine, Variant::BASELINE);
    for (hindered, ok) in [(0, true), (1, false)] {
        let measured = mayfly(hindered);
        let waits: u64 = measured.loads.iter().map(|load| load.waits).sum();
        assert_eq!(waits, u64::from(hindered));
        assert_eq!(measured.loads.iter().map(|load| load.ahead).sum::<u64>(), u64::from(hindered));
        assert_eq!(machine::unhindered(row(), &[measured]).checks[0].ok, ok);
    }
}

#[test]
fn what_is_invalidated_in_the_background_counts_with_its_deletion() {
    let rounds = u64::from(TINY.deletions);
    assert_eq!(mayfly(0).invalidations, rounds, "of each root that was replaced, once");
}

#[test]
fn roots_under_a_lock_serve_guests_that_run_meanwhile() {
    for locking in [Locking::Write, Locking::Read] {
        for zap in [SlotZap::AllRoots, SlotZap::Range] {
            let measured = locked(locking, zap);
            assert_eq!((measured.mismatches, measured.late_writes, measured.leaked), (0, 0, 0));
            assert_eq!(measured.most_roots, 1, "{locking:?} {zap:?}");
            assert!(measured.reads > 0);
            let invalidates = zap == SlotZap::Range;
            assert_eq!(measured.invalidations > 0, invalidates, "{locking:?} {zap:?}");
        }
    }
}

#[test]
fn kvm_runs_the_same_rounds_where_there_is_one() {
    if cfg!(not(target_arch = "x86_64")) || mayfly_kvm::Kvm::open().is_err() {
        return;
    }
    for zap in Zap::ALL {
        if kvm::why_not(zap, TINY).unwrap().is_none() {
            let vms = [(); 2].map(|()| kvm::run(zap, TINY).unwrap());
            let row = ResultRow::new(NAME, Backend::Kvm, Variant::KERNEL.name);
            let ran = kvm::report(row, &vms);
            assert_eq!(
                (ran.metrics[metrics::DELETE].count, ran.metrics[metrics::DELETE].rounds),
                (4, 2)
            );
            assert!(ran.checks.iter().all(|check| check.ok), "{:?}", ran.checks);
        }
    }
    let many = Shape { vcpus: 17, ..TINY };
    assert!(kvm::why_not(Zap::AllRoots, many).unwrap().is_some());
}
