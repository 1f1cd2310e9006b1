//! What threads did on a path, in no more lines than a reader reads.

use std::collections::{BTreeMap, BTreeSet};

use super::critical::{Doing, Piece};
use super::index::Index;
use crate::record::Call;

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
    fn new(tid: i32, (from, to): (u64, u64), doing: Doing) -> Self {
        let calls = u64::from(matches!(doing, Doing::Call(_) | Doing::Sleeps { .. }));
        let piece = Piece { tid, at: from, took: to - from, doing };
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
        matches!(self.piece.doing, Doing::Own | Doing::Short { threads: 1, .. })
    }

    fn add(&mut self, other: Self) {
        self.piece.took += other.piece.took;
        self.piece.tid = other.piece.tid;
        self.calls += other.calls;
        self.threads.extend(other.threads);
        let (calls, threads) = (self.calls, self.threads.len() as u64);
        self.piece.doing = match (&self.piece.doing, &other.piece.doing) {
            (Doing::Sleeps { times, .. }, Doing::Sleeps { times: more, each }) => {
                Doing::Sleeps { times: times + more, each: *each }
            }
            (Doing::Own, Doing::Own) if threads == 1 => Doing::Own,
            _ => Doing::Short { calls, threads },
        };
    }
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
        into.push(Part::new(tid, (begun, over), doing(call)));
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
    let mut looks = 0;
    let mut waits: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for one in index.samples(tid, from, to) {
        looks += one.seen;
        // What it waited in, or the innermost function of the kernel that it was in.
        if let Some(function) = one.channel.as_ref().or(one.stack.first()) {
            let (seen, time) = waits.entry(function).or_default();
            *seen += one.seen;
            *time += (one.at + one.took).min(to).saturating_sub(one.at.max(from));
        }
    }
    // Either it stayed there for half of the time, or most looks found it there.
    let most = waits.into_iter().max_by_key(|(_, found)| *found);
    let doing = match most {
        Some((function, (seen, time)))
            if time >= (to - from) / 2 || seen > MOST_LOOKS_OF_CHANCE && 2 * seen > looks =>
        {
            Doing::Waits(function.to_owned())
        }
        _ => Doing::Own,
    };
    into.push(Part::new(tid, (from, to), doing));
}
