//! What a record has of all sides.

use mayfly_lifecycle_steps::{Architecture, Course, Line, Row, Until};
use mayfly_record::{Backend, Description, MACHINE, MetricDescription, ResultRow, Samples, Unit};

use crate::figures::{Figure, Figures};
use crate::run::{ByWay, LEAN, Measured, Side};

/// The levels that are counted apart, as metrics are named.
const fn levels(architecture: Architecture) -> &'static [&'static str] {
    match architecture {
        Architecture::Arm64 => &["el0", "el1", "el2"],
        Architecture::X86 => &[],
    }
}

/// Between the reading of the clock and that of the counters, and by how little the clock shows.
const SLACK: u64 = 64;

/// A row for each step of each side.
///
/// QEMU and the processor's registers decide which instructions are executed, so records that differ in them are not
/// compared ([`mayfly_record::MACHINE`]).
pub fn rows(measured: &Measured) -> Vec<ResultRow> {
    let mut rows = Vec::new();
    let all = Side::ALL.into_iter();
    for (side, ByWay { way, samples }) in
        all.flat_map(|side| measured.of(side).iter().map(move |by_way| (side, by_way)))
    {
        let figures = Figures::of(samples, measured.architecture());
        let variant = match way {
            Some(way) => format!("{}-{way}", side.variant()),
            None => side.variant().to_owned(),
        };
        for step in measured.steps().filter(|step| *step != Row::Nothing && side.has(*step)) {
            let row = ResultRow::new(measured.course.name(), Backend::Metal, &variant)
                .param("processor", measured.processor.name())
                .param("step", step.name())
                .param("rounds", measured.rounds);
            let Measured { qemu, registers, linux, .. } = measured;
            let row = found(row, side, qemu, registers, linux);
            let row = metrics(row, &figures, step, measured.architecture());
            rows.push(match measured.architecture() {
                Architecture::Arm64 => in_time(row, samples, step),
                Architecture::X86 => asleep(row, samples, step),
            });
        }
    }
    rows
}

/// A row with what its machine was: QEMU, the processor's registers, and the Linux of a side that has one.
pub(crate) fn found(
    row: ResultRow,
    side: Side,
    qemu: &str,
    registers: &str,
    linux: &str,
) -> ResultRow {
    let [of_qemu, of_processor] = MACHINE;
    let row = row.finding(of_qemu, qemu).finding(of_processor, registers);
    match side {
        Side::Mayfly => row,
        Side::Kvm => row.finding("linux", linux),
        Side::Lean => row.finding("linux", format!("{linux} {LEAN}")),
    }
}

fn metrics(
    mut row: ResultRow,
    figures: &Figures,
    step: Row,
    architecture: Architecture,
) -> ResultRow {
    for until in Until::ALL {
        let figures = figures.of_row(step, until);
        let samples =
            |of: &dyn Fn(&Figure) -> u64, unit: Unit| Samples::of(unit, figures.iter().map(of));
        let instructions = || Unit::Other("instructions".to_owned());
        row = row.metric(until.name(), &samples(&|figure| figure.all(), instructions()));
        for (level, name) in levels(architecture).iter().enumerate() {
            let name = format!("{}_{name}", until.name());
            row = row.metric(&name, &samples(&|figure| figure.levels[level], instructions()));
        }
        // Until all work is done the caller sleeps: its time means nothing.
        if until == Until::Caller {
            let time = samples(&|figure| figure.nanoseconds, Unit::Nanoseconds);
            row = row.metric("caller_virtual", &time);
        }
    }
    row
}

/// On arm64, a PMU counts. An instruction takes 1 ns of the machine's clock: no more can have been executed than that shows.
fn in_time(row: ResultRow, samples: &[Line], step: Row) -> ResultRow {
    let of_step = samples.iter().filter(|line| line.row == step);
    let wrong = of_step.clone().find(|line| all(line) > line.spent.nanoseconds + SLACK);
    let detail = match wrong {
        Some(line) => format!("{} instructions in {} ns", all(line), line.spent.nanoseconds),
        None => format!("in none of {} samples", of_step.count()),
    };
    row.check("no_more_instructions_than_nanoseconds", wrong.is_none(), detail)
}

/// On x86-64, that clock is what counts. It goes on while a processor halts, and would count that as instructions; so none
/// halts, and what is executed in place of that is subtracted. The sleep behind a step shows whether that is so: hardly
/// anything is left of it.
fn asleep(row: ResultRow, samples: &[Line], step: Row) -> ResultRow {
    let until = |until| samples.iter().filter(move |line| (line.row, line.until) == (step, until));
    let sleeps = until(Until::Caller).zip(until(Until::All)).map(|(caller, done)| {
        let nanoseconds = done.spent.nanoseconds.saturating_sub(caller.spent.nanoseconds);
        (all(done).saturating_sub(all(caller)), nanoseconds)
    });
    let wrong = sleeps.clone().find(|(counted, nanoseconds)| *counted > nanoseconds / 2);
    let detail = match wrong {
        Some((counted, nanoseconds)) => format!("{counted} instructions in {nanoseconds} ns"),
        None => format!("in none of {} sleeps", sleeps.count()),
    };
    row.check("no_more_instructions_than_half_of_a_sleep", wrong.is_none(), detail)
}

