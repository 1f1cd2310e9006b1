//! What was measured beside what the report on the KVM list has.
//!
//! Nikita Kalyazin, February 2026, Linux v6.18 at HZ=100: the first `KVM_CREATE_VCPU` on x86 with VMX, and the first
//! memslot on arm64.

use std::fmt::Write as _;

use mayfly_record::{ResultRow, units};

use crate::params::Order;

/// The report's figure for an order: what it is of here, and nanoseconds.
fn figure(order: Order) -> Option<(&'static str, u64)> {
    match order {
        Order::DevicesFirst => None,
        Order::VcpusFirst => Some(("first_memslot", 21_021_000)),
        Order::MemoryFirst => Some(("first_vcpu", 25_182_000)),
    }
}

const HZ: u32 = 100;

/// Says of a row whether it has the report's figure among what it measured, where it can.
pub(super) fn compared(row: ResultRow, order: Order, hz: u32) -> ResultRow {
    let Some((metric, there)) = figure(order) else { return row };
    let Some(here) = row.metrics.get(metric) else { return row };
    let mut said = format!(
        "{metric} is {} to {} here, {} in the source",
        units::duration(here.min),
        units::duration(here.max),
        units::duration(there)
    );
    // At another rate it would be by chance: the waits are ticks.
    let is_among = hz == HZ && (here.min..=here.max).contains(&there);
    said.push_str(if is_among { ": reproduced" } else { ": not reproduced" });
    if hz != HZ {
        let ticks = |ns: u64, hz: u32| ns as f64 * f64::from(hz) / 1e9;
        // Writing to a string does not fail.
        let _ = write!(
            said,
            "; the source has HZ={HZ}, this row HZ={hz}: {:.1} to {:.1} ticks here, {:.1} there",
            ticks(here.min, hz),
            ticks(here.max, hz),
            ticks(there, HZ)
        );
    }
    row.finding("source", said)
}

#[cfg(test)]
mod tests {
    use mayfly_record::{Backend, Samples, Unit};

    use super::*;

    fn found(order: Order, metric: &str, times: &[u64], hz: u32) -> Option<String> {
        let samples = Samples::of(Unit::Nanoseconds, times.iter().copied());
        let row = ResultRow::new("e", Backend::Kvm, "kernel").metric(metric, &samples);
        compared(row, order, hz).findings.pop().map(|found| found.detail)
    }

    #[test]
    fn what_was_not_measured_among_others_is_said_not_to_be_reproduced() {
        let seen = |times: &[u64]| found(Order::VcpusFirst, "first_memslot", times, 100).unwrap();
        assert!(seen(&[14_000_000, 22_000_000]).ends_with("21.0 ms in the source: reproduced"));
        assert!(seen(&[14_000_000, 20_000_000]).ends_with("21.0 ms in the source: not reproduced"));
        assert!(seen(&[22_000_000]).contains("22.0 ms to 22.0 ms here"));
    }

    #[test]
    fn at_another_tick_both_are_told_in_ticks() {
        let seen = found(Order::MemoryFirst, "first_vcpu", &[4_000_000, 8_000_000], 250).unwrap();
        assert!(seen.contains("not reproduced; the source has HZ=100, this row HZ=250"), "{seen}");
        assert!(seen.ends_with("1.0 to 2.0 ticks here, 2.5 there"), "{seen}");
        let by_chance = found(Order::MemoryFirst, "first_vcpu", &[4_000_000, 40_000_000], 250);
        assert!(by_chance.unwrap().contains("not reproduced"));
    }

    #[test]
    fn where_the_source_has_no_figure_nothing_is_said() {
        assert_eq!(found(Order::DevicesFirst, "first_memslot", &[1], 100), None);
        assert_eq!(found(Order::VcpusFirst, "first_vcpu", &[1], 100), None);
    }
}
