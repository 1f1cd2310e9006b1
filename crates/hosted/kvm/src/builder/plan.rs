//! The order of a VM's start in which the fewest calls wait.

use std::fmt;
use std::time::Duration;

use crate::{Call, Waits};

/// Which interrupt controllers of a VM are in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Irqchip {
    /// None.
    None,
    /// All: local APICs, PIC and IOAPIC; on arm64 a vGIC.
    Full,
    /// Local APICs alone (x86-64). Nothing is registered on a bus.
    Split,
}

/// A part of a VM's start. In this order, where no other is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// All memslots.
    Memory,
    /// The interrupt controllers.
    Irqchip,
    /// The timer of a PC.
    Pit,
    /// All vCPUs.
    Vcpus,
    /// All ioeventfds.
    Ioeventfds,
    /// All irqfds.
    Irqfds,
}

impl Step {
    fn call(self, irqchip: Irqchip) -> Call {
        match self {
            Self::Memory => Call::MemslotAdd,
            Self::Irqchip if irqchip == Irqchip::Split => Call::IrqchipSplit,
            Self::Irqchip => Call::IrqchipFull,
            Self::Pit => Call::Pit,
            Self::Vcpus => Call::Vcpu,
            Self::Ioeventfds => Call::IoeventfdAdd,
            Self::Irqfds => Call::IrqfdAdd,
        }
    }

    /// Whether KVM wants `self` before `other`.
    fn has_to_precede(self, other: Self) -> bool {
        match self {
            Self::Irqchip => matches!(other, Self::Pit | Self::Vcpus | Self::Irqfds),
            // The vGIC takes no interrupt before it knows all of its vCPUs.
            Self::Vcpus => cfg!(target_arch = "aarch64") && other == Self::Irqfds,
            _ => false,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Irqchip => "irqchip",
            Self::Pit => "PIT",
            Self::Vcpus => "vCPUs",
            Self::Ioeventfds => "ioeventfds",
            Self::Irqfds => "irqfds",
        })
    }
}

/// An order, and what waits in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    steps: Vec<Step>,
    waits: Vec<Wait>,
}

/// A step that waits for what an earlier one has armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wait {
    step: Step,
    after: Step,
    time: Duration,
}

impl Plan {
    /// The order of `steps` in which least is waited for, of all that KVM accepts.
    pub(super) fn new(waits: &Waits, irqchip: Irqchip, steps: &[Step]) -> Self {
        let mut best: Option<Self> = None;
        every_order(steps, &mut Vec::new(), &mut |order| {
            let plan = Self::of(waits, irqchip, order);
            if best.as_ref().is_none_or(|best| plan.waits() < best.waits()) {
                best = Some(plan);
            }
        });
        best.unwrap_or_else(|| Self { steps: steps.to_vec(), waits: Vec::new() })
    }

    /// What waits in this order, step right after step. A call that waits, waits for all that was armed before.
    fn of(waits: &Waits, irqchip: Irqchip, order: &[Step]) -> Self {
        let (mut armed, mut all) = (Vec::<Step>::new(), Vec::new());
        for &step in order {
            let call = step.call(irqchip);
            let for_one = |&after: &Step| (waits.of(after.call(irqchip), call), after);
            let longest = armed.iter().map(for_one).max_by_key(|(time, _)| *time);
            if let Some((time, after)) = longest.filter(|(time, _)| !time.is_zero()) {
                all.push(Wait { step, after, time });
                armed.clear();
            }
            armed.push(step);
        }
        Self { steps: order.to_vec(), waits: all }
    }

    /// The steps, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// How long is waited in all. Not zero only where no order is without a wait.
    pub fn waits(&self) -> Duration {
        self.waits.iter().map(|wait| wait.time).sum()
    }
}

