//! The answer of `device-registration`: whether this host waits for a timer, what Mayfly does instead, and what to do.

use mayfly_record::{Host, ResultRow, units};

use crate::answers::Answer;
use crate::params::Order;
use crate::rows::Rows;

/// What waits, here and in Mayfly, and what to do.
pub(super) fn answer(rows: &[ResultRow], host: &Host) -> Answer {
    let rows = Rows::of(rows);
    let (kvm, mayfly) = (rows.kvm(), rows.mayfly());
    let tick = host.hz.map(|hz| 1_000_000_000 / u64::from(hz));
    let (kvm_first, kvm_busy) = (late(&kvm), any(&kvm));
    let undisturbed = first_is(&kvm, Order::MemoryFirst).p50("first_memslot");
    let first = tick.zip(kvm_first.p50("first_memslot"));
    let first = first.map(|(tick, ns)| Wait::of(ns, undisturbed, tick));
    let busy = tick.zip(kvm_busy.p50("back_to_back_memslot"));
    let busy = busy.map(|(tick, ns)| Wait::of(ns, kvm_busy.p50("busy_register"), tick));
    let is = |wait| [first, busy].contains(&Some(wait));

    let verdict = || {
        let tick = units::duration(tick?);
        let slot = || {
            let time = kvm_first.time("first_memslot")?;
            Some(format!("setting the first memslot after a device was registered takes {time}"))
        };
        let running = || {
            let time = kvm_busy.time("back_to_back_memslot")?;
            Some(format!(
                "setting a memslot right after a registration, while vCPUs run, takes {time}"
            ))
        };
        let unclear = "Whether this host is affected cannot be told";
        let (affected, what): (&str, String) = if first == Some(Wait::ForTimer) {
            ("This host is affected", slot()?)
        } else if busy == Some(Wait::ForTimer) {
            let start = slot().map(|slot| format!("; {slot}"));
            ("This host is affected while vCPUs run", running()? + &start.unwrap_or_default())
        } else if first == Some(Wait::Unclear) {
            let before = units::duration(undisturbed?);
            (unclear, format!("{}, and setting one before any device takes {before}", slot()?))
        } else if busy == Some(Wait::Unclear) {
            let call = kvm_busy.time("busy_register")?;
            (unclear, format!("{}, and the registration itself takes {call}", running()?))
        } else {
            ("This host is not affected", slot().or_else(running)?)
        };
        Some(format!("{affected}: {what} on its KVM (one tick is {tick})."))
    };
    let no_kvm = || {
        let time = late(&rows.machine("call-srcu")).time("first_memslot")?;
        let asked = rows.kvm_skipped().map_or_else(
            || "This run did not measure this host's KVM.".to_owned(),
            |why| format!("This host's KVM was not measured: {why}."),
        );
        Some(format!(
            "{asked} With the design of Linux v6.18, setting the first memslot after a device was registered takes \
             {time} on the software machine."
        ))
    };
    let start = || {
        let (late, early) = (
            first_is(&kvm, Order::DevicesFirst).time("total")?,
            first_is(&kvm, Order::MemoryFirst).time("total")?,
        );
        Some(format!(
            "A VM's start, up to its first exit, takes {late} when devices come first, and {early} when memory comes \
             first."
        ))
    };
    let beside = || {
        let slot = kvm_busy.time("back_to_back_memslot")?;
        let away = kvm_busy.time("back_to_back_unregister")?;
        Some(format!(
            "While vCPUs run, right after a registration, setting a memslot takes {slot}, and removing an ioeventfd \
             takes {away}."
        ))
    };
    let instead = || {
        let mayfly = late(&mayfly);
        let (first, busy) = (mayfly.time("first_memslot")?, mayfly.time("back_to_back_memslot")?);
        Some(format!(
            "With Mayfly, the same calls on the software machine take {first} for the first memslot, and {busy} while \
             vCPUs run. A caller that has to wait checks at once whether a vCPU still uses the old devices. It does \
             not wait for a timer."
        ))
    };
    let advice = || {
        // A kernel with such a wait beside running vCPUs may well have it at the start, too.
        let may = is(Wait::ForTimer) && first == Some(Wait::Unclear);
        let advice = if first == Some(Wait::ForTimer) || may {
            "set memory before the irqchip and the ioeventfds. Or register devices early and together, and do slow work \
             before the next memslot."
        } else if is(Wait::ForTimer) {
            "once vCPUs run, register all devices together. Change memory before that, or two ticks after."
        } else if is(Wait::Unclear) {
            "run this again when the host is less busy. In this run, calls that no timer can hold up take as long."
        } else {
            first.or(busy)?;
            "nothing. On this kernel, no order of calls makes a caller wait for a timer."
        };
        Some(format!("What to do: {advice}"))
    };
    let designs = [start(), beside(), instead()];
    let answer = Answer::of(verdict().or_else(no_kvm), designs, advice());
    match shown(&kvm, &mayfly) {
        Some(order) => answer.by(Order::PARAM, order.name()),
        None => answer,
    }
}

/// The first order of which there is a first memslot, on KVM or of Mayfly.
fn shown(kvm: &Rows<'_>, mayfly: &Rows<'_>) -> Option<Order> {
    Order::ALL.into_iter().find(|order| {
        let measured = |rows: &Rows<'_>| first_is(rows, *order).p50("first_memslot").is_some();
        measured(kvm) || measured(mayfly)
    })
}

