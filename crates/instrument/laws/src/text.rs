//! Laws, told to a person.

use std::fmt;

use mayfly_record::units;
use textwrap::{Options, WordSplitter, fill};

use crate::document::{Document, Entry};
use crate::law::{HELD_OUT_BOUND, Law};
use crate::pair::Dimension;
use crate::series::{Missing, Point};
use crate::shape::{Shape, whole};

/// A document, for a terminal of so many columns.
#[derive(Debug)]
pub struct Text<'a> {
    document: &'a Document,
    /// Whether the median of each point is shown.
    full: bool,
    width: usize,
}

/// A time as text.
fn time(nanoseconds: f64) -> String {
    units::duration(whole(nanoseconds))
}

/// So many of what grows.
pub(crate) fn things(n: f64, dimension: Dimension) -> String {
    let n = whole(n);
    match dimension {
        Dimension::Age => units::duration(n.saturating_mul(1000)),
        Dimension::Gpa => format!("{} GiB", units::grouped(n)),
        _ => format!("{} {}{}", units::grouped(n), dimension.one(), if n == 1 { "" } else { "s" }),
    }
}

/// What a number of it stands behind.
pub(crate) const fn beside(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Age => "after",
        Dimension::Gpa => "at",
        _ => "with",
    }
}

/// An exponent that is known no better than this is not known.
const UNKNOWN: f64 = 0.6;

/// A number that is no time, as an exponent is.
pub(crate) fn plain(number: f64) -> String {
    if number < 100.0 { format!("{number:.2}") } else { units::grouped(whole(number)) }
}

/// A factor, whose time may be far below a nanosecond.
pub(crate) fn factor(nanoseconds: f64) -> String {
    match nanoseconds {
        ..1.0 => format!("{:.0} ps", nanoseconds * 1000.0),
        ..10.0 => format!("{nanoseconds:.2} ns"),
        _ => time(nanoseconds),
    }
}

impl<'a> Text<'a> {
    /// The short form, in lines of `width` columns.
    pub fn new(document: &'a Document, width: usize) -> Self {
        Self { document, full: false, width }
    }

    /// Whether the median of each point is shown.
    #[must_use]
    pub fn full(self, full: bool) -> Self {
        Self { full, ..self }
    }

    /// What stands before all of so many pairs.
    pub fn head(&self, pairs: usize) -> String {
        let Document { host, rounds, .. } = self.document;
        let hz = host.hz.map_or_else(String::new, |hz| format!(", HZ={hz}"));
        let head = format!(
            "{} on Linux {} ({}, {}{hz}), {rounds} samples of each point. A law is about the numbers that were measured, and none beyond.",
            units::things(pairs as u64, "pair"),
            host.kernel,
            host.arch,
            units::things(host.cpus as u64, "CPU"),
        );
        format!("{}\n", self.filled("", &head))
    }

    /// What is told of a pair.
    pub fn of(&self, entry: &Entry) -> String {
        let pair = entry.pair;
        let title = format!("{} ({}), {}", pair.name(), pair.call.of_kvm(), pair.dimension.about());
        let mut told = format!("\n{}\n", self.filled("", &title));
        let mut add = |text: &str| told.extend([self.filled("  ", text).as_str(), "\n"]);
        if let Some(why) = &entry.skipped {
            add(&format!("Not measured: {why}."));
        }
        let Some(law) = &entry.law else { return told };
        add(&said(entry, law));
        if let Some(ticks) = self.document.tick_ns.and_then(|tick| entry.sleeps(tick)) {
            let work = entry.work.as_ref().map_or_else(String::new, |work| work_said(entry, work));
            add(&format!(
                "The calling thread sleeps in it: at one point, the median is {ticks:.1} ticks.{work}"
            ));
        }
        for Missing { n, why } in &entry.series.missing {
            let n = things(*n as f64, pair.dimension);
            add(&format!("It could not be measured {} {n}: {why}.", beside(pair.dimension)));
        }
        if self.full {
            told.push_str(&self.points(entry));
        }
        told
    }

    /// What stands behind all of them.
    pub fn end(&self) -> String {
        let laws = &self.document.laws;
        let holding = laws.iter().filter_map(|entry| entry.law.as_ref()).filter(|law| law.holds);
        let skipped = laws.iter().filter(|entry| entry.skipped.is_some()).count();
        let end = format!(
            "{} found, {skipped} of {} not measured.",
            units::things(holding.count() as u64, "law"),
            units::things(laws.len() as u64, "pair"),
        );
        format!("\n{}\n", self.filled("", &end))
    }

    /// A line for each point, in columns where those have room.
    fn points(&self, entry: &Entry) -> String {
        let number = |point: &Point| things(point.n as f64, entry.pair.dimension);
        let widest = entry.series.points.iter().map(|point| number(point).len()).max().unwrap_or(0);
        let line = |point: &Point| {
            let held = if point.held_out { "  held out" } else { "" };
            let [time, slept] = [point.time(), point.slept()].map(units::duration);
            let n = number(point);
            let line = format!("    {n:>widest$}  {time:>8}, of which it sleeps {slept:>8}{held}");
            if line.len() <= self.width {
                return format!("{line}\n");
            }
            let line = format!("{n}: {time}, of which it sleeps {slept}{held}");
            format!("{}\n", self.filled("    ", &line))
        };
        entry.series.points.iter().map(line).collect()
    }

