use std::io::{Write, stderr};

use super::design::{Design, Dirty};
use super::rounds::measure;
use super::*;
use crate::before::dirty_log::{Logging, TdpLog};
use crate::before::tdp_mmu::Waiting;
use crate::params::Params;
use crate::progress::Silent;
use crate::start::Mapped;
use crate::undo::Undo;

const TINY: Shape = Shape { vcpus: 3, memory: Size::blocks(4), written: 10, seed: 1 };

fn rows(params: &Params) -> Vec<ResultRow> {
    let variants: Vec<&'static Variant> =
        DirtyLog.variants().iter().filter(|one| one.backend == Backend::Machine).collect();
    let host = Host { cpus: 3, ..Host::default() };
    let request =
        Request { variants: &variants, params, host: &host, undo: &Undo::default(), pass: 0 };
    DirtyLog.run(&request, &mut Silent).unwrap()
}

#[test]
fn every_variant_gives_a_row_with_its_metrics_and_no_write_is_lost() {
    let params = Params {
        vcpus: vec![TINY.vcpus],
        rounds: Some(2),
        memory: vec![TINY.memory],
        written: vec![1, 100],
        ..Params::default()
    };
    let rows = rows(&params);
    assert_eq!(rows.len(), 2 * 5);
    for row in rows {
        let written = row.params[Bound::WRITTEN.name].as_u64().unwrap();
        let count = |name| row.metrics.get(name).map(|summary| summary.count);
        let is_set = row.variant == INITIALLY_SET;
        let harvests = if is_set { 6 } else { 4 };
        let clears = (is_set || row.variant == RING).then_some(harvests);
        assert_eq!((count(metrics::CYCLE_CPU), count(metrics::START_CPU)), (Some(2), Some(2)));
        assert_eq!(
            (count(metrics::HARVEST_CPU), count(metrics::CLEAR_CPU)),
            (Some(harvests), clears)
        );
        assert_eq!((count(metrics::STOP_CPU), count(metrics::STALL_LONGEST)), (Some(2), Some(2)));
        assert_eq!(count(metrics::HARVEST), None, "more vCPUs than processors");
        // Each page that is written is in each harvest, at least once.
        let pages = TINY.memory.bytes() / 4096 * written / 100;
        assert!(row.counters["pages_harvested"] >= 4 * pages, "{}", row.variant);
        assert!(row.counters["writes_stalled"] >= pages, "{}", row.variant);
        assert!(row.checks.iter().all(|check| check.ok), "{} {:?}", row.variant, row.checks);
        assert_eq!(row.checks.len(), 3);
    }
}

#[test]
fn with_a_processor_for_each_vcpu_calls_are_timed_on_the_clock() {
    let params = Params {
        vcpus: vec![1],
        rounds: Some(1),
        memory: vec![TINY.memory],
        written: vec![1],
        ..Params::default()
    };
    for row in rows(&params) {
        for metric in [metrics::START, metrics::HARVEST, metrics::STOP] {
            assert!(row.metrics.contains_key(metric), "{} {metric}", row.variant);
        }
    }
}

#[test]
fn kvm_goes_through_the_same_cycle_where_there_is_one() {
    if let Err(error) = mayfly_kvm::Kvm::open() {
        let _ = writeln!(stderr(), "not run: {error}");
        return;
    }
    for variant in DirtyLog.variants().iter().filter(|one| one.backend == Backend::Kvm) {
        for shape in [TINY, Shape { written: 100, vcpus: 1, ..TINY }] {
            if kvm::why_not(variant.name, shape).unwrap().is_some() {
                continue;
            }
            let vms = [(); 2].map(|()| kvm::run(variant.name, shape).unwrap());
            let row = ResultRow::new(NAME, Backend::Kvm, variant.name);
            let row = kvm::row(row, &vms, false, &Host::default());
            let count = |name| row.metrics.get(name).map(|summary| summary.count);
            assert_eq!((count(metrics::START_CPU), count(metrics::CYCLE_CPU)), (Some(2), Some(2)));
            assert_eq!(count(metrics::LONGEST_PASS), Some(2 * u64::from(shape.vcpus)));
            assert_eq!(count(metrics::STALLED), None, "it cannot be seen");
            assert!(row.checks.iter().all(|check| check.ok), "{} {:?}", variant.name, row.checks);
            assert!(row.counters["pages_harvested"] > 0);
        }
    }
    let many = Shape { vcpus: 17, ..TINY };
    assert!(kvm::why_not(Variant::KERNEL.name, many).unwrap().unwrap().contains("16 vCPUs"));
    let large = Shape { memory: "8GiB".parse().unwrap(), ..TINY };
    assert!(kvm::why_not(Variant::KERNEL.name, large).unwrap().is_some());
}

