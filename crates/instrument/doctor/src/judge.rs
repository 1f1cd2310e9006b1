//! The findings: what the measurements of an examination mean.

use std::time::Duration;

use mayfly_kvm::{Call, Irqchip};
use mayfly_record::{ResultRow, units};

use crate::examination::Examination;
use crate::finding::{Code, Finding, Gain};

/// How many times as long it has to take for small pages to be worth a word.
const WORTH: u64 = 2;

impl Examination {
    /// What it comes to, the most important first.
    pub fn findings(&self) -> Vec<Finding> {
        let judges =
            [grace_period, no_good_order, slow_create, slow_first_run, slow_close, small_pages];
        judges.into_iter().filter_map(|judge| judge(self)).collect()
    }
}

/// The median of a metric, in nanoseconds.
fn p50(seen: &Examination, row: &str, metric: &str) -> Option<u64> {
    Some(self::row(seen, row)?.metrics.get(metric)?.p50)
}

fn row<'a>(seen: &'a Examination, name: &str) -> Option<&'a ResultRow> {
    seen.rows.iter().find(|row| row.variant == name)
}

fn a_tick(seen: &Examination) -> u64 {
    mayfly_record::nanoseconds(seen.tick())
}

/// A duration, and how many ticks that is.
fn in_ticks(seen: &Examination, nanoseconds: u64) -> String {
    let ticks = nanoseconds as f64 / seen.tick().as_nanos() as f64;
    format!("{} ({ticks:.1} ticks)", units::duration(nanoseconds))
}

fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut all: Vec<&str> = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    match &all[..] {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [some @ .., last] => format!("{} or {last}", some.join(", ")),
    }
}

fn grace_period(seen: &Examination) -> Option<Finding> {
    let mut waits: Vec<Duration> = seen.waiting().map(|(_, time)| time).collect();
    waits.sort_unstable();
    let wait = mayfly_record::nanoseconds(*waits.get(waits.len() / 2)?);
    let of = |which: fn(&mayfly_kvm::Pair) -> Call| {
        let mut calls: Vec<Call> = seen.waiting().map(|(pair, _)| which(pair)).collect();
        calls.sort_unstable();
        listed(calls.into_iter().map(Call::name))
    };
    let (after, call) = (of(|pair| pair.after), of(|pair| pair.call));
    Some(Finding {
        code: Code::GracePeriod,
        what: format!(
            "a call of {call} can wait if it comes right after {after}. The usual wait is {}",
            in_ticks(seen, wait)
        ),
        why: "KVM frees what it replaces in the VM (such as the I/O bus, when a device is registered) after a \
              grace period, whose steps are delayed by ticks. A call that needs a grace period of the same VM soon \
              afterwards sleeps until that delay is over. The same calls a few ticks later do not wait."
            .to_owned(),
        change: match row(seen, "builder-full").and_then(|row| row.params.get("order")?.as_str()) {
            Some(order) => format!(
                "start a VM in this order: {order} (mayfly_kvm::VmBuilder does so). Later, register devices together. \
                 Change memory before that, or two ticks or more after it."
            ),
            None => format!("make the calls of {call} before those of {after}, or two ticks or more after them."),
        },
        gain: start_gain(seen, "full"),
        gains: start_gains(seen, "full"),
        wait_ns: wait,
    })
}

/// How long a start takes with devices first, and as the builder does it; and with its end, which has to do with it.
fn start_gains(seen: &Examination, irqchip: &str) -> Vec<Gain> {
    let of = |order: &str, metric| p50(seen, &format!("{order}-{irqchip}"), metric);
    let both = |metric| Some([of("devices-first", metric)?, of("builder", metric)?]);
    let gain = |metric| Some(Gain::of(metric, both(metric)?));
    ["start", "start_and_close"].into_iter().filter_map(gain).collect()
}

/// The same in words, where both are known.
fn start_gain(seen: &Examination, irqchip: &str) -> Option<String> {
    let [start, both] = <[Gain; 2]>::try_from(start_gains(seen, irqchip)).ok()?;
    let told = |gain: &Gain| {
        let [devices_first, planned] = [gain.before_ns, gain.after_ns].map(units::duration);
        format!("{devices_first} with devices first, {planned} in that order")
    };
    let ratio = start.before_ns as f64 / start.after_ns.max(1) as f64;
    Some(format!(
        "a start takes {} ({}); start and close together take {}. These are medians of VMs made here.",
        told(&start),
        units::ratio(ratio),
        told(&both)
    ))
}

