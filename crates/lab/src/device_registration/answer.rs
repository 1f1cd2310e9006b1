//! What the rows come to.

use mayfly_record::{Host, ResultRow, units};

use crate::answer::Rows;
use crate::params::Order;

/// What waits, here and in Mayfly, and what to do.
pub(super) fn answer(rows: &[ResultRow], host: &Host) -> Vec<String> {
    let rows = Rows::of(rows);
    let (kvm, mayfly) = (rows.kvm(), rows.mayfly());
    let (kvm_first, tick) =
        (first_is(&kvm, Order::DevicesFirst), host.hz.map(|hz| 1_000_000_000 / u64::from(hz)));
    let waits = kvm_first.p50("first_memslot").zip(tick).map(|(ns, tick)| (ns, ns > tick / 2));

    let verdict = || {
        let (ns, waits) = waits?;
        let tick = units::duration(tick?);
        let time = units::duration(ns);
        Some(if waits {
            format!(
                "This host is affected: the first memslot after a registered device takes {time} on its KVM (a tick \
                 is {tick})."
            )
        } else {
            format!(
                "This host is not affected: the first memslot after a registered device takes {time} on its KVM (a \
                 tick is {tick})."
            )
        })
    };
    let no_kvm = || {
        let time =
            first_is(&rows.machine("call-srcu"), Order::DevicesFirst).time("first_memslot")?;
        Some(format!(
            "No KVM was asked here. As Linux v6.18 does it, the first memslot after a registered device takes \
             {time} on the software machine."
        ))
    };
    let start = || {
        let (late, early) =
            (kvm_first.time("total")?, first_is(&kvm, Order::MemoryFirst).time("total")?);
        Some(format!(
            "A VM's start to its first exit takes {late} with devices first, and {early} with memory first."
        ))
    };
    let busy = || {
        let slot = kvm_first.time("back_to_back_memslot")?;
        let away = kvm_first.time("back_to_back_unregister")?;
        Some(format!(
            "Beside running vCPUs, right after a registration: a memslot takes {slot}, taking an ioeventfd away \
             {away}."
        ))
    };
    let instead = || {
        let mayfly = first_is(&mayfly, Order::DevicesFirst);
        let (first, busy) = (mayfly.time("first_memslot")?, mayfly.time("back_to_back_memslot")?);
        Some(format!(
            "Mayfly, same calls on the software machine: {first} for the first memslot, {busy} beside running \
             vCPUs. Whoever waits starts a grace period of its own, so nobody waits for a timer."
        ))
    };
    let advice = || {
        let advice = if waits?.1 {
            "set memory before the irqchip and ioeventfds; or register early and do slow work in between; and \
             register all of them before the next memslot."
        } else {
            "nothing; the order of calls makes no such wait on this kernel."
        };
        Some(format!("What to do: {advice}"))
    };
    [verdict().or_else(no_kvm), start(), busy(), instead(), advice()]
        .into_iter()
        .flatten()
        .collect()
}

fn first_is<'a>(rows: &Rows<'a>, order: Order) -> Rows<'a> {
    rows.with(Order::PARAM, order.name())
}

#[cfg(test)]
mod tests {
    use mayfly_record::{Backend, Samples};

    use super::*;

    fn row(backend: Backend, variant: &str, order: Order, slot: u64) -> ResultRow {
        let mut samples = Samples::default();
        samples.record_ns(slot);
        ["first_memslot", "total", "back_to_back_memslot", "back_to_back_unregister"]
            .into_iter()
            .fold(
                ResultRow::new("e", backend, variant).param(Order::PARAM, order.name()),
                |row, name| row.metric(name, &samples),
            )
    }

    fn told(kvm: Option<u64>) -> Vec<String> {
        let mut rows = vec![
            row(Backend::Machine, "mayfly", Order::DevicesFirst, 3000),
            row(Backend::Machine, "call-srcu", Order::DevicesFirst, 6_000_000),
        ];
        if let Some(slot) = kvm {
            rows.push(row(Backend::Kvm, "kernel", Order::DevicesFirst, slot));
            rows.push(row(Backend::Kvm, "kernel", Order::MemoryFirst, 58_000));
        }
        answer(&rows, &Host { hz: Some(250), ..Host::default() })
    }

    #[test]
    fn a_host_whose_memslot_waits_for_a_tick_is_told_so_and_what_to_do() {
        let told = told(Some(6_130_000));
        assert!(told[0].starts_with("This host is affected") && told[0].contains("6.13 ms"));
        assert!(told[1].contains("6.13 ms") && told[1].contains("58.0 us"), "{}", told[1]);
        assert!(told[4].contains("set memory before"), "{}", told[4]);
    }

    #[test]
    fn one_whose_memslot_waits_for_nothing_is_left_in_peace() {
        let told = told(Some(40_000));
        assert!(told[0].starts_with("This host is not affected"), "{}", told[0]);
        assert!(told[4].contains("nothing"), "{}", told[4]);
    }

    #[test]
    fn without_kvm_linuxs_way_on_the_machine_is_told_and_no_advice_given() {
        let told = told(None);
        assert!(told[0].contains("6.00 ms on the software machine"), "{}", told[0]);
        assert_eq!(told.len(), 2);
    }
}