#[test]
fn a_row_of_kvm_says_which_mmu_it_shows() {
    let mmu = |arch: &str, kvm_tdp_mmu| {
        kvm::mmu(&Host { arch: arch.to_owned(), kvm_tdp_mmu, ..Host::default() })
    };
    assert_eq!(mmu("x86_64", Some(true)), "x86's TDP MMU");
    assert!(mmu("x86_64", Some(false)).contains("shadow paging"));
    assert!(mmu("x86_64", None).contains("does not tell"));
    assert_eq!(mmu("aarch64", None), "stage 2");
}

/// A log that forgets a page: one that was marked when it was harvested.
struct Forgetful(TdpLog<false, false>);

impl Design for Forgetful {
    type Vcpu = usize;

    const CLEARS: bool = false;

    fn create_vcpu(&self) -> anyhow::Result<usize> {
        self.0.create_vcpu()
    }

    fn run(&self, vcpu: &mut usize, guest: &mut guest::Guest) -> anyhow::Result<()> {
        self.0.run(vcpu, guest)
    }

    fn start(&self) -> anyhow::Result<()> {
        self.0.start()
    }

    fn harvest(&self, dirty: &mut Dirty) -> anyhow::Result<()> {
        self.0.harvest(dirty)?;
        let word = dirty.words.iter_mut().find(|word| **word != 0).unwrap();
        *word &= *word - 1;
        Ok(())
    }

    fn stop(&self) -> anyhow::Result<()> {
        self.0.stop()
    }

    fn mapped(&self) -> Mapped {
        self.0.mapped()
    }

    fn destroy(self) -> anyhow::Result<()> {
        self.0.destroy()
    }
}

#[test]
fn a_page_that_a_harvest_leaves_out_is_found_missing() {
    let measured = measure(TINY, |machine, slot| {
        let (logging, waiting) = (Logging::WriteProtect, Waiting::Asleep);
        Ok(Forgetful(TdpLog::new(machine, slot, logging, TINY.vcpus, waiting)?))
    })
    .unwrap();
    assert_eq!(measured.lost, 1);
    let row = machine::row(ResultRow::new(NAME, Backend::Machine, "any"), &[measured], false);
    assert_eq!(row.checks.iter().map(|check| check.ok).collect::<Vec<_>>(), [false, true, true]);
}

#[test]
fn what_is_written_is_spread_over_all_of_the_memory() {
    for written in [1, 10, 100] {
        let shape = Shape { written, memory: Size::blocks(128), ..TINY };
        let mut pages = shape.pages();
        assert!(!pages.is_sorted(), "one after the other would be a pattern");
        pages.sort_unstable();
        pages.dedup();
        assert_eq!(pages.len() as u64, 65_536 * u64::from(written) / 100);
        let mut blocks: Vec<u64> = pages.iter().map(|page| page / 512).collect();
        blocks.dedup();
        assert_eq!(blocks.len(), 128);
    }
    let few = Shape { written: 1, memory: Size::UNIT, vcpus: 16, ..TINY };
    assert_eq!(few.pages().len(), 16, "one for each vCPU");
}