/// Whether a call waits for a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    ForTimer,
    ForNothing,
    /// It takes as long as if it did, and so does another call, which no timer can hold up.
    Unclear,
}

impl Wait {
    /// Of a call that takes `ns`, beside one that takes `other` on the same host and that no timer can hold up.
    fn of(ns: u64, other: Option<u64>, tick: u64) -> Self {
        if ns <= tick / 2 {
            Self::ForNothing
        } else if other.is_some_and(|other| other > ns / 2) {
            Self::Unclear
        } else {
            Self::ForTimer
        }
    }
}

fn first_is<'a>(rows: &Rows<'a>, order: Order) -> Rows<'a> {
    rows.with(Order::PARAM, order.name())
}

/// Those of the first order that was run of those in which memory comes after devices.
fn late<'a>(rows: &Rows<'a>) -> Rows<'a> {
    let [devices, vcpus] =
        [Order::DevicesFirst, Order::VcpusFirst].map(|order| first_is(rows, order));
    if devices.p50("first_memslot").is_some() { devices } else { vcpus }
}

/// Those of the first order that was run.
fn any<'a>(rows: &Rows<'a>) -> Rows<'a> {
    let late = late(rows);
    if late.p50("first_memslot").is_some() { late } else { first_is(rows, Order::MemoryFirst) }
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
        answer(&rows, &Host { hz: Some(250), ..Host::default() }).lines
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

    /// What is told of a KVM whose calls take so long: the first memslot in each of two orders, and two calls beside
    /// running vCPUs.
    fn told_of(late: Option<u64>, early: u64, busy: u64, register: u64) -> Vec<String> {
        let row = |order: Order, slot| {
            let metric = |row: ResultRow, (name, ns)| {
                let mut samples = Samples::default();
                samples.record_ns(ns);
                row.metric(name, &samples)
            };
            let busy = [
                ("back_to_back_memslot", busy),
                ("back_to_back_unregister", busy),
                ("busy_register", register),
            ];
            let row = ResultRow::new("e", Backend::Kvm, "kernel").param(Order::PARAM, order.name());
            [("first_memslot", slot)].into_iter().chain(busy).fold(row, metric)
        };
        let rows: Vec<_> = late
            .map(|slot| row(Order::VcpusFirst, slot))
            .into_iter()
            .chain([row(Order::MemoryFirst, early)])
            .collect();
        answer(&rows, &Host { hz: Some(250), ..Host::default() }).lines
    }

    #[test]
    fn a_host_on_which_all_is_slow_is_not_called_affected() {
        let told = told_of(Some(6_020_000), 3_100_000, 16_000_000, 5_000);
        assert!(told[0].starts_with("This host is affected while vCPUs run: "), "{}", told[0]);
        let told = told_of(Some(6_020_000), 3_100_000, 16_000_000, 9_000_000);
        assert!(
            told[0].starts_with("Whether this host is affected cannot be told: "),
            "{}",
            told[0]
        );
        assert!(
            told[0].contains("6.02 ms, and setting one before any device takes 3.10 ms"),
            "{}",
            told[0]
        );
        assert!(told[told.len() - 1].contains("run this again"), "{told:?}");
        let told = told_of(Some(6_020_000), 29_000, 16_000_000, 9_000_000);
        assert!(told[0].starts_with("This host is affected: "), "{}", told[0]);
    }

    #[test]
    fn a_kernel_that_waits_only_beside_running_vcpus_is_not_called_free_of_it() {
        let told = told_of(Some(8_000), 8_000, 7_900_000, 5_000);
        assert!(told[0].starts_with("This host is affected while vCPUs run: "), "{}", told[0]);
        assert!(told[0].contains("7.90 ms") && told[0].contains("8.00 us"), "{}", told[0]);
        assert!(told[told.len() - 1].contains("once vCPUs run, register"), "{told:?}");
    }

    #[test]
    fn memory_first_alone_answers_from_what_it_has() {
        let told = told_of(None, 29_000, 7_900_000, 5_000);
        assert!(told[0].starts_with("This host is affected while vCPUs run: "), "{}", told[0]);
        let told = told_of(None, 29_000, 40_000, 5_000);
        assert!(told[0].starts_with("This host is not affected: "), "{}", told[0]);
        assert!(told[told.len() - 1].contains("nothing"), "{told:?}");
    }

    #[test]
    fn without_kvm_linuxs_way_on_the_machine_is_told_and_no_advice_given() {
        let told = told(None);
        assert!(told[0].starts_with("This run did not measure this host's KVM."), "{}", told[0]);
        assert!(told[0].contains("6.00 ms on the software machine"), "{}", told[0]);
        assert_eq!(told.len(), 2);
    }

    #[test]
    fn one_whose_kvm_may_not_be_opened_is_told_why_at_once() {
        let rows = [
            row(Backend::Machine, "call-srcu", Order::DevicesFirst, 6_000_000),
            ResultRow::new("e", Backend::Kvm, "kernel").skipped("/dev/kvm: permission denied"),
        ];
        let told = answer(&rows, &Host { hz: Some(250), ..Host::default() }).lines;
        let why = "This host's KVM was not measured: /dev/kvm: permission denied. With the design";
        assert!(told[0].starts_with(why), "{}", told[0]);
    }
}
