//! Entries sorted by an address, with the addresses side by side.
//!
//! The search reads addresses alone: 32 of them are four cache lines, and 1000 fit in a quarter of a first-level cache.
//! Still a table is one allocation, and versions share what has not changed between them. The cost of a registration is
//! mostly the allocations that it makes, and the cache lines that it is the first to touch.

use alloc::alloc::{Layout, alloc, dealloc};
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::slice;

use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::{AtomicUsize, Ordering, fence};

/// Sorted by key. Several entries may have one key.
pub(crate) struct Table<E> {
    /// In an allocation of [`Table::layout`]: behind how many tables share it ([`Owners`]), room for `capacity` keys, and
    /// behind them for as many entries; dangling where that is nothing. The first `len` of both are there. While it is
    /// shared nothing of it changes.
    keys: NonNull<u64>,
    len: usize,
    capacity: usize,
    owns: PhantomData<E>,
}

/// How many tables share an allocation.
type Owners = AtomicUsize;

// SAFETY: owns its keys and entries, alone or with other tables, which only read them then (so `E: Sync`); wherever the
// last of them is dropped (so `E: Send`).
unsafe impl<E: Send + Sync> Send for Table<E> {}
// SAFETY: as above; `&Table` gives `&[u64]`, `&[E]` and tables that share them, and changes nothing.
unsafe impl<E: Send + Sync> Sync for Table<E> {}

/// Readers.
impl<E> Table<E> {
    /// The number of entries whose key is at most `key`.
    #[inline]
    pub(crate) fn up_to(&self, key: u64) -> usize {
        // The library's search is one of conditional moves: its only branch counts the steps.
        self.keys().partition_point(|&other| other <= key)
    }

    /// The key and entry at `index`, if there is one.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<(u64, &E)> {
        Some((*self.keys().get(index)?, self.entries().get(index)?))
    }

    #[inline]
    pub(crate) fn entries(&self) -> &[E] {
        // SAFETY: `len` entries are there, aligned, and no thread changes them while `self` is borrowed.
        unsafe { slice::from_raw_parts(self.first_entry().as_ptr(), self.len) }
    }

    /// The memory that the arrays take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.capacity * Self::ROOM
    }

    #[inline]
    fn keys(&self) -> &[u64] {
        // SAFETY: `len` keys are there, aligned, and no thread changes them while `self` is borrowed.
        unsafe { slice::from_raw_parts(self.keys.as_ptr(), self.len) }
    }

    #[inline]
    fn first_entry(&self) -> NonNull<E> {
        // SAFETY: behind the room for keys, inside or at the end of the allocation; nothing is added to what dangles.
        unsafe { self.keys.add(self.capacity) }.cast()
    }
}

/// Writers.
impl<E: Copy> Table<E> {
    /// Puts an entry at `index`, where its key is in order. On failure nothing is changed.
    pub(crate) fn insert(&mut self, index: usize, key: u64, entry: E) -> Result<(), OutOfMemory> {
        if self.is_shared() {
            *self = self.with_room(self.len + 1)?;
        } else if self.len == self.capacity {
            *self = self.with_room(self.capacity.saturating_mul(2).max(2))?;
        }
        assert!(index <= self.len, "an entry is put among the others");
        let (keys, entries, after) = (self.keys, self.first_entry(), self.len - index);
        // SAFETY: there is room for one more of each; what lies behind `index` makes place for it first.
        unsafe {
            keys.add(index).copy_to(keys.add(index + 1), after);
            keys.add(index).write(key);
            entries.add(index).copy_to(entries.add(index + 1), after);
            entries.add(index).write(entry);
        }
        self.len += 1;
        Ok(())
    }

    /// Takes out the entry at `index`, which there is. On failure nothing is changed.
    pub(crate) fn remove(&mut self, index: usize) -> Result<E, OutOfMemory> {
        let entry = self.entries()[index];
        if self.is_shared() {
            *self = self.with_room(self.len)?;
        }
        let (keys, entries, after) = (self.keys, self.first_entry(), self.len - index - 1);
        // SAFETY: `index` is within both, and what lies behind moves one place to the front.
        unsafe {
            keys.add(index + 1).copy_to(keys.add(index), after);
            entries.add(index + 1).copy_to(entries.add(index), after);
        }
        self.len -= 1;
        Ok(entry)
    }

