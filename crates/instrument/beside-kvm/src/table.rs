//! The table that is printed.

use std::fmt;

use mayfly_lifecycle_steps::{Architecture, Course, Row, Until};
use mayfly_record::units;

use crate::answer::{Sides, answer, why_not_fewer};
use crate::figures::Figure;
use crate::run::{LEAN, Measured, Side};

/// What the numbers are of.
pub(crate) const NO_TIME: &str =
    "Counted by QEMU's PMU. It has no caches, and what it executes in a second is no hardware's.";
const NO_TIME_ON_X86: &str = "Counted by QEMU's clock, of which an instruction takes 1 ns, a guest's or a host's. It has no \
     caches, and what it executes in a second is no hardware's.";

/// All sides on each processor: what they come to first, and then every step.
pub struct Table<'a>(pub &'a [Measured]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in answer(self.0) {
            writeln!(f, "{line}")?;
        }
        let Some(first) = self.0.first() else { return Ok(()) };
        let no_time = match first.architecture() {
            Architecture::Arm64 => NO_TIME,
            Architecture::X86 => NO_TIME_ON_X86,
        };
        writeln!(f, "{no_time}")?;
        self.0.iter().try_for_each(|measured| of_one(f, measured))?;
        writeln!(f)?;
        first.steps().try_for_each(|row| writeln!(f, "{:20} {}", row.name(), row.summary()))
    }
}

fn of_one(f: &mut fmt::Formatter<'_>, measured: &Measured) -> fmt::Result {
    let sides = Sides::of(measured);
    let Measured { processor, linux, rounds, qemu, registers, .. } = measured;
    let rounds = units::things((*rounds).into(), "round");
    writeln!(f, "\n{processor}, beside KVM in Linux {linux}; medians of {rounds}")?;
    writeln!(f, "lean: the same Linux with {LEAN}")?;
    if let (Some(kvm), Some(lean)) = (sides.way(Side::Kvm), sides.way(Side::Lean)) {
        let why = match measured.course {
            Course::Fork => "how VMMs restore snapshots",
            _ => "the fewest instructions in all",
        };
        writeln!(f, "KVM's columns are those of {kvm}, and of {lean} where lean: {why}")?;
    }
    writeln!(f, "QEMU {qemu}; {registers}")?;
    let has_levels = measured.architecture() == Architecture::Arm64;
    if has_levels {
        writeln!(
            f,
            "{:20} {:6} | {:>7} {:>11} {:>11} | {:>7} {:>11} {:>11} {:>11} {:>8} | {:>11} {:>8} | {:>19}",
            "", "", "Mayfly", "", "", "KVM", "", "", "", "KVM /", "lean", "lean /", "virtual time"
        )?;
        write!(f, "{:20} {:6} | {:>7} {:>11} {:>11} | ", "step", "until", "EL1", "EL2", "all")?;
        write!(f, "{:>7} {:>11} {:>11} {:>11} {:>8} | ", "EL0", "EL1", "EL2", "all", "Mayfly")?;
    } else {
        writeln!(
            f,
            "{:20} {:6} | {:>11} | {:>11} {:>8} | {:>11} {:>8} | {:>19}",
            "", "", "Mayfly", "KVM", "KVM /", "lean", "lean /", "virtual time"
        )?;
        write!(f, "{:20} {:6} | {:>11} | {:>11} {:>8} | ", "step", "until", "", "", "Mayfly")?;
    }
    writeln!(
        f,
        "{:>11} {:>8} | {:>9} {:>9}",
        if has_levels { "all" } else { "" },
        "Mayfly",
        "Mayfly",
        "KVM"
    )?;
    for row in measured.steps() {
        for until in Until::ALL {
            step(f, row, until, &sides, has_levels)?;
        }
    }
    Ok(())
}

