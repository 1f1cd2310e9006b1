//! The checker.
//!
//! Records come in the order of their second tickets. Of two events, the one whose second ticket is below the other's
//! first ticket came first. The order of other events is unknown, and the checker takes any order that keeps the rules.
//! Tickets also order what a program orders by its own means, with one exception: what a CPU learns from the step
//! itself (an entry that it finds changed, a number that is taken) may be in the trace before that step. So the checker
//! holds nothing against a CPU that acted on it.
//!
//! **What is taken first.** A record waits in a *window* until 8,192 more have come. Then the checker takes it. If it
//! breaks a rule by what is known at that time, the checker looks in the window for a record that began before this
//! one's end, and that would mend it: the root that is entered, the VMID that is taken, the CPU that leaves. It takes
//! that record first. Several records may fit, and the choice may be wrong. So no rule counts as broken by what the
//! record brings with it, nor by what is known of an entry or a frame that is in doubt ([`doubts`]).
//!
//! **Entries.** The values of an entry follow each other: each write says what it found. If writes of one entry overlap,
//! the checker searches for an order of them in which each finds what the one before has left; that the table's frame
//! is freed, given out and filled counts among them. If the next write in line is not in the window, a write waits for
//! it. Any CPU may set accessed and dirty marks, so they are left out of the comparison.
//!
//! **What TLBs may have.** A TLB may have what was present in a tree under a VMID that the root was entered with, from
//! then on. What is taken away is *stale* until an invalidation reaches it, by scope, stride and reach, that was issued
//! after, and is complete. If another CPU made the write, a barrier of either CPU comes between. An invalidation of a
//! whole VMID that no CPU was in, nor has entered since, ends the VMID's share in the root.
//!
//! **What must not come before that**: the entry's next value, where break-before-make is asked for; and a CPU in the
//! guest under that VMID after the frame of what is stale was free. The checker notes these with what is stale
//! (*needs*), and judges them when it is invalidated, or when the trace ends. What is free and stays in a tree is
//! [`overdue`] for guests that are entered later.
//!
//! **Frames.** A frame is given out, and free, in turn ([`Lives`]). It is free for certain if no record that gives it out
//! may have come between. What is known of a table in it ends when it is free, or, where it is not known whether that was
//! before or after, when it is given out next.

mod accesses;
mod arrivals;
mod barriers;
mod doubts;
mod forgotten;
mod frames;
mod guests;
mod hasten;
mod invalidations;
mod marks;
mod overdue;
mod settle;
mod stale;
mod tenancies;
mod trees;
mod writes;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use self::overdue::Overdue;
use crate::entries::WRITE;
use crate::event::{Barrier, Event, Record, Scope};
use crate::header::Options;
use crate::lives::{Lives, Tickets};
use crate::order::Writes;
use crate::ranges::Ranges;
use crate::rules::{Rule, Violation};
use crate::tables::{Found, Tables, Word};
use crate::vmids::{Exposure, Need, Stale, Stay, Tenancy};
use crate::window::Window;

/// Violations that are kept.
const KEPT: usize = 1000;
/// Records that wait for those that began before their end, and are written down later.
const WINDOW: usize = 8192;
/// Writes of a table that wait for the one before: as many as others make while a thread that has made one is without a
/// processor, which is many milliseconds where many threads share it.
const WAITING: usize = 4096;
/// Things that were invalidated, and may be used by an access that began before.
const RECENT: usize = 4096;
/// Invalidations that are remembered in their order: likewise.
const LOGGED: usize = 1 << 15;
/// Accesses that nothing explains yet.
const UNEXPLAINED: usize = 4096;

