//! The order in which the writes of an entry can have come.

use std::collections::{HashSet, VecDeque};

/// Events of one entry that are put in order, at most.
pub(crate) const ITEMS: usize = 24;
/// Steps of the search, at most.
const STEPS: u32 = 20_000;

/// What an event does to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// What it finds, and what it leaves there.
    Write(u64, u64),
    /// Its table is filled, with this here.
    Fill(u64),
    /// Its table's frame is free.
    Free,
    /// And given out: the entry is zero.
    Give,
}

/// An event of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) change: Change,
}

/// What is in an entry: nothing, where the frame is free; and whether the frame has been given out, and nothing was
/// written since.
pub(crate) type Value = (Option<u64>, bool);

/// The writes of an entry that were taken.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    /// The second ticket of each of the last, and what it found.
    pub(crate) last: VecDeque<(u64, u64)>,
    /// The greatest second ticket of those before.
    pub(crate) forgotten: u64,
    /// The greatest second ticket of all.
    pub(crate) reach: u64,
    /// Where some overlap, and could have come in another order: until when.
    pub(crate) doubtful: u64,
}

/// The numbers of all `items` in an order that their tickets allow, and in which each write finds what it says, from
/// `present` on. A table is filled only when it was given out, and given out when it is empty; or, where there is no such
/// order, at any time. What is no write, and not the first of them, may come later. `is_same` says whether hardware takes one value for the other. `None` where there is no such order, or
/// the search for one takes too long.
pub(crate) fn order(
    present: Value,
    items: &[Item],
    is_same: &dyn Fn(u64, u64) -> bool,
) -> Option<Vec<usize>> {
    if items.len() > ITEMS {
        return None;
    }
    let find = |is_strict: bool| {
        let mut search = Search { items, is_same, is_strict, tried: HashSet::new(), steps: STEPS };
        let mut found = Vec::new();
        search.go(0, present, &mut found).then_some(found)
    };
    let begins = |item: &Item| matches!(item.change, Change::Fill(_) | Change::Give);
    find(true).or_else(|| if items.iter().any(begins) { find(false) } else { None })
}

struct Search<'a> {
    items: &'a [Item],
    is_same: &'a dyn Fn(u64, u64) -> bool,
    /// A table is filled only when it was given out, and given out when it is empty.
    is_strict: bool,
    /// The sets of items, and the value after them, from which there is no way on.
    tried: HashSet<(u32, Value)>,
    steps: u32,
}

impl Search<'_> {
    /// Goes on from the items in `done`, which left `value` there.
    fn go(&mut self, done: u32, value: Value, found: &mut Vec<usize>) -> bool {
        let is_left = |number: usize| done >> number & 1 == 0;
        let left = || self.items.iter().enumerate().filter(|(number, _)| is_left(*number));
        if left().all(|(number, item)| number > 0 && !matches!(item.change, Change::Write(..))) {
            return true;
        }
        if self.steps == 0 || !self.tried.insert((done, value)) {
            return false;
        }
        self.steps -= 1;
        let first_end = left().map(|(_, item)| item.end).min().unwrap_or(u64::MAX);
        let next: Vec<(usize, Item)> =
            left().filter(|(_, item)| item.begin < first_end).map(|(n, item)| (n, *item)).collect();
        for (number, item) in next {
            let Some(after) = self.after(value, item.change) else { continue };
            found.push(number);
            if self.go(done | 1 << number, after, found) {
                return true;
            }
            found.pop();
        }
        false
    }

    /// What there is after a change, if it can be made of `value`.
    fn after(&self, (bits, is_new): Value, change: Change) -> Option<Value> {
        match (change, bits) {
            (Change::Write(old, new), Some(bits)) => {
                (self.is_same)(bits, old).then_some((Some(new), false))
            }
            (Change::Fill(new), Some(_)) => {
                (is_new || !self.is_strict).then_some((Some(new), false))
            }
            (Change::Free, Some(_)) => Some((None, false)),
            (Change::Give, None) => Some((Some(0), true)),
            (Change::Give, Some(bits)) => {
                (!self.is_strict || (self.is_same)(bits, 0)).then_some((Some(0), true))
            }
            (_, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tickets: &[(u64, u64, Change)]) -> Vec<Item> {
        tickets
            .iter()
            .map(|(begin, end, change)| Item { begin: *begin, end: *end, change: *change })
            .collect()
    }

    fn found(present: u64, tickets: &[(u64, u64, Change)]) -> Option<Vec<usize>> {
        order((Some(present), false), &of(tickets), &|one, other| one == other)
    }

    #[test]
    fn each_write_finds_what_the_one_before_has_left() {
        use Change::Write;
        // The third could be first by its value, and not by its tickets.
        let items = [(1, 9, Write(5, 7)), (1, 9, Write(0, 5)), (4, 9, Write(7, 0))];
        assert_eq!(found(0, &items), Some(vec![1, 0, 2]));
        assert_eq!(found(3, &items), None);
        // One that ends before another begins is not after it.
        assert_eq!(found(0, &[(1, 2, Write(5, 7)), (3, 4, Write(0, 5))]), None);
        // Of two equal ones each may be first.
        let twice = [(1, 9, Write(5, 0)), (3, 4, Write(5, 0)), (2, 3, Write(0, 5))];
        assert_eq!(found(5, &twice), Some(vec![0, 2, 1]));
    }

    #[test]
    fn a_frame_that_is_free_has_no_entries_until_it_is_given_out_and_zero() {
        use Change::{Fill, Free, Give, Write};
        let life =
            [(1, 9, Write(3, 5)), (1, 9, Give), (1, 9, Free), (1, 9, Fill(3)), (1, 9, Write(7, 6))];
        let reset = found(7, &life).unwrap();
        let at = |number: usize| reset.iter().position(|one| *one == number).unwrap();
        assert!(at(4) < at(2) && at(2) < at(1) && at(1) < at(3) && at(3) < at(0));
        assert_eq!(found(0, &[(1, 2, Free), (3, 4, Write(0, 5))]), None);
    }
}
