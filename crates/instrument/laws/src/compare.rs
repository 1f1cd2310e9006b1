//! Two documents, law by law: which has another form, which call takes longer, and what cannot be told.
//!
//! # What is called different
//!
//! A law predicts a point that it was not fitted to within a quarter ([`HELD_OUT_BOUND`]), and no better. So a number is
//! called different if two things hold: it is more than a quarter off, and where it lies in either document, at 95 %, has
//! nothing in common. These intervals come from drawing rounds again, with replacement, and fitting the law's form to
//! them. An exponent is known better: there, 15 % are enough.
//!
//! Numbers of different forms mean different things. Therefore the times are compared that the laws give, at the first and
//! at the last number that both documents have measured; and a form is called another one only if it fits neither
//! document's other forms.

mod shown;

use mayfly_record::{Host, ResultRow};

use crate::document::{Document, Entry};
use crate::fit::{drawn, interval};
use crate::law::{HELD_OUT_BOUND, Law};
use crate::pair::Pair;
use crate::series::Kind;
use crate::shape::{Constant, Shape, What};

/// How far off an exponent has to be.
const EXPONENT_BOUND: f64 = 0.15;

/// Two documents side by side.
#[derive(Debug)]
pub struct Comparison<'a> {
    base: &'a Document,
    new: &'a Document,
    laws: Vec<Compared<'a>>,
    /// What only one of them has measured.
    alone: Vec<String>,
}

/// Two documents that cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// They were measured in another way, or on another kind of machine.
    #[error("{what} is {base} in BASE and {new} in NEW")]
    Setting {
        /// What differs.
        what: &'static str,
        /// In the one.
        base: String,
        /// In the other.
        new: String,
    },
    /// They have no pair in common.
    #[error("the two documents have no pair of a call and what it is measured against in common")]
    Nothing,
}

/// A pair that both have measured.
#[derive(Debug)]
struct Compared<'a> {
    pair: Pair,
    base: &'a Law,
    new: &'a Law,
    form: Form,
    lines: Vec<Line>,
}

/// What can be said of two forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// They are one, or one fits in place of the other.
    Same,
    /// They are not.
    Other,
    /// A law was not found, or it is not sure that anything grows.
    Unknown,
}

/// A number of both.
#[derive(Debug)]
struct Line {
    what: Named,
    is_time: bool,
    base: Known,
    new: Known,
    verdict: Verdict,
}

/// What a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    /// The time at the first number that both have measured, or at the last.
    First(u64),
    Last(u64),
    /// A constant of the law, by its name.
    Constant(&'static str),
}

/// A number, and where it lies, at 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Known {
    value: f64,
    interval: [f64; 2],
}

/// What can be said of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    More,
    Less,
    CannotTell,
}

impl Line {
    fn of(what: Named, is_time: bool, [base, new]: [Known; 2]) -> Self {
        let bound = match what {
            Named::Constant("exponent") => EXPONENT_BOUND,
            _ => HELD_OUT_BOUND,
        };
        let is_beyond = |less: Known, more: Known| {
            more.interval[0] > less.interval[1] && more.value > less.value * (1.0 + bound)
        };
        let verdict = match (is_beyond(base, new), is_beyond(new, base)) {
            (true, _) => Verdict::More,
            (_, true) => Verdict::Less,
            _ => Verdict::CannotTell,
        };
        Self { what, is_time, base, new, verdict }
    }

    /// How many times the base's the new one is.
    fn ratio(&self) -> Option<f64> {
        (self.base.value > 0.0).then(|| self.new.value / self.base.value)
    }

    /// Whether it is a time that a call takes, and not a part of the law.
    fn is_of_call(&self) -> bool {
        !matches!(self.what, Named::Constant(_))
    }
}

impl<'a> Comparison<'a> {
    /// Compares `new` with `base`.
    ///
    /// # Errors
    /// They were measured in another way, or have nothing in common.
    pub fn of(base: &'a Document, new: &'a Document) -> Result<Self, Mismatch> {
        let setting = |what, of: fn(&Document) -> String| {
            let (base, new) = (of(base), of(new));
            if base == new { Ok(()) } else { Err(Mismatch::Setting { what, base, new }) }
        };
        setting("the architecture", |one| one.host.arch.clone())?;
        setting("the time in which everything is left alone (settled_ns)", |one| {
            one.settled_ns.to_string()
        })?;
        let (mut laws, mut alone) = (Vec::new(), Vec::new());
        for entry in &base.laws {
            match (measured(base, entry.pair), measured(new, entry.pair)) {
                (Some(one), Some(other)) => laws.extend(Compared::of(one, other)),
                (Some(_), None) => alone.push(format!("only in BASE: {}", entry.pair.name())),
                _ => {}
            }
        }
        let only = new.laws.iter().filter(|entry| measured(base, entry.pair).is_none());
        let only = only.filter(|entry| entry.law.is_some());
        alone.extend(only.map(|entry| format!("only in NEW: {}", entry.pair.name())));
        if laws.is_empty() { Err(Mismatch::Nothing) } else { Ok(Self { base, new, laws, alone }) }
    }

