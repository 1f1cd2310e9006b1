//! An examination, told to a person: the answer first.

use std::fmt;

use mayfly_kvm::{Call, Verdict};
use mayfly_record::{Host, Unit, units};
use textwrap::{Options, fill};

use crate::examination::Examination;
use crate::finding::Finding;

/// An examination, for a terminal of so many columns.
#[derive(Debug)]
pub struct Text<'a> {
    seen: &'a Examination,
    /// Whether every figure is shown, and not only what it comes to.
    full: bool,
    width: usize,
}

impl<'a> Text<'a> {
    /// The short form of `seen`, in lines of `width` columns.
    pub fn new(seen: &'a Examination, width: usize) -> Self {
        Self { seen, full: false, width }
    }

    /// Whether every figure is shown.
    #[must_use]
    pub fn full(self, full: bool) -> Self {
        Self { full, ..self }
    }

    fn filled(&self, first: &str, text: &str) -> String {
        let then = " ".repeat(first.len());
        // Only at spaces: names have hyphens.
        let options = Options::new(self.width)
            .initial_indent(first)
            .subsequent_indent(&then)
            .word_splitter(textwrap::WordSplitter::NoHyphenation);
        fill(text, options)
    }

    fn finding(&self, f: &mut fmt::Formatter<'_>, number: usize, found: &Finding) -> fmt::Result {
        let Finding { code, what, why, change, gain, .. } = found;
        let title = format!("{}: {what}.", code.name());
        writeln!(f, "\n{}", self.filled(&format!("{number}. "), &title))?;
        writeln!(f, "{}", self.filled("   Why:  ", why))?;
        writeln!(f, "{}", self.filled("   Do:   ", change))?;
        let gain = gain.as_deref().unwrap_or("not measured, since that would change this host.");
        writeln!(f, "{}", self.filled("   Gain: ", gain))
    }

