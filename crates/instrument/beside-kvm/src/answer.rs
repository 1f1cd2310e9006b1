//! The results of all sides, in sentences.

use mayfly_lifecycle_steps::{Architecture, Course, Row, Until};
use mayfly_record::{Description, units};

use crate::figures::{Figure, Figures};
use crate::rows::description;
use crate::run::{ByWay, LEAN, Measured, Side};
use crate::way::Way;

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
        Row::LogStarted4k | Row::LogStarted2m => {
            "initially-set write-protects nothing at the start, and everything at the first harvest"
        }
        Row::LoggedFirst4k | Row::LoggedFirst2m => {
            "initially-set has write-protected nothing by then, and eager-split has split the blocks at the start"
        }
        Row::Harvested100Of4k | Row::Harvested100Of2m => {
            "ring has 65,536 entries, is full before all pages are written, and is emptied in the middle of the writes"
        }
        Row::ForkFrozen => "Mayfly saves the machine and holds it against what it is loaded from",
        Row::ForkAnswered50
        | Row::ForkAnswered500
        | Row::ForkAnswered5000
        | Row::ForkWrote50
        | Row::ForkWrote500
        | Row::ForkWrote5000
        | Row::ForkAgain50
        | Row::ForkAgain500
        | Row::ForkAgain5000 => {
            "prefetch and copy have copied these pages before, when the fork was made or went back"
        }
        Row::LogStopped4k => "Mayfly looks whether blocks can be put together, and KVM does not",
        Row::LogStopped2m => {
            "KVM puts no block together before the guest writes to it: see unlogged-2m"
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
pub(crate) struct Sides {
    /// Of each side, by each way. Of a dirty log's, that is first which takes the fewest instructions for the whole course.
    /// Of forks', it is that by which VMMs restore snapshots.
    sides: [Vec<(Option<Way>, Figures)>; Side::ALL.len()],
}

impl Sides {
    pub(crate) fn of(measured: &Measured) -> Self {
        let sides = Side::ALL.map(|side| {
            let by_way = measured.of(side).iter();
            let architecture = measured.architecture();
            let figures = |by_way: &ByWay| (by_way.way, Figures::of(&by_way.samples, architecture));
            let mut all: Vec<_> = by_way.map(figures).collect();
            if measured.course == Course::DirtyLog {
                all.sort_by_key(|(_, figures)| figures.whole());
            }
            all
        });
        Self { sides }
    }

    /// By the first way.
    pub(crate) fn median(&self, side: Side, row: Row, until: Until) -> Option<Figure> {
        self.by_way(side, row, until).next()?
    }

    /// By each way, in that order.
    fn by_way(
        &self,
        side: Side,
        row: Row,
        until: Until,
    ) -> impl Iterator<Item = Option<Figure>> + '_ {
        let ways = self.sides[side as usize].iter().filter(move |_| side.has(row));
        ways.map(move |(_, figures)| figures.median(row, until))
    }

    /// The first way.
    pub(crate) fn way(&self, side: Side) -> Option<Way> {
        self.sides[side as usize].first().and_then(|(way, _)| *way)
    }

    /// The instructions of a side's whole course, by the first way.
    fn whole(&self, side: Side) -> u64 {
        self.sides[side as usize].first().map_or(0, |(_, figures)| figures.whole())
    }

    /// Whether Mayfly takes no fewer instructions for a step than one of the others, by whatever way, until all is done.
    pub(crate) fn is_not_fewer(&self, row: Row) -> bool {
        let mayfly = self.median(Side::Mayfly, row, Until::All);
        let Some(mayfly) = mayfly.filter(|_| row != Row::Nothing) else { return false };
        let others = [Side::Kvm, Side::Lean].into_iter();
        let mut others = others.flat_map(|side| self.by_way(side, row, Until::All)).flatten();
        others.any(|other| mayfly.all() >= other.all())
    }
}