/// Tells `visit` each order of `rest` behind `begun` that KVM accepts; those nearest to the order of `rest` first.
fn every_order(rest: &[Step], begun: &mut Vec<Step>, visit: &mut impl FnMut(&[Step])) {
    if rest.is_empty() {
        visit(begun);
    }
    for (at, &next) in rest.iter().enumerate() {
        if rest.iter().any(|other| other.has_to_precede(next)) {
            continue;
        }
        let others: Vec<Step> = [&rest[..at], &rest[at + 1..]].concat();
        begun.push(next);
        every_order(&others, begun, visit);
        begun.pop();
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.steps.iter().enumerate() {
            write!(f, "{}{step}", if at > 0 { ", " } else { "" })?;
        }
        for Wait { step, after, time } in &self.waits {
            let ms = time.as_secs_f64() * 1e3;
            write!(
                f,
                "; {step} wait {ms:.1} ms for what {after} armed, unless slow work comes between"
            )?;
        }
        if self.waits.is_empty() {
            Ok(())
        } else {
            f.write_str("; no order is without a wait here")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pair;

    const TICK: Duration = Duration::from_millis(4);
    const ALL: [Step; 5] =
        [Step::Memory, Step::Irqchip, Step::Vcpus, Step::Ioeventfds, Step::Irqfds];

    /// A host on which these calls wait, and no others.
    fn host(waiting: &[(Call, Call)]) -> Waits {
        let pair = |&(after, call): &(Call, Call)| Pair {
            at_once: vec![6_000_000; 5],
            later: vec![50_000; 5],
            ..Pair::new(after, call)
        };
        Waits::of_pairs(&waiting.iter().map(pair).collect::<Vec<_>>(), TICK)
    }

    /// Registrations arm, memslots pay: Linux v6.18 without APIC access page.
    const V6_18: [(Call, Call); 2] =
        [(Call::IrqchipFull, Call::MemslotAdd), (Call::IoeventfdAdd, Call::MemslotAdd)];

    /// The same where the first vCPU adds a memslot.
    const VMX: [(Call, Call); 4] =
        [V6_18[0], V6_18[1], (Call::IrqchipFull, Call::Vcpu), (Call::IoeventfdAdd, Call::Vcpu)];

    #[test]
    fn where_nothing_waits_steps_come_in_their_usual_order() {
        let plan = Plan::new(&host(&[]), Irqchip::Full, &ALL);
        assert_eq!((plan.steps(), plan.waits()), (&ALL[..], Duration::ZERO));
        assert_eq!(plan.to_string(), "memory, irqchip, vCPUs, ioeventfds, irqfds");
    }

    #[test]
    fn memory_comes_before_what_makes_it_wait_and_vcpus_too() {
        let plan = Plan::new(&host(&V6_18), Irqchip::Full, &ALL);
        assert_eq!((plan.steps()[0], plan.waits()), (Step::Memory, Duration::ZERO));
        let split = Plan::new(&host(&VMX), Irqchip::Split, &ALL);
        let at = |step| split.steps().iter().position(|one| *one == step);
        assert!(at(Step::Vcpus) < at(Step::Ioeventfds), "{split}");
        assert!(at(Step::Memory) < at(Step::Ioeventfds), "{split}");
        assert_eq!(split.waits(), Duration::ZERO);
    }

    #[test]
    fn where_no_order_is_without_a_wait_it_says_so_and_waits_once() {
        let plan = Plan::new(&host(&VMX), Irqchip::Full, &ALL);
        assert_eq!(plan.waits(), Duration::from_micros(5950), "{plan}");
        let said = plan.to_string();
        assert!(said.contains("vCPUs wait 6.0 ms for what irqchip armed"), "{said}");
        assert!(said.ends_with("no order is without a wait here"), "{said}");
    }

    #[test]
    fn a_kernel_that_waits_the_other_way_round_gets_the_other_order() {
        let other = host(&[(Call::MemslotAdd, Call::IoeventfdAdd), (Call::MemslotAdd, Call::Vcpu)]);
        let plan = Plan::new(&other, Irqchip::Full, &ALL);
        let at = |step| plan.steps().iter().position(|one| *one == step);
        assert!(at(Step::Memory) > at(Step::Ioeventfds) && at(Step::Memory) > at(Step::Vcpus));
        assert_eq!(plan.waits(), Duration::ZERO);
    }

    #[test]
    fn the_irqchip_precedes_what_needs_it_in_every_order() {
        let all = [Step::Memory, Step::Irqchip, Step::Pit, Step::Vcpus, Step::Irqfds];
        let mut orders = 0;
        every_order(&all, &mut Vec::new(), &mut |order| {
            let at = |step| order.iter().position(|one| *one == step);
            assert!(
                [Step::Pit, Step::Vcpus, Step::Irqfds]
                    .map(at)
                    .iter()
                    .all(|&i| at(Step::Irqchip) < i)
            );
            orders += 1;
        });
        // Of 120, those in which the irqchip is the first of four.
        assert_eq!(orders, if cfg!(target_arch = "aarch64") { 15 } else { 30 });
    }
}
