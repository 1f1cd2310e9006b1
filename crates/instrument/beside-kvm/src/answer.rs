//! The results of both sides, in sentences.

use mayfly_lifecycle_steps::{Row, Until};
use mayfly_record::{Description, units};

use crate::figures::Figures;
use crate::rows::description;
use crate::run::Both;

/// The steps for which Mayfly is to take at most a tenth of KVM's instructions until the caller has control back, and
/// their names in sentences.
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
            "Mayfly makes PSCI, a clock, a console and virtio devices, and seeds a generator; KVM makes only a vGIC"
        }
        Row::Faults2m | Row::Faults2mUncached => {
            "for each of a block's 512 pages, Mayfly checks whether another root has mapped and cleaned the page; while it \
             cleans the block, it looks for interrupts 64 times"
        }
        _ => "the reason is not known",
    }
}

/// Why Mayfly's caller is not done after a tenth of KVM's instructions, where that is known.
fn why_no_tenth(row: Row) -> &'static str {
    match row {
        Row::Deleted4kUncached => {
            "both write back the 64 cache lines of each page, Mayfly of the pages that were written past the caches, KVM of \
             all pages"
        }
        _ => "the reason is not known",
    }
}

/// The medians of both sides: Mayfly's, and KVM's.
pub(crate) struct Pair {
    pub(crate) mayfly: u64,
    pub(crate) kvm: u64,
}

impl Pair {
    pub(crate) fn of(mayfly: &Figures, kvm: &Figures, row: Row, until: Until) -> Option<Self> {
        let median = |figures: &Figures| Some(figures.median(row, until)?.all());
        Some(Self { mayfly: median(mayfly)?, kvm: median(kvm)? })
    }

    /// How many times as many instructions KVM takes.
    pub(crate) fn ratio(&self) -> String {
        if self.mayfly == 0 {
            "-".to_owned()
        } else {
            units::ratio(self.kvm as f64 / self.mayfly as f64)
        }
    }
}

/// The results on all processors.
pub fn answer(all: &[Both]) -> Vec<String> {
    all.iter().flat_map(of_one).collect()
}

/// The description of the experiment in a record, with these results.
pub fn describe(all: &[Both]) -> Description {
    let lines = answer(all);
    Description { verdict: lines.clone(), answer: lines, ..description() }
}

fn of_one(both: &Both) -> Vec<String> {
    let (mayfly, kvm) = (Figures::of(&both.mayfly), Figures::of(&both.kvm));
    let pair = |row, until| Pair::of(&mayfly, &kvm, row, until);
    let caller = TENTH.into_iter().filter_map(|(row, what)| {
        let pair = pair(row, Until::Caller)?;
        let numbers = (units::grouped(pair.mayfly), units::grouped(pair.kvm));
        let why = if pair.kvm < 10 * pair.mayfly {
            format!("; Mayfly's count is more than a tenth of KVM's: {}", why_no_tenth(row))
        } else {
            String::new()
        };
        Some(format!("to {what}: {} and {} ({}{why})", numbers.0, numbers.1, pair.ratio()))
    });
    let caller: Vec<_> = caller.collect();
    let steps = Row::ALL.iter().filter(|row| **row != Row::Nothing);
    let more =
        steps.filter(|row| pair(**row, Until::All).is_some_and(|pair| pair.mayfly >= pair.kvm));
    let more: Vec<Row> = more.copied().collect();
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
            "On {}, retired instructions until the caller has control back, of Mayfly and of KVM in Linux {} (in brackets: \
             KVM / Mayfly): {}.",
            both.processor,
            both.linux,
            caller.join("; ")
        ),
        if more.is_empty() {
            "Until all work is done and all memory is freed, Mayfly takes fewer instructions than KVM in every step."
                .to_owned()
        } else {
            format!(
                "Until all work is done and all memory is freed, Mayfly takes fewer instructions than KVM in every step, \
                 except in {}.",
                more.join("; ")
            )
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::both;

    #[test]
    fn the_answer_has_both_numbers_and_how_many_times_as_many_one_is() {
        let lines = answer(&[both([0, 0, 1000], [10, 0, 26_090])]);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("to create a VM: 1,000 and 26,100 (26.1x);"), "{}", lines[0]);
        assert!(lines[0].contains("Linux 6.12.1") && lines[0].contains("neoverse-n1"));
        assert!(lines[1].ends_with("fewer instructions than KVM in every step."), "{}", lines[1]);
    }

    #[test]
    fn a_step_of_more_than_a_tenth_says_why() {
        let lines = answer(&[both([0, 0, 1000], [0, 0, 9999])]);
        assert_eq!(
            lines[0].matches("more than a tenth of KVM's: ").count(),
            TENTH.len(),
            "{}",
            lines[0]
        );
        assert!(
            lines[0]
                .contains("(10.0x; Mayfly's count is more than a tenth of KVM's: both write back"),
            "{}",
            lines[0]
        );
    }

    #[test]
    fn a_step_that_takes_no_fewer_is_named() {
        let mut both = both([0, 0, 1000], [0, 0, 2000]);
        for line in both.mayfly.iter_mut().filter(|line| line.row == Row::VmCreated) {
            line.spent.levels[2] = 2000;
        }
        let lines = answer(&[both]);
        assert!(lines[1].contains("except in vm-created ("), "{}", lines[1]);
        assert!(!lines[1].contains("hvc"));
    }

    #[test]
    fn steps_that_take_no_fewer_for_one_reason_are_named_together() {
        let mut both = both([0, 0, 1000], [0, 0, 2000]);
        let blocks = [Row::Faults2m, Row::Faults2mUncached];
        for line in both.mayfly.iter_mut().filter(|line| blocks.contains(&line.row)) {
            line.spent.levels[2] *= 4;
        }
        let lines = answer(&[both]);
        let told = "except in faults-2m and faults-2m-uncached (for each of a block's 512 pages";
        assert!(lines[1].contains(told), "{}", lines[1]);
    }
}