/// How many times as many instructions the other takes.
pub(crate) fn ratio(mayfly: u64, other: u64) -> String {
    match mayfly {
        0 => "-".to_owned(),
        mayfly => units::ratio(other as f64 / mayfly as f64),
    }
}

/// The results on all processors.
pub fn answer(all: &[Measured]) -> Vec<String> {
    all.iter().flat_map(of_one).collect()
}

/// The description of the experiment in a record, with these results.
pub fn describe(all: &[Measured]) -> Description {
    let lines = answer(all);
    let (course, architecture) = all
        .first()
        .map_or((Course::Lives, Architecture::Arm64), |one| (one.course, one.architecture()));
    Description { verdict: lines.clone(), answer: lines, ..description(course, architecture) }
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
        ratio(mayfly.all(), kvm.all()),
        of_lean.0,
        of_lean.1,
        ratio(mayfly.all(), lean.all()),
    ))
}

fn of_one(measured: &Measured) -> Vec<String> {
    let sides = Sides::of(measured);
    let more: Vec<Row> = measured.steps().filter(|row| sides.is_not_fewer(*row)).collect();
    // Steps that follow each other for one reason are told together.
    let more: Vec<String> = more
        .chunk_by(|one, other| why_not_fewer(*one) == why_not_fewer(*other))
        .map(|rows| {
            let names: Vec<_> = rows.iter().map(|row| row.name()).collect();
            format!("{} ({})", names.join(" and "), why_not_fewer(rows[0]))
        })
        .collect();
    let (first, than) = match measured.course {
        Course::Lives => (of_lives(measured, &sides), "KVM"),
        Course::DirtyLog => (of_log(measured, &sides), "each of KVM's ways"),
        Course::Fork => (of_forks(measured, &sides), "each of KVM's ways"),
    };
    let except =
        if more.is_empty() { String::new() } else { format!(", except in {}", more.join("; ")) };
    let fewer = format!(
        "Until all work is done and all memory is freed, Mayfly takes fewer instructions than {than} in every step, lean or \
         not{except}."
    );
    let left_out = (!measured.left_out.is_empty()).then(|| {
        format!("Not measured on {}: {}.", measured.processor, measured.left_out.join("; "))
    });
    [first, fewer].into_iter().chain(left_out).collect()
}

fn of_lives(measured: &Measured, sides: &Sides) -> String {
    let steps = TENTH.into_iter().filter_map(|(row, what)| sentence(sides, row, what));
    let steps: Vec<_> = steps.collect();
    format!(
        "On {}, retired instructions until all is done, of Mayfly, of KVM in Linux {}, and of KVM in the same Linux with \
         {LEAN} (in brackets: those until the caller has control back, and KVM / Mayfly): {}.",
        measured.processor,
        measured.linux,
        steps.join("; ")
    )
}

/// The whole course of a dirty log, by the way of KVM's that takes the fewest instructions.
fn of_log(measured: &Measured, sides: &Sides) -> String {
    let mayfly = sides.whole(Side::Mayfly);
    let of = |side| {
        let (kvm, way) = (sides.whole(side), sides.way(side).map_or("", Way::name));
        let ratio = units::ratio(kvm as f64 / mayfly.max(1) as f64);
        format!("{} (by {way}, {ratio})", units::grouped(kvm))
    };
    format!(
        "On {}, retired instructions of the whole course of a dirty log, its guest's writes included, until all is done: \
         Mayfly {}; KVM in Linux {} {}; in the same Linux with {LEAN} {}.",
        measured.processor,
        units::grouped(mayfly),
        measured.linux,
        of(Side::Kvm),
        of(Side::Lean)
    )
}

/// The steps of forks that the answer tells, and their names in sentences.
const OF_FORKS: [(Row, &str); 6] = [
    (Row::ForkMade, "to make one"),
    (Row::ForkRegisters, "of that, for the registers of its vCPU"),
    (Row::ForkRan, "until it has retired its first instructions"),
    (Row::ForkAnswered500, "until it has answered a request that writes to 500 pages"),
    (Row::ForkWrote500, "for that request alone"),
    (Row::ForkReset500, "to have it go back"),
];

