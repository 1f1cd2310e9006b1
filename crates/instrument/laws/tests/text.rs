//! What a person is told of each form, and that any samples at all are told.

use mayfly_laws::{
    Call, Dimension, Document, Entry, Kind, Law, Missing, Pair, Point, SCHEMA, Series, Shape, Text,
    fit,
};
use mayfly_record::Host;
use proptest::prelude::*;

#[path = "common/law.rs"]
mod common;

use common::law;

fn entry(dimension: Dimension, law: Law) -> Entry {
    let point = |n, time| Point {
        n,
        held_out: false,
        wall_ns: vec![time; 5],
        cpu_ns: vec![time; 5],
        queued_ns: vec![0; 5],
    };
    Entry {
        pair: Pair { call: Call::AddSlot, dimension },
        series: Series {
            points: vec![point(1, 2_000), point(1_000, 1_500_000)],
            ..Series::default()
        },
        work: Some(law.clone()),
        law: Some(law),
        skipped: None,
    }
}

fn document(laws: Vec<Entry>) -> Document {
    Document {
        schema: SCHEMA.to_owned(),
        host: Host { kernel: "6.18.0".into(), arch: "x86_64".into(), cpus: 2, ..Host::default() },
        tick_ns: Some(4_000_000),
        rounds: 5,
        seed: 1,
        settled_ns: 40_000_000,
        laws,
    }
}