fn all(line: &Line) -> u64 {
    line.spent.levels.iter().fold(0, |all, level| all.saturating_add(*level))
}

/// What a record says of the experiment.
pub(crate) fn description(course: Course, architecture: Architecture) -> Description {
    let metric =
        |name: String, summary: String, headline| MetricDescription { name, summary, headline };
    let mut metrics = Vec::new();
    for until in Until::ALL {
        let when = match until {
            Until::Caller => "until the caller has control back",
            Until::All => "until all is done and freed",
        };
        let name = until.name().to_owned();
        metrics.push(metric(name, format!("retired instructions, {when}"), true));
        for level in levels(architecture) {
            let name = format!("{}_{level}", until.name());
            metrics.push(metric(name, format!("of them, at {}", level.to_uppercase()), false));
        }
    }
    let what = match course {
        Course::Lives => "steps of a VM's lifecycle",
        Course::DirtyLog => "starting, harvesting and stopping the log of what a guest writes",
        Course::Fork => "making, using, resetting and ending forks of a guest",
    };
    let time = "the emulated machine's time, until the caller has control back; no hardware's";
    metrics.push(metric("caller_virtual".to_owned(), time.to_owned(), false));
    Description {
        name: course.name().to_owned(),
        summary: match architecture {
            Architecture::Arm64 => {
                format!("{what} on arm64, Mayfly at EL2 beside KVM, in retired instructions")
            }
            Architecture::X86 => {
                format!("{what} on x86-64, Mayfly beside kvm-amd, in retired instructions")
            }
        },
        metrics,
        ..Description::default()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use mayfly_lifecycle_steps::Spent;
    use mayfly_record::{Host, Record};

    use super::*;
    use crate::machine::Processor;
    use crate::way::Way;

    /// Samples in which every step takes so many instructions at each level.
    pub(crate) fn samples(course: Course, levels: [u64; 3]) -> Vec<Line> {
        samples_on(Architecture::Arm64, course, levels)
    }

    fn samples_on(architecture: Architecture, course: Course, levels: [u64; 3]) -> Vec<Line> {
        let line = |row: Row, until, levels: [u64; 3]| {
            let nanoseconds = levels.iter().sum();
            Line { row, until, times: 1, spent: Spent { levels, nanoseconds } }
        };
        let steps =
            Row::of(course, architecture).flat_map(|row| Until::ALL.map(|until| (row, until)));
        let steps = steps.map(|(row, until)| match row {
            Row::Nothing => line(row, until, [0; 3]),
            // Beside what it is of, each asks so often.
            _ => line(row, until, levels.map(|level| level * (1 + row.asks()))),
        });
        steps.collect()
    }

    pub(crate) fn measured(mayfly: [u64; 3], kvm: [u64; 3], lean: [u64; 3]) -> Measured {
        let sides = [mayfly, kvm, lean]
            .map(|levels| vec![ByWay { way: None, samples: samples(Course::Lives, levels) }]);
        Measured {
            course: Course::Lives,
            processor: Processor::NeoverseN1,
            qemu: "7.2.22".to_owned(),
            registers: "midr_el1=0x1".to_owned(),
            rounds: 1,
            linux: "6.12.1".to_owned(),
            left_out: Vec::new(),
            sides,
        }
    }

    /// The same on x86-64, where instructions are not told apart.
    pub(crate) fn measured_on_x86(mayfly: u64, kvm: u64, lean: u64) -> Measured {
        let of = |all| samples_on(Architecture::X86, Course::Lives, [0, 0, all]);
        let sides = [mayfly, kvm, lean].map(|all| vec![ByWay { way: None, samples: of(all) }]);
        Measured { processor: Processor::Epyc, sides, ..measured([0; 3], [0; 3], [0; 3]) }
    }

    /// Of a dirty log: what Mayfly takes, and what KVM does by two ways, lean or not.
    pub(crate) fn logged(mayfly: u64, kvm: [u64; 2]) -> Measured {
        by_ways(Course::DirtyLog, mayfly, [Way::WriteProtect, Way::Ring], kvm)
    }

    /// The same of forks.
    pub(crate) fn forked(mayfly: u64, kvm: [u64; 2]) -> Measured {
        by_ways(Course::Fork, mayfly, [Way::MapPrivate, Way::Prefetch], kvm)
    }

    fn by_ways(course: Course, mayfly: u64, ways: [Way; 2], kvm: [u64; 2]) -> Measured {
        let of = |instructions| samples(course, [0, 0, instructions]);
        let kvm = [(ways[0], kvm[0]), (ways[1], kvm[1])]
            .map(|(way, instructions)| ByWay { way: Some(way), samples: of(instructions) });
        let mayfly = vec![ByWay { way: None, samples: of(mayfly) }];
        Measured {
            course,
            sides: [mayfly, kvm.to_vec(), kvm.to_vec()],
            ..measured([0; 3], [0; 3], [0; 3])
        }
    }

    #[test]
    fn each_way_of_a_log_is_a_variant() {
        let rows = rows(&logged(10, [20, 30]));
        let steps = Row::of(Course::DirtyLog, Architecture::Arm64).count() - 1;
        for variant in ["mayfly", "kvm-write-protect", "kvm-ring", "kvm-lean-ring"] {
            let of_it = rows.iter().filter(|row| row.variant == variant);
            assert_eq!(of_it.filter(|row| row.experiment == "dirty-log").count(), steps);
        }
        assert_eq!(rows.len(), 5 * steps);
    }

    #[test]
    fn each_side_has_a_row_for_each_step_with_its_levels_and_what_they_come_to() {
        let rows = rows(&measured([0, 2, 100], [30, 2, 3000], [20, 2, 1000]));
        let alone = Row::ALL.iter().filter(|row| row.is_of_mayfly_alone()).count();
        let steps = Row::of(Course::Lives, Architecture::Arm64).count() - 1;
        assert_eq!(rows.len(), 3 * steps - 2 * alone);
        for row in &rows {
            let p50 = |metric: &str| row.metrics[metric].p50;
            let (el0, all) = match &*row.variant {
                "mayfly" => (0, 102),
                "kvm" => (30, 3032),
                _ => (20, 1022),
            };
            let found: Vec<_> = row.findings.iter().map(|found| &*found.name).collect();
            assert!(found.starts_with(&MACHINE), "{found:?}");
            for until in ["caller", "all"] {
                assert_eq!((p50(&format!("{until}_el0")), p50(until)), (el0, all), "{row:?}");
            }
            assert_eq!(row.metrics["caller"].unit, Unit::Other("instructions".to_owned()));
            assert_eq!(row.metrics["caller_virtual"].unit, Unit::Nanoseconds);
            assert!(row.checks.iter().all(|check| check.ok));
        }
    }

    #[test]
    fn more_instructions_than_there_was_time_for_are_found() {
        let mut measured = measured([0, 2, 100], [30, 2, 3000], [30, 2, 3000]);
        let kvm = &mut measured.sides[Side::Kvm as usize][0].samples;
        for line in kvm.iter_mut().filter(|line| line.row == Row::Hvc) {
            line.spent.nanoseconds -= SLACK + 1;
        }
        let record = Record::new(Host::default(), rows(&measured));
        let failed: Vec<_> = record.failed_checks().map(|(row, _)| &row.params["step"]).collect();
        assert_eq!(failed, ["hvc"]);
    }

    #[test]
    fn on_x86_a_sleep_that_was_counted_is_found() {
        let mut measured = measured_on_x86(100, 3000, 3000);
        for side in [Side::Mayfly, Side::Kvm] {
            let samples = &mut measured.sides[side as usize][0].samples;
            let sleeps = |line: &&mut Line| line.until == Until::All;
            for line in samples.iter_mut().filter(sleeps) {
                line.spent.nanoseconds += 1000;
                // As much as may be left to be done behind a step.
                line.spent.levels[2] += 500;
            }
            let step = if side == Side::Kvm { Row::Cpuid } else { Row::HltTimer };
            for line in samples.iter_mut().filter(sleeps).filter(|line| line.row == step) {
                line.spent.levels[2] += 1;
            }
        }
        let record = Record::new(Host::default(), rows(&measured));
        let failed = record.failed_checks();
        let failed: Vec<_> =
            failed.map(|(row, _)| format!("{} {}", row.variant, row.params["step"])).collect();
        assert_eq!(failed, ["mayfly \"hlt-timer\"", "kvm \"cpuid\""]);
    }

    #[test]
    fn the_document_names_each_step_and_what_is_done_in_it() {
        let documents = [
            include_str!("../../../../docs/bare-metal.md"),
            include_str!("../../../../docs/dirty-log.md"),
            include_str!("../../../../docs/fork.md"),
        ];
        for (course, document) in Course::ALL.into_iter().zip(documents) {
            for step in Row::of(course, Architecture::Arm64) {
                let row = format!("| `{}` | {} |", step.name(), step.summary());
                assert!(document.contains(&row), "{row}");
            }
        }
        let document = include_str!("../../../../docs/x86.md");
        for step in Row::of(Course::Lives, Architecture::X86) {
            let row = format!("| `{}` | {} |", step.name(), step.summary());
            assert!(document.contains(&row), "{row}");
        }
    }

    #[test]
    fn everything_that_a_row_has_is_described() {
        let on_arm64 = measured([0, 2, 100], [30, 2, 3000], [30, 2, 3000]);
        for measured in [on_arm64, measured_on_x86(100, 3000, 3000)] {
            let described = description(Course::Lives, measured.architecture());
            let described: Vec<_> =
                described.metrics.into_iter().map(|metric| metric.name).collect();
            for row in rows(&measured) {
                assert!(row.metrics.keys().all(|name| described.contains(name)), "{row:?}");
                assert_eq!(row.metrics.len(), described.len());
            }
        }
    }
}
