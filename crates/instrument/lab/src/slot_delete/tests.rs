use std::io::{Write, stderr};
use std::sync::Arc;

use mayfly_machine::Machine;
use mayfly_record::Host;
use mayfly_vm::SlotZap;

use super::design::{Design, Left, Slot};
use super::guest::Guest;
use super::mayfly::Mayfly;
use super::rounds::{Measured, measure};
use super::watch::{Log, Watch};
use super::*;
use crate::alike::held_alike;
use crate::before::tdp_mmu::{Locking, TdpMmu, Waiting};
use crate::params::Params;
use crate::progress::Silent;
use crate::start::Start;
use crate::undo::Undo;
use crate::work::Threads;

const TINY: Shape = Shape { vcpus: 4, deletions: 2, has_clock: false, memory: Size::blocks(4) };

const ROUNDS: u32 = 3;

/// The rows of the machine for these parameters.
fn rows(params: &Params) -> Vec<ResultRow> {
    let variants: Vec<&'static Variant> = SlotDelete
        .variants()
        .iter()
        .filter(|variant| variant.backend == Backend::Machine)
        .collect();
    let host = Host { cpus: 3, ..Host::default() };
    let request =
        Request { variants: &variants, params, host: &host, undo: &Undo::default(), pass: 0 };
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
    let deletions = TINY.all_deletions();
    let design = TdpMmu::new(&machine, &watch, (locking, Waiting::Asleep), slot_zap, deletions);
    measure(design, &machine, &watch, TINY).unwrap()
}

fn mayfly(hindered: u32) -> Measured {
    let machine = Machine::new().unwrap();
    let watch = Arc::new(Watch::new(Arc::clone(machine.hardware()), TINY.vcpus));
    watch.hinder(hindered);
    let design = Mayfly::new(&machine, &watch, SlotZap::AllRoots).unwrap();
    measure(design, &machine, &watch, TINY).unwrap()
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
        assert_eq!(count(metrics::DELETE_CPU), Some(6));
        assert_eq!(row.metrics[metrics::DELETE_CPU].rounds, 3, "{}", row.variant);
        let cpu = |metric| row.metrics[metric].min;
        assert_eq!(count(metrics::DELETION_CPU), Some(3), "a sample a VM");
        assert!(cpu(metrics::DELETION_CPU) >= cpu(metrics::DELETE_CPU), "{}", row.variant);
        assert_eq!(count("cpu_vcpus"), Some(3));
        assert_eq!(count("cpu_reclaimer").is_some(), row.variant == Variant::BASELINE);
        assert_eq!(count(metrics::DELETE), None, "more vCPUs than processors");
        assert_eq!((count(metrics::UNTIL_FREED), count(metrics::PEAK_TABLES)), (Some(6), Some(6)));
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
            assert_eq!(count(metric), all_roots.then_some(36), "{} {metric}", row.variant);
        }
        assert_eq!(count(metrics::REFAULT_CPU), all_roots.then_some(36), "{}", row.variant);
        for check in &row.checks {
            // On a processor that others use as well, a slice may be long.
            assert!(check.ok || check.name == "slices_bounded", "{} {check:?}", row.variant);
        }
        let checks: Vec<_> = row.checks.iter().map(|check| check.name.as_str()).collect();
        assert!(checks.contains(&"reads_correct") && checks.contains(&"deleted_stays_deleted"));
        let is_mayfly = row.variant == Variant::BASELINE;
        assert_eq!(checks.contains(&"root_loads_wait_for_nobody"), is_mayfly);
        assert!(row.uncompared.contains(metrics::UNTIL_FREED), "more vCPUs than processors");
        assert!(!row.uncompared.contains(metrics::ROOT_LOAD_CPU));
    }
}

#[test]
fn with_a_processor_for_each_vcpu_times_are_compared() {
    let params = Params { vcpus: vec![1], zaps: vec![Zap::AllRoots], ..tiny() };
    for row in rows(&params) {
        assert!(row.uncompared.iter().eq([metrics::ZAP_SLICE]), "{:?}", row.uncompared);
        assert_eq!(row.metrics[metrics::DELETE].count, 6, "{}", row.variant);
        assert!(!row.metrics.contains_key(metrics::HELD_PARKED), "it is the only one");
    }
}

#[test]
fn every_variant_begins_each_deletion_with_all_memory_mapped() {
    let pages = (TINY.memory.bytes() + TINY.memory.bytes() / 4) >> 12;
    for vcpus in [1, 4] {
        for row in held_alike(&rows(&Params { vcpus: vec![vcpus], ..tiny() })) {
            assert!(row.checks.iter().any(|check| check.name == "begins_alike" && check.ok));
            assert_eq!(row.start.len(), if vcpus > 1 { 2 } else { 1 }, "{:?}", row.start);
            for state in row.start.values().flatten() {
                assert_eq!((state["pages"], state["slots"]), (pages, 2), "{}", row.variant);
                assert_eq!(state["vcpus"], u64::from(vcpus), "{}", row.variant);
                assert!(state["tables"] > 4, "{state:?}");
            }
        }
    }
}

