//! The trees, as the writes of entries made them.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::entries::{BITS, Kind, Leaf, PRESENT};
use crate::event::Family;
use crate::lives::Tickets;
use crate::parse::ENTRIES;
use crate::window::tables;

/// Frames of an entry of `level`.
pub(crate) const fn pages(level: u32) -> u64 {
    1 << (level * BITS)
}

/// An entry: its table, and its number there.
pub(crate) type Word = (u64, u32);

/// A root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root {
    pub(crate) order: u32,
    pub(crate) levels: u32,
    pub(crate) family: Family,
    /// A CPU has gone into its guest, or may have.
    pub(crate) is_entered: bool,
}

/// Where a table is in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) root: u64,
    pub(crate) level: u32,
    /// The first guest frame that its first entry stands for.
    pub(crate) gfn: u64,
}

impl Place {
    /// The first guest frame of entry `index`.
    pub(crate) fn gfn_of(self, index: u32) -> u64 {
        self.gfn + u64::from(index) * pages(self.level)
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) entries: Box<[u64; ENTRIES as usize]>,
    /// In a tree.
    pub(crate) place: Option<Place>,
    /// The format of the tree that it is in, or was in last.
    pub(crate) family: Option<Family>,
    /// The tickets of what made it a table of a tree first, since its frame was given out.
    pub(crate) linked: Option<Tickets>,
    /// How many of its entries were filled since then.
    pub(crate) filled: u32,
    /// The greatest second ticket of what wrote it, or put it into a tree.
    pub(crate) reach: u64,
    /// Two entries may lead to it, and it is not known which of their places it has.
    pub(crate) may_be_elsewhere: bool,
    /// What writes found that hardware may have set, while the format was not known: the first of each bit.
    pub(crate) marked: Vec<Marked>,
}

/// A write of an entry found other bits than the writes before had left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marked {
    pub(crate) line: u64,
    pub(crate) index: u32,
    pub(crate) old: u64,
    /// Those that differ.
    pub(crate) bits: u64,
}

/// A leaf or a table in a tree, and the entry that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) word: Word,
    pub(crate) root: u64,
    /// Of the entry.
    pub(crate) level: u32,
    pub(crate) gfn: u64,
    pub(crate) bits: u64,
    pub(crate) kind: Kind,
}

/// A table that is in a tree already, or lies where no walk ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Twice {
    pub(crate) table: u64,
    /// The entry by which it would be in a tree again; none, where it would be part of a root.
    pub(crate) by: Option<Word>,
}

#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) roots: HashMap<u64, Root>,
    known: BTreeMap<u64, Table>,
    /// Tables whose format has come to be known, and that have marks from before.
    pub(crate) known_late: Vec<u64>,
    /// Entries of trees that map frames, by level and frame in units of that level, and the first ticket of the event
    /// that made each do so.
    leaves: BTreeMap<(u32, u64), BTreeMap<Word, u64>>,
}

impl Tables {
    /// The table in `frame`, which is empty where nothing is known of it.
    pub(crate) fn table(&mut self, frame: u64) -> &mut Table {
        self.known.entry(frame).or_insert_with(|| Table {
            entries: Box::new([0; ENTRIES as usize]),
            place: None,
            family: None,
            linked: None,
            filled: 0,
            reach: 0,
            may_be_elsewhere: false,
            marked: Vec::new(),
        })
    }

    /// Has `bits` in entry `word`, by an event that ended at `end`.
    pub(crate) fn put(&mut self, (table, index): Word, bits: u64, end: u64) {
        let table = self.table(table);
        table.entries[index as usize] = bits;
        table.reach = table.reach.max(end);
    }

    /// Has these in the entries from `first` on, by an event that ended at `end`.
    pub(crate) fn fill(&mut self, first: Word, all: impl Iterator<Item = u64>, end: u64) {
        let table = self.table(first.0);
        for (entry, bits) in table.entries.iter_mut().skip(first.1 as usize).zip(all) {
            *entry = bits;
        }
        table.reach = table.reach.max(end);
    }

    pub(crate) fn get(&self, frame: u64) -> Option<&Table> {
        self.known.get(&frame)
    }

    /// Those in `frames` of which something is known.
    pub(crate) fn known_in(&self, frames: &Range<u64>) -> Vec<u64> {
        self.known.range(frames.clone()).map(|(frame, _)| *frame).collect()
    }