fn step(
    f: &mut fmt::Formatter<'_>,
    row: Row,
    until: Until,
    sides: &Sides,
    has_levels: bool,
) -> fmt::Result {
    let Some(mayfly) = sides.median(Side::Mayfly, row, until) else { return Ok(()) };
    let (kvm, lean) = (sides.median(Side::Kvm, row, until), sides.median(Side::Lean, row, until));
    let name = if until == Until::Caller { row.name() } else { "" };
    let none = || "-".to_owned();
    let number = |of: Option<Figure>, level: usize| {
        of.map_or_else(none, |of| units::grouped(of.levels[level]))
    };
    let all = |of: Option<Figure>| of.map_or_else(none, |of| units::grouped(of.all()));
    let ratio = |of: Option<Figure>| {
        of.map_or_else(none, |of| crate::answer::ratio(mayfly.all(), of.all()))
    };
    let of_mayfly = Some(mayfly);
    write!(f, "{name:20} {:6} | ", until.name())?;
    if has_levels {
        write!(f, "{:>7} {:>11} ", number(of_mayfly, 1), number(of_mayfly, 2))?;
    }
    write!(f, "{:>11} | ", all(of_mayfly))?;
    if has_levels {
        write!(f, "{:>7} {:>11} {:>11} ", number(kvm, 0), number(kvm, 1), number(kvm, 2))?;
    }
    write!(f, "{:>11} {:>8} | {:>11} {:>8} |", all(kvm), ratio(kvm), all(lean), ratio(lean))?;
    if until == Until::Caller {
        let time = |of: Option<Figure>| of.map_or_else(none, |of| units::duration(of.nanoseconds));
        write!(f, " {:>9} {:>9}", time(of_mayfly), time(kvm))?;
    } else if sides.is_not_fewer(row) {
        write!(f, " not fewer: {}", why_not_fewer(row))?;
    }
    writeln!(f)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::{forked, logged, measured, measured_on_x86};

    #[test]
    fn the_columns_of_a_log_name_the_way_that_they_are_of() {
        let text = Table(&[logged(1000, [3000, 2000])]).to_string();
        assert!(text.contains("those of ring, and of ring where lean"), "{text}");
        assert!(text.contains("harvested-100-2m") && !text.contains("vm-created"), "{text}");
    }

    #[test]
    fn the_columns_of_forks_are_those_of_restored_snapshots_whatever_the_others_take() {
        let text = Table(&[forked(1000, [3000, 2000])]).to_string();
        let told = "those of map-private, and of map-private where lean: how VMMs restore";
        assert!(text.contains(told), "{text}");
        assert!(text.contains("fork-reset-5000") && !text.contains("log-started"), "{text}");
    }

    #[test]
    fn every_step_stands_twice_and_the_answer_comes_first() {
        let all = [measured([0, 7, 1000], [10, 7, 26_083], [10, 7, 5018])];
        let text = Table(&all).to_string();
        assert!(text.starts_with("On neoverse-n1, "), "{text}");
        for row in Row::of(Course::Lives, Architecture::Arm64).filter(|row| *row != Row::Nothing) {
            let mut lines =
                text.lines().skip_while(|line| !line.starts_with(&format!("{:17}", row.name())));
            let (caller, until_all) = (lines.next().unwrap(), lines.next().unwrap());
            let has_kvm = caller.contains(" 26,100 ") && caller.contains(" 5,035 ");
            assert!(caller.contains(" caller ") && has_kvm != row.is_of_mayfly_alone(), "{caller}");
            assert!(
                until_all.starts_with(' ')
                    && until_all.contains(" all ")
                    && until_all.contains(" 1,007 "),
                "{until_all}"
            );
        }
        assert!(!text.contains("not fewer"));
        assert!(text.contains("no hardware's"));
        assert!(text.contains("QEMU 7.2.22; midr_el1=0x1\n") && text.contains(LEAN));
    }

    #[test]
    fn a_step_that_takes_no_fewer_than_one_of_the_others_says_so_in_its_row() {
        let steps = Row::of(Course::Lives, Architecture::Arm64)
            .filter(|row| *row != Row::Nothing && !row.is_of_mayfly_alone());
        for (kvm, lean) in [(900, 900), (900, 9000), (9000, 900)] {
            let text = Table(&[measured([0, 0, 1000], [0, 0, kvm], [0, 0, lean])]).to_string();
            assert_eq!(text.matches("not fewer: ").count(), steps.clone().count());
        }
    }

    #[test]
    fn where_levels_are_not_told_apart_there_is_one_number_of_each_side() {
        let text = Table(&[measured_on_x86(1000, 30_000, 20_000)]).to_string();
        assert!(text.contains("QEMU's clock") && !text.contains("EL2"), "{text}");
        let line = text.lines().find(|line| line.starts_with("vm-created")).unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        let numbers = ["1,000", "|", "30,000", "30.0x", "|", "20,000", "20.0x", "|"];
        assert_eq!(words[..11], [&["vm-created", "caller", "|"][..], &numbers].concat(), "{line}");
        assert!(!text.contains("deleted-4k-uncached") && text.contains("cpuid"), "{text}");
    }
}