/// A design that maps nothing beforehand: its deletions begin with what its guests have touched.
struct Unpopulated(TdpMmu);

impl Design for Unpopulated {
    type Vcpu = <TdpMmu as Design>::Vcpu;

    fn create_vcpu(&self) -> anyhow::Result<Self::Vcpu> {
        self.0.create_vcpu()
    }
    fn run(&self, vcpu: &mut Self::Vcpu, guest: &mut Guest) -> anyhow::Result<()> {
        self.0.run(vcpu, guest)
    }
    fn kick(&self, vcpu: u32) {
        self.0.kick(vcpu);
    }
    fn create_slot(&self, slot: &Slot) -> anyhow::Result<()> {
        self.0.create_slot(slot)
    }
    fn delete_slot(&self, slot: &Slot) -> anyhow::Result<()> {
        self.0.delete_slot(slot)
    }
    fn populate(&self, _: &Slot) -> anyhow::Result<()> {
        Ok(())
    }
    fn start(&self) -> Start {
        self.0.start()
    }
    fn threads(&self) -> Threads {
        self.0.threads()
    }
    fn left(&self) -> Left {
        self.0.left()
    }
    fn destroy(self) -> anyhow::Result<Log> {
        self.0.destroy()
    }
}

#[test]
fn a_design_whose_deletions_begin_with_less_is_refused() {
    let machine = Machine::new().unwrap();
    let watch = Arc::new(Watch::new(Arc::clone(machine.hardware()), TINY.vcpus));
    let how = (Locking::Read, Waiting::Asleep);
    let design = TdpMmu::new(&machine, &watch, how, SlotZap::AllRoots, TINY.all_deletions());
    let less = measure(Unpopulated(design), &machine, &watch, TINY).unwrap();
    let row = |name: &str, vm: Measured| {
        machine::row(ResultRow::new(NAME, Backend::Machine, name), name, &[vm])
    };
    let rows = [row(READ_LOCKED, less), row(Variant::BASELINE, mayfly(0))];
    let [refused, kept] = &held_alike(&rows)[..] else { panic!("there are two") };
    assert!(refused.metrics.is_empty() && refused.samples.is_empty() && !kept.metrics.is_empty());
    let why = refused.checks.iter().find(|check| check.name == "begins_alike").unwrap();
    assert!(!why.ok && why.detail.starts_with("refused: deletion began from "), "{why:?}");
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
fn a_vcpu_that_is_parked_holds_its_root_under_a_lock_and_nothing_of_mayflys() {
    for (measured, held) in [
        (locked(Locking::Write, SlotZap::AllRoots), 1),
        (locked(Locking::Read, SlotZap::AllRoots), 1),
        (mayfly(0), 0),
    ] {
        let [parked] = measured.parked[..] else { panic!("{:?}", measured.parked) };
        assert_eq!((parked.held, parked.until_freed.is_none()), (held, held > 0));
        assert!(measured.deleted.iter().all(|one| one.held == 0 && one.until_freed.is_some()));
        assert!(parked.most_tables > 0);
    }
}

#[test]
fn the_bound_of_slices_is_what_it_is_however_long_they_are() {
    let row = |slices: Vec<u64>| {
        let vm = Measured { slices, table: 10_000, ..Measured::default() };
        let row = ResultRow::new(NAME, Backend::Machine, Variant::BASELINE);
        machine::bounded(row, &[vm]).checks.remove(0)
    };
    assert!(row(vec![90_000; 200]).ok);
    let check = row(vec![91_000; 200]);
    assert!(!check.ok, "{check:?}");
    assert!(check.detail.contains("200 of 200 slices took more than 50.0 us"), "{check:?}");
    let mut interrupted = vec![40_000; 200];
    interrupted[..2].fill(1_000_000);
    assert!(row(interrupted.clone()).ok);
    interrupted[2] = 1_000_000;
    assert!(!row(interrupted).ok);
}

#[test]
fn what_is_invalidated_in_the_background_counts_with_its_deletion() {
    let deletions = u64::from(TINY.all_deletions());
    assert_eq!(mayfly(0).invalidations, deletions, "of each root that was replaced, once");
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
    if let Err(error) = mayfly_kvm::Kvm::open() {
        let _ = writeln!(stderr(), "not run: {error}");
        return;
    }
    for zap in Zap::ALL {
        if kvm::why_not(zap, TINY).unwrap().is_none() {
            let vms = [(); 2].map(|()| kvm::run(zap, TINY).unwrap());
            let row = ResultRow::new(NAME, Backend::Kvm, Variant::KERNEL.name);
            let ran = kvm::report(row, &vms);
            assert_eq!(
                (
                    ran.metrics[metrics::SPARSE_DELETE].count,
                    ran.metrics[metrics::SPARSE_DELETE].rounds
                ),
                (4, 2)
            );
            assert!(ran.checks.iter().all(|check| check.ok), "{:?}", ran.checks);
        }
    }
    let many = Shape { vcpus: 17, ..TINY };
    assert!(kvm::why_not(Zap::AllRoots, many).unwrap().is_some());
}