fn no_good_order(seen: &Examination) -> Option<Finding> {
    let planned = |irqchip| {
        let name = match irqchip {
            Irqchip::Split => "builder-split",
            _ => "builder-full",
        };
        row(seen, name)?.counters.get("planned_wait_ns").copied()
    };
    let wait = planned(Irqchip::Full).filter(|wait| *wait > 0)?;
    let split = planned(Irqchip::Split);
    Some(Finding {
        code: Code::NoGoodOrder,
        what: format!(
            "with a full irqchip every order of a VM's start has a wait: {} in the best",
            in_ticks(seen, wait)
        ),
        why: "the irqchip has to come before the vCPUs. On this host, KVM adds a memslot of its own with the first vCPU \
              (VMX and AVIC, for the APIC access page), and that waits for the grace period that the irqchip has \
              started."
            .to_owned(),
        change: if split == Some(0) {
            "use KVM_CAP_SPLIT_IRQCHIP, with which there is an order without a wait; or do slow work, such as loading \
             the guest, between irqchip and vCPUs."
        } else {
            "do slow work, such as loading the guest, between irqchip and vCPUs: two ticks after, nothing waits."
        }
        .to_owned(),
        gain: split.filter(|wait| *wait == 0).and_then(|_| start_gain(seen, "split")),
        gains: if split == Some(0) { start_gains(seen, "split") } else { Vec::new() },
        wait_ns: wait,
    })
}

fn slow_create(seen: &Examination) -> Option<Finding> {
    let wait = p50(seen, "life", "create").filter(|ns| *ns > a_tick(seen))?;
    Some(Finding {
        code: Code::SlowCreate,
        what: format!("KVM_CREATE_VM takes {}", in_ticks(seen, wait)),
        why: "up to Linux 6.12, KVM starts a thread for huge pages with each VM and moves it into the control groups of \
              its creator; the lock of that move waits for a grace period of the whole host. Other reasons for a slow \
              call are not told apart from this one."
            .to_owned(),
        change: "mount control groups with favordynmods, or load kvm with nx_huge_pages=never where the processor needs \
                 no such protection; or create VMs before they are needed."
            .to_owned(),
        gain: None,
        gains: Vec::new(),
        wait_ns: wait,
    })
}

fn slow_first_run(seen: &Examination) -> Option<Finding> {
    let [first, second] = ["first_run", "second_run"].map(|metric| p50(seen, "life", metric));
    let wait = first?.saturating_sub(second?);
    (wait > a_tick(seen)).then(|| Finding {
        code: Code::SlowFirstRun,
        what: format!("a VM's first KVM_RUN takes {} more than its second", in_ticks(seen, wait)),
        why: "since about Linux 6.14, KVM starts a VM's thread for huge pages with its first KVM_RUN; before that, \
              the call only makes the VM's first tables."
            .to_owned(),
        change: "load kvm with nx_huge_pages=never where the processor needs no such protection.".to_owned(),
        gain: None,
        gains: Vec::new(),
        wait_ns: wait,
    })
}

fn slow_close(seen: &Examination) -> Option<Finding> {
    let of = |metric| p50(seen, "life", metric);
    let (later, at_once) = (of("close")?, of("close_at_once"));
    let wait = later.max(at_once.unwrap_or(0));
    if wait <= a_tick(seen) {
        return None;
    }
    let also = |when: &str, took: Option<u64>| {
        took.map_or(String::new(), |ns| format!("; {when}, {}", units::duration(ns)))
    };
    let what = format!(
        "closing a VM's last fd takes {}{}{}",
        in_ticks(seen, later),
        also("right after a registration", at_once),
        also("of an empty VM", of("close_bare")),
    );
    let teardown = p50(seen, "builder-full", "teardown");
    Some(Finding {
        code: Code::SlowClose,
        what,
        why: "KVM ends a VM in the call that closes its last fd: it waits there for grace periods of the VM's own (on \
              x86-64 when it frees the PIT) and of the process's memory (mmu_notifier_unregister). A grace period that \
              a registration has started shortly before is waited for, too."
            .to_owned(),
        change: format!(
            "close VMs on a thread that nothing waits for: mayfly_kvm::Built::teardown does so.{}",
            if later <= a_tick(seen) {
                " Or close them two ticks or more after the last registration."
            } else {
                ""
            }
        ),
        gain: teardown.map(|ns| {
            format!("control returns after {}, and the VM ends in the background", units::duration(ns))
        }),
        gains: teardown.map(|ns| Gain::of("close", [later, ns])).into_iter().collect(),
        wait_ns: wait,
    })
}