/// What is known of a trace up to some line. What is gone through in turn is in order, so that the same trace gives the
/// same answer each time.
#[derive(Debug, Default)]
pub struct Checker {
    options: Options,
    window: Window,
    /// The records that are being taken, each before the one that asked for it.
    taking: Vec<Record>,
    tables: Tables,
    /// The writes of entries, by table and index.
    writes: HashMap<u64, HashMap<u32, Writes>>,
    /// Writes that wait for the one before, by table.
    waiting: BTreeMap<u64, Vec<(u64, Record)>>,
    lives: Lives,
    /// Of some events it is not known in which order they came, and that may matter.
    is_any_chosen: bool,
    /// When roots came and went, by their first frame.
    root_lives: HashMap<u64, RootLife>,
    exposures: BTreeMap<u16, Exposure>,
    /// The root under each VMID that was invalidated as a whole in one order, and not in another; none, if that is gone.
    lingering: BTreeMap<u16, Option<u64>>,
    /// VMIDs under which TLBs may have what is of several roots.
    mixed: BTreeSet<u16>,
    stays: HashMap<(u32, u16), Stay>,
    /// The TLBs and VMIDs whose CPU is in a guest.
    inside: BTreeMap<(u32, u16), Inside>,
    /// Entries to guests.
    enters: u64,
    stale: BTreeMap<u16, Vec<Stale>>,
    /// How many of those are of a root, and begin at a guest frame.
    stale_places: BTreeMap<(u64, u64), u32>,
    /// What is free, and still in the tree of a root.
    overdue: HashMap<u64, Vec<Overdue>>,
    /// Frames that were free before what was stale of them was invalidated.
    free_early: Ranges,
    /// Invalidations that were issued and are not complete, by CPU.
    issued: HashMap<u32, Vec<Issued>>,
    /// The greatest number up to which each CPU's invalidations are complete, and the tickets of that.
    completed: HashMap<u32, (u64, Tickets)>,
    /// The last invalidations, complete or not: for writes that they come after, and that waited for one before.
    log: VecDeque<Logged>,
    /// How many of them are remembered no more, and the second ticket of the last of those.
    forgotten: (u64, u64),
    tenancies: HashMap<u16, Tenancy>,
    /// The last generations of VMIDs, and their second tickets.
    generations: VecDeque<(u64, u64)>,
    /// CPUs that have written an entry since their last barrier: where, and when.
    unordered: HashMap<u32, (Word, Tickets)>,
    /// The last barriers that order walks, by CPU.
    barriers: HashMap<u32, Tickets>,
    /// Frames that were given out, and not cleaned since.
    dirty: Ranges,
    recent: VecDeque<Recent>,
    /// The greatest first ticket of a completion.
    synced: u64,
    /// What ended before this was invalidated so long ago that it is not known any more.
    horizon: u64,
    unexplained: VecDeque<Unexplained>,
    /// What was broken, and the second ticket of the record that was taken then.
    violations: Vec<(u64, Violation)>,
    /// The greatest second ticket of a record that is not in the window any more.
    taken: u64,
    /// Events that the trace says are missing.
    dropped: u64,
}

/// A CPU is in a guest.
#[derive(Debug)]
struct Inside {
    root: u64,
    /// Since when for certain; the greatest ticket, where that is not known.
    since: u64,
}

/// When a root came, and went.
#[derive(Debug, Default)]
struct RootLife {
    /// The second ticket of when it was gone last.
    gone: u64,
    /// The greatest second ticket of those that entered it.
    entered: u64,
    /// The greatest second ticket of all.
    reach: u64,
    /// Where that it came and went overlaps: until when.
    doubtful: u64,
}

#[derive(Debug)]
struct Issued {
    id: u64,
    /// Its number in the log.
    number: u64,
    begin: u64,
    end: u64,
    /// Whole VMIDs that it covers.
    whole: Vec<Whole>,
    /// Where things are that it may reach; all, if none.
    vmid: Option<u16>,
}

/// A VMID that is invalidated as a whole.
#[derive(Debug)]
struct Whole {
    vmid: u16,
    /// The number of its last entry; none, if a CPU was in the guest.
    enters: Option<u64>,
    /// A CPU that came in by this second ticket, the least such, was still there when the invalidation was issued.
    stayed: u64,
    /// A CPU came in after that, by this second ticket, the least such.
    entered: u64,
}

