//! A comparison as text, for people and for programs.

use std::fmt::Write;

use mayfly_record::units::{ratio, things};
use serde_json::{Value, json};

use super::{Compared, Comparison, Form, Known, Line, Named, Verdict};
use crate::document::Document;
use crate::law::Law;
use crate::pair::Dimension;
use crate::text::{factor, filled, plain, things as numbers};

impl Verdict {
    fn word(self, line: &Line) -> &'static str {
        match (self, line.is_of_call()) {
            (Self::More, true) => "slower",
            (Self::Less, true) => "faster",
            (Self::More, false) => "more",
            (Self::Less, false) => "less",
            (Self::CannotTell, _) => "cannot tell",
        }
    }
}

impl Line {
    /// What the number is.
    fn name(&self, dimension: Dimension) -> String {
        match self.what {
            Named::First(n) | Named::Last(n) => format!("at {}", numbers(n as f64, dimension)),
            Named::Constant(name) => name.to_owned(),
        }
    }

    /// A number as a person reads it.
    fn value(&self, known: Known) -> String {
        if self.is_time { factor(known.value) } else { plain(known.value) }
    }

    /// Base, new, ratio and verdict.
    fn cells(&self) -> [String; 4] {
        let times = self.ratio().map_or_else(|| "-".to_owned(), ratio);
        [self.value(self.base), self.value(self.new), times, self.verdict.word(self).to_owned()]
    }
}

impl Compared<'_> {
    fn name(law: &Law) -> &'static str {
        if law.holds { law.shape.name() } else { "no law" }
    }

    /// Both forms, and what can be said of them.
    fn forms(&self) -> String {
        let [base, new] = [self.base, self.new].map(Self::name);
        match self.form {
            Form::Same if base == new => base.to_owned(),
            Form::Same => format!("{base} and {new}, which may be one"),
            Form::Other => format!("{base} has become {new}"),
            Form::Unknown => format!("{base} and {new}: cannot tell"),
        }
    }
}

const HEAD: [&str; 4] = ["base", "new", "ratio", "verdict"];

