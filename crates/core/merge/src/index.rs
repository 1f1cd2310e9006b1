//! Numbers by the contents that they stand for: of a group, and of a sum. Several may stand for the same.

use mayfly_platform::memory::OutOfMemory;

use crate::Group;
use crate::pieces::Pieces;

const NONE: u32 = u32::MAX;

/// Chains between two pauses.
const FEW: usize = 64;

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) group: Group,
    pub(crate) sum: u64,
}

/// The place of an entry, until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u32);

#[derive(Clone, Copy, Debug)]
struct Node {
    key: Key,
    value: u64,
    next: u32,
}

/// A table of chains. Its places are used again.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// The first of each chain; a power of two of them, or none.
    heads: Pieces<u32>,
    nodes: Pieces<Node>,
    /// The first place that is free.
    free: Option<u32>,
    count: usize,
}

impl Index {
    /// Adds an entry, before those of the same key that are there. `pause` is called every few steps where there are many.
    pub(crate) fn try_insert(
        &mut self,
        key: Key,
        value: u64,
        pause: impl FnMut(),
    ) -> Result<(), OutOfMemory> {
        if self.count >= self.heads.len() {
            self.widen(pause)?;
        }
        let head = self.head_of(key);
        let node = Node { key, value, next: self.heads.get(head) };
        let place = if let Some(place) = self.free {
            let at = self.nodes.get_mut(place as usize);
            self.free = Some(at.next).filter(|&next| next != NONE);
            *at = node;
            place
        } else {
            let place = u32::try_from(self.nodes.len()).map_err(|_| OutOfMemory)?;
            self.nodes.try_push(node)?;
            place
        };
        *self.heads.get_mut(head) = place;
        self.count += 1;
        Ok(())
    }

    /// How many entries there are.
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// The entries of a key.
    pub(crate) fn all(&self, key: Key) -> impl Iterator<Item = (Place, u64)> {
        let first = if self.heads.len() == 0 { NONE } else { self.heads.get(self.head_of(key)) };
        let nodes = self.chain(first).filter(move |(_, node)| node.key == key);
        nodes.map(|(place, node)| (Place(place), node.value))
    }

    /// Removes an entry of `key`.
    pub(crate) fn remove(&mut self, key: Key, place: Place) {
        let head = self.head_of(key);
        let before = self.chain(self.heads.get(head)).find(|(_, node)| node.next == place.0);
        self.unlink(head, before.map(|(before, _)| before), place.0);
    }

    /// Leaves those entries for which `stays` says so.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(u64) -> bool, mut pause: impl FnMut()) {
        for head in 0..self.heads.len() {
            if head.is_multiple_of(FEW) {
                // Most chains may be empty.
                pause();
            }
            let (mut before, mut at) = (None, self.heads.get(head));
            while at != NONE {
                let node = self.nodes.get(at as usize);
                if stays(node.value) {
                    before = Some(at);
                } else {
                    self.unlink(head, before, at);
                }
                at = node.next;
                pause();
            }
        }
    }

    /// Removes all entries, and gives back their memory.
    pub(crate) fn clear(&mut self, mut pause: impl FnMut()) {
        self.nodes.clear(&mut pause);
        self.heads.clear(pause);
        (self.free, self.count) = (None, 0);
    }

    /// Calls `each` with the values of each key that has any.
    pub(crate) fn for_each_key(&self, mut each: impl FnMut(&mut dyn Iterator<Item = u64>)) {
        for head in 0..self.heads.len() {
            let first = self.heads.get(head);
            for (place, node) in self.chain(first) {
                let mut same = self.all(node.key);
                if same.next().is_some_and(|(first, _)| first == Place(place)) {
                    each(&mut self.all(node.key).map(|(_, value)| value));
                }
            }
        }
    }

    fn chain(&self, first: u32) -> impl Iterator<Item = (u32, Node)> {
        let at = |place: u32| (place != NONE).then(|| (place, self.nodes.get(place as usize)));
        core::iter::successors(at(first), move |(_, node)| at(node.next))
    }

    fn unlink(&mut self, head: usize, before: Option<u32>, place: u32) {
        let next = self.nodes.get(place as usize).next;
        match before {
            Some(before) => self.nodes.get_mut(before as usize).next = next,
            None => *self.heads.get_mut(head) = next,
        }
        self.nodes.get_mut(place as usize).next = self.free.replace(place).unwrap_or(NONE);
        self.count -= 1;
    }

    /// Has twice as many chains.
    fn widen(&mut self, mut pause: impl FnMut()) -> Result<(), OutOfMemory> {
        let chains = (2 * self.heads.len()).max(64);
        let mut narrow = Pieces::try_filled(NONE, chains, &mut pause)?;
        core::mem::swap(&mut self.heads, &mut narrow);
        for head in 0..narrow.len() {
            let mut at = narrow.get(head);
            while at != NONE {
                let node = self.nodes.get(at as usize);
                let head = self.head_of(node.key);
                self.nodes.get_mut(at as usize).next = self.heads.get(head);
                *self.heads.get_mut(head) = at;
                at = node.next;
            }
            if head.is_multiple_of(FEW) {
                pause();
            }
        }
        Ok(())
    }

    fn head_of(&self, key: Key) -> usize {
        let group = u64::from(key.group.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = key.sum ^ group;
        (mixed ^ mixed >> 32) as usize & (self.heads.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use proptest::prelude::*;

    fn values(index: &Index, key: Key) -> Vec<u64> {
        let mut values: Vec<_> = index.all(key).map(|(_, value)| value).collect();
        values.sort_unstable();
        values
    }

    proptest! {
        #[test]
        fn it_has_what_a_list_of_pairs_has(
            steps in prop::collection::vec((0..8_u8, 0..3_u32, 0..40_u64, 0..9_u64), 0..400)
        ) {
            let (mut index, mut list) = (Index::default(), Vec::new());
            for (what, group, sum, value) in steps {
                let key = Key { group: Group(group), sum: sum << 20 };
                match what {
                    0..5 => {
                        index.try_insert(key, value, || ()).unwrap();
                        list.push((key, value));
                    }
                    5 => {
                        let found = index.all(key).next();
                        if let Some((place, value)) = found {
                            index.remove(key, place);
                            let at = list.iter().position(|one| *one == (key, value)).unwrap();
                            list.swap_remove(at);
                        }
                    }
                    6 => {
                        index.retain(|one| one != value, || ());
                        list.retain(|(_, one)| *one != value);
                    }
                    _ if value == 0 => {
                        index.clear(|| ());
                        list.clear();
                    }
                    _ => {}
                }
                let mut same: Vec<_> =
                    list.iter().filter(|(one, _)| *one == key).map(|(_, value)| *value).collect();
                same.sort_unstable();
                prop_assert_eq!(values(&index, key), same);
                prop_assert_eq!(index.count, list.len());
            }
            let (mut keys, mut seen) = (0, 0);
            index.for_each_key(|values| (keys, seen) = (keys + 1, seen + values.count()));
            let mut all: Vec<_> = list.iter().map(|(key, _)| (key.group.0, key.sum)).collect();
            prop_assert_eq!(seen, all.len());
            all.sort_unstable();
            all.dedup();
            prop_assert_eq!(keys, all.len());
        }
    }
}