    /// The tables in no tree of which an entry leads to the table in `frame`, in one format or another.
    pub(crate) fn leading_from_no_tree(&self, frame: u64) -> impl Iterator<Item = u64> {
        let leads = move |bits: &u64| tables(*bits).any(|table| table == frame);
        let apart = self.known.iter().filter(|(_, table)| table.place.is_none());
        apart.filter(move |(_, table)| table.entries.iter().any(leads)).map(|(above, _)| *above)
    }

    /// Has a root, empty, at `top`, since an event with these tickets.
    ///
    /// # Errors
    ///
    /// As [`Tables::enlist`].
    pub(crate) fn add_root(&mut self, top: u64, root: Root, tickets: Tickets) -> Result<(), Twice> {
        let level = root.levels - 1;
        let mut fits = Ok(());
        // All have their places before it is known what they lead to: one may lead to another.
        for number in 0..1 << root.order {
            self.detach(top + number, &mut Vec::new());
            let gfn = number * pages(root.levels);
            let place = Place { root: top, level, gfn };
            fits = fits.and(self.place(top + number, None, (place, root.family), tickets));
        }
        self.roots.insert(top, root);
        for number in 0..1 << root.order {
            fits = fits.and(self.enlist_all(top + number, tickets));
        }
        fits
    }

    /// Has the table in `frame` in a tree, with what it leads to. Entry `by` leads to it.
    fn attach(
        &mut self,
        frame: u64,
        by: Word,
        place: (Place, Family),
        tickets: Tickets,
    ) -> Result<(), Twice> {
        self.place(frame, Some(by), place, tickets)?;
        self.enlist_all(frame, tickets)
    }

    /// Has the table in `frame` in a tree, without what it leads to. Entry `by` leads to it, if it is no root.
    fn place(
        &mut self,
        frame: u64,
        by: Option<Word>,
        (place, family): (Place, Family),
        tickets: Tickets,
    ) -> Result<(), Twice> {
        let table = self.table(frame);
        if table.place.is_some() {
            return Err(Twice { table: frame, by });
        }
        let is_known_late = table.family.is_none() && !table.marked.is_empty();
        (table.place, table.family) = (Some(place), Some(family));
        table.reach = table.reach.max(tickets.1);
        if is_known_late {
            self.known_late.push(frame);
        }
        Ok(())
    }

    /// Has what is in the entries of the table in `frame` known.
    fn enlist_all(&mut self, frame: u64, tickets: Tickets) -> Result<(), Twice> {
        let mut fits = Ok(());
        for index in self.present(frame) {
            fits = fits.and(self.enlist((frame, index), tickets));
        }
        fits
    }

    /// The entries of the table in `frame` that are not absent.
    pub(crate) fn present(&self, frame: u64) -> Vec<u32> {
        let entries = self.get(frame).into_iter().flat_map(|table| (0..).zip(&*table.entries));
        entries.filter(|(_, bits)| **bits & PRESENT != 0).map(|(index, _)| index).collect()
    }

    /// Has what is in entry `word`, of a table in a tree, known. It is there since an event with these tickets.
    ///
    /// # Errors
    ///
    /// The first table that it leads to, and that is in a tree already, or lies where no walk ends. The others are known.
    pub(crate) fn enlist(&mut self, word: Word, tickets: Tickets) -> Result<(), Twice> {
        let Some(Found { level, gfn, kind, root, .. }) = self.found(word) else { return Ok(()) };
        match kind {
            Kind::Absent => Ok(()),
            Kind::Leaf(leaf) => {
                self.leaves.entry(unit(level, leaf)).or_default().insert(word, tickets.0);
                Ok(())
            }
            Kind::Table(below) => {
                let family = self.roots.get(&root).map(|root| root.family);
                let family = family.or(self.table(word.0).family);
                let (Some(level), Some(family)) = (level.checked_sub(1), family) else {
                    return Err(Twice { table: below, by: Some(word) });
                };
                self.attach(below, word, (Place { root, level, gfn }, family), tickets)
            }
        }
    }

    /// The entries by which a walk comes to the table in `frame`, from the root on.
    pub(crate) fn path(&self, frame: u64) -> Vec<Word> {
        let mut words = Vec::new();
        let Some(Place { root: top, level: to, gfn }) = self.get(frame).and_then(|one| one.place)
        else {
            return words;
        };
        let Some(root) = self.roots.get(&top) else { return words };
        let mut level = root.levels - 1;
        let mut table = top + gfn / pages(level) / u64::from(ENTRIES);
        while level > to {
            let word = (table, (gfn / pages(level) % u64::from(ENTRIES)) as u32);
            words.push(word);
            let Some(Found { kind: Kind::Table(below), .. }) = self.found(word) else { break };
            (level, table) = (level - 1, below);
        }
        words
    }

