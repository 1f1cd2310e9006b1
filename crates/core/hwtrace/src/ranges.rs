//! Sets of frames, as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// Frames, however many, in as much memory as there are ranges of them.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// First and end of each; none touches another.
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    pub(crate) fn insert(&mut self, mut range: Range<u64>) {
        while let Some((&first, &end)) = self.ends.range(..=range.end).next_back()
            && end >= range.start
        {
            self.ends.remove(&first);
            range = range.start.min(first)..range.end.max(end);
        }
        self.ends.insert(range.start, range.end);
    }

    pub(crate) fn remove(&mut self, range: Range<u64>) {
        while let Some((&first, &end)) = self.ends.range(..range.end).next_back()
            && end > range.start
        {
            self.ends.remove(&first);
            if first < range.start {
                self.ends.insert(first, range.start);
            }
            if end > range.end {
                self.ends.insert(range.end, end);
            }
        }
    }

    /// The last one in `range`, if any is.
    pub(crate) fn any_in(&self, range: &Range<u64>) -> Option<u64> {
        let (_, &end) = self.ends.range(..range.end).next_back()?;
        (end > range.start).then(|| end.min(range.end) - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_have_what_a_set_has(steps in prop::collection::vec((0..64u64, 1..16u64, any::<bool>()), 0..64)) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (first, count, insert) in steps {
                let range = first..first + count;
                if insert {
                    ranges.insert(range.clone());
                    set.extend(range);
                } else {
                    ranges.remove(range.clone());
                    set.retain(|frame| !range.contains(frame));
                }
                for first in 0..80 {
                    for range in [first..first + 1, first..first + 7] {
                        let last = set.range(range.clone()).next_back().copied();
                        prop_assert_eq!(ranges.any_in(&range), last);
                    }
                }
            }
        }
    }
}
