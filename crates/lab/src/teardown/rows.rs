//! What a row says.

use mayfly_record::{ResultRow, Samples};
use mayfly_stage2::Format;

use crate::mapping::Mapping;
use crate::params::Size;
use crate::work::{self, Spent};

use super::machine::{Counts, Design, TableFormat, Torn};
use super::maintenance::{Cleaned, LINES};

/// What was measured and counted of one variant.
#[derive(Default)]
pub(super) struct Row {
    destroy: Samples,
    modelled_destroy: Samples,
    reclaimed: Samples,
    had: Counts,
    by_ipa: u64,
    by_vmid: u64,
    lines: u64,
    spent: Vec<Spent>,
}

impl Row {
    /// Adds a VM, which had `counts`.
    pub(super) fn note(&mut self, counts: Counts, torn: Torn) {
        if let Some(modelled) = torn.modelled {
            self.modelled_destroy.record(modelled);
        } else {
            self.destroy.record(torn.returned);
            self.reclaimed.record(torn.reclaimed);
        }
        for samples in [&mut self.destroy, &mut self.modelled_destroy, &mut self.reclaimed] {
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
        let Self { had, by_ipa, by_vmid, lines, .. } = self;
        let row = work::report(row, &self.spent)
            .param("format", TableFormat::NAME)
            .param("sample", sample.bytes())
            .metric("destroy", &self.destroy)
            .metric("modelled_destroy", &self.modelled_destroy)
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
