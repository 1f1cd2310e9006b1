//! The results of both sides, in sentences.

use mayfly_lifecycle_steps::{Row, Until};
use mayfly_record::{Description, units};

use crate::figures::Figures;
use crate::rows::description;
use crate::run::Both;

/// The steps of which Mayfly is to take a tenth of KVM's instructions until the caller has control back, and their
/// names in sentences.
const TENTH: [(Row, &str); 5] = [
    (Row::VmCreated, "create a VM"),
    (Row::Deleted4k, "delete a slot of 256 MiB mapped by 4 KiB"),
    (Row::Deleted4kUncached, "delete one that was written with the caches off"),
    (Row::Destroyed, "destroy a small VM"),
    (Row::Destroyed4k, "destroy one with 256 MiB mapped by 4 KiB"),
];

/// Why Mayfly does not take fewer instructions for a step, where that is known.
pub(crate) fn why_not_fewer(row: Row) -> &'static str {
    match row {
        Row::MachineCreated => {
            "it makes PSCI, a clock, a console and virtio devices, and seeds a generator; KVM makes only a vGIC"
        }
        Row::Faults2m | Row::Faults2mUncached => {
            "for each of a block's 512 pages it checks whether another root has mapped and cleaned the page, and it looks \
             for interrupts 64 times while it cleans"
        }
        _ => "the reason is not known",
    }
}

/// Why Mayfly's caller is not done after a tenth of KVM's instructions, where that is known.
fn why_no_tenth(row: Row) -> &'static str {
    match row {
        Row::Deleted4kUncached => {
            "both clean each page, 64 cache lines: Mayfly the pages that were written past the caches, KVM all pages"
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
            format!(", not a tenth: {}", why_no_tenth(row))
        } else {
            String::new()
        };
        Some(format!("to {what} {} and {} ({}{why})", numbers.0, numbers.1, pair.ratio()))
    });
    let caller: Vec<_> = caller.collect();
    let steps = Row::ALL.iter().filter(|row| **row != Row::Nothing);
    let more = steps.filter_map(|&row| {
        let pair = pair(row, Until::All)?;
        (pair.mayfly >= pair.kvm).then(|| format!("{} ({})", row.name(), why_not_fewer(row)))
    });
    let more: Vec<_> = more.collect();
    vec![
        format!(
            "On {}, retired instructions of Mayfly and of KVM in Linux {}, until the caller has control back: {}.",
            both.processor,
            both.linux,
            caller.join("; ")
        ),
        if more.is_empty() {
            "Until all work is done and all memory is freed, Mayfly takes fewer instructions in every row."
                .to_owned()
        } else {
            format!(
                "Until all work is done and all memory is freed, Mayfly takes more instructions only in: {}.",
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
        assert!(lines[0].contains("to create a VM 1,000 and 26,100 (26.1x);"), "{}", lines[0]);
        assert!(lines[0].contains("Linux 6.12.1") && lines[0].contains("neoverse-n1"));
        assert!(lines[1].ends_with("fewer instructions in every row."), "{}", lines[1]);
    }

    #[test]
    fn a_step_of_more_than_a_tenth_says_why() {
        let lines = answer(&[both([0, 0, 1000], [0, 0, 9999])]);
        assert_eq!(lines[0].matches("not a tenth: ").count(), TENTH.len(), "{}", lines[0]);
        assert!(lines[0].contains("(10.0x, not a tenth: both clean each page"), "{}", lines[0]);
    }

    #[test]
    fn a_step_that_takes_no_fewer_is_named() {
        let mut both = both([0, 0, 1000], [0, 0, 2000]);
        for line in both.mayfly.iter_mut().filter(|line| line.row == Row::VmCreated) {
            line.spent.levels[2] = 2000;
        }
        let lines = answer(&[both]);
        assert!(lines[1].contains("only in: vm-created ("), "{}", lines[1]);
        assert!(!lines[1].contains("hvc"));
    }
}
