//! Metrics in the `OpenMetrics` text format, for a node exporter's textfile collector.
//!
//! The collector reads the older Prometheus text format. What is written here is both: `HELP` before `TYPE`, and one
//! `# EOF` at the end, which the older takes for a comment. The newer has a counter's name without the ending of its samples,
//! and refuses one with it as two names that clash. To the older, such samples are of no type, which it takes as well.

use std::fmt::{Display, Write};

/// A document of metrics, as far as it is written.
#[derive(Clone, Debug)]
pub struct Metrics {
    prefix: &'static str,
    text: String,
}

/// A value of a metric, and the labels that tell it from others of the metric's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample(String);

impl Metrics {
    /// Without a metric. All that come have names that begin so.
    pub const fn new(prefix: &'static str) -> Self {
        Self { prefix, text: String::new() }
    }

    /// A number that rises and falls. Without samples there is no such metric.
    pub fn gauge(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = Sample>) {
        self.family([name, ""], "gauge", help, samples);
    }

    /// A number that grows, whose samples' name ends in `_total`. Without samples there is no such metric.
    pub fn counter(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = Sample>) {
        self.family([name, "_total"], "counter", help, samples);
    }

    /// The document.
    pub fn finish(mut self) -> String {
        self.text.push_str("# EOF\n");
        self.text
    }

    fn family(
        &mut self,
        [name, ending]: [&str; 2],
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let (text, name) = (&mut self.text, format!("{}_{name}", self.prefix));
        // Writing to a String does not fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for Sample(sample) in samples {
            let _ = writeln!(text, "{name}{ending}{sample}");
        }
    }
}

impl Sample {
    /// Of names and values of labels, which may have anything in them.
    pub fn of(labels: &[(&str, &str)], value: impl Display) -> Self {
        let each = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
        let all = each.collect::<Vec<_>>().join(",");
        Self(if all.is_empty() { format!(" {value}") } else { format!("{{{all}}} {value}") })
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_says_what_it_is_once_before_its_samples_and_nothing_without_any() {
        let mut metrics = Metrics::new("house");
        metrics.gauge("rooms", "How many.", [Sample::of(&[], 3)]);
        metrics.gauge("cellars", "None.", []);
        let doors = [("wood", 2), ("iron", 1)].map(|(of, n)| Sample::of(&[("of", of)], n));
        metrics.counter("doors", "Opened.", doors);
        let age = std::time::Duration::from_nanos(70).as_secs_f64();
        metrics.gauge("age_seconds", "Since it was built.", [Sample::of(&[], age)]);
        let expected = "\
# HELP house_rooms How many.
# TYPE house_rooms gauge
house_rooms 3
# HELP house_doors Opened.
# TYPE house_doors counter
house_doors_total{of=\"wood\"} 2
house_doors_total{of=\"iron\"} 1
# HELP house_age_seconds Since it was built.
# TYPE house_age_seconds gauge
house_age_seconds 0.00000007
# EOF
";
        assert_eq!(metrics.finish(), expected);
    }

    #[test]
    fn a_label_s_value_ends_neither_itself_nor_its_line() {
        let sample = Sample::of(&[("a", "x\"},y"), ("b", "\\n\n")], 1);
        assert_eq!(sample.0, r#"{a="x\"},y",b="\\n\n"} 1"#);
    }
}