/// A fork, by the first way.
fn of_forks(measured: &Measured, sides: &Sides) -> String {
    let told = |row: Row, what: &str| {
        let all = |side| Some(sides.median(side, row, Until::All)?.all());
        let mayfly = all(Side::Mayfly)?;
        let of = |side| {
            let kvm = all(side)?;
            Some(format!("{} ({})", units::grouped(kvm), ratio(mayfly, kvm)))
        };
        let (kvm, lean) = (of(Side::Kvm)?, of(Side::Lean)?);
        Some(format!("{what} {}, {kvm} and {lean}", units::grouped(mayfly)))
    };
    let steps: Vec<_> = OF_FORKS.into_iter().filter_map(|(row, what)| told(row, what)).collect();
    format!(
        "On {}, retired instructions of a fork until all is done, of Mayfly, of KVM by {} in Linux {}, and of KVM by the \
         same in the same Linux with {LEAN} (in brackets: KVM / Mayfly): {}.",
        measured.processor,
        sides.way(Side::Kvm).map_or("", Way::name),
        measured.linux,
        steps.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::{forked, logged, measured};

    #[test]
    fn forks_stand_beside_those_of_restored_snapshots_and_each_way_is_asked() {
        let mut one = forked(1000, [3000, 9000]);
        let lines = answer(&[one.clone()]);
        let told = "of KVM by map-private in Linux 6.12.1, and of KVM by the same in the same Linux with debugfs=off";
        assert!(lines[0].contains(told), "{}", lines[0]);
        let told = "to make one 1,000, 3,000 (3.00x) and 3,000 (3.00x);";
        assert!(lines[0].contains(told), "{}", lines[0]);
        let told =
            "for that request alone 1,000, 3,000 (3.00x) and 3,000 (3.00x); to have it go back";
        assert!(lines[0].contains(told), "{}", lines[0]);
        assert!(lines[1].ends_with("than each of KVM's ways in every step, lean or not."));

        // The way that is not in the sentence takes less in one step.
        for line in &mut one.sides[Side::Lean as usize][1].samples {
            if line.row == Row::ForkWrote50 {
                line.spent.levels[2] = 10;
            }
        }
        let lines = answer(&[one]);
        assert!(lines[1].contains("except in fork-wrote-50 (prefetch and copy"), "{}", lines[1]);
    }

    #[test]
    fn a_log_stands_beside_the_way_with_the_fewest_instructions_and_each_way_is_asked() {
        let lines = answer(&[logged(1000, [3000, 2000])]);
        let whole = |each: u64| {
            units::grouped(
                each * (Row::of(Course::DirtyLog, Architecture::Arm64).count() as u64 - 2),
            )
        };
        let told =
            format!("Mayfly {}; KVM in Linux 6.12.1 {} (by ring, 2", whole(1000), whole(2000));
        assert!(lines[0].contains(&told), "{}", lines[0]);
        assert!(lines[1].ends_with("than each of KVM's ways in every step, lean or not."));

        let mut one = logged(1000, [3000, 2000]);
        one.left_out.push("kvm-eager-split: why".to_owned());
        assert_eq!(answer(&[one.clone()])[2], "Not measured on neoverse-n1: kvm-eager-split: why.");
        // The way that takes more in all takes less in one step.
        for line in &mut one.sides[Side::Kvm as usize][0].samples {
            if line.row == Row::LogStopped2m {
                line.spent.levels[2] = 10;
            }
        }
        let lines = answer(&[one]);
        assert!(lines[1].contains("except in log-stopped-2m (KVM puts no block"), "{}", lines[1]);
    }

    /// Has Mayfly take as many instructions for these steps.
    fn takes(one: &mut Measured, rows: &[Row], until: &[Until], instructions: u64) {
        for line in &mut one.sides[Side::Mayfly as usize][0].samples {
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