impl Comparison<'_> {
    /// What it came to, in one line.
    fn summary(&self) -> String {
        let laws = |is_it: &dyn Fn(&Compared<'_>) -> bool| {
            self.laws.iter().filter(|law| is_it(law)).count()
        };
        let has = |verdict: Verdict| {
            laws(&move |law| {
                law.lines.iter().any(|line| line.is_of_call() && line.verdict == verdict)
            })
        };
        format!(
            "{} compared: {} of another form, {} slower, {} faster, {} of which nothing can be told",
            things(self.laws.len() as u64, "law"),
            laws(&|law| law.form == Form::Other),
            has(Verdict::More),
            has(Verdict::Less),
            laws(&|law| !law.differs())
        )
    }

    fn chosen(&self, full: bool) -> impl Iterator<Item = &Compared<'_>> {
        self.laws.iter().filter(move |law| full || law.differs())
    }

    /// The calls that take longer beyond doubt, each in a line.
    pub fn slower(&self) -> Vec<String> {
        let of = |law: &Compared<'_>| {
            let mut lines = law.lines.iter().rev();
            let line = lines.find(|one| one.is_of_call() && one.verdict == Verdict::More)?;
            Some(format!("slower: {}, {}", law.pair.name(), line.name(law.pair.dimension)))
        };
        self.laws.iter().filter_map(of).collect()
    }

    /// As text in lines of `width` columns: what is different, or all if `full`.
    pub fn text(&self, full: bool, width: usize) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        for line in self.about().into_iter().chain(self.warnings()) {
            let _ = writeln!(text, "{}", filled(width, "", &line));
        }
        for law in self.chosen(full) {
            let title = format!("{}: {}", law.pair.name(), law.forms());
            let _ = writeln!(text, "\n{}", filled(width, "", &title));
            let names = law.lines.iter().map(|line| line.name(law.pair.dimension));
            let rows: Vec<(String, [String; 4])> =
                names.zip(law.lines.iter().map(Line::cells)).collect();
            let widest = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
            let row = |name: &str, [base, new, times, verdict]: &[String; 4]| {
                format!("  {name:widest$}  {base:>9}  {new:>9}  {times:>7}  {verdict}")
            };
            let head = row("", &HEAD.map(str::to_owned));
            let lines: Vec<String> = rows.iter().map(|(name, cells)| row(name, cells)).collect();
            if lines.iter().chain([&head]).all(|line| line.len() <= width) {
                let _ = writeln!(text, "{head}\n{}", lines.join("\n"));
                continue;
            }
            for (name, [base, new, times, verdict]) in &rows {
                let line = format!("{name}: {base}, then {new} ({times}): {verdict}");
                let _ = writeln!(text, "{}", filled(width, "", &line));
            }
        }
        let _ = writeln!(text, "\n{}", filled(width, "", &self.summary()));
        text
    }

    /// As Markdown, for a merge request.
    pub fn markdown(&self, full: bool) -> String {
        let escaped = |text: String| text.replace('|', "\\|");
        let mut text: String =
            self.about().into_iter().map(|line| escaped(line) + "\n\n").collect();
        for warning in self.warnings() {
            let _ = writeln!(text, "**{}**\n", escaped(warning));
        }
        if self.chosen(full).next().is_some() {
            let _ = writeln!(text, "| law | form | number | {} |", HEAD.join(" | "));
            let _ = writeln!(text, "|{}", " --- |".repeat(HEAD.len() + 3));
        }
        for law in self.chosen(full) {
            let (pair, forms) = (law.pair.name(), law.forms());
            if law.lines.is_empty() {
                let _ = writeln!(text, "| {pair} | {forms} | - | - | - | - | - |");
            }
            for line in &law.lines {
                let name = line.name(law.pair.dimension);
                let _ =
                    writeln!(text, "| {pair} | {forms} | {name} | {} |", line.cells().join(" | "));
            }
        }
        let _ = writeln!(text, "\n{}", self.summary());
        text
    }

    /// A line for each number, all of them, with a heading.
    pub fn csv(&self) -> String {
        let mut text =
            "call,against,base_form,new_form,form,number,unit,base,base_low,base_high,new,new_low,new_high,ratio,verdict\n"
                .to_owned();
        for law in &self.laws {
            let [base, new] = [law.base, law.new].map(Compared::name);
            let (call, against) = (law.pair.call.name(), law.pair.dimension.name());
            let form = law.form.word();
            for line in &law.lines {
                let known = |known: Known| {
                    let [low, high] = known.interval;
                    format!("{},{low},{high}", known.value)
                };
                let times = line.ratio().map_or_else(String::new, |times| format!("{times:.4}"));
                let _ = writeln!(
                    text,
                    "{call},{against},{base},{new},{form},{},{},{},{},{times},{}",
                    line.what.key(),
                    line.unit(),
                    known(line.base),
                    known(line.new),
                    line.verdict.word(line)
                );
            }
        }
        text
    }

    /// One JSON document, with all numbers.
    pub fn json(&self) -> String {
        let line = |line: &Line| {
            let known = |known: Known| json!({"value": known.value, "interval": known.interval});
            json!({
                "number": line.what.key(),
                "unit": line.unit(),
                "base": known(line.base),
                "new": known(line.new),
                "ratio": line.ratio(),
                "verdict": line.verdict.word(line),
            })
        };
        let law = |law: &Compared<'_>| {
            let [base, new] = [law.base, law.new].map(Compared::name);
            let numbers: Vec<Value> = law.lines.iter().map(line).collect();
            json!({
                "call": law.pair.call,
                "dimension": law.pair.dimension,
                "base": base,
                "new": new,
                "form": law.form.word(),
                "numbers": numbers,
            })
        };
        let laws: Vec<Value> = self.laws.iter().map(law).collect();
        let document =
            json!({"schema": "mayfly.comparison/1", "warnings": self.warnings(), "laws": laws});
        format!("{document:#}\n")
    }

    /// What the two are.
    fn about(&self) -> [String; 2] {
        let of = |document: &Document| {
            let Document { host, rounds, .. } = document;
            format!("Linux {} ({}), {rounds} rounds", host.kernel, host.arch)
        };
        [format!("base: {}", of(self.base)), format!("new:  {}", of(self.new))]
    }
}

impl Form {
    fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Other => "other",
            Self::Unknown => "cannot tell",
        }
    }
}

impl Named {
    /// What programs know it by.
    fn key(self) -> String {
        match self {
            Self::First(n) | Self::Last(n) => format!("at({n})"),
            Self::Constant(name) => name.to_owned(),
        }
    }
}

impl Line {
    fn unit(&self) -> &'static str {
        if self.is_time { "ns" } else { "" }
    }
}
