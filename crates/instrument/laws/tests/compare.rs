//! Two documents of laws side by side: what has changed is said, and nothing that has not.

#![expect(clippy::cast_sign_loss, reason = "times are no less than 0")]

use std::ops::RangeInclusive;

use mayfly_laws::{
    Call, Comparison, Dimension, Document, Entry, Failed, Kernel, Measured, Mismatch, Options,
    Pair, Plan, SCHEMA, Series, Shape, Taken, measure,
};
use mayfly_record::{Chance, Host};
use serde_json::Value;

const PAIR: Pair = Pair { call: Call::CreateVm, dimension: Dimension::Mappings };

/// A law with noise: most calls within 5 % of each other, one in twenty several times as long.
struct Planted {
    law: Shape,
    to: u64,
    chance: Chance,
}

impl Kernel for Planted {
    fn range(&self, _dimension: Dimension) -> Result<RangeInclusive<u64>, Failed> {
        Ok(1..=self.to)
    }

    fn take(&mut self, _pair: Pair, n: u64) -> Result<Taken, Failed> {
        let time = self.law.at(n as f64).ok_or_else(|| Failed("within the step".to_owned()))?;
        let usual = 0.95 + self.chance.below(1000) as f64 / 10_000.0;
        let outlier = if self.chance.below(20) == 0 { 4.0 } else { 1.0 };
        let wall = (time * usual * outlier) as u64;
        Ok(Taken { wall, cpu: wall, queued: 0 })
    }
}

fn document(laws: Vec<Entry>) -> Document {
    Document {
        schema: SCHEMA.to_owned(),
        host: Host { kernel: "6.18.0".into(), arch: "x86_64".into(), cpus: 2, ..Host::default() },
        tick_ns: None,
        rounds: 9,
        seed: 1,
        settled_ns: 40_000_000,
        laws,
    }
}

fn up_to(to: u64, law: Shape, seed: u64) -> Document {
    let mut kernel = Planted { law, to, chance: Chance::new(seed) };
    let plan = Plan::of(&kernel, PAIR).unwrap();
    let options = Options { rounds: 9, seed };
    let Measured { series, law, work } = measure(&mut kernel, &plan, options, || {}).unwrap();
    document(vec![Entry { pair: PAIR, series, law: Some(law), work: Some(work), skipped: None }])
}

fn of(law: Shape, seed: u64) -> Document {
    up_to(30_000, law, seed)
}

const LINEAR: Shape = Shape::Linear { base: 50_000.0, factor: 40.0 };

fn text(base: &Document, new: &Document) -> String {
    Comparison::of(base, new).unwrap().text(false, 80)
}

#[test]
fn nothing_is_called_different_of_two_runs_of_one_law() {
    let power = Shape::Power { base: 20_000.0, factor: 300.0, exponent: 0.8 };
    let constant = Shape::Constant { base: 40_000.0 };
    let step = Shape::Step { before: 20_000.0, last: 300.0, first: 301.0, after: 900_000.0 };
    for law in [LINEAR, power, constant, step] {
        for seed in 0..12 {
            let (base, new) = (of(law, seed), of(law, 1000 + seed));
            let said = text(&base, &new);
            let none = "1 law compared: 0 of another form, 0 slower, 0 faster";
            assert!(said.contains(none), "{law:?}, seed {seed}: {said}");
        }
    }
}

