//! The table that is printed.

use std::collections::BTreeSet;
use std::fmt;

use mayfly_lifecycle_steps::Executed;
use mayfly_record::units;

use super::answer::{answer, is_lost};
use super::job::Step;
use super::rows::hypervisor;
use super::run::Measured;
use crate::answer::ratio;
use crate::run::{LEAN, Side};
use crate::table::NO_TIME;

/// All sides on each processor: what they come to first, then every step, and the exits of the boot.
pub struct Table<'a>(pub &'a [Measured]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in answer(self.0) {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "{NO_TIME}")?;
        for measured in self.0 {
            of_one(f, measured)?;
        }
        writeln!(f)?;
        Step::ALL.iter().try_for_each(|step| writeln!(f, "{:14} {}", step.name(), step.summary()))
    }
}

fn of_one(f: &mut fmt::Formatter<'_>, measured: &Measured) -> fmt::Result {
    let Measured { processor, linux, vmm, qemu, registers, .. } = measured;
    writeln!(f, "\n{processor}, beside KVM in Linux {linux} with QEMU {vmm}")?;
    writeln!(f, "lean: the same Linux with {LEAN}")?;
    writeln!(f, "QEMU {qemu}; {registers}")?;
    writeln!(
        f,
        "{:14} {:9} {:>14} {:>14} {:>14} {:>14} {:>8} {:>14} {:>14} {:>8}",
        "step",
        "",
        "VMM",
        "kernel, EL1",
        "EL2",
        "all but guest",
        "/ Mayfly",
        "guest",
        "whole",
        "/ Mayfly"
    )?;
    for &step in Step::ALL {
        let Some(mayfly) = measured.of(Side::Mayfly).step(step) else { continue };
        for side in Side::ALL {
            let Some(executed) = measured.of(side).step(step) else { continue };
            let name = if side == Side::Mayfly { step.name() } else { "" };
            line(f, name, side.variant(), executed, Some(mayfly))?;
            if side == Side::Mayfly && is_lost(measured, step) {
                write!(f, " not fewer than the kernel's")?;
            }
            writeln!(f)?;
        }
    }
    for side in [Side::Kvm, Side::Lean] {
        if let Some(alone) = measured.of(side).alone() {
            let name = if side == Side::Kvm { "VMM alone" } else { "" };
            line(f, name, side.variant(), alone, None)?;
            writeln!(f)?;
        }
    }
    exits(f, measured)
}

fn line(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    variant: &str,
    executed: Executed,
    mayfly: Option<Executed>,
) -> fmt::Result {
    let Executed { vmm, el1, el2, guest } = executed;
    let (all, whole) = (hypervisor(executed), hypervisor(executed) + guest);
    let ratio = |of: fn(Executed) -> u64, other| {
        mayfly.map_or_else(|| "-".to_owned(), |mayfly| ratio(of(mayfly), other))
    };
    write!(
        f,
        "{name:14} {variant:9} {:>14} {:>14} {:>14} {:>14} {:>8} {:>14} {:>14} {:>8}",
        units::grouped(vmm),
        units::grouped(el1),
        units::grouped(el2),
        units::grouped(all),
        ratio(hypervisor, all),
        units::grouped(guest),
        units::grouped(whole),
        ratio(|executed| hypervisor(executed) + executed.guest, whole),
    )
}

/// The exits of the boot, by reason and by device.
fn exits(f: &mut fmt::Formatter<'_>, measured: &Measured) -> fmt::Result {
    let [mayfly, kvm] = [Side::Mayfly, Side::Kvm].map(|side| &measured.of(side).exits);
    writeln!(f, "{:24} {:>9} {:>9}", "exits of boot", "mayfly", "kvm")?;
    for (what, mayfly, kvm) in
        [("", &mayfly.reasons, &kvm.reasons), ("to ", &mayfly.devices, &kvm.devices)]
    {
        let names: BTreeSet<_> = mayfly.keys().chain(kvm.keys()).collect();
        for name in names {
            let of = |side: &std::collections::BTreeMap<String, u64>| {
                side.get(name).copied().unwrap_or(0)
            };
            writeln!(f, "{:24} {:>9} {:>9}", format!("{what}{name}"), of(mayfly), of(kvm))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guests::answer::tests::measured;

    #[test]
    fn each_side_has_a_line_and_a_step_that_is_lost_says_so() {
        let text = Table(&[measured([100, 500, 300])]).to_string();
        assert!(text.starts_with("On max, ") && text.contains("QEMU 7.2.22; midr_el1=0x1\n"));
        let lines: Vec<_> = text.lines().filter(|line| line.contains(" 1,510 ")).collect();
        assert_eq!(lines.len(), Step::ALL.len(), "{text}");
        assert!(lines[0].contains(" kvm ") && lines[0].contains("15.0x"), "{}", lines[0]);
        assert!(text.contains("to gicd                        459       459\n"), "{text}");
        assert!(!text.contains("not fewer"));
        let lost = Table(&[measured([500, 500, 600])]).to_string();
        assert_eq!(lost.matches("not fewer than the kernel's\n").count(), Step::ALL.len());
    }
}