    /// Makes the entry at `from`, which there is, into this one, which lies at `to` among the others. On failure nothing
    /// is changed.
    pub(crate) fn relocate(
        &mut self,
        from: usize,
        to: usize,
        key: u64,
        entry: E,
    ) -> Result<(), OutOfMemory> {
        assert!(from < self.len && to < self.len, "an entry moves among the others");
        if self.is_shared() {
            *self = self.with_room(self.len)?;
        }
        // SAFETY: `len` of both are there, aligned, and no other party's since they are not shared.
        let (keys, entries) = unsafe {
            (
                slice::from_raw_parts_mut(self.keys.as_ptr(), self.len),
                slice::from_raw_parts_mut(self.first_entry().as_ptr(), self.len),
            )
        };
        shift(keys, from, to, key);
        shift(entries, from, to, entry);
        Ok(())
    }

    /// A copy with room for `capacity`, which is not 0 and not less than there are.
    fn with_room(&self, capacity: usize) -> Result<Self, OutOfMemory> {
        let layout = Self::layout(capacity).ok_or(OutOfMemory)?;
        // SAFETY: the count of owners is not zero-sized.
        let memory = NonNull::new(unsafe { alloc(layout) }).ok_or(OutOfMemory)?;
        // SAFETY: a fresh allocation, which begins with room for that.
        let keys = unsafe {
            memory.cast().write(Owners::new(1));
            memory.add(Self::KEYS).cast()
        };
        let copy = Self { keys, len: self.len, capacity, owns: PhantomData };
        // SAFETY: a fresh allocation with room for as many of both, which are `Copy`.
        unsafe {
            self.keys.copy_to_nonoverlapping(copy.keys, self.len);
            self.first_entry().copy_to_nonoverlapping(copy.first_entry(), self.len);
        }
        Ok(copy)
    }
}

/// Makes what is at `from` into `new`, which lies at `to` among the others.
fn shift<T: Copy>(list: &mut [T], from: usize, to: usize, new: T) {
    if from < to {
        list.copy_within(from + 1..=to, from);
    } else {
        list.copy_within(to..from, to + 1);
    }
    list[to] = new;
}

impl<E> Table<E> {
    pub(crate) const EMPTY: Self = {
        assert!(align_of::<E>() <= align_of::<u64>(), "entries lie behind keys without a gap");
        assert!(
            size_of::<Owners>().is_multiple_of(align_of::<u64>()),
            "as do keys behind the count"
        );
        // Aligned for entries too.
        Self { keys: NonNull::dangling(), len: 0, capacity: 0, owns: PhantomData }
    };

    /// Where keys begin, in bytes from the start of the allocation.
    const KEYS: usize = size_of::<Owners>();

    /// What an entry takes with its key, in bytes.
    const ROOM: usize = size_of::<u64>() + size_of::<E>();

    /// The same table, until either is changed.
    pub(crate) fn share(&self) -> Self {
        if let Some(owners) = self.owners() {
            // A thread that has a table may share it, so the count is not zero, and needs no order.
            owners.fetch_add(1, Ordering::Relaxed);
        }
        Self { keys: self.keys, len: self.len, capacity: self.capacity, owns: PhantomData }
    }

    /// Whether others have it too. If not, no thread can come to, but by way of this.
    fn is_shared(&self) -> bool {
        // Acquire, pairing with the release in `drop`: what others have read they have read before this is changed.
        self.owners().is_some_and(|owners| owners.load(Ordering::Acquire) != 1)
    }

    /// `None` where there is no allocation.
    fn owners(&self) -> Option<&Owners> {
        // SAFETY: an allocation begins with that, so far before its keys, and lasts as long as `self`.
        (self.capacity > 0).then(|| unsafe { self.keys.byte_sub(Self::KEYS).cast().as_ref() })
    }

    fn layout(capacity: usize) -> Option<Layout> {
        let size = capacity.checked_mul(Self::ROOM)?.checked_add(Self::KEYS)?;
        Layout::from_size_align(size, align_of::<u64>().max(align_of::<Owners>())).ok()
    }
}

