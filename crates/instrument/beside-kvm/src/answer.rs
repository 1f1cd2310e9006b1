//! The results of all sides, in sentences.

use mayfly_lifecycle_steps::{Row, Until};
use mayfly_record::{Description, units};

use crate::figures::{Figure, Figures};
use crate::rows::description;
use crate::run::{LEAN, Measured, Side};

/// The steps for which Mayfly is to take at most a tenth of KVM's instructions until all is done, and their names in
/// sentences.
const TENTH: [(Row, &str); 5] = [
    (Row::VmCreated, "create a VM"),
    (Row::Deleted4k, "delete a slot of 256 MiB mapped by 4 KiB"),
    (Row::Deleted4kUncached, "delete such a slot, written with the caches off"),
    (Row::Destroyed, "destroy a small VM"),
    (Row::Destroyed4k, "destroy a VM with 256 MiB mapped by 4 KiB"),
];

/// Why Mayfly does not take fewer instructions for a step, where that is known.
pub(crate) fn why_not_fewer(row: Row) -> &'static str {
    match row {
        Row::MachineCreated => {
            "Mayfly makes PSCI, and sets memory aside for a clock and virtio devices; KVM makes only a vGIC"
        }
        _ => "the reason is not known",
    }
}

/// Why Mayfly is not done after a tenth of KVM's instructions, where that is known.
fn why_no_tenth(row: Row) -> &'static str {
    match row {
        Row::Deleted4kUncached => {
            "both write back the 64 cache lines of each page, Mayfly of the pages that were written past the caches, KVM of \
             all pages"
        }
        _ => "the reason is not known",
    }
}

/// The figures of all sides on one processor.
pub(crate) struct Sides([Figures; Side::ALL.len()]);

impl Sides {
    pub(crate) fn of(measured: &Measured) -> Self {
        Self(Side::ALL.map(|side| Figures::of(measured.of(side))))
    }

    pub(crate) fn median(&self, side: Side, row: Row, until: Until) -> Option<Figure> {
        self.0[side as usize].median(row, until).filter(|_| side.has(row))
    }

    /// Whether Mayfly takes no fewer instructions for a step than one of the others, until all is done.
    pub(crate) fn is_not_fewer(&self, row: Row) -> bool {
        let all = |side| self.median(side, row, Until::All);
        let Some(mayfly) = all(Side::Mayfly).filter(|_| row != Row::Nothing) else { return false };
        [Side::Kvm, Side::Lean].into_iter().filter_map(all).any(|other| mayfly.all() >= other.all())
    }
}

/// How many times as many instructions the other takes.
pub(crate) fn ratio(mayfly: Figure, other: Figure) -> String {
    match mayfly.all() {
        0 => "-".to_owned(),
        instructions => units::ratio(other.all() as f64 / instructions as f64),
    }
}

/// The results on all processors.
pub fn answer(all: &[Measured]) -> Vec<String> {
    all.iter().flat_map(of_one).collect()
}

/// The description of the experiment in a record, with these results.
pub fn describe(all: &[Measured]) -> Description {
    let lines = answer(all);
    Description { verdict: lines.clone(), answer: lines, ..description() }
}

/// A step: all sides until all is done, and until the caller has control back.
fn sentence(sides: &Sides, row: Row, what: &str) -> Option<String> {
    let all = |side| sides.median(side, row, Until::All);
    let (mayfly, kvm, lean) = (all(Side::Mayfly)?, all(Side::Kvm)?, all(Side::Lean)?);
    let counts = |side: Side| {
        let count = |until| Some(units::grouped(sides.median(side, row, until)?.all()));
        Some((count(Until::All)?, count(Until::Caller)?))
    };
    let ((all, caller), of_kvm, of_lean) =
        (counts(Side::Mayfly)?, counts(Side::Kvm)?, counts(Side::Lean)?);
    let why = if kvm.all().min(lean.all()) < 10 * mayfly.all() {
        format!(", more than a tenth: {}", why_no_tenth(row))
    } else {
        String::new()
    };
    Some(format!(
        "to {what}: {all} ({caller}{why}), {} ({}, {}) and {} ({}, {})",
        of_kvm.0,
        of_kvm.1,
        ratio(mayfly, kvm),
        of_lean.0,
        of_lean.1,
        ratio(mayfly, lean),
    ))
}

