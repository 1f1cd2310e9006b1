//! What threads did on a path, in no more lines than a reader reads.

use std::collections::{BTreeMap, BTreeSet};

use super::critical::{Doing, Piece};
use super::index::Index;
use crate::record::Call;
use crate::spent::Spent;

/// Lines.
const MOST: usize = 10;
/// What is shorter than this part of a path is not told apart.
const SMALL: u64 = 50;

/// So many looks may find a thread at the same by chance.
const MOST_LOOKS_OF_CHANCE: u64 = 2;

/// A stretch in which everything hung on a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) tid: i32,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// A piece, and what it was before others were added.
struct Part {
    piece: Piece,
    calls: u64,
    threads: BTreeSet<i32>,
}

pub(super) fn pieces(index: &Index, stretches: &[Stretch]) -> Vec<Piece> {
    let mut parts: Vec<Part> = Vec::new();
    for stretch in stretches {
        cut(index, *stretch, &mut parts);
    }
    let whole: u64 = parts.iter().map(|part| part.piece.took).sum();
    let mut least = (whole / SMALL).max(1);
    loop {
        let before = parts.len();
        parts = joined(parts, least);
        // What was joined may go with its neighbours now.
        if parts.len() < before {
            continue;
        }
        if parts.len() <= MOST {
            return parts.into_iter().map(|part| part.piece).collect();
        }
        least = least.saturating_mul(2);
    }
}

impl Part {
    fn new(index: &Index, tid: i32, (from, to): (u64, u64), doing: Doing) -> Self {
        let calls = u64::from(matches!(doing, Doing::Call(_) | Doing::Sleeps { .. }));
        let spent = index.spent(tid, from, to);
        let piece = Piece { tid, at: from, took: to - from, doing, spent };
        Self { piece, calls, threads: BTreeSet::from([tid]) }
    }

    /// Whether it is not told apart from a neighbour that is not, either.
    fn is_small(&self, least: u64) -> bool {
        self.piece.took < least || matches!(self.piece.doing, Doing::Short { threads: 2.., .. })
    }

    /// Whether the two are one to a reader: neither is told apart, or the same thread goes on with the same.
    fn goes_with(&self, before: &Self, least: u64) -> bool {
        let same =
            |is: fn(&Self) -> bool| self.piece.tid == before.piece.tid && is(self) && is(before);
        self.is_small(least) && before.is_small(least) || same(is_sleep) || same(Self::is_own)
    }

    fn is_own(&self) -> bool {
        matches!(self.piece.doing, Doing::Own | Doing::Off | Doing::Short { threads: 1, .. })
    }

    fn add(&mut self, other: Self) {
        self.piece.took += other.piece.took;
        self.piece.spent = both(self.piece.spent, other.piece.spent);
        self.piece.tid = other.piece.tid;
        self.calls += other.calls;
        self.threads.extend(other.threads);
        let (calls, threads) = (self.calls, self.threads.len() as u64);
        self.piece.doing = match (&self.piece.doing, &other.piece.doing) {
            (Doing::Sleeps { times, .. }, Doing::Sleeps { times: more, each }) => {
                Doing::Sleeps { times: times + more, each: *each }
            }
            (Doing::Own | Doing::Off, Doing::Own | Doing::Off) if threads == 1 => {
                own(self.piece.spent)
            }
            _ => Doing::Short { calls, threads },
        };
    }
}

/// How two stretches were spent; not known where it is not known of both.
fn both(one: Option<Spent>, other: Option<Spent>) -> Option<Spent> {
    Some(one?.with(other?))
}

/// What a thread did that made no call: where it was seen not to run for most of the time, it was not its own code.
fn own(spent: Option<Spent>) -> Doing {
    if spent.is_none_or(|spent| spent.mostly_ran()) { Doing::Own } else { Doing::Off }
}

fn is_sleep(part: &Part) -> bool {
    matches!(part.piece.doing, Doing::Sleeps { .. })
}

/// Adds up neighbours that go together. A look between two sleeps belongs to the polling.
fn joined(parts: Vec<Part>, least: u64) -> Vec<Part> {
    let mut all: Vec<Part> = Vec::new();
    for part in parts {
        let polls = all.len() > 1
            && is_sleep(&part)
            && is_sleep(&all[all.len() - 2])
            && all[all.len() - 1].piece.took < LOOK
            && all[all.len() - 2..].iter().all(|one| one.piece.tid == part.piece.tid);
        if polls && let Some(look) = all.pop() {
            if let Some(sleep) = all.last_mut() {
                sleep.piece.took += look.piece.took;
                sleep.piece.spent = both(sleep.piece.spent, look.piece.spent);
                sleep.add(part);
            }
            continue;
        }
        match all.last_mut() {
            Some(before) if part.goes_with(before, least) => before.add(part),
            _ => all.push(part),
        }
    }
    all
}