/// The text without its line breaks.
fn told(entry: Entry) -> String {
    let text = Text::new(&document(vec![entry]), 79).to_string();
    assert!(text.lines().all(|line| line.len() <= 79), "{text}");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn each_form_is_told_in_words_with_its_numbers_and_units() {
    let of = |dimension, shape| told(entry(dimension, law(shape)));
    for (dimension, shape, words) in [
        (Dimension::Vms, Shape::Constant { base: 2e6 }, "No growth was found: it takes 2.00 ms."),
        (
            Dimension::Vms,
            Shape::Logarithm { base: 1e3, factor: 1e4 },
            "Grows with the logarithm: 1.00 us and 6.93 us more for each doubling.",
        ),
        (
            Dimension::SlotPages,
            Shape::Linear { base: 1e3, factor: 0.25 },
            "Grows linearly: 1.00 us and 250 ps more for each page.",
        ),
        (
            Dimension::Slots,
            Shape::LogLinear { base: 1e3, factor: 20.0 },
            "Grows as n log n: 1.00 us and n ln(n) times 20 ns.",
        ),
        (
            Dimension::Slots,
            Shape::Bend { base: 1e3, at: 300.0, factor: 20.0 },
            "Takes 1.00 us up to 300 slots, and from there on 20 ns more for each slot.",
        ),
        (
            Dimension::Slots,
            Shape::Step { before: 1e3, last: 1.0, first: 64.0, after: 1e6 },
            "Takes 1.00 us up to 1 slot, and 1.00 ms from 64 slots on.",
        ),
        (
            Dimension::Gpa,
            Shape::Constant { base: 2e6 },
            "It takes 2.00 us at 1 GiB, and 1.50 ms at 1,000 GiB.",
        ),
        (
            Dimension::Age,
            Shape::Wait { base: 1e3, end: 8e6 },
            "Waits until 8.00 ms after the registration; a call that comes later takes 1.00 us.",
        ),
    ] {
        let told = of(dimension, shape);
        assert!(told.contains(words), "{told}");
        assert!(told.contains("Points that were held out are missed by 5.0% at the most."));
    }
    let aged = of(Dimension::Age, Shape::Constant { base: 2e3 });
    assert!(aged.contains("It takes 2.00 us after 1.00 us, and 1.50 ms after 1.00 ms."), "{aged}");
    let counted = of(Dimension::Slots, Shape::Constant { base: 2e3 });
    assert!(counted.contains("It takes 2.00 us with 1 slot, and 1.50 ms with 1,000 slots."));
}

#[test]
fn how_sure_a_law_is_stands_behind_it() {
    let power = Shape::Power { base: 1e3, factor: 40.0, exponent: 1.31 };
    let told = told(entry(
        Dimension::Mappings,
        Law {
            others: vec![Shape::Linear { base: 0.0, factor: 1.0 }],
            exponent: Some([1.25, 1.4]),
            growth: Some([3.0, 4.5]),
            millisecond: Some(700),
            ..law(power)
        },
    ));
    for words in [
        "Grows as n^1.31 (the exponent is 1.25 to 1.40 at 95 %): 1.00 us and n^1.31 times 40 ns.",
        "Within noise, the form linear fits as well.",
        "The longest call takes 3.00x to 4.50x as long as the shortest (at 95 %).",
        "It takes a millisecond from 700 mappings on.",
    ] {
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn no_law_a_sleep_and_what_was_not_measured_are_told() {
    let mut none = entry(
        Dimension::Age,
        Law {
            holds: false,
            held_out: 0.9,
            unsure: Some(Shape::Linear { base: 1.0, factor: 1.0 }),
            ..law(Shape::Constant { base: 1.0 })
        },
    );
    let text = told(none.clone());
    let words = "No law was found: the form constant misses a point that was held out by 90% (the bound is 25%). The form linear fits best, but it is not sure that anything grows. The medians of the points are 2.00 us to 1.50 ms.";
    assert!(text.contains(words), "{text}");
    assert!(!text.contains("sleeps"), "{text}");
    none.series.points[1].wall_ns = vec![8_000_000; 5];
    none.work = Some(law(Shape::Constant { base: 3e3 }));
    let text = told(none.clone());
    let words = "The calling thread sleeps in it: at one point, the median is 1.6 ticks. Of its processor time the law is: No growth was found: it takes 3.00 us.";
    assert!(text.contains(words), "{text}");
    let skipped = Entry {
        series: Series::default(),
        law: None,
        work: None,
        skipped: Some("there are 1 to 50".into()),
        ..none
    };
    assert!(told(skipped).contains("Not measured: there are 1 to 50."));
}

#[test]
fn lines_of_points_are_no_wider_than_the_page() {
    let mut one = entry(Dimension::Mappings, law(Shape::Constant { base: 2e6 }));
    one.series.points[1].held_out = true;
    one.series.points[1].n = 30_000;
    one.series.missing = vec![Missing { n: 40_000, why: "mmap: Cannot allocate memory".into() }];
    let document = document(vec![one]);
    for width in 30..=100 {
        let text = Text::new(&document, width).full(true).to_string();
        let widest = text.lines().map(str::len).max().unwrap();
        assert!(widest <= width, "{width}: {text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("of which it sleeps 0 ns held out"), "{text}");
        let said = "It could not be measured with 40,000 mappings: mmap: Cannot allocate memory.";
        assert!(words.contains(said), "{text}");
    }
    let wide = Text::new(&document, 80).full(true).to_string();
    assert!(
        wide.contains("\n          1 mapping   2.00 us, of which it sleeps     0 ns\n"),
        "{wide}"
    );
}

#[test]
fn a_document_is_read_as_it_was_written() {
    let document = document(vec![
        entry(Dimension::Vms, law(Shape::Step { before: 1.0, last: 2.0, first: 3.0, after: 4.0 })),
        entry(
            Dimension::Age,
            Law { growth: Some([1.0, 2.0]), ..law(Shape::Wait { base: 1.0, end: 2.0 }) },
        ),
        entry(
            Dimension::Slots,
            Law {
                exponent: Some([1.2, 1.4]),
                others: vec![Shape::Power { base: 1.0, factor: 2.0, exponent: 1.2 }],
                ..law(Shape::Power { base: 1.0, factor: 2.0, exponent: 1.3 })
            },
        ),
    ]);
    let read: Document = serde_json::from_str(&document.to_json()).unwrap();
    assert_eq!(read, document);
}

proptest! {
    /// Whatever was measured: there is a law of no more than what was measured, and it can be told.
    #[test]
    fn any_samples_have_a_law_and_a_text(
        samples in prop::collection::vec(prop::collection::vec(prop_oneof![0..100_u64, any::<u64>()], 5), 0..16),
        is_age in any::<bool>(),
    ) {
        let dimension = if is_age { Dimension::Age } else { Dimension::Slots };
        let points = (0..).zip(&samples).map(|(index, samples): (u32, _)| Point {
            n: 1 << (2 * index),
            held_out: index % 4 == 2,
            wall_ns: samples.clone(),
            cpu_ns: samples.iter().map(|sample| sample / 2).collect(),
            queued_ns: samples.iter().map(|sample| sample / 3).collect(),
        });
        let series = Series { points: points.collect(), ..Series::default() };
        let fitted = series.points.iter().filter(|point| !point.held_out).count();
        let found = fit(&series, dimension, Kind::Time);
        prop_assert_eq!(found.is_some(), fitted >= 6);
        let Some(found) = found else { return Ok(()) };
        prop_assert!(found.held_out >= 0.0);
        if let (Some(n), Some((from, to))) = (found.millisecond, series.range()) {
            prop_assert!((from..=to).contains(&n));
        }
        let work = fit(&series, dimension, Kind::Work);
        let pair = Pair { call: Call::AddSlot, dimension };
        let entry = Entry { pair, series, law: Some(found), work, skipped: None };
        let document = document(vec![entry]);
        prop_assert!(!Text::new(&document, 79).full(true).to_string().is_empty());
        let read: Document = serde_json::from_str(&document.to_json()).unwrap();
        // The last digits of a number may be others.
        prop_assert_eq!(read.laws[0].pair, document.laws[0].pair);
    }
}