    fn filled(&self, indent: &str, text: &str) -> String {
        filled(self.width, indent, text)
    }
}

/// Text in lines of `width` columns, each with an indent.
pub fn filled(width: usize, indent: &str, text: &str) -> String {
    let options = Options::new(width)
        .initial_indent(indent)
        .subsequent_indent(indent)
        .word_splitter(WordSplitter::NoHyphenation);
    fill(text, options)
}

/// The law in words, and how sure it is.
pub(crate) fn said(entry: &Entry, law: &Law) -> String {
    let dimension = entry.pair.dimension;
    let [first, .., last] = entry.series.points.as_slice() else { return String::new() };
    let told = |point: &Point| {
        let (time, n) = (units::duration(point.time()), things(point.n as f64, dimension));
        format!("{time} {} {n}", beside(dimension))
    };
    let ends = format!("It takes {}, and {}.", told(first), told(last));
    if !law.holds {
        let off = units::percent(law.held_out);
        let unsure = law.unsure.map_or_else(String::new, |unsure| {
            format!(
                " The form {} fits best, but it is not sure that anything grows.",
                unsure.name()
            )
        });
        let times = || entry.series.points.iter().map(Point::time);
        let (shortest, longest) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
        return format!(
            "No law was found: the form {} misses a point that was held out by {off} (the bound is {}).{unsure} The medians of the points are {} to {}.",
            law.shape.name(),
            units::percent(HELD_OUT_BOUND),
            units::duration(shortest),
            units::duration(longest)
        );
    }
    let form = form(law, dimension);
    let others: Vec<&str> = law.others.iter().map(|other| other.name()).collect();
    let others = if others.is_empty() {
        String::new()
    } else {
        format!(" Within noise, the form {} fits as well.", others.join(" or "))
    };
    let growth = law.growth.map_or_else(String::new, |[low, high]| {
        let [low, high] = [low, high].map(units::ratio);
        format!(" The longest call takes {low} to {high} as long as the shortest (at 95 %).")
    });
    let millisecond = match law.millisecond {
        Some(n) if n == first.n => {
            " It takes a millisecond or more from the first point on.".to_owned()
        }
        Some(n) => format!(" It takes a millisecond from {} on.", things(n as f64, dimension)),
        None => String::new(),
    };
    let off = units::percent(law.held_out);
    format!(
        "{form}{others} {ends}{growth}{millisecond} Points that were held out are missed by {off} at the most."
    )
}

/// The law of the work in words, where it holds.
fn work_said(entry: &Entry, work: &Law) -> String {
    if !work.holds {
        return " No law of its processor time was found.".to_owned();
    }
    format!(" Of its processor time the law is: {}", form(work, entry.pair.dimension))
}

/// The form in words.
fn form(law: &Law, dimension: Dimension) -> String {
    let one = dimension.one();
    match law.shape {
        Shape::Constant { base } => format!("No growth was found: it takes {}.", time(base)),
        Shape::Logarithm { base, factor: times } => format!(
            "Grows with the logarithm: {} and {} more for each doubling.",
            time(base),
            factor(times * std::f64::consts::LN_2)
        ),
        Shape::Linear { base, factor: more } => {
            format!("Grows linearly: {} and {} more for each {one}.", time(base), factor(more))
        }
        Shape::LogLinear { base, factor: more } => {
            format!("Grows as n log n: {} and n ln(n) times {}.", time(base), factor(more))
        }
        Shape::Power { base, factor: first, exponent } => {
            let [low, high] = law.exponent.unwrap_or([exponent; 2]);
            if high - low > UNKNOWN {
                return format!(
                    "Grows as a power of n, whose exponent is not known: {low:.2} to {high:.2} at 95 %."
                );
            }
            format!(
                "Grows as n^{exponent:.2} (the exponent is {low:.2} to {high:.2} at 95 %): {} and n^{exponent:.2} times {}.",
                time(base),
                factor(first)
            )
        }
        Shape::Bend { base, at, factor: more } => format!(
            "Takes {} up to {}, and from there on {} more for each {one}.",
            time(base),
            things(at, dimension),
            factor(more)
        ),
        Shape::Wait { base, end } => format!(
            "Waits until {} after the registration; a call that comes later takes {}.",
            time(end),
            time(base)
        ),
        Shape::Step { before, last, first, after } if dimension == Dimension::Age => format!(
            "Takes {} if it comes within {}, and {} if it comes {} after the registration or later.",
            time(before),
            things(last, dimension),
            time(after),
            things(first, dimension)
        ),
        Shape::Step { before, last, first, after } => format!(
            "Takes {} up to {}, and {} from {} on.",
            time(before),
            things(last, dimension),
            time(after),
            things(first, dimension)
        ),
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = &self.document.laws;
        f.write_str(&self.head(all.len()))?;
        all.iter().try_for_each(|entry| f.write_str(&self.of(entry)))?;
        f.write_str(&self.end())
    }
}
