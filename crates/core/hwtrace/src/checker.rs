//! The checker.
//!
//! Records come in the order of their second tickets. Of two events, the one whose second ticket is below the other's
//! first ticket came first. The order of other events is unknown, and the checker takes any order that keeps the rules.
//! Tickets also order what a program orders by its own means, with one exception: what a CPU learns from the step
//! itself (an entry that it finds changed, a number that is taken) may be in the trace before that step. So the checker
//! holds nothing against a CPU that acted on it.
//!
//! **Entries.** The values of an entry follow each other: each write says what it found. If the next write in line has
//! not come yet, because it ended later, a write waits for it. Any CPU may set accessed and dirty marks, so they are
//! left out of the comparison.
//!
//! **What TLBs may have.** A TLB may have what was present in a tree under a VMID that the root was entered with, from
//! then on. What is taken away is *stale* until an invalidation reaches it, by scope, stride and reach, that was issued
//! after, and is complete. An invalidation of a whole VMID that no CPU was in, nor has entered since, ends the VMID's
//! share in the root.
//!
//! **What must not come before that**: the entry's next value, where break-before-make is asked for; and a CPU in the
//! guest under that VMID after the frame of what is stale was free. The checker notes these with what is stale
//! (*needs*), and judges them when it is invalidated, or when the trace ends.

mod accesses;
mod frames;
mod stale;
mod writes;

use std::collections::{HashMap, VecDeque};

use crate::entries::WRITE;
use crate::event::{Barrier, Event, Family, Record, Scope};
use crate::header::Options;
use crate::ranges::Ranges;
use crate::rules::{Rule, Violation};
use crate::tables::{Found, Root, Tables, Word};
use crate::vmids::{Exposure, Need, Stale};

/// Violations that are kept.
const KEPT: usize = 1000;
/// Writes of a table that wait for the one before: as many as others make while a thread that has made one is without a
/// processor, which is many milliseconds where many threads share it.
const WAITING: usize = 4096;
/// Things that were invalidated, and may be used by an access that began before.
const RECENT: usize = 4096;
/// Invalidations that are remembered in their order: likewise.
const LOGGED: usize = 1 << 15;
/// Accesses that nothing explains yet.
const UNEXPLAINED: usize = 4096;

/// What is known of a trace up to some line.
#[derive(Debug, Default)]
pub struct Checker {
    options: Options,
    tables: Tables,
    /// Writes that wait for the one before, by table.
    waiting: HashMap<u64, Vec<(u64, Record)>>,
    /// Frames of tables that are free, and the second ticket of that.
    freed: HashMap<u64, u64>,
    exposures: HashMap<u16, Exposure>,
    /// Entries to guests.
    enters: u64,
    stale: HashMap<u16, Vec<Stale>>,
    /// How many of those are of an entry.
    stale_words: HashMap<Word, u32>,
    /// Invalidations that were issued and are not complete, by CPU.
    issued: HashMap<u32, Vec<Issued>>,
    /// The last invalidations, complete or not: for writes that they come after, and that waited for one before.
    log: VecDeque<Logged>,
    /// How many of them are remembered no more, and the second ticket of the last of those.
    forgotten: (u64, u64),
    /// VMIDs that belong to a root: in which generation, and the second ticket of that.
    held: HashMap<u16, (u64, u64)>,
    given_back: HashMap<u16, u64>,
    generation: u64,
    /// CPUs that have written an entry since their last barrier: where.
    unordered: HashMap<u32, Word>,
    /// Frames that were given out, and not cleaned since.
    dirty: Ranges,
    recent: VecDeque<Recent>,
    /// The greatest first ticket of a completion.
    synced: u64,
    /// What ended before this was invalidated so long ago that it is not known any more.
    horizon: u64,
    unexplained: VecDeque<Unexplained>,
    /// Entries under VMIDs whose root is not known yet: line, VMID, second ticket.
    unheld: VecDeque<(u64, u16, u64)>,
    violations: Vec<Violation>,
    /// Events that the trace says are missing.
    dropped: u64,
}

#[derive(Debug)]
struct Issued {
    id: u64,
    /// Its number in the log.
    number: u64,
    /// Whole VMIDs that it covers, and the last entry of each.
    whole: Vec<(u16, u64)>,
    /// Where things are that it may reach; all, if none.
    vmid: Option<u16>,
}

/// An invalidation, as it was issued.
#[derive(Debug)]
struct Logged {
    cpu: u32,
    id: u64,
    /// Second ticket.
    end: u64,
    vmid: Option<u16>,
    scope: Scope,
    /// Tickets of its completion.
    complete: Option<(u64, u64)>,
}

/// Something that is invalidated.
#[derive(Debug)]
struct Recent {
    vmid: u16,
    stale: Stale,
    /// Tickets of the completion.
    sync: u64,
    end: u64,
}

#[derive(Debug)]
struct Unexplained {
    line: u64,
    end: u64,
    root: u64,
    gfn: u64,
    frame: u64,
    right: u8,
}

