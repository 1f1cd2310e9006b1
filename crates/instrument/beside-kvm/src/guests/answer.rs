//! The results of all sides, in sentences.

use mayfly_lifecycle_steps::Executed;
use mayfly_record::{Description, units};

use super::job::Step;
use super::rows::{description, hypervisor};
use super::run::Measured;
use crate::answer::ratio;
use crate::run::{LEAN, Side};

/// The description of the experiment in a record, with these results.
pub fn describe(all: &[Measured]) -> Description {
    let lines = answer(all);
    Description { verdict: lines.clone(), answer: lines, ..description() }
}

/// The results on all processors.
pub fn answer(all: &[Measured]) -> Vec<String> {
    all.iter().flat_map(of_one).collect()
}

/// The steps in which Mayfly executes no fewer instructions than KVM's kernel alone, or lean.
pub(super) fn is_lost(measured: &Measured, step: Step) -> bool {
    let of = |side| measured.of(side).step(step);
    let Some(mayfly) = of(Side::Mayfly) else { return false };
    let others = [Side::Kvm, Side::Lean].into_iter().filter_map(of);
    others.into_iter().any(|other| hypervisor(mayfly) >= other.el1 + other.el2)
}

fn of_one(measured: &Measured) -> Vec<String> {
    let Measured { processor, linux, vmm, .. } = measured;
    let steps =
        Step::ALL.iter().copied().filter_map(|step| Some((step, sentence(measured, step)?)));
    let (steps, sentences): (Vec<_>, Vec<_>) = steps.unzip();
    let first = format!(
        "On {processor}, retired instructions of all but guests, of Mayfly, of KVM in Linux {linux} with QEMU {vmm}, and of \
         the same with {LEAN} (in brackets: those of the kernel alone, and KVM / Mayfly without and with QEMU's): {}.",
        sentences.join("; ")
    );
    let lost: Vec<_> =
        steps.into_iter().filter(|step| is_lost(measured, *step)).map(Step::name).collect();
    let except = match &lost[..] {
        [] => String::new(),
        lost => format!(", except in {}", lost.join(", ")),
    };
    let fewer = format!(
        "On {processor}, Mayfly executes fewer instructions than KVM's kernel alone in every step, lean or not{except}."
    );
    vec![first, fewer, exits(measured)]
}

fn sentence(measured: &Measured, step: Step) -> Option<String> {
    let of = |side| measured.of(side).step(step);
    let mayfly = hypervisor(of(Side::Mayfly)?);
    let other = |executed: Executed| {
        let (kernel, all) = (executed.el1 + executed.el2, hypervisor(executed));
        format!(
            "{} ({}, {}, {})",
            units::grouped(all),
            units::grouped(kernel),
            ratio(mayfly, kernel),
            ratio(mayfly, all)
        )
    };
    let name = step.name();
    let (kvm, lean) = (other(of(Side::Kvm)?), other(of(Side::Lean)?));
    Some(format!("{name}: {}, {kvm} and {lean}", units::grouped(mayfly)))
}

fn exits(measured: &Measured) -> String {
    let of = |side| {
        let exits = &measured.of(side).exits;
        format!("{} exits, {} of them to devices", exits.all(), exits.to_devices())
    };
    format!(
        "On {}, the guest that boots has {} on Mayfly, and {} on KVM.",
        measured.processor,
        of(Side::Mayfly),
        of(Side::Kvm)
    )
}

#[cfg(test)]
pub(super) mod tests {
    use mayfly_record::Record;

    use super::*;
    use crate::guests::Exits;
    use crate::guests::job::NOTHING;
    use crate::guests::rows::rows;
    use crate::guests::run::Told;
    use crate::machine::Processor;

    /// Of so many instructions at EL2; the VMM executes a thousand more, and guests ten.
    pub(in crate::guests) fn measured([mayfly, kvm, lean]: [u64; 3]) -> Measured {
        let told = |side: Side, el2: u64| {
            let vmm = if side == Side::Mayfly { 0 } else { 1000 };
            let executed = Executed { vmm, el1: 0, el2, guest: 10 };
            let mut exits = Exits::default();
            exits.reasons.insert("hvc".to_owned(), 24);
            exits.reasons.insert("memory-fault".to_owned(), 500);
            exits.reasons.insert("device".to_owned(), 459);
            exits.devices.insert("gicd".to_owned(), 459);
            let phases = Step::ALL.iter().map(|step| {
                let all = [executed.vmm, executed.el1, executed.el2, executed.guest];
                let [vmm, el1, el2, guest] = all.map(|each| each * step.times());
                (step.name().to_owned(), Executed { vmm, el1, el2, guest })
            });
            let nothing = [(NOTHING.to_owned(), Executed::default())];
            let phases: Vec<_> = phases.chain(nothing).collect();
            Told { phases, exits }
        };
        Measured {
            processor: Processor::Max,
            qemu: "7.2.22".to_owned(),
            vmm: "1:10.0.13".to_owned(),
            registers: "midr_el1=0x1".to_owned(),
            linux: "6.12.1".to_owned(),
            sides: [told(Side::Mayfly, mayfly), told(Side::Kvm, kvm), told(Side::Lean, lean)],
        }
    }

    #[test]
    fn the_answer_has_what_the_kernel_executes_and_what_the_vmm_does() {
        let lines = answer(&[measured([100, 500, 300])]);
        let expected = "boot: 100, 1,500 (500, 5.00x, 15.0x) and 1,300 (300, 3.00x, 13.0x)";
        assert!(lines[0].contains(expected) && lines[0].contains("QEMU 1:10.0.13"), "{}", lines[0]);
        assert!(lines[1].ends_with("in every step, lean or not."), "{}", lines[1]);
        assert!(
            lines[2].contains("has 524 exits, 459 of them to devices on Mayfly"),
            "{}",
            lines[2]
        );
    }

    #[test]
    fn a_step_in_which_mayfly_executes_no_fewer_than_the_kernel_alone_is_named() {
        for others in [[500, 500, 501], [500, 501, 500]] {
            let lines = answer(&[measured(others)]);
            assert!(lines[1].contains("lean or not, except in boot"), "{}", lines[1]);
        }
        assert!(!is_lost(&measured([500, 501, 501]), Step::Boot), "whatever the VMM executes");
    }

    #[test]
    fn a_record_has_each_side_with_what_it_comes_to_and_its_exits() {
        let rows = rows(&measured([100, 500, 300]));
        assert_eq!(rows.len(), 3 * Step::ALL.len());
        let described: Vec<_> =
            description().metrics.into_iter().map(|metric| metric.name).collect();
        for row in &rows {
            let p50 = |metric: &str| row.metrics[metric].p50;
            assert_eq!(p50("hypervisor"), p50("vmm") + p50("el1") + p50("el2"));
            assert_eq!(p50("whole"), p50("hypervisor") + 10);
            assert!(row.metrics.keys().all(|name| described.contains(name)), "{row:?}");
            assert_eq!(row.metrics.len(), described.len());
        }
        let boot = &rows[0];
        assert_eq!((boot.counters["exits_hvc"], boot.counters["device_gicd"]), (24, 459));
        assert!(Record::new(mayfly_record::Host::default(), rows).failed_checks().next().is_none());
    }
}