fn small_pages(seen: &Examination) -> Option<Finding> {
    // Where the kernel gives huge pages to everybody, there is nothing to change.
    if seen.host.huge_pages.as_deref() == Some("always") {
        return None;
    }
    let of = |metric| Some([p50(seen, "pages-4k", metric)?, p50(seen, "pages-thp", metric)?]);
    let [small, huge] = of("guest_fault")?;
    let per_gib = |ns: u64, seen: &Examination| {
        let bytes = row(seen, "pages-4k").and_then(|row| row.params.get("bytes")?.as_u64());
        bytes.filter(|bytes| *bytes > 0).map(|bytes| ns.saturating_mul(1 << 30) / bytes)
    };
    let wait = per_gib(small, seen)?;
    let gain = |what: &str, times: [u64; 2]| {
        let [small, huge] = times.map(|ns| per_gib(ns, seen));
        Some(Gain::of(what, [small?, huge?]))
    };
    let touch = gain("first_touch_of_a_gib", [small, huge]);
    let munmap = of("munmap").and_then(|times| gain("munmap_of_a_gib", times));
    let told = |gain: &Gain| {
        let [small, huge] = [gain.before_ns, gain.after_ns].map(units::duration);
        format!("{small} in pages of 4 KiB, {huge} in huge pages")
    };
    let also = munmap.as_ref().map(|gain| format!("; unmapping it takes {}", told(gain)));
    (small >= huge.saturating_mul(WORTH)).then(|| Finding {
        code: Code::SmallPages,
        what: format!(
            "a guest's first touch of its memory takes {} for each GiB, if the memory is in pages of 4 KiB",
            units::duration(wait)
        ),
        why: format!(
            "each page of 4 KiB is a fault of its own, and this host gives huge pages {}.",
            match seen.host.huge_pages.as_deref() {
                Some("never") => "to nobody",
                Some(_) => "only to programs that ask for them",
                None => "to programs that it does not name",
            }
        ),
        change: "ask for huge pages with madvise(MADV_HUGEPAGE) on the guest's memory, which has to begin at a multiple of \
                 2 MiB; or reserve huge pages, and use hugetlb."
            .to_owned(),
        gain: touch.as_ref().map(|gain| {
            format!("the first touch of a GiB takes {}{}", told(gain), also.unwrap_or_default())
        }),
        gains: [touch, munmap].into_iter().flatten().collect(),
        wait_ns: wait,
    })
}

#[cfg(test)]
mod tests {
    use mayfly_kvm::{Error, Pair};
    use mayfly_record::Host;

    use super::*;
    use crate::row::samples;

    fn host() -> Host {
        Host { hz: Some(250), huge_pages: Some("madvise".to_owned()), ..Host::default() }
    }

    fn seen(pairs: Vec<Pair>, rows: Vec<ResultRow>) -> Examination {
        let took = Duration::from_secs(1);
        Examination { host: host(), pairs, rows, took, conditions: None }
    }

    fn pair(after: Call, call: Call, at_once: u64) -> Pair {
        let us = |time| vec![time * 1000; 5];
        Pair { at_once: us(at_once), later: us(40), ..Pair::new(after, call) }
    }

    fn row(name: &str, metrics: &[(&str, u64)]) -> ResultRow {
        let with =
            |row: ResultRow, (name, us): &(&str, u64)| row.metric(name, &samples(&[us * 1000]));
        metrics.iter().fold(crate::row::row(name), with)
    }