impl Checker {
    /// At the beginning of a trace.
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// Takes the record on `line`, the next in the order of second tickets.
    pub fn take(&mut self, line: u64, record: &Record) {
        let Record { begin, end, cpu, ref event } = *record;
        match *event {
            Event::Root { top, order, levels, family } => {
                if !self.tables.add_root(top, Root { order, levels, family }) {
                    self.report(
                        line,
                        Rule::TableTwice,
                        format!("root {top:#x} is in another tree"),
                    );
                }
                self.apply_known();
            }
            Event::RootGone { top } => self.root_gone(line, top, begin),
            // These are in no order, and no caller is told of them.
            Event::Entry { table, old, new, .. } if self.is_same(table, old, new) => {}
            Event::Entry { table, index, .. } => {
                let in_a_tree = self.tables.get(table).filter(|table| table.place.is_some());
                if in_a_tree.and_then(|table| table.family).is_some_and(Family::sees_late) {
                    self.unordered.insert(cpu, (table, index));
                }
                self.waiting.entry(table).or_default().push((line, record.clone()));
                self.apply_waiting(table);
            }
            Event::Fill { table, index, count, value, step } => {
                let entries = &mut self.tables.table(table).entries;
                for number in 0..count {
                    entries[(index + number) as usize] =
                        value.wrapping_add(step.wrapping_mul(u64::from(number)));
                }
            }
            Event::Mark { .. } | Event::Fetch { .. } | Event::Barrier { kind: Barrier::Memory } => {
            }
            Event::VmidTake { vmid, generation } => {
                if generation >= self.generation {
                    self.held.insert(vmid, (generation, end));
                    self.given_back.remove(&vmid);
                    self.unheld.retain(|(_, of, entered)| *of != vmid || *entered < begin);
                }
            }
            Event::VmidKeep { vmid, generation } => {
                self.held.insert(vmid, (generation, end));
            }
            Event::VmidGive { vmid } => self.vmid_given(line, vmid, begin, end),
            Event::Generation { generation } => {
                self.generation = generation;
                for (vmid, _) in self.held.extract_if(|_, held| held.0 < generation) {
                    self.given_back.insert(vmid, end);
                }
            }
            Event::Enter { tlb, top, vmid } => self.enter(line, record, (tlb, top, vmid)),
            Event::Leave { tlb, vmid } => self.leave(tlb, vmid, begin),
            Event::Barrier { kind: Barrier::Walks } => {
                self.unordered.remove(&cpu);
            }
            Event::Tlbi { id, vmid, scope } => {
                self.check_ordered(line, cpu, "the invalidation");
                self.issue(cpu, id, end, Some(vmid), scope);
            }
            Event::TlbiEverything { id } => {
                self.check_ordered(line, cpu, "the invalidation");
                self.issue(cpu, id, end, None, Scope::All);
            }
            Event::Sync { id } => self.sync(cpu, id, begin, end),
            Event::Give { frame, order } => {
                let frames = frame..frame + (1 << order);
                if self.freed.len() as u64 > 1 << order {
                    for frame in frames.clone() {
                        self.freed.remove(&frame);
                    }
                } else {
                    self.freed.retain(|frame, _| !frames.contains(frame));
                }
                if self.options.caches_maintained {
                    self.dirty.insert(frames);
                }
            }
            Event::Free { frame, order } => self.free(line, (frame, order), begin, end),
            Event::Clean { frame, count } | Event::Flush { frame, count } => {
                self.dirty.remove(frame..frame + count);
            }
            Event::Dropped { count } => self.dropped = self.dropped.saturating_add(count),
            Event::Access { vmid, gfn, frame, write, .. } => {
                let right = if write { WRITE } else { 1 };
                self.access(line, (vmid, gfn, frame, right), begin, end);
            }
        }
    }

    /// The rules that were broken up to now, as far as that can be told before the end.
    pub fn found(&self) -> &[Violation] {
        &self.violations
    }

    /// How many events are missing, as the trace says itself: where there are any, it is not whole, and nothing that seems
    /// wrong beyond them, or at its end, is certain.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The rules that were broken, in the order of lines: the trace is at its end.
    pub fn finish(mut self) -> Vec<Violation> {
        for table in self.waiting.keys().copied().collect::<Vec<_>>() {
            self.lost(table);
        }
        for vmid in self.stale.keys().copied().collect::<Vec<_>>() {
            // What was issued and is not complete may be, beyond the end.
            let stale = self.stale.remove(&vmid).unwrap_or_default();
            for stale in stale.into_iter().filter(|stale| stale.by.is_empty()) {
                self.judge(vmid, stale, u64::MAX);
            }
        }
        for (line, vmid, _) in std::mem::take(&mut self.unheld) {
            let what = format!("a root is entered under VMID {vmid}, which is nobody's");
            self.report(line, Rule::VmidNotTaken, what);
        }
        for access in std::mem::take(&mut self.unexplained) {
            self.report_access(&access);
        }
        self.violations.sort_by_key(|violation| violation.line);
        self.violations
    }

    fn report(&mut self, line: u64, rule: Rule, what: String) {
        if self.violations.len() < KEPT {
            self.violations.push(Violation { line, rule, what });
        }
    }
}

/// The entry that a write is of.
fn word_of(record: &Record) -> Option<Word> {
    match record.event {
        Event::Entry { table, index, .. } => Some((table, index)),
        _ => None,
    }
}

/// Notes that a CPU was in the guest from `entered` to `left`, where that is after the need.
fn note_use(need: &mut Need, entered: u64, left: u64) {
    let used = entered.max(need.end);
    if used < left {
        need.used = Some(need.used.map_or(used, |before| before.min(used)));
    }
}

fn describe(found: &Found) -> String {
    let Found { word: (table, index), level, gfn, bits, .. } = found;
    format!("entry {index} of table {table:#x} ({bits:#x}, level {level}, guest frame {gfn:#x})")
}
