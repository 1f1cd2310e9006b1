//! What a row says of VMs that came up.

use std::iter;

use mayfly_machine::LINE;
use mayfly_platform::address::PAGE_SIZE;
use mayfly_record::{ResultRow, Samples, Unit, nanoseconds, units};

use super::bring_up::{Measured, Piece, Shape};
use super::cost::LineCost;
use super::design::Design;
use crate::start::Starts;
use crate::work;

/// What begins from what a VM has, in records.
pub(super) const BEGINS: &str = "the first vCPU";

pub(super) const BRING_UP: &str = "bring_up";
pub(super) const SECONDARY: &str = "secondary";
pub(super) const MODELLED_BRING_UP: &str = "modelled_bring_up";
pub(super) const MODELLED_SECONDARY: &str = "modelled_secondary";
pub(super) const SET_UP: &str = "set_up";
pub(super) const LINES_FLUSHED: &str = "lines_flushed";

/// The VMs of one variant.
#[derive(Default)]
pub(super) struct Row {
    ups: Vec<Measured>,
}

impl Row {
    /// Adds a VM.
    pub(super) fn note(&mut self, up: Measured) {
        self.ups.push(up);
    }

    /// Adds all of it to `row`; with what a line takes, where lines were but counted.
    pub(super) fn report(
        &self,
        row: ResultRow,
        design: Design,
        shape: Shape,
        line: Option<LineCost>,
    ) -> ResultRow {
        let mut starts = Starts::default();
        self.ups.iter().for_each(|up| starts.note(BEGINS, up.start));
        let row = work::report(starts.report(row), self.ups.iter().map(|up| &up.spent));
        let row = self.checked(self.timed(row, line), design, shape);
        let Some(line) = line else { return row };
        row.counter("modelled_ps_a_line", nanoseconds(line.times(1000)))
    }

    fn timed(&self, row: ResultRow, line: Option<LineCost>) -> ResultRow {
        let (mut bring_up, mut secondary, mut set_up) = <(Samples, Samples, Samples)>::default();
        for up in &self.ups {
            let time = |piece: &Piece| {
                let lines = piece.flushed + piece.cleaned;
                piece.time + line.map(|line| line.times(lines)).unwrap_or_default()
            };
            bring_up.record(iter::once(&up.boot).chain(&up.secondaries).map(time).sum());
            up.secondaries.iter().map(time).for_each(|time| secondary.record(time));
            set_up.record(up.set_up);
            for samples in [&mut bring_up, &mut secondary, &mut set_up] {
                samples.end_round();
            }
        }
        if line.is_some() {
            row.metric(MODELLED_BRING_UP, &bring_up).metric(MODELLED_SECONDARY, &secondary)
        } else {
            row.metric(BRING_UP, &bring_up)
                .metric(SECONDARY, &secondary)
                .metric(SET_UP, &set_up)
                .uncompared(SET_UP)
        }
    }

    fn checked(&self, row: ResultRow, design: Design, shape: Shape) -> ResultRow {
        let sum = |of: fn(&Measured) -> u64| self.ups.iter().map(of).sum::<u64>();
        let vms = self.ups.len() as u64;
        let (flushed, cleaned) = (sum(|up| up.lines.flushed), sum(|up| up.lines.cleaned));
        let (reads, mismatches) = (sum(|up| up.reads), sum(|up| up.mismatches));
        let each = self.ups.iter().map(|up| [up.lines.flushed]);
        let flushed_each = Samples::by_round(Unit::Count, each);
        let row = row
            .counter("lines_cleaned_on_map", cleaned)
            .metric(LINES_FLUSHED, &flushed_each)
            .counter("pages_flushed", flushed * LINE / PAGE_SIZE)
            .counter("tracking_faults", sum(|up| up.tracking_faults))
            .check(
                "guest_reads",
                reads == vms * shape.written() / LINE && mismatches == 0,
                format!("{reads} reads, {mismatches} wrong"),
            );
        let mapped = vms * shape.mapped() / LINE;
        let row = row.check(
            "mapped_once_cleaned_once",
            cleaned == mapped,
            format!("{cleaned} lines of {mapped} that were mapped"),
        );
        match design {
            Design::EveryVcpu => {
                let times = units::ratio(flushed as f64 / mapped as f64);
                let vcpus = u64::from(shape.vcpus);
                // When the first turns its caches on, little is mapped yet.
                let at_each = (1..shape.vcpus).map(|number| shape.later_at(number - 1));
                let least = at_each.sum::<u64>() * vms / LINE;
                row.check(
                    "everything_flushed_for_every_vcpu",
                    (least..=vcpus * mapped).contains(&flushed),
                    format!("{times} of all that is mapped, for {vcpus} vCPUs"),
                )
            }
            Design::Vcpu0Only | Design::FirstVcpu => row,
            Design::Mayfly => {
                let written = vms * shape.written() / LINE;
                row.check(
                    "exactly_what_was_written_is_flushed",
                    flushed == written && sum(|up| up.pages_flushed) == written * LINE / PAGE_SIZE,
                    format!("{flushed} lines flushed, {written} written"),
                )
            }
        }
    }
}
