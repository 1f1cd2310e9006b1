//! The designs on the software machine, and what is to be said of them.

use mayfly_machine::Machine;
use mayfly_record::ResultRow;

use super::mayfly::Mayfly;
use super::metrics;
use super::names::{INITIALLY_SET, RING, WRITE_LOCKED, WRITE_PROTECT};
use super::rounds::{Measured, Shape, measure};
use crate::before::dirty_log::{Logging, TdpLog, WriteLocked};
use crate::before::tdp_mmu::Waiting;

/// Goes through a cycle of a VM of a variant, on a machine of its own.
pub(super) fn run(variant: &str, shape: Shape, has_clock: bool) -> anyhow::Result<Measured> {
    let waiting = if has_clock { Waiting::Spinning } else { Waiting::Asleep };
    let vcpus = shape.vcpus;
    match variant {
        WRITE_PROTECT => measure(shape, |machine, slot| {
            TdpLog::<false, false>::new(machine, slot, Logging::WriteProtect, vcpus, waiting)
        }),
        INITIALLY_SET => measure(shape, |machine, slot| {
            TdpLog::<true, true>::new(machine, slot, Logging::InitiallySet, vcpus, waiting)
        }),
        RING => measure(shape, |machine, slot| {
            TdpLog::<true, false>::new(machine, slot, Logging::Ring, vcpus, waiting)
        }),
        WRITE_LOCKED => {
            measure(shape, |machine, slot| WriteLocked::new(machine, slot, vcpus, waiting))
        }
        _ => measure(shape, |machine: &Machine, slot| Mayfly::new(machine, slot)),
    }
}

/// Fills a variant's row with what came of its VMs.
pub(super) fn row(row: ResultRow, vms: &[Measured], has_clock: bool) -> ResultRow {
    let sum = |of: fn(&Measured) -> u64| vms.iter().map(of).sum::<u64>();
    let (lost, compared) = (sum(|vm| vm.lost), sum(|vm| vm.compared));
    let leaked = sum(|vm| vm.leaked);
    let [before, after] =
        [0, 1].map(|index| vms.iter().map(|vm| vm.tables[index]).max().unwrap_or(0));
    metrics::report(row, vms, has_clock)
        .counter("pages_harvested", sum(|vm| vm.harvested))
        .counter("writes_stalled", sum(|vm| vm.stalls.len() as u64))
        .counter("tlb_invalidations", sum(|vm| vm.invalidations))
        .check(
            "no_write_lost",
            compared > 0 && lost == 0,
            format!("{lost} of {compared} pages were copied before their last write"),
        )
        .check(
            "blocks_again",
            after <= before,
            format!("{before} tables before the start, {after} after the stop"),
        )
        .check("tables_given_back", leaked == 0, format!("{leaked} frames were not"))
}
