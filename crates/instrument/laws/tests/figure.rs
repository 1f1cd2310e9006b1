//! The figures that bounds are about: what of a law they are, and that none is of a number that was not measured.

use mayfly_laws::{
    Call, Dimension, Document, Entry, Figure, Law, Pair, Point, SCHEMA, Series, Shape,
};
use mayfly_record::Host;

#[path = "common/law.rs"]
mod common;

use common::law;

fn document(shape: Shape, holds: bool) -> Document {
    let numbers = [1, 10, 40, 64, 1000];
    let point = |n| Point { n, ..Point::default() };
    let work = law(Shape::Constant { base: 700.0 });
    let law = Law { holds, ..law(shape) };
    let entry = Entry {
        pair: Pair { call: Call::AddSlot, dimension: Dimension::Slots },
        series: Series { points: numbers.map(point).into(), ..Series::default() },
        law: Some(law),
        work: Some(work),
        skipped: None,
    };
    let skipped = Entry {
        pair: Pair { call: Call::Exit, dimension: Dimension::Slots },
        series: Series::default(),
        law: None,
        work: None,
        skipped: Some("there may be 50".into()),
    };
    Document {
        schema: SCHEMA.to_owned(),
        host: Host::default(),
        tick_ns: None,
        rounds: 5,
        seed: 1,
        settled_ns: 0,
        laws: vec![entry, skipped],
    }
}

fn of(shape: Shape, name: &str) -> Result<f64, String> {
    let figure: Figure = name.parse().unwrap();
    assert_eq!(figure.to_string(), name);
    figure.of(&document(shape, true)).map_err(|failed| failed.0)
}

#[test]
fn a_figure_is_what_the_law_says() {
    let linear = Shape::Linear { base: 5_000.0, factor: 20.0 };
    assert_eq!(of(linear, "add-slot/slots.at(500)"), Ok(15_000.0));
    assert_eq!(of(linear, "add-slot/slots.at(1)"), Ok(5_020.0));
    assert_eq!(of(linear, "add-slot/slots.work.at(500)"), Ok(700.0));
    assert_eq!(of(linear, "add-slot/slots.work.growth"), Ok(1.0));
    let growth = of(linear, "add-slot/slots.growth").unwrap();
    assert!((growth - 25_000.0 / 5_020.0).abs() < 1e-9, "{growth}");
    for (shape, exponent) in [
        (Shape::Constant { base: 5.0 }, 0.0),
        (linear, 1.0),
        (Shape::Bend { base: 5.0, at: 10.0, factor: 2.0 }, 1.0),
        (Shape::Power { base: 5.0, factor: 2.0, exponent: 1.37 }, 1.37),
        // At 1,000, the last that was measured.
        (Shape::LogLinear { base: 5.0, factor: 2.0 }, 1.0 + 1.0 / 1000_f64.ln()),
        (Shape::Logarithm { base: 5.0, factor: 2.0 }, 1.0 / 1000_f64.ln()),
    ] {
        assert_eq!(of(shape, "add-slot/slots.exponent"), Ok(exponent), "{shape:?}");
    }
}

#[test]
fn what_is_not_known_is_an_error_that_says_why() {
    let linear = Shape::Linear { base: 5_000.0, factor: 20.0 };
    let why = |name: &str| of(linear, name).unwrap_err();
    assert_eq!(
        why("add-slot/slots.at(1001)"),
        "add-slot/slots.at(1001): it was measured from 1 slot to 1,000 slots, and no law is about 1,001 slots"
    );
    assert_eq!(why("exit/slots.growth"), "exit/slots.growth: it was not measured: there may be 50");
    assert_eq!(why("create-vm/vms.growth"), "create-vm/vms.growth: it was not measured");
    let step = Shape::Step { before: 5.0, last: 40.0, first: 64.0, after: 9.0 };
    assert_eq!(of(step, "add-slot/slots.at(40)"), Ok(5.0));
    assert_eq!(of(step, "add-slot/slots.at(64)"), Ok(9.0));
    assert!(of(step, "add-slot/slots.at(50)").unwrap_err().contains("a step around 50 slots"));
    let none = of(step, "add-slot/slots.exponent").unwrap_err();
    assert!(none.ends_with("the form step has no exponent"), "{none}");
    let figure: Figure = "add-slot/slots.at(500)".parse().unwrap();
    let none = figure.of(&document(linear, false)).unwrap_err();
    assert_eq!(none.0, "add-slot/slots.at(500): no law was found");
}

#[test]
fn a_name_that_is_none_is_refused() {
    for wrong in [
        "",
        "add-slot/slots",
        "add-slot/slots.",
        "add-slot/slots.at",
        "add-slot/slots.at()",
        "add-slot/slots.at(x)",
        "add-slot/slots.at(0)",
        "add-slot/slots.at(+5)",
        "add-slot/slots.at(-5)",
        "add-slot/slots.at(99999999999999999999)",
        "add-slot/slots.p50",
        "add-slot/slots.work",
        "add-slot.growth",
        "exit/irqfds.growth",
        "ratio",
    ] {
        assert!(wrong.parse::<Figure>().is_err(), "{wrong}");
    }
}
