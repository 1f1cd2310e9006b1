//! What a row says.

use std::time::Duration;

use mayfly_record::{ResultRow, Samples, units};
use mayfly_stage2::Format;

use crate::mapping::Mapping;
use crate::params::Size;
use crate::start::{Start, Starts};
use crate::work::{self, Spent};

use super::machine::{Counts, Design, TableFormat, Torn};
use super::maintenance::{Cleaned, LINES};

/// What begins from what a VM has, in records.
pub(super) const END: &str = "the VM's end";

/// What was measured and counted of one variant.
#[derive(Default)]
pub(super) struct Row {
    starts: Starts,
    destroy: Samples,
    modelled_destroy: Samples,
    walk: Samples,
    clean: Samples,
    modelled_clean: Samples,
    woken: Samples,
    reclaimed: Samples,
    had: Counts,
    by_ipa: u64,
    by_vmid: u64,
    lines: u64,
    /// On all of those lines.
    cleaning: Duration,
    spent: Vec<Spent>,
}

impl Row {
    /// Notes what a VM had when its end began.
    pub(super) fn began(&mut self, start: Start) {
        self.starts.note(END, start);
    }

    /// Adds a VM, which had `counts` and is so many times what was cleaned of it. Where that is more than once, what the
    /// cleaning of all of it would have taken is modelled: so much a line.
    pub(super) fn note(&mut self, counts: Counts, torn: Torn, times: f64) {
        let model = torn.lines > 0 && times > 1.0;
        let clean = torn.cleaned.mul_f64(times);
        if model {
            self.modelled_destroy.record(torn.returned.saturating_sub(torn.cleaned) + clean);
            self.modelled_clean.record(clean);
        } else {
            self.destroy.record(torn.returned);
            self.reclaimed.record(torn.reclaimed);
        }
        if torn.lines > 0 {
            self.clean.record(torn.cleaned);
        }
        torn.walked.into_iter().for_each(|walked| self.walk.record(walked));
        torn.woken.into_iter().for_each(|woken| self.woken.record(woken));
        self.cleaning += torn.cleaned;
        for samples in [
            &mut self.destroy,
            &mut self.modelled_destroy,
            &mut self.walk,
            &mut self.clean,
            &mut self.modelled_clean,
            &mut self.woken,
            &mut self.reclaimed,
        ] {
            samples.end_round();
        }
        self.had += counts;
        self.by_ipa += torn.by_ipa;
        self.by_vmid += torn.by_vmid;
        self.lines += torn.lines;
        self.spent.push(torn.spent);
    }

    /// Adds all of it to `row`; `per-page` has cleaned `sample` at most.
    pub(super) fn report(
        self,
        row: ResultRow,
        design: Design,
        mapping: Mapping,
        sample: Size,
    ) -> ResultRow {
        let Self { had, by_ipa, by_vmid, lines, cleaning, .. } = self;
        let row = work::report(self.starts.report(row), &self.spent)
            .param("format", TableFormat::NAME)
            .param("sample", sample.bytes())
            .metric("destroy", &self.destroy)
            .metric("modelled_destroy", &self.modelled_destroy)
            .metric("walk", &self.walk)
            .metric("clean", &self.clean)
            .metric("modelled_clean", &self.modelled_clean)
            .metric("woken", &self.woken)
            .metric("reclaimed", &self.reclaimed)
            .counter("tables_freed", had.tables)
            .counter("tlbi_ipa", by_ipa)
            .counter("tlbi_vmid", by_vmid)
            .counter("lines_cleaned", lines)
            .check(
                "guest_reads",
                had.reads > 0 && had.mismatches == 0,
                format!("{} reads, {} wrong", had.reads, had.mismatches),
            )
            .check(
                "tlb_invalidations",
                by_vmid == had.roots
                    && by_ipa == if design == Design::PerPage { had.leaves } else { 0 },
                format!(
                    "{by_vmid} by VMID for {} roots, {by_ipa} by address for {} leaves",
                    had.roots, had.leaves
                ),
            );
        let all = had.leaves * mapping.level().pages() * LINES;
        if design != Design::PerPage {
            return row.check("no_line_cleaned", lines == 0, format!("{lines} of {all}"));
        }
        let row = self.part_of_cleaning(row).counter(
            "ps_a_line",
            u64::try_from(cleaning.as_nanos() * 1000 / u128::from(lines.max(1)))
                .unwrap_or(u64::MAX),
        );
        if self.modelled_destroy.is_empty() {
            return row.check("all_lines_cleaned", lines == all, format!("{lines} of {all}"));
        }
        let expected = sample.bytes() / mayfly_machine::LINE * self.modelled_destroy.len() as u64;
        row.counter("modelled_lines", all).check(
            "sample_cleaned",
            lines == expected,
            format!("{lines} of {all} lines, the first {sample} of each VM"),
        )
    }
}

impl Row {
    /// Says which part of it is cleaning.
    fn part_of_cleaning(&self, row: ResultRow) -> ResultRow {
        let median = |samples: &Samples| samples.summary().map(|summary| summary.p50);
        let clean = median(&self.modelled_clean).or_else(|| median(&self.clean));
        let Some((clean, walk)) = clean.zip(median(&self.walk)) else { return row };
        let part = units::percent(clean as f64 / (clean + walk).max(1) as f64);
        let (clean, walk) = (units::duration(clean), units::duration(walk));
        row.finding(
            "cleaning",
            format!("{part}: {clean} of cleaning, {walk} of walking and invalidating"),
        )
    }
}

/// Adds what was cleaned where memory stays.
pub(super) fn report_maintenance(row: ResultRow, cleaned: Cleaned) -> ResultRow {
    let Cleaned { swap_out, coherent_swap_out, block_over_table } = cleaned;
    row.check(
        "swap_out_cleans_its_page",
        swap_out == LINES,
        format!("{swap_out} lines, of a page of {LINES}"),
    )
    .check(
        "coherent_swap_out_cleans_nothing",
        coherent_swap_out == 0,
        format!("{coherent_swap_out} lines"),
    )
    .check(
        "block_over_table_cleans_nothing",
        block_over_table == 0,
        format!("{block_over_table} lines"),
    )
}