    fn codes(seen: &Examination) -> Vec<Code> {
        seen.findings().into_iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn a_kernel_that_waits_is_told_which_calls_and_what_that_gains() {
        let pairs = vec![
            pair(Call::IrqchipFull, Call::MemslotAdd, 6100),
            pair(Call::IrqchipFull, Call::Vcpu, 90),
            pair(Call::IoeventfdAdd, Call::MemslotDelete, 7900),
        ];
        let rows = vec![
            row("devices-first-full", &[("start", 6800), ("start_and_close", 20_000)]),
            row("builder-full", &[("start", 400), ("start_and_close", 14_000)])
                .param("order", "memory, irqchip"),
        ];
        let found = &seen(pairs, rows).findings()[0];
        assert_eq!(found.code, Code::GracePeriod);
        assert!(found.what.contains("right after irqchip-full or ioeventfd-add"), "{}", found.what);
        assert!(found.what.contains("memslot-add or memslot-delete can wait"), "{}", found.what);
        assert!(!found.what.contains("vcpu"), "{}", found.what);
        assert!(found.change.contains("memory, irqchip"), "{}", found.change);
        let gain = found.gain.as_deref().unwrap();
        assert!(
            gain.contains("6.80 ms with devices first, 400 us in that order (17.0x)"),
            "{gain}"
        );
        let both =
            "start and close together take 20.0 ms with devices first, 14.0 ms in that order";
        assert!(gain.contains(both), "{gain}");
        let expected = [
            Gain::of("start", [6_800_000, 400_000]),
            Gain::of("start_and_close", [20_000_000, 14_000_000]),
        ];
        assert_eq!(found.gains, expected);
    }

    #[test]
    fn a_kernel_without_the_wait_is_told_nothing_of_it() {
        // Up to v6.17 the registration itself waits, for microseconds, and no other call does.
        let pairs: Vec<_> = Call::ALL
            .into_iter()
            .flat_map(|after| Call::ALL.map(|call| pair(after, call, 70)))
            .collect();
        let quiet = seen(pairs, vec![row("life", &[("create", 200), ("close", 600)])]);
        assert_eq!(codes(&quiet), []);
        assert_eq!(quiet.waiting().count(), 0);
    }

    #[test]
    fn a_processor_that_leaves_no_good_order_is_told_so_and_of_the_split_irqchip() {
        let planned = |name, ns| row(name, &[("start", 6800)]).counter("planned_wait_ns", ns);
        let full = planned("builder-full", 6_000_000);
        let found = seen(vec![], vec![full.clone(), planned("builder-split", 0)]).findings();
        assert_eq!(found[0].code, Code::NoGoodOrder);
        assert!(found[0].change.contains("KVM_CAP_SPLIT_IRQCHIP"));
        let found = seen(vec![], vec![full, planned("builder-split", 5_000_000)]).findings();
        assert!(!found[0].change.contains("KVM_CAP_SPLIT_IRQCHIP"));
        assert_eq!(codes(&seen(vec![], vec![planned("builder-full", 0)])), []);
    }

    #[test]
    fn creation_first_entry_and_end_are_told_from_a_tick_on() {
        let told = |create, first, close| {
            let metrics =
                [("create", create), ("first_run", first), ("second_run", 10), ("close", close)];
            codes(&seen(vec![], vec![row("life", &metrics)]))
        };
        assert_eq!(told(3900, 3900, 3900), []);
        assert_eq!(told(27_000, 20, 600), [Code::SlowCreate]);
        assert_eq!(told(200, 9000, 600), [Code::SlowFirstRun]);
        assert_eq!(told(200, 20, 16_300), [Code::SlowClose]);
    }

    #[test]
    fn an_end_that_waits_only_right_after_a_registration_is_told_with_both_times() {
        let of = |at_once| {
            let metrics = [("close", 600), ("close_at_once", at_once), ("close_bare", 100)];
            seen(vec![], vec![row("life", &metrics)]).findings()
        };
        assert!(of(3900).is_empty());
        let found = of(15_000);
        assert_eq!(found[0].code, Code::SlowClose);
        for said in ["600 us", "right after a registration, 15.0 ms", "an empty VM, 100 us"] {
            assert!(found[0].what.contains(said), "{said}: {}", found[0].what);
        }
        assert!(found[0].change.contains("two ticks or more after"));
        let builder = row("builder-full", &[("teardown", 15)]);
        let life = row("life", &[("close", 15_000)]);
        let gains = seen(vec![], vec![life, builder]).findings().remove(0).gains;
        assert_eq!(gains, [Gain::of("close", [15_000_000, 15_000])]);
        let always =
            seen(vec![], vec![row("life", &[("close", 15_000), ("close_at_once", 23_000)])]);
        assert!(!always.findings()[0].change.contains("two ticks"));
    }

    #[test]
    fn small_pages_are_told_where_huge_ones_are_to_be_had_by_asking() {
        let of = |name, us| row(name, &[("guest_fault", us)]).param("bytes", 32 << 20);
        let rows = |huge| vec![of("pages-4k", 30_000), of("pages-thp", huge)];
        let found = seen(vec![], rows(3000)).findings();
        assert_eq!(found[0].code, Code::SmallPages);
        let told = "960 ms in pages of 4 KiB, 96.0 ms in huge pages";
        assert!(found[0].gain.as_deref().unwrap().contains(told), "{found:?}");
        assert_eq!(found[0].gains, [Gain::of("first_touch_of_a_gib", [960_000_000, 96_000_000])]);
        assert_eq!(codes(&seen(vec![], rows(20_000))), []);
        let mut always = seen(vec![], rows(3000));
        always.host.huge_pages = Some("always".to_owned());
        assert_eq!(codes(&always), []);
    }

    #[test]
    fn what_failed_is_listed_and_finds_nothing() {
        let refused = Error::Call { call: "KVM_CREATE_IRQCHIP", errno: 1 };
        let failed =
            Pair { error: Some(refused), ..pair(Call::IrqchipFull, Call::MemslotAdd, 6100) };
        let seen = seen(vec![failed], vec![row("life", &[]).skipped("KVM_CREATE_VM: no")]);
        assert_eq!(codes(&seen), []);
        let said = seen.failed();
        assert!(said[0].starts_with("memslot-add right after irqchip-full: KVM_CREATE_IRQCHIP: "));
        assert_eq!(said[1], "life: KVM_CREATE_VM: no");
    }
}
