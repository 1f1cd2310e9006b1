use mayfly_record::Host;

use super::*;
use crate::document::SCHEMA;
use crate::pair::{Call, Dimension, Pair};
use crate::series::{Missing, Series};
use crate::shape::Shape;

fn entry(dimension: Dimension, shape: Shape) -> Entry {
    let point = |index: u32| {
        let n = 3_u64.pow(index);
        let time = shape.at(n as f64).map_or(1, crate::shape::whole);
        Point {
            n,
            held_out: index == 2,
            wall_ns: vec![time; 5],
            cpu_ns: vec![time; 5],
            queued_ns: vec![0; 5],
        }
    };
    let series = Series { points: (0..8).map(point).collect(), missing: Vec::new() };
    let law = crate::fit(&series, dimension, crate::Kind::Time);
    Entry { pair: Pair { call: Call::CreateVm, dimension }, series, law, work: None, skipped: None }
}

fn document(laws: Vec<Entry>) -> Document {
    let host = Host { kernel: "6.18.0 <&>".into(), cpus: 2, ..Host::default() };
    Document {
        schema: SCHEMA.to_owned(),
        host,
        tick_ns: None,
        rounds: 5,
        seed: 1,
        settled_ns: 40_000_000,
        laws,
    }
}

fn page(laws: Vec<Entry>) -> String {
    Page(&[document(laws)]).to_string()
}

const LINEAR: Shape = Shape::Linear { base: 5_000.0, factor: 700.0 };

#[test]
fn each_law_has_its_words_its_picture_and_its_points() {
    let page = page(vec![entry(Dimension::Mappings, LINEAR)]);
    assert_eq!(page.matches("<circle class=\"point\"").count(), 7, "{page}");
    assert_eq!(page.matches("<circle class=\"held\"").count(), 1);
    assert_eq!(page.matches("<polyline class=\"law\"").count(), 1);
    assert!(page.contains("Grows linearly: 5.00 us and 700 ns more for each mapping."), "{page}");
    // What the picture shows is in the table, too.
    assert_eq!(page.matches("<tr>").count(), 9);
    assert!(page.contains("<td class=\"number\">2,187 mappings</td>"), "{page}");
    assert_eq!(page.matches(">held out<").count(), 1);
    assert!(page.contains("role=\"img\" aria-label=\"create-vm/mappings: "), "{page}");
    // The list at the top leads to it.
    assert!(page.contains("<a href=\"#0-create-vm-mappings\">"));
    assert!(page.contains("<article id=\"0-create-vm-mappings\">"));
    assert!(page.contains("Linux 6.18.0 &lt;&amp;&gt;") && !page.contains("<&>"), "{page}");
}

#[test]
fn what_was_not_measured_and_what_is_no_law_are_said() {
    let mut none = entry(Dimension::Vms, LINEAR);
    none.series.missing = vec![Missing { n: 6561, why: "EMFILE".into() }];
    if let Some(law) = none.law.as_mut() {
        law.holds = false;
    }
    let skipped = Entry {
        series: Series::default(),
        law: None,
        skipped: Some("there may be <40>".into()),
        ..entry(Dimension::Slots, LINEAR)
    };
    let page = page(vec![none, skipped]);
    assert!(page.contains("No law was found") && !page.contains("<polyline"), "{page}");
    assert!(page.contains("It could not be measured with 6,561 other VMs: EMFILE."), "{page}");
    assert!(page.contains("<dd>there may be &lt;40&gt;</dd>"), "{page}");
    assert_eq!(page.matches("<svg").count(), 1);
}

#[test]
fn documents_of_several_kernels_have_a_section_each() {
    let all = [LINEAR, Shape::Constant { base: 9e3 }];
    let documents: Vec<Document> =
        all.into_iter().map(|shape| document(vec![entry(Dimension::Mappings, shape)])).collect();
    let page = Page(&documents).to_string();
    assert_eq!(page.matches("<section>").count(), 2);
    assert!(page.contains("id=\"1-create-vm-mappings\""), "{page}");
}

/// A damaged record may say anything of a law.
#[test]
fn nothing_breaks_whatever_a_law_says() {
    for number in [-1e300, 0.0, 1e-300, 1e300] {
        for shape in [
            Shape::Linear { base: number, factor: number },
            Shape::Bend { base: number, at: number, factor: number },
            Shape::Wait { base: number, end: number },
            Shape::Step { before: number, last: number, first: number, after: number },
            Shape::Power { base: number, factor: number, exponent: number },
        ] {
            let mut one = entry(Dimension::Age, LINEAR);
            if let Some(law) = one.law.as_mut() {
                law.shape = shape;
                law.holds = true;
            }
            let page = page(vec![one]);
            assert!(!page.contains("NaN"), "{shape:?}");
        }
    }
}