/// An invalidation, as it was issued.
#[derive(Debug)]
struct Logged {
    line: u64,
    cpu: u32,
    id: u64,
    begin: u64,
    end: u64,
    /// The greatest second ticket of this one, and of those before.
    latest: u64,
    /// The second ticket of the last barrier of its CPU.
    barrier: u64,
    vmid: Option<u16>,
    scope: Scope,
    /// Tickets of its completion.
    complete: Option<Tickets>,
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
        if let Event::Dropped { count } = record.event {
            self.dropped = self.dropped.saturating_add(count);
        }
        if record.begin < self.taken {
            // It may mend what seemed to be broken.
            self.violations.retain(|(taken, _)| *taken < record.begin);
        }
        self.window.push(line, record);
        if self.window.len() > WINDOW {
            self.next();
        }
    }

    fn next(&mut self) {
        if let Some((line, record)) = self.window.pop() {
            self.taken = record.end;
            self.process(line, &record);
        }
    }

    fn process(&mut self, line: u64, record: &Record) {
        self.note_frames(record);
        self.note_root(record);
        self.taking.push(record.clone());
        self.apply(line, record);
        self.taking.pop();
        self.settle_frames(record);
    }

    fn apply(&mut self, line: u64, record: &Record) {
        let Record { begin, end, cpu, ref event } = *record;
        let tickets = (begin, end);
        match *event {
            Event::Root { top, .. } => self.root(line, record, top),
            Event::RootGone { top } => self.root_gone(line, top, tickets),
            Event::Entry { table, index, .. } => self.entry(line, record, (table, index)),
            Event::Fill { table, .. } => self.fill(line, record, table),
            Event::Mark { .. }
            | Event::Fetch { .. }
            | Event::Dropped { .. }
            | Event::Barrier { kind: Barrier::Memory } => {}
            Event::VmidTake { vmid, generation } => self.vmid_taken(vmid, generation, tickets),
            Event::VmidKeep { vmid, generation } => self.vmid_kept(vmid, generation),
            Event::VmidGive { vmid } => self.vmid_given(line, vmid, tickets),
            Event::Generation { generation } => self.generation(generation, end),
            Event::Enter { tlb, top, vmid } => self.enter(line, record, (tlb, top, vmid)),
            Event::Leave { tlb, vmid } => self.leave(tlb, vmid, tickets),
            Event::Barrier { kind: Barrier::Walks } => self.barrier(cpu, tickets),
            Event::Tlbi { vmid, scope, .. } => self.issue(line, record, Some(vmid), scope),
            Event::TlbiEverything { .. } => self.issue(line, record, None, Scope::All),
            Event::Sync { id } => self.sync(cpu, id, tickets),
            Event::Give { frame, order } => self.give(line, frame..frame + (1 << order), tickets),
            Event::Free { frame, order } => self.free(line, (frame, order), tickets),
            Event::Clean { frame, count } | Event::Flush { frame, count } => {
                self.clean(&(frame..frame + count), end);
            }
            Event::Access { tlb, vmid, gfn, frame, write } => {
                let right = if write { WRITE } else { 1 };
                self.access(line, (tlb, vmid), (gfn, frame, right), tickets);
            }
        }
    }

    /// The rules that were broken up to now, as far as that is certain whatever comes.
    pub fn found(&self) -> Vec<Violation> {
        self.violations.iter().map(|(_, violation)| violation.clone()).collect()
    }

    /// How many events are missing, as the trace says itself: where there are any, it is not whole, and nothing that seems
    /// wrong beyond them, or at its end, is certain.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The rules that were broken, in the order of lines: the trace is at its end.
    pub fn finish(mut self) -> Vec<Violation> {
        while self.window.len() > 0 {
            self.next();
        }
        for table in self.waiting.keys().copied().collect::<Vec<_>>() {
            self.lost(table);
        }
        for table in self.tables.known_in(&(0..u64::MAX)) {
            self.end_marked(table);
        }
        for vmid in self.stale.keys().copied().collect::<Vec<_>>() {
            // What was issued and is not complete may be, beyond the end; but not where another has the frame.
            let stale = self.stale.remove(&vmid).unwrap_or_default();
            for stale in stale.into_iter().filter(|stale| stale.by.is_empty() || stale.is_given) {
                self.judge(vmid, stale, u64::MAX);
            }
        }
        for access in std::mem::take(&mut self.unexplained) {
            self.report_access(&access);
        }
        let mut violations = self.found();
        violations.sort_by_key(|violation| violation.line);
        violations
    }

    fn report(&mut self, line: u64, rule: Rule, what: String) {
        let taken = self.taking.first().map_or(u64::MAX, |record| record.end);
        // What another record asked for may have been taken too early.
        let is_known = |(_, known): &(u64, Violation)| (known.line, known.rule) == (line, rule);
        if self.taking.len() < 2
            && self.violations.len() < KEPT
            && !self.violations.iter().any(is_known)
        {
            self.violations.push((taken, Violation { line, rule, what }));
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
