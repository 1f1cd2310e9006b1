//! An examination as metrics, for a node exporter's textfile collector.

use std::time::Duration;

use mayfly_kvm::Verdict;
use mayfly_record::{Metrics, Sample};

use crate::examination::Examination;
use crate::finding::Code;

/// All of `seen`, which was examined at `time`, in seconds since 1970.
pub fn openmetrics(seen: &Examination, time: u64) -> String {
    let mut metrics = Metrics::new("mayfly_doctor");
    let findings = seen.findings();
    let wait = |code: Code| findings.iter().find(|finding| finding.code == code);
    let is_there =
        Code::ALL.map(|code| Sample::of(&[("code", code.name())], u8::from(wait(code).is_some())));
    let help = "Whether a VM on this host waits for this (1), or does not (0).";
    metrics.gauge("finding", help, is_there);
    let found = Code::ALL.map(|code| {
        let time = Duration::from_nanos(wait(code).map_or(0, |finding| finding.wait_ns));
        Sample::of(&[("code", code.name())], time.as_secs_f64())
    });
    metrics.gauge("finding_wait_seconds", "How long it waits; 0 where it does not.", found);

    let tick = seen.tick();
    let of_pairs = seen.pairs.iter().filter_map(|pair| {
        let waits = match pair.verdict(tick) {
            Verdict::Waits(time) => time,
            Verdict::DoesNot => Duration::ZERO,
            Verdict::Unclear(_) | Verdict::Unknown => return None,
        };
        let labels = [("after", pair.after.name()), ("call", pair.call.name())];
        Some(Sample::of(&labels, waits.as_secs_f64()))
    });
    let help = "How much longer a call takes right after another, if it waits for a grace period that the other has started; else 0.";
    metrics.gauge("call_wait_seconds", help, of_pairs);

    let of_rows = seen.rows.iter().flat_map(|row| {
        row.metrics.iter().map(|(name, summary)| {
            let median = Duration::from_nanos(summary.p50).as_secs_f64();
            Sample::of(&[("probe", &row.variant), ("metric", name)], median)
        })
    });
    metrics.gauge("probe_seconds", "The median of what a probe has measured.", of_rows);

    let failed = Sample::of(&[], seen.failed().len());
    metrics.gauge("failed_probes", "How many measurements failed.", [failed]);
    let took = Sample::of(&[], seen.took.as_secs_f64());
    metrics.gauge("duration_seconds", "How long the examination took.", [took]);
    let help = "When the host was examined, in seconds since 1970.";
    metrics.gauge("timestamp_seconds", help, [Sample::of(&[], time)]);
    metrics.finish()
}
