//! How calls grow in each kernel: a table for each pair.

use mayfly_laws::{Entry, Law, Pair};
use mayfly_record::units::{duration, grouped};

use crate::format::Format;
use crate::outcome::Outcome;
use crate::table::{Grid, failures, head};

/// The tables, in the order in which the pairs were measured, and below them what went wrong and what was not measured.
pub(crate) fn tables(outcomes: &[Outcome], format: Format) -> String {
    let grid = Grid::of(outcomes);
    let mut pairs: Vec<Pair> = Vec::new();
    for entry in outcomes.iter().flat_map(|outcome| &outcome.laws) {
        if !pairs.contains(&entry.pair) {
            pairs.push(entry.pair);
        }
    }
    let mut text = head(outcomes);
    for pair in pairs {
        let cell = |outcome: &Outcome| of(outcome.laws.iter().find(|entry| entry.pair == pair)?);
        let about = format!("{}, {}", pair.call.of_kvm(), pair.dimension.about());
        let table = grid.table(&format!("{} ({about})", pair.name()), outcomes, format, cell);
        text.extend(table.map(|table| format!("\n{table}")));
    }
    for outcome in outcomes {
        for entry in &outcome.laws {
            let why = entry.skipped.iter().map(|why| {
                let (version, machine) = (&outcome.kernel.version, outcome.machine.name());
                format!("\nnot measured: {} on {version}, {machine}: {why}\n", entry.pair.name())
            });
            text.extend(why);
        }
    }
    text + &failures(outcomes)
}

/// The form, and what the call takes at both ends; nothing where it was not measured.
fn of(entry: &Entry) -> Option<String> {
    let Law { shape, holds, .. } = entry.law.as_ref()?;
    let [first, .., last] = entry.series.points.as_slice() else { return None };
    let form = if *holds { shape.name() } else { "no law" };
    let (few, many) = (duration(first.time()), duration(last.time()));
    Some(format!("{form}: {few} at {}, {many} at {}", grouped(first.n), grouped(last.n)))
}

#[cfg(test)]
mod tests {
    use mayfly_laws::{Call, Dimension, Point, Series, Shape};

    use super::*;
    use crate::archive::{self, Kernel};
    use crate::machine::Machine;

    const PAIR: Pair = Pair { call: Call::CreateVm, dimension: Dimension::Mappings };

    fn law(shape: Shape, holds: bool) -> Law {
        Law {
            shape,
            others: Vec::new(),
            unsure: None,
            exponent: None,
            growth: None,
            held_out: 0.0,
            holds,
            millisecond: None,
        }
    }

    fn entry(times: [u64; 2], law: Law) -> Entry {
        let point = |(n, time): (u64, u64)| Point {
            n,
            wall_ns: vec![time],
            cpu_ns: vec![time],
            queued_ns: vec![0],
            ..Point::default()
        };
        let points = [1, 30_000].into_iter().zip(times).map(point).collect();
        let series = Series { points, ..Series::default() };
        Entry { pair: PAIR, series, law: Some(law), work: None, skipped: None }
    }

    fn outcome(machine: Machine, minor: u32, laws: Vec<Entry>) -> Outcome {
        let kernel = Kernel {
            series: archive::Series { major: 6, minor },
            version: format!("6.{minor}.1"),
            directory: "/nowhere".into(),
        };
        let (records, wrong) = (Vec::new(), Vec::new());
        Outcome { machine, kernel, records, examination: None, laws, wrong }
    }

    #[test]
    fn a_law_is_its_form_and_both_ends_and_kernels_stand_in_their_order() {
        let linear = law(Shape::Linear { base: 1.0, factor: 1.0 }, true);
        let none = law(Shape::Constant { base: 1.0 }, false);
        let skipped = Entry {
            law: None,
            skipped: Some("no memory".to_owned()),
            ..entry([0, 0], none.clone())
        };
        let outcomes = [
            outcome(Machine::Amd64, 18, vec![entry([300_000, 6_100_000], linear)]),
            outcome(Machine::Amd64, 1, vec![entry([200_000, 210_000], none)]),
            outcome(Machine::Arm64, 18, vec![skipped]),
        ];
        let text = tables(&outcomes, Format::Markdown);
        let expected = "| Linux | amd64 |\n| --- | --- |\n\
                        | 6.1 | no law: 200 us at 1, 210 us at 30,000 |\n\
                        | 6.18 | linear: 300 us at 1, 6.10 ms at 30,000 |\n\n\
                        not measured: create-vm/mappings on 6.18.1, arm64: no memory\n";
        assert!(text.ends_with(expected), "{text}");
        assert!(text.contains("**create-vm/mappings (KVM_CREATE_VM, "), "{text}");
    }
}