impl<E> Drop for Table<E> {
    fn drop(&mut self) {
        let Some(owners) = self.owners() else { return };
        // Release, pairing with the acquires here and in `is_shared`.
        if owners.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        let layout = Self::layout(self.capacity).expect("it was allocated by this layout");
        // SAFETY: allocated by this layout and not freed before, and no other party has it any more. The count is
        // dropped, once; keys and entries, which are `Copy` where any were put in, need no drop.
        unsafe {
            let memory = self.keys.byte_sub(Self::KEYS);
            memory.cast::<Owners>().drop_in_place();
            dealloc(memory.as_ptr().cast(), layout);
        }
    }
}

#[cfg(all(test, not(mayfly_loom), not(mayfly_shuttle)))]
mod tests {
    use alloc::vec::Vec;
    use std::thread;

    use proptest::prelude::*;

    use super::Table;

    /// Of so many entries, with room for no more.
    fn table(entries: u32) -> Table<u32> {
        let mut table = Table::EMPTY;
        for entry in 0..entries {
            table.insert(entry as usize, entry.into(), entry).unwrap();
        }
        table
    }

    fn sum(table: &Table<u32>) -> u64 {
        table.keys().iter().sum::<u64>()
            + table.entries().iter().copied().map(u64::from).sum::<u64>()
    }

    /// Miri finds a change that nothing orders behind the reads.
    #[test]
    fn what_others_read_of_a_table_they_have_read_before_it_is_changed_in_place() {
        let mut table = table(4);
        let (before, other) = (table.keys, table.share());
        thread::scope(|threads| {
            threads.spawn(move || assert_eq!(sum(&other), 12));
            while table.is_shared() {
                thread::yield_now();
            }
            assert_eq!(table.remove(0), Ok(0));
        });
        assert_eq!((table.keys, sum(&table)), (before, 12));
    }

    /// As above, where it is freed by the last that has it, whichever that is.
    #[test]
    fn what_others_read_of_a_table_they_have_read_before_it_is_freed() {
        let table = table(4);
        let others = [table.share(), table];
        thread::scope(|threads| {
            for other in others {
                threads.spawn(move || assert_eq!(sum(&other), 12));
            }
        });
    }

    /// What can be done to a table: an entry of this key put in its place, or that at this index, if there is one,
    /// removed, or made into one of this key.
    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, u32),
        Remove(usize),
        Relocate(usize, u64, u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0..20_u64, any::<u32>()).prop_map(|(key, entry)| Step::Insert(key, entry)),
            1 => (0..40_usize).prop_map(Step::Remove),
            2 => (0..20_usize, 0..20_u64, any::<u32>())
                .prop_map(|(index, key, entry)| Step::Relocate(index, key, entry)),
        ];
        proptest::collection::vec(step, 0..60)
    }

    /// Fewer under Miri, which also has no files to keep failures in.
    fn config() -> ProptestConfig {
        if cfg!(miri) {
            ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4) }
        } else {
            ProptestConfig::default()
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn a_table_is_as_a_sorted_list_and_one_that_shares_it_stays_as_it_was(steps in steps()) {
            let (mut table, mut list) = (Table::EMPTY, Vec::<(u64, u32)>::new());
            for step in steps {
                let before = (table.share(), list.clone());
                match step {
                    Step::Insert(key, entry) => {
                        let index = list.partition_point(|(other, _)| *other <= key);
                        prop_assert_eq!(table.up_to(key), index);
                        table.insert(index, key, entry).unwrap();
                        list.insert(index, (key, entry));
                    }
                    Step::Remove(index) if index < list.len() => {
                        prop_assert_eq!(table.remove(index).unwrap(), list.remove(index).1);
                    }
                    Step::Relocate(from, key, entry) if from < list.len() => {
                        list.remove(from);
                        let to = list.partition_point(|(other, _)| *other <= key);
                        list.insert(to, (key, entry));
                        table.relocate(from, to, key, entry).unwrap();
                    }
                    Step::Remove(_) | Step::Relocate(..) => {}
                }
                for (table, list) in [(&table, &list), (&before.0, &before.1)] {
                    let found = (0..=list.len()).map_while(|index| table.get(index));
                    prop_assert!(found.map(|(key, entry)| (key, *entry)).eq(list.iter().copied()));
                    prop_assert_eq!(table.entries().len(), list.len());
                }
            }
        }
    }
}
