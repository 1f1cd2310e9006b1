//! Traces of which it is less known in which order events came.

use std::collections::BTreeSet;

use mayfly_hwtrace::{Checker, Options, Record, Rule, Violation};
use proptest::prelude::*;

/// How much earlier than they are a record's tickets begin, and how much later they end, in records.
pub(crate) type Width = (u32, u32);

/// Widths for 64 records: of one in so many, by less than so many places, before, after or both.
pub(crate) fn wide(one_in: u32, far: u32) -> impl Strategy<Value = Vec<Width>> {
    let width = (0..one_in, 0..far, 0..far, 0..3_u8);
    let width = width.prop_map(|(which, before, after, side)| match (which, side) {
        (1.., _) => (0, 0),
        (0, 0) => (before, 0),
        (0, 1) => (0, after),
        (0, _) => (before, after),
    });
    prop::collection::vec(width, 64)
}

/// Any widths.
pub(crate) fn widths() -> impl Strategy<Value = Vec<Width>> {
    let far = prop::sample::select(vec![3_u32, 10, 30, 100, 1000]);
    (prop::sample::select(vec![1_u32, 3, 8, 20, 64]), far)
        .prop_flat_map(|(one_in, far)| wide(one_in, far))
}

/// The records, which are in the order of their second tickets, with tickets that are so much wider, one after another,
/// from the first on again.
pub(crate) fn wider(records: &[Record], widths: &[Width]) -> Vec<Record> {
    // A place is two tickets of a trace in which one thing comes after another.
    let far = |places: &u32| 2 * i64::from(*places);
    // Begins before ends, of those that would be at once.
    let mut moments: Vec<(i64, bool, usize)> = Vec::new();
    for ((at, record), (before, after)) in records.iter().enumerate().zip(widths.iter().cycle()) {
        moments.push((record.begin.cast_signed() - far(before), false, at));
        moments.push((record.end.cast_signed() + far(after), true, at));
    }
    moments.sort_unstable();
    let mut begins = vec![0; records.len()];
    let mut wider = Vec::with_capacity(records.len());
    for (ticket, (_, is_end, at)) in (1..).zip(moments) {
        if is_end {
            wider.push(Record { begin: begins[at], end: ticket, ..records[at].clone() });
        } else {
            begins[at] = ticket;
        }
    }
    wider
}

/// The rules that these records break, by what the checker says of them in the `end`.
pub(crate) fn broken(
    records: &[Record],
    options: Options,
    end: fn(Checker) -> Vec<Violation>,
) -> BTreeSet<Rule> {
    let mut checker = Checker::new(options);
    for (line, record) in (0..).zip(records) {
        checker.take(line, record);
    }
    end(checker).iter().map(|broken| broken.rule).collect()
}