#[test]
fn a_constant_that_has_doubled_is_said_and_where_the_call_takes_longer() {
    let twice = Shape::Linear { base: 50_000.0, factor: 80.0 };
    let (base, new) = (of(LINEAR, 1), of(twice, 2));
    let comparison = Comparison::of(&base, &new).unwrap();
    assert_eq!(comparison.slower(), ["slower: create-vm/mappings, at 30,000 mappings"]);
    let said = comparison.text(false, 80);
    let line = |name: &str| {
        let line = said.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(line("at 30,000 mappings").ends_with(" slower"), "{said}");
    assert!(line("at 1 mapping ").ends_with(" cannot tell"), "{said}");
    assert!(line("factor").ends_with(" more"), "{said}");
    assert!(said.contains("0 of another form, 1 slower, 0 faster"), "{said}");
    // The other way round it is faster, and nothing is wrong.
    let back = Comparison::of(&new, &base).unwrap();
    assert!(back.slower().is_empty() && back.text(false, 80).contains("0 slower, 1 faster"));
    let names: Vec<_> = comparison
        .ratios()
        .into_iter()
        .map(|(row, metric, _, sure)| (row.experiment, metric, sure))
        .collect();
    let pair = || "create-vm/mappings".to_owned();
    assert_eq!(names, [(pair(), "first", false), (pair(), "last", true)]);
}

#[test]
fn another_form_is_said_with_both() {
    let (base, new) = (of(Shape::Constant { base: 60_000.0 }, 1), of(LINEAR, 2));
    let said = text(&base, &new);
    assert!(said.contains("create-vm/mappings: constant has become linear"), "{said}");
    assert!(said.contains("1 of another form, 1 slower"), "{said}");
    assert!(
        !said.contains("factor"),
        "numbers of other forms are not held against each other: {said}"
    );
    let document: Value =
        serde_json::from_str(&Comparison::of(&base, &new).unwrap().json()).unwrap();
    let law = &document["laws"][0];
    assert_eq!(
        (&law["form"], &law["base"], &law["new"]),
        (&"other".into(), &"constant".into(), &"linear".into())
    );
    assert_eq!(law["numbers"][1]["number"], "at(30000)");
    assert_eq!(law["numbers"][1]["verdict"], "slower");
    // Where no law was found, nothing is told of its form.
    let mut none = of(LINEAR, 3);
    none.laws[0].law.as_mut().unwrap().holds = false;
    let said = text(&base, &none);
    assert!(said.contains("0 of another form, 0 slower, 0 faster, 1 of which nothing"), "{said}");
    // Nor where it may be the same.
    let mut unsure = of(Shape::Constant { base: 60_000.0 }, 4);
    unsure.laws[0].law.as_mut().unwrap().unsure = Some(LINEAR);
    assert!(text(&unsure, &new).contains("0 of another form"), "{said}");
}

#[test]
fn only_numbers_that_both_have_measured_are_compared() {
    let twice = Shape::Linear { base: 50_000.0, factor: 80.0 };
    let (base, new) = (up_to(3000, LINEAR, 1), of(twice, 2));
    let said = text(&base, &new);
    assert!(said.contains("at 3,000 mappings") && !said.contains("30,000"), "{said}");
}

#[test]
fn what_was_measured_otherwise_or_is_alone_is_said() {
    let base = of(LINEAR, 1);
    let refused = |new: &Document| Comparison::of(&base, new).unwrap_err().to_string();
    let mut other = base.clone();
    other.settled_ns = 10;
    assert!(refused(&other).contains("(settled_ns) is 40000000 in BASE and 10 in NEW"));
    let mut other = base.clone();
    other.host.arch = "aarch64".into();
    assert_eq!(refused(&other), "the architecture is x86_64 in BASE and aarch64 in NEW");
    let mut other = base.clone();
    other.laws[0].pair.dimension = Dimension::Vms;
    assert_eq!(Comparison::of(&base, &other).unwrap_err(), Mismatch::Nothing);
    let mut more = base.clone();
    more.host.kernel = "6.19.0".into();
    more.laws.push(Entry {
        pair: Pair { call: Call::Exit, dimension: Dimension::Slots },
        ..base.laws[0].clone()
    });
    let said = text(&base, &more);
    assert!(said.contains("different hosts: kernel: 6.18.0 and 6.19.0"), "{said}");
    assert!(said.contains("only in NEW: exit/slots"), "{said}");
    assert!(text(&more, &base).contains("only in BASE: exit/slots"));
    let skipped =
        Entry { series: Series::default(), law: None, work: None, ..base.laws[0].clone() };
    assert_eq!(Comparison::of(&base, &document(vec![skipped])).unwrap_err(), Mismatch::Nothing);
}

#[test]
fn every_format_has_every_number() {
    let twice = Shape::Linear { base: 50_000.0, factor: 80.0 };
    let (base, new) = (of(LINEAR, 1), of(twice, 2));
    let comparison = Comparison::of(&base, &new).unwrap();
    let csv = comparison.csv();
    assert_eq!(csv.lines().count(), 5, "{csv}");
    assert!(csv.lines().all(|line| line.matches(',').count() == 14), "{csv}");
    let markdown = comparison.markdown(false);
    assert!(
        markdown.contains("| create-vm/mappings | linear | at 30,000 mappings | "),
        "{markdown}"
    );
    for width in 30..=80 {
        let text = comparison.text(true, width);
        assert!(text.lines().all(|line| line.len() <= width), "{width}: {text}");
    }
}