    /// Has what is in entry `word`, of a table in a tree, known no more; with what it leads to. Each is put into `gone`.
    pub(crate) fn delist(&mut self, word: Word, gone: &mut Vec<Found>) {
        let Some(found) = self.found(word) else { return };
        match found.kind {
            Kind::Absent => {}
            Kind::Leaf(leaf) => {
                let unit = unit(found.level, leaf);
                if let Some(words) = self.leaves.get_mut(&unit) {
                    words.remove(&word);
                    if words.is_empty() {
                        self.leaves.remove(&unit);
                    }
                }
                gone.push(found);
            }
            Kind::Table(below) => {
                gone.push(found);
                let Some(level) = found.level.checked_sub(1) else { return };
                let place = Place { root: found.root, level, gfn: found.gfn };
                // Free since, and somewhere else again, if it is not there.
                if self.get(below).is_some_and(|table| table.place == Some(place)) {
                    self.detach(below, gone);
                }
            }
        }
    }

    /// Takes the table in `frame` out of its tree, with what it leads to.
    pub(crate) fn detach(&mut self, frame: u64, gone: &mut Vec<Found>) {
        if self.get(frame).is_some_and(|table| table.place.is_some()) {
            for index in self.present(frame) {
                self.delist((frame, index), gone);
            }
            self.table(frame).place = None;
        }
    }

    /// Knows nothing of the table in `frame` any more. Returns whether something was known.
    pub(crate) fn forget(&mut self, frame: u64) -> bool {
        self.known.remove(&frame).is_some()
    }

    /// What is in entry `word` of a table in a tree.
    pub(crate) fn found(&self, word: Word) -> Option<Found> {
        let table = self.get(word.0)?;
        let (place, family) = (table.place?, table.family?);
        let bits = table.entries[word.1 as usize];
        let kind = family.kind(place.level, bits);
        let gfn = place.gfn_of(word.1);
        Some(Found { word, root: place.root, level: place.level, gfn, bits, kind })
    }

    /// The entry at which a walk for `gfn` ends.
    pub(crate) fn walk(&self, top: u64, gfn: u64) -> Option<Found> {
        let last = self.walked(top, gfn).pop()?;
        self.found(last).filter(|found| !matches!(found.kind, Kind::Table(_)))
    }

    /// The entries that a walk for `gfn` comes to.
    pub(crate) fn walked(&self, top: u64, gfn: u64) -> Vec<Word> {
        let mut words = Vec::new();
        let Some(root) = self.roots.get(&top) else { return words };
        let mut level = root.levels - 1;
        let index = gfn / pages(level);
        let mut word = (top + index / u64::from(ENTRIES), (index % u64::from(ENTRIES)) as u32);
        loop {
            words.push(word);
            let Some(Found { kind: Kind::Table(below), .. }) = self.found(word) else { break };
            let Some(next) = level.checked_sub(1) else { break };
            level = next;
            word = (below, (gfn / pages(level) % u64::from(ENTRIES)) as u32);
        }
        words
    }

    /// Whether the tables of `words`, which a walk from `top` comes to, the last one first, are in the places where it comes
    /// to them. One that two entries lead to has only one of its places.
    pub(crate) fn are_in_place(&self, top: u64, words: &[Word]) -> bool {
        let levels = self.roots.get(&top).map_or(0, |root| root.levels);
        let mut gfns = 0..u64::MAX;
        for (level, word) in (0..levels).rev().zip(words.iter().rev()) {
            let Some(found) = self.found(*word) else { return false };
            if (found.root, found.level) != (top, level) || !gfns.contains(&found.gfn) {
                return false;
            }
            gfns = found.gfn..found.gfn + pages(level);
        }
        true
    }

    /// The entries of trees that map one of `1 << order` frames from `frame` on.
    pub(crate) fn mapping(&self, frame: u64, order: u32) -> Vec<Found> {
        let units = (0..3).flat_map(|level| {
            let last = (frame + (1 << order) - 1) / pages(level);
            self.leaves.range((level, frame / pages(level))..=(level, last))
        });
        let words = units.flat_map(|(_, words)| words.keys());
        words.filter_map(|word| self.found(*word)).collect()
    }

    /// The first ticket of the event that made an entry map what it maps.
    pub(crate) fn since(&self, found: &Found) -> Option<u64> {
        let Kind::Leaf(leaf) = found.kind else { return None };
        self.leaves.get(&unit(found.level, leaf))?.get(&found.word).copied()
    }
}

fn unit(level: u32, leaf: Leaf) -> (u32, u64) {
    (level, leaf.frame / pages(level))
}
