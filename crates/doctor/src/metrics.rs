//! An examination as metrics, in the `OpenMetrics` text format, for a node exporter's textfile collector.
//!
//! The collector reads the older Prometheus text format. What is written here is both: gauges, `HELP` before `TYPE`, one
//! `# EOF` at the end, which the older takes for a comment.

use std::fmt::Write;

use mayfly_kvm::Verdict;

use crate::examination::Examination;
use crate::finding::Code;

/// All of `seen`, which was examined at `time`, in seconds since 1970.
pub fn openmetrics(seen: &Examination, time: u64) -> String {
    let mut text = String::new();
    let findings = seen.findings();
    let wait = |code: Code| findings.iter().find(|finding| finding.code == code);
    let found = Code::ALL.map(|code| {
        let ns = wait(code).map_or(0, |finding| finding.wait_ns);
        (labels(&[("code", code.name())]), seconds(ns))
    });
    let is_there = Code::ALL
        .map(|code| (labels(&[("code", code.name())]), u8::from(wait(code).is_some()).to_string()));
    family(
        &mut text,
        "finding",
        "Whether a VM on this host waits for this (1), or does not (0).",
        is_there,
    );
    family(&mut text, "finding_wait_seconds", "How long it waits; 0 where it does not.", found);

    let tick = seen.tick();
    let of_pairs = seen.pairs.iter().filter_map(|pair| {
        let waits = match pair.verdict(tick) {
            Verdict::Waits(time) => mayfly_record::nanoseconds(time),
            Verdict::DoesNot => 0,
            Verdict::Unclear(_) | Verdict::Unknown => return None,
        };
        let labels = labels(&[("after", pair.after.name()), ("call", pair.call.name())]);
        Some((labels, seconds(waits)))
    });
    let help = "How much longer a call takes right after another, if it waits for what that has armed; else 0.";
    family(&mut text, "call_wait_seconds", help, of_pairs);

    let of_rows = seen.rows.iter().flat_map(|row| {
        row.metrics.iter().map(|(name, summary)| {
            (labels(&[("probe", &row.variant), ("metric", name)]), seconds(summary.p50))
        })
    });
    family(&mut text, "probe_seconds", "The median of what a probe has measured.", of_rows);

    let one = |value: String| [(String::new(), value)];
    let failed = seen.failed().len().to_string();
    family(&mut text, "failed_probes", "What could not be measured.", one(failed));
    let took = seconds(mayfly_record::nanoseconds(seen.took));
    family(&mut text, "duration_seconds", "How long the examination took.", one(took));
    let help = "When the host was examined, in seconds since 1970.";
    family(&mut text, "timestamp_seconds", help, one(time.to_string()));
    text.push_str("# EOF\n");
    text
}

/// A gauge and its samples; nothing where there are none.
fn family(
    text: &mut String,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = (String, String)>,
) {
    let mut samples = samples.into_iter().peekable();
    if samples.peek().is_none() {
        return;
    }
    let name = format!("mayfly_doctor_{name}");
    // Writing to a String does not fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
    for (labels, value) in samples {
        let _ = writeln!(text, "{name}{labels} {value}");
    }
}

fn labels(labels: &[(&str, &str)]) -> String {
    let escaped =
        |value: &str| value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
    let each = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    format!("{{{}}}", each.collect::<Vec<_>>().join(","))
}

/// Seconds, to the nanosecond.
fn seconds(nanoseconds: u64) -> String {
    format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000)
}