    /// How long second calls wait, a line for each first call.
    fn pairs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tick = self.seen.tick();
        let verdict = |after: Call, call: Call| {
            let pair = self.seen.pairs.iter().find(|pair| (pair.after, pair.call) == (after, call));
            pair.map(|pair| (pair, pair.verdict(tick)))
        };
        let is_shown = |after: Call, call: Call| {
            let found = verdict(after, call);
            found.is_some_and(|(_, found)| self.full || matches!(found, Verdict::Waits(_)))
        };
        let calls: Vec<Call> = Call::ALL
            .into_iter()
            .filter(|call| Call::ALL.into_iter().any(|after| is_shown(after, *call)))
            .collect();
        if calls.is_empty() {
            return Ok(());
        }
        let told = "Usual wait of a call (column) right after another (row), in ms (- none, ? unclear, . not measured for want of time, ! failed):";
        writeln!(f, "\n{}", self.filled("", told))?;
        let first = 18;
        let column = |call: &Call| call.name().len() + 2;
        let fit = calls.iter().scan(first, |used, call| {
            *used += column(call);
            Some(*used)
        });
        let in_a_line = fit.filter(|used| *used <= self.width).count().max(1);
        for calls in calls.chunks(in_a_line) {
            write!(f, "{:first$}", "")?;
            calls.iter().try_for_each(|call| write!(f, "{call:>0$}", column(call)))?;
            writeln!(f)?;
            for after in Call::ALL {
                if !calls.iter().any(|call| is_shown(after, *call)) {
                    continue;
                }
                write!(f, "{after:first$}")?;
                for call in calls {
                    let cell = match verdict(after, *call) {
                        None => String::new(),
                        Some((pair, _)) if pair.error.is_some() => "!".to_owned(),
                        Some((_, Verdict::Waits(time))) => {
                            format!("{:.2}", time.as_secs_f64() * 1e3)
                        }
                        Some((_, Verdict::DoesNot)) => "-".to_owned(),
                        Some((_, Verdict::Unclear(_))) => "?".to_owned(),
                        Some((_, Verdict::Unknown)) => ".".to_owned(),
                    };
                    write!(f, "{cell:>0$}", column(call))?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }

    /// The medians of the other rows.
    fn medians(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nMedians:")?;
        for row in &self.seen.rows {
            let of = |(name, summary): (&String, &mayfly_record::Summary)| {
                let time = match summary.unit {
                    Unit::Nanoseconds => units::duration(summary.p50),
                    _ => summary.p50.to_string(),
                };
                format!("{name} {time}")
            };
            let all: Vec<String> = row.metrics.iter().map(of).collect();
            if !all.is_empty() {
                writeln!(f, "{}", self.filled(&format!("  {:20}", row.variant), &all.join(", ")))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let findings = self.seen.findings();
        let tick = self.seen.tick();
        let tick = units::duration(mayfly_record::nanoseconds(tick));
        let answer = match &findings[..] {
            [] => {
                format!("Nothing that was tried makes a VM on this host wait (a tick is {tick}).")
            }
            [one] => format!(
                "A VM on this host waits for one thing (a tick is {tick}): {}.",
                one.code.name()
            ),
            all => {
                let names: Vec<&str> = all.iter().map(|finding| finding.code.name()).collect();
                format!(
                    "A VM on this host waits for {} things (a tick is {tick}): {}.",
                    all.len(),
                    names.join(", ")
                )
            }
        };
        writeln!(f, "{}", self.filled("", &answer))?;
        if let Some([others, stolen]) = self.seen.load() {
            let percent = |share: f64| share * 100.0;
            let told = format!(
                "This host was loaded: meanwhile, other programs took {:.0}% of its processors' time, and other VMs {:.0}% \
                 (steal time). Times are longer than on a quiet host, and more pairs of calls are unclear.",
                percent(others),
                percent(stolen)
            );
            writeln!(f, "\n{}", self.filled("", &told))?;
        }
        for (number, finding) in (1..).zip(&findings) {
            self.finding(f, number, finding)?;
        }
        self.pairs(f)?;
        if self.full {
            self.medians(f)?;
        }
        let failed = self.seen.failed();
        let shown = if self.full { failed.len() } else { 3 };
        if !failed.is_empty() {
            writeln!(f, "\nNot measured:")?;
        }
        for one in failed.iter().take(shown) {
            writeln!(f, "{}", self.filled("- ", one))?;
        }
        if failed.len() > shown {
            writeln!(f, "- and {} more; --full shows all", failed.len() - shown)?;
        }
        let (unclear, missing) = (self.seen.unclear(), self.seen.too_few());
        let what = match (unclear, missing) {
            (0, 0) => None,
            (_, 0) => Some(format!("{unclear} {} unclear", is(unclear))),
            (0, _) => Some(format!("{missing} {} not measured for want of time", was(missing))),
            _ => Some(format!(
                "{unclear} {} unclear, and {missing} {} not measured for want of time",
                is(unclear),
                was(missing)
            )),
        };
        if let Some(what) = what {
            let all = self.seen.pairs.len();
            let told = format!(
                "Of {all} pairs of calls, {what}. Run this again while the host does less."
            );
            writeln!(f, "\n{}", self.filled("", &told))?;
        }
        writeln!(f, "\n{}", self.filled("", &facts(&self.seen.host)))?;
        let took = self.seen.took.as_secs_f64();
        let told = format!("Examined in {took:.1} s; nothing on the host was changed.");
        writeln!(f, "{}", self.filled("", &told))
    }
}

/// The verb for so many pairs.
fn is(pairs: usize) -> &'static str {
    if pairs == 1 { "is" } else { "are" }
}

/// The same in the past tense.
fn was(pairs: usize) -> &'static str {
    if pairs == 1 { "was" } else { "were" }
}

/// The facts that bear on it, in a sentence.
fn facts(host: &Host) -> String {
    let parameter = |name: &str| Some(format!("{name}={}", host.kvm_parameters.get(name)?));
    let facts = [
        Some(format!("Linux {} {}", host.kernel, host.arch)),
        Some(format!("{} CPUs", host.cpus)),
        host.hz.map(|hz| format!("HZ={hz}")),
        host.preemption.clone(),
        host.kvm_module.clone(),
        parameter("kvm.nx_huge_pages"),
        parameter("kvm.tdp_mmu"),
        host.huge_pages.as_ref().map(|when| format!("huge pages {when}")),
        host.cgroup_options.as_ref().map(|options| {
            let with = if options.contains("favordynmods") { "with" } else { "without" };
            format!("control groups {with} favordynmods")
        }),
    ];
    format!("Host: {}.", facts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}