/// A look whether it is time yet is no longer, in nanoseconds.
const LOOK: u64 = 1_000_000;

/// Cuts a stretch where its thread's calls begin and end.
fn cut(index: &Index, Stretch { tid, from, to }: Stretch, into: &mut Vec<Part>) {
    let mut now = from;
    for call in index.calls(tid, from, to) {
        let (begun, over) = (call.at.max(now), call.end().min(to));
        if over <= begun {
            continue;
        }
        between(index, tid, (now, begun), into);
        into.push(Part::new(index, tid, (begun, over), doing(call)));
        now = over;
    }
    between(index, tid, (now, to), into);
}

fn doing(call: &Call) -> Doing {
    match call.name.as_str() {
        "sleep" => Doing::Sleeps { times: 1, each: call.argument("time") },
        name => Doing::Call(name.to_owned()),
    }
}

/// What a thread does outside of the calls that are recorded: it was looked at.
fn between(index: &Index, tid: i32, (from, to): (u64, u64), into: &mut Vec<Part>) {
    if from >= to {
        return;
    }
    if let Some(ending) = index.ending(tid, from).filter(|ending| *ending < to) {
        between(index, tid, (from, ending), into);
        let ends = (from.max(ending), to);
        let function = waits_in(index, tid, ends).unwrap_or_default();
        into.push(Part::new(index, tid, ends, Doing::Ends(function)));
        return;
    }
    let spent = index.spent(tid, from, to);
    // Who is on a processor, or could be, waits for nothing.
    let sleeps = spent.is_none_or(|spent| 2 * spent.asleep() >= to - from);
    let function = if sleeps { waits_in(index, tid, (from, to)) } else { None };
    let doing = function.map_or_else(|| own(spent), Doing::Waits);
    into.push(Part::new(index, tid, (from, to), doing));
}

/// Functions that every thread that is in the kernel is in.
const ANYWHERE: [&str; 8] = [
    "entry_",
    "do_syscall",
    "__x64_sys",
    "__arm64_sys",
    "el0",
    "ret_from",
    "do_exit",
    "do_group_exit",
];

/// The function of the kernel in which a thread was for most of the time between two moments: the one that it waited in, or
/// else the innermost that it went on being in.
fn waits_in(index: &Index, tid: i32, (from, to): (u64, u64)) -> Option<String> {
    let (mut looks, mut in_kernel) = (0, 0);
    let mut innermost: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    // Looks that found the thread in a function, and how far it was from the innermost one, all together.
    let mut within: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    // What waits is told where it does; the stack of a thread that runs is often an older one.
    let tells = index.samples(tid, from, to).any(|one| one.channel.is_some());
    for one in index.samples(tid, from, to) {
        let time = (one.at + one.took).min(to).saturating_sub(one.at.max(from));
        // Of one that had begun before, or goes on, a part.
        let part = u128::from(one.seen) * u128::from(time) / u128::from(one.took.max(1));
        let seen = if time < one.took { part as u64 } else { one.seen };
        looks += seen;
        let is_old = tells && one.channel.is_none();
        let first = one.channel.as_ref().or(one.stack.first()).filter(|_| !is_old);
        let Some(first) = first else { continue };
        in_kernel += seen;
        let entry = innermost.entry(first).or_default();
        (entry.0, entry.1) = (entry.0 + seen, entry.1 + time);
        for (depth, name) in one.stack.iter().enumerate() {
            let entry = within.entry(name).or_default();
            (entry.0, entry.1) = (entry.0 + seen, entry.1 + seen * depth as u64);
        }
    }
    // Either it stayed there for half of the time, or most looks found it there.
    let most = innermost.into_iter().max_by_key(|(_, (seen, time))| (*time, *seen));
    let stays = most.filter(|(_, (seen, time))| {
        *time >= (to - from) / 2 || *seen > MOST_LOOKS_OF_CHANCE && 2 * seen > looks
    });
    let is_most = |seen: u64| seen > MOST_LOOKS_OF_CHANCE && 2 * seen > in_kernel.max(looks / 2);
    let around = || {
        let meant = within.into_iter().filter(|(name, (seen, _))| {
            is_most(*seen) && !ANYWHERE.iter().any(|start| name.starts_with(start))
        });
        meant.min_by_key(|(_, (seen, depth))| depth * 1000 / seen)
    };
    stays.or_else(around).map(|(function, _)| function.to_owned())
}
