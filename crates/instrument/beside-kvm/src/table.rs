//! The table that is printed.

use std::fmt;

use mayfly_lifecycle_steps::{Row, Until};
use mayfly_record::units;

use crate::answer::{Pair, answer, why_not_fewer};
use crate::figures::{Figure, Figures};
use crate::run::Both;

/// Both sides of each processor: what they come to first, and then every step.
pub struct Table<'a>(pub &'a [Both]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in answer(self.0) {
            writeln!(f, "{line}")?;
        }
        let no_time = "Counted by QEMU's PMU. It has no caches, and what it executes in a second is no hardware's.";
        writeln!(f, "{no_time}")?;
        self.0.iter().try_for_each(|both| of_one(f, both))?;
        writeln!(f)?;
        Row::ALL.iter().try_for_each(|row| writeln!(f, "{:19} {}", row.name(), row.summary()))
    }
}

fn of_one(f: &mut fmt::Formatter<'_>, both: &Both) -> fmt::Result {
    let (mayfly, kvm) = (Figures::of(&both.mayfly), Figures::of(&both.kvm));
    let Both { processor, linux, rounds, .. } = both;
    let rounds = units::things((*rounds).into(), "round");
    writeln!(f, "\n{processor}, beside KVM in Linux {linux}; medians of {rounds}")?;
    writeln!(
        f,
        "{:19} {:6} | {:>7} {:>11} {:>11} | {:>7} {:>11} {:>11} {:>11} | {:>8} | {:>19}",
        "", "", "Mayfly", "", "", "KVM", "", "", "", "KVM /", "virtual time"
    )?;
    writeln!(
        f,
        "{:19} {:6} | {:>7} {:>11} {:>11} | {:>7} {:>11} {:>11} {:>11} | {:>8} | {:>9} {:>9}",
        "step", "until", "EL1", "EL2", "all", "EL0", "EL1", "EL2", "all", "Mayfly", "Mayfly", "KVM"
    )?;
    for &row in Row::ALL {
        for until in Until::ALL {
            let (Some(here), Some(there)) = (mayfly.median(row, until), kvm.median(row, until))
            else {
                continue;
            };
            step(f, row, until, here, there)?;
        }
    }
    Ok(())
}

fn step(
    f: &mut fmt::Formatter<'_>,
    row: Row,
    until: Until,
    mayfly: Figure,
    kvm: Figure,
) -> fmt::Result {
    let name = if until == Until::Caller { row.name() } else { "" };
    let number = |figure: Figure, level: usize| units::grouped(figure.levels[level]);
    let pair = Pair { mayfly: mayfly.all(), kvm: kvm.all() };
    write!(
        f,
        "{name:19} {:6} | {:>7} {:>11} {:>11} | {:>7} {:>11} {:>11} {:>11} | {:>8} |",
        until.name(),
        number(mayfly, 1),
        number(mayfly, 2),
        units::grouped(pair.mayfly),
        number(kvm, 0),
        number(kvm, 1),
        number(kvm, 2),
        units::grouped(pair.kvm),
        pair.ratio(),
    )?;
    if until == Until::Caller {
        let time = |figure: Figure| units::duration(figure.nanoseconds);
        write!(f, " {:>9} {:>9}", time(mayfly), time(kvm))?;
    } else if row != Row::Nothing && pair.mayfly >= pair.kvm {
        write!(f, " not fewer: {}", why_not_fewer(row))?;
    }
    writeln!(f)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::both;

    #[test]
    fn every_step_stands_twice_and_the_answer_comes_first() {
        let both = [both([0, 7, 1000], [10, 7, 26_083])];
        let text = Table(&both).to_string();
        assert!(text.starts_with("On neoverse-n1, "), "{text}");
        for row in Row::ALL.iter().filter(|row| **row != Row::Nothing) {
            let mut lines =
                text.lines().skip_while(|line| !line.starts_with(&format!("{:17}", row.name())));
            let (caller, all) = (lines.next().unwrap(), lines.next().unwrap());
            assert!(caller.contains(" caller ") && caller.contains(" 26,100 "), "{caller}");
            assert!(
                all.starts_with(' ') && all.contains(" all ") && all.contains(" 1,007 "),
                "{all}"
            );
        }
        assert!(!text.contains("not fewer"));
        assert!(text.contains("no hardware's"));
    }

    #[test]
    fn a_step_that_takes_no_fewer_says_so_in_its_row() {
        let text = Table(&[both([0, 0, 1000], [0, 0, 900])]).to_string();
        assert_eq!(text.matches("not fewer: ").count(), Row::ALL.len() - 1);
    }
}
