//! Traces as text.

use mayfly_hwtrace::{Checker, Lines};

/// The names of the rules that a trace breaks, and the texts of its lines that break them.
pub(crate) fn broken(trace: &str) -> Vec<(&'static str, String)> {
    let text = format!("mayfly-hwtrace 1\n{}\n", trace.trim());
    let (mut lines, options) = Lines::new(text.as_bytes()).unwrap();
    let mut checker = Checker::new(options);
    while let Some((line, record)) = lines.next_record().unwrap() {
        checker.take(line, &record);
    }
    let event = |line: u64| text.lines().nth(line as usize - 1).unwrap();
    let name = |line| event(line).split(' ').skip(3).collect::<Vec<_>>().join(" ");
    checker.finish().iter().map(|found| (found.rule.name(), name(found.line))).collect()
}
