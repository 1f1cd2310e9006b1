//! The table: a line for each row that was measured, and its target.

use crate::race::Times;

/// How far the upper end of a ratio's interval may be above 1 where Mayfly is no slower.
const TOLERANCE: f64 = 1.05;

/// What a row must reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// No slower than the peer: the upper end of the ratio's interval is at most [`TOLERANCE`].
    NoSlower,
    /// At most this many times what the peer takes, at the upper end of the ratio's interval.
    TimesPeer(f64),
    /// At most this many nanoseconds.
    Nanos(f64),
    /// Nothing: shown beside the others.
    Shown,
}

impl Target {
    /// Whether it is reached; nothing to reach: `None`. The upper end of a ratio counts as it is printed, with two digits.
    fn is_met(self, nanos: f64, most: Option<f64>) -> Option<bool> {
        let is_at_most = |bound: f64| most.map(|most| (most * 100.0).round() <= bound * 100.0);
        match self {
            Self::NoSlower => is_at_most(TOLERANCE),
            Self::TimesPeer(bound) => is_at_most(bound),
            Self::Nanos(bound) => Some(nanos <= bound),
            Self::Shown => None,
        }
    }
}

/// A table that is printed row by row.
#[derive(Debug, Default)]
pub struct Table {
    judged: usize,
    missed: Vec<String>,
    notes: Vec<String>,
}

impl Table {
    /// Prints the heading.
    pub fn new() -> Self {
        line("", "mayfly", "peer", "", ["ratio", "up to"], "target", "");
        Self::default()
    }

    /// Prints a row, and judges it.
    pub fn row(&mut self, what: &str, ours: &Times, peer: Option<&Times>, target: Target) {
        let nanos = ours.median();
        let ratio = peer.map(|peer| ours.ratio_to(peer));
        let most = peer.map(|peer| ours.interval_of_ratio_to(peer)[1]);
        let beside = peer.map_or("", |peer| peer.name);
        let verdict = self.judge(target.is_met(nanos, most), what, beside);
        let told = |ratio: Option<f64>| ratio.map_or_else(String::new, |it| format!("{it:.2}"));
        line(
            what,
            &time(nanos),
            &peer.map_or_else(String::new, |peer| time(peer.median())),
            beside,
            [&told(ratio), &told(most)],
            &match target {
                Target::NoSlower => format!("<= {TOLERANCE:.2}"),
                Target::TimesPeer(bound) => format!("<= {bound:.2}"),
                Target::Nanos(bound) => format!("<= {}", time(bound)),
                Target::Shown => String::new(),
            },
            verdict,
        );
    }

    /// Prints how many times as much two threads do `together` as one does `alone`, beside as many `apart`, and judges
    /// the ratio of the two: it must be `share`, as it is printed. A second line has the quartiles of the turns.
    pub fn speed_up(&mut self, what: &str, [alone, together, apart]: [&Times; 3], share: f64) {
        let reached = apart.ratio_to(together);
        let met = (reached * 100.0).round() >= share * 100.0;
        let verdict = self.judge(Some(met), what, apart.name);
        let speed_up = |two: &Times| format!("{:.2} x", 2.0 * alone.ratio_to(two));
        line(
            what,
            &speed_up(together),
            &speed_up(apart),
            apart.name,
            [&format!("{reached:.2}"), ""],
            &format!(">= {share:.2}"),
            verdict,
        );
        let [low, high] = apart.quartiles_of_ratio_to(together);
        println!("{:<101}middle half: {low:.2} to {high:.2}", "");
    }

    /// The word for a target that is met, or not; remembers it.
    fn judge(&mut self, met: Option<bool>, what: &str, beside: &str) -> &'static str {
        let Some(met) = met else { return "" };
        self.judged += 1;
        if met {
            return "ok";
        }
        self.missed.push(format!("{what}, beside {beside}"));
        "MISS"
    }

    /// Keeps a line to be printed under the table.
    pub fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// Prints the notes, how many targets were reached, and names the others.
    pub fn finish(self) {
        if !self.notes.is_empty() {
            println!();
        }
        for note in self.notes {
            println!("{note}");
        }
        let judged = self.judged;
        if self.missed.is_empty() {
            println!("\nall {judged} targets reached");
        } else {
            println!("\nMISS: {} of {judged} targets not reached:", self.missed.len());
            for what in self.missed {
                println!("MISS: {what}");
            }
        }
    }
}

fn line(
    what: &str,
    ours: &str,
    theirs: &str,
    peer: &str,
    [ratio, most]: [&str; 2],
    target: &str,
    verdict: &str,
) {
    let line = format!(
        "{what:<50} {ours:>9} {theirs:>9} {peer:<28} {ratio:>5} {most:>5}  {target:<10} {verdict}"
    );
    println!("{}", line.trim_end());
}

/// `nanos` with three digits that count, and a unit.
fn time(nanos: f64) -> String {
    let (value, unit) = match nanos {
        n if n < 999.5 => (n, "ns"),
        n if n < 999_500.0 => (n / 1e3, "us"),
        n => (n / 1e6, "ms"),
    };
    let digits = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let texts: Vec<_> =
            [0.5, 9.996, 99.96, 999.6, 12_345.0, 1.5e6].iter().map(|&nanos| time(nanos)).collect();
        assert_eq!(texts, ["0.50 ns", "10.0 ns", "100 ns", "1.00 us", "12.3 us", "1.50 ms"]);
    }

    #[test]
    fn a_ratio_is_judged_as_it_is_printed() {
        for (target, most) in [(Target::TimesPeer(1.0), 1.0), (Target::NoSlower, TOLERANCE)] {
            assert_eq!(target.is_met(0.0, Some(most + 0.004)), Some(true));
            assert_eq!(target.is_met(0.0, Some(most + 0.006)), Some(false));
        }
        assert_eq!(Target::Nanos(1000.0).is_met(1000.1, None), Some(false));
        assert_eq!(Target::Shown.is_met(0.0, Some(9.0)), None);
    }
}