    /// What a bound on a ratio may be about: each pair's times at the first and at the last number that both have
    /// measured, as a row and its metric, with how many times the base's the new one is, and whether that is sure. A
    /// ratio above 1 is then slower, and one below it faster.
    pub fn ratios(&self) -> Vec<(ResultRow, &'static str, f64, bool)> {
        let all = self.laws.iter().flat_map(|law| law.lines.iter().map(move |line| (law, line)));
        let ratio = |(law, line): (&Compared<'_>, &Line)| {
            let metric = match line.what {
                Named::First(_) => "first",
                Named::Last(_) => "last",
                Named::Constant(_) => return None,
            };
            let row = ResultRow::new(&law.pair.name(), mayfly_record::Backend::Kvm, "laws");
            Some((row, metric, line.ratio()?, line.verdict != Verdict::CannotTell))
        };
        all.filter_map(ratio).collect()
    }

    /// What is to be known before anything is believed.
    fn warnings(&self) -> Vec<String> {
        let (base, new): (&Host, &Host) = (&self.base.host, &self.new.host);
        let differ = base.differences(new);
        let hosts = (!differ.is_empty()).then(|| format!("different hosts: {}", differ.join("; ")));
        hosts.into_iter().chain(self.alone.iter().cloned()).collect()
    }
}

/// What a document has measured of a pair.
fn measured(document: &Document, pair: Pair) -> Option<(&Entry, &Law)> {
    let entry = document.laws.iter().find(|entry| entry.pair == pair)?;
    Some((entry, entry.law.as_ref()?))
}

impl<'a> Compared<'a> {
    /// Nothing, where they have no numbers in common.
    fn of(base: (&'a Entry, &'a Law), new: (&'a Entry, &'a Law)) -> Option<Self> {
        let both = [base, new];
        let [(from, to), (other_from, other_to)] = {
            let [one, other] = both.map(|(entry, _)| entry.series.range());
            [one?, other?]
        };
        let (from, to) = (from.max(other_from), to.min(other_to));
        if from >= to {
            return None;
        }
        let form = form(base.1, new.1);
        let drawn = both.map(|(entry, law)| drawn(&entry.series, Kind::Time, law.shape));
        let known = |which: usize, of: &dyn Fn(Shape) -> Option<f64>| {
            let value = of(both[which].1.shape)?;
            let drawn = drawn[which].iter().filter_map(|shape| of(*shape)).collect();
            Some(Known { value, interval: interval(drawn).unwrap_or([value; 2]) })
        };
        let at = |what, n: u64| {
            let of = |shape: Shape| shape.at(n as f64);
            Some(Line::of(what, true, [known(0, &of)?, known(1, &of)?]))
        };
        let mut lines = Vec::new();
        if form != Form::Unknown {
            lines.extend(
                [at(Named::First(from), from), at(Named::Last(to), to)].into_iter().flatten(),
            );
        }
        if form == Form::Same && base.1.shape.is_like(new.1.shape) {
            let constants = base.1.shape.constants().into_iter().map(|constant| {
                let of = |shape: Shape| value(shape, constant.name);
                let is_time = constant.what == What::Time;
                let both = [known(0, &of)?, known(1, &of)?];
                Some(Line::of(Named::Constant(constant.name), is_time, both))
            });
            lines.extend(constants.flatten());
        }
        Some(Self { pair: base.0.pair, base: base.1, new: new.1, form, lines })
    }

    /// Whether anything is different beyond doubt.
    fn differs(&self) -> bool {
        let is_beyond = |line: &Line| line.verdict != Verdict::CannotTell;
        self.form == Form::Other || self.lines.iter().any(is_beyond)
    }
}

fn value(shape: Shape, name: &str) -> Option<f64> {
    let constant = |one: &Constant| one.name == name;
    shape.constants().into_iter().find(constant).map(|one| one.value)
}

/// What can be said of the forms of two laws.
fn form(base: &Law, new: &Law) -> Form {
    let fits = |law: &Law, shape: Shape| {
        law.shape.is_like(shape) || law.others.iter().any(|other| other.is_like(shape))
    };
    // What it is not sure to grow by may be what the other grows by.
    let may_be =
        |law: &Law, other: &Law| law.unsure.is_some_and(|unsure| unsure.is_like(other.shape));
    if !base.holds || !new.holds {
        Form::Unknown
    } else if fits(base, new.shape) || fits(new, base.shape) {
        Form::Same
    } else if may_be(base, new) || may_be(new, base) {
        Form::Unknown
    } else {
        Form::Other
    }
}