fn of_one(measured: &Measured) -> Vec<String> {
    let sides = Sides::of(measured);
    let steps = TENTH.into_iter().filter_map(|(row, what)| sentence(&sides, row, what));
    let steps: Vec<_> = steps.collect();
    let more: Vec<Row> = Row::ALL.iter().copied().filter(|row| sides.is_not_fewer(*row)).collect();
    // Steps that follow each other for one reason are told together.
    let more: Vec<String> = more
        .chunk_by(|one, other| why_not_fewer(*one) == why_not_fewer(*other))
        .map(|rows| {
            let names: Vec<_> = rows.iter().map(|row| row.name()).collect();
            format!("{} ({})", names.join(" and "), why_not_fewer(rows[0]))
        })
        .collect();
    vec![
        format!(
            "On {}, retired instructions until all is done, of Mayfly, of KVM in Linux {}, and of KVM in the same Linux \
             with {LEAN} (in brackets: those until the caller has control back, and KVM / Mayfly): {}.",
            measured.processor,
            measured.linux,
            steps.join("; ")
        ),
        if more.is_empty() {
            "Until all work is done and all memory is freed, Mayfly takes fewer instructions than KVM in every step, lean \
             or not."
                .to_owned()
        } else {
            format!(
                "Until all work is done and all memory is freed, Mayfly takes fewer instructions than KVM in every step, \
                 lean or not, except in {}.",
                more.join("; ")
            )
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::measured;

    /// Has Mayfly take as many instructions for these steps.
    fn takes(one: &mut Measured, rows: &[Row], until: &[Until], instructions: u64) {
        for line in &mut one.samples[Side::Mayfly as usize] {
            if rows.contains(&line.row) && until.contains(&line.until) {
                line.spent.levels[2] = instructions;
            }
        }
    }

    #[test]
    fn the_answer_has_all_numbers_until_all_is_done_and_the_callers_beside_them() {
        let mut one = measured([0, 0, 1000], [10, 0, 26_090], [0, 0, 15_000]);
        takes(&mut one, &[Row::VmCreated], &[Until::Caller], 900);
        let lines = answer(&[one]);
        assert_eq!(lines.len(), 2);
        let expected = "until all is done, of Mayfly, of KVM in Linux 6.12.1, and of KVM in the same Linux with debugfs=off";
        assert!(lines[0].contains(expected) && lines[0].contains("neoverse-n1"), "{}", lines[0]);
        let expected =
            "to create a VM: 1,000 (900), 26,100 (26,100, 26.1x) and 15,000 (15,000, 15.0x);";
        assert!(lines[0].contains(expected), "{}", lines[0]);
        assert!(lines[1].ends_with("than KVM in every step, lean or not."), "{}", lines[1]);
    }

    #[test]
    fn a_step_of_more_than_a_tenth_of_either_says_why() {
        for (kvm, lean) in [(9999, 99_999), (99_999, 9999)] {
            let lines = answer(&[measured([0, 0, 1000], [0, 0, kvm], [0, 0, lean])]);
            assert_eq!(lines[0].matches(", more than a tenth: ").count(), TENTH.len());
            let expected = "(1,000, more than a tenth: both write back";
            assert!(lines[0].contains(expected), "{}", lines[0]);
        }
    }

    #[test]
    fn a_step_that_takes_no_fewer_is_named() {
        let mut one = measured([0, 0, 1000], [0, 0, 3000], [0, 0, 2000]);
        takes(&mut one, &[Row::VmCreated], &Until::ALL, 2000);
        let lines = answer(&[one]);
        assert!(lines[1].contains("except in vm-created ("), "{}", lines[1]);
        assert!(!lines[1].contains("hvc"));
    }

    #[test]
    fn steps_that_take_no_fewer_for_one_reason_are_named_together() {
        let mut one = measured([0, 0, 1000], [0, 0, 2000], [0, 0, 2000]);
        takes(&mut one, &[Row::Hvc, Row::MmioDoorbell], &Until::ALL, 8000);
        let lines = answer(&[one]);
        let told = "except in hvc and mmio-doorbell (the reason is not known)";
        assert!(lines[1].contains(told), "{}", lines[1]);
    }
}
