//! Causes are drawn at random and planted, and the traces say which they were: how many are right.
//!
//! `MAYFLY_SCORE` is how many runs there are, `MAYFLY_SEED` repeats the choices of a run of the score, and
//! `MAYFLY_RECORDER=tracefs` has another recorder than `ptrace`. What was planted is looked at when everything has been
//! said.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use mayfly_trace::{Choice, Error, Stall, Trace};

use crate::{launch, planted, traced_by};

/// What is planted: the argument, its sizes, and the cause's code.
const CAUSES: [(&str, u64, u64, &str); 14] = [
    ("irqchip", 1, 1, "grace-period"),
    ("unregister", 1, 1, "grace-period"),
    ("vcpus", 56, 80, "vcpus-one-by-one"),
    ("sleep", 4, 40, "own-sleep"),
    ("populate", 48, 160, "populated-memory"),
    ("unmap", 96, 192, "unmapped-memory"),
    ("leave", 96, 192, "memory-freed-at-exit"),
    ("poll", 10, 50, "polled-join"),
    ("kick", 10, 50, "lost-kick"),
    ("fault", 5, 40, "userfault"),
    ("image", 4, 12, "image-loading"),
    ("hold", 20, 60, "held-elsewhere"),
    ("lock", 10, 60, "lock-contention"),
    ("file", 10, 60, "lock-contention"),
];

/// What every life has, or a host on which others work: neither right nor wrong.
const NATURAL: [&str; 2] = ["vm-destruction", BUSY];
const BUSY: &str = "busy-processor";

/// One run: what was planted, and what was said.
struct Run {
    arguments: Vec<String>,
    planted: BTreeSet<&'static str>,
    said: BTreeSet<String>,
    /// The trace says that others had the processors, for most of a wait.
    was_busy: bool,
}

impl Run {
    fn wrong(&self) -> Vec<&String> {
        self.said.iter().filter(|code| !self.is_planted(code)).collect()
    }

    /// What is populated early and stays is freed when its process has ended, too.
    fn is_planted(&self, code: &str) -> bool {
        let stays = code == "memory-freed-at-exit" && self.planted.contains("populated-memory");
        // An interrupt controller that is made may itself wait where others have the processor that its grace period needs.
        let made =
            code == "irqchip-creation" && self.arguments.iter().any(|one| one == "irqchip=1");
        // What a process unmaps or leaves, its own code has touched before, page by page.
        let gone = ["unmapped-memory", "memory-freed-at-exit"];
        let was_new = code == "first-touch" && gone.iter().any(|one| self.planted.contains(one));
        stays || made || was_new || self.planted.contains(code)
    }

    fn missed(&self) -> Vec<&&'static str> {
        self.planted.iter().filter(|code| !self.said.contains(**code)).collect()
    }
}

pub(crate) fn score() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let asked: Option<u64> = number("MAYFLY_SCORE");
    let now = UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64);
    let seed = number("MAYFLY_SEED").unwrap_or(now).max(1);
    let recorder = std::env::var("MAYFLY_RECORDER").unwrap_or_else(|_| "ptrace".to_owned());
    let choice = match recorder.as_str() {
        "ptrace" => Choice::Ptrace,
        "tracefs" => Choice::Tracefs,
        other => panic!("there is no recorder {other}"),
    };
    if let Err(Error::NoTracefs(why)) = traced_by(choice, &launch(&[])) {
        return println!("not run: {why}");
    }
    println!("MAYFLY_SEED={seed} MAYFLY_RECORDER={recorder}");
    let mut dice = Dice(seed);
    let runs: Vec<Run> =
        (0..asked.unwrap_or(14)).map(|turn| run(turn, choice, &mut dice)).collect();
    table(&runs);
    // In a few runs on a host that others load, a wait is the load's as often as it is what was planted, and the trace says so.
    // What is asked for is a score, and is to be taken on a quiet host.
    let may_miss = |run: &Run| asked.is_none() && run.was_busy;
    let is_right = |run: &Run| run.missed().is_empty() || may_miss(run);
    let right = runs.iter().filter(|run| run.wrong().is_empty() && is_right(run)).count();
    let wrong = runs.iter().filter(|run| !run.wrong().is_empty()).count();
    println!("{right} of {} right, {wrong} with a wrong name", runs.len());
    assert_eq!(wrong, 0);
    let least = if asked.is_some() { 95 } else { 60 };
    assert!(100 * right >= least * runs.len(), "at least {least}% right");
}

fn run(turn: u64, choice: Choice, dice: &mut Dice) -> Run {
    // Every seventh has none.
    let many = if turn.is_multiple_of(7) { 0 } else { 1 + dice.below(3) };
    let mut chosen: BTreeMap<&str, (String, &'static str)> = BTreeMap::new();
    while chosen.len() < many as usize {
        let (name, least, most, code) = CAUSES[dice.below(CAUSES.len() as u64) as usize];
        // The page that comes late has code that leaves by itself; and who kicks until it is heard has nothing to poll for.
        // What a process leaves is not freed with it while one that was forked has the same pages.
        let excluded = [("kick", "fault"), ("kick", "poll"), ("hold", "leave")];
        let is_other = |one: &str, other: &str| one == name && chosen.contains_key(other);
        if excluded.iter().any(|(one, other)| is_other(one, other) || is_other(other, one)) {
            continue;
        }
        let size = least + dice.below(most - least + 1);
        chosen.insert(name, (format!("{name}={size}"), code));
    }
    let arguments: Vec<String> = chosen.values().map(|(argument, _)| argument.clone()).collect();
    let planted = chosen.values().map(|(_, code)| *code).collect();
    let trace = trace(&arguments, choice, dice);
    let mut said = codes(&trace);
    // What it waited outside of its calls is added up, and may be no single wait.
    let is_busy = |stall: &Stall| stall.cause.as_ref().is_some_and(|cause| cause.code == BUSY);
    let is_sum = |stall: &Stall| stall.what.starts_with("runnable");
    let was_busy = trace.stalls.iter().any(|stall| is_busy(stall) && !is_sum(stall));
    said.retain(|code| !NATURAL.contains(&code.as_str()));
    Run { arguments, planted, said, was_busy }
}

/// The program has another name each time.
fn trace(arguments: &[String], choice: Choice, dice: &mut Dice) -> Trace {
    let name = format!("vmm-{:x}", dice.next());
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::copy(planted(), &path).unwrap();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut launch = launch(&arguments);
    launch.command[0] = path.clone().into();
    let trace = traced_by(choice, &launch).unwrap();
    fs::remove_file(path).unwrap();
    trace
}

fn codes(trace: &Trace) -> BTreeSet<String> {
    let causes = trace.stalls.iter().filter_map(|stall| stall.cause.as_ref());
    causes.map(|cause| cause.code.clone()).collect()
}

fn table(runs: &[Run]) {
    println!("{:<24} {:>7} {:>6} {:>7}", "cause", "planted", "found", "false");
    let mut codes: BTreeSet<&str> = CAUSES.iter().map(|(.., code)| *code).collect();
    codes.extend(runs.iter().flat_map(|run| run.said.iter().map(String::as_str)));
    for code in codes {
        let planted = runs.iter().filter(|run| run.planted.contains(code));
        let found = planted.clone().filter(|run| run.said.contains(code)).count();
        let wrongly =
            runs.iter().filter(|run| run.said.contains(code) && !run.is_planted(code)).count();
        println!("{code:<24} {:>7} {found:>6} {wrongly:>7}", planted.count());
    }
    let none = runs.iter().filter(|run| run.planted.is_empty());
    let quiet = none.clone().filter(|run| run.said.is_empty()).count();
    println!("{:<24} {:>7} {quiet:>6}", "none", none.count());
    for run in runs.iter().filter(|run| !run.wrong().is_empty() || !run.missed().is_empty()) {
        let (wrong, missed) = (run.wrong(), run.missed());
        let busy = if run.was_busy { ", others had the processors" } else { "" };
        println!("{}: missed {missed:?}, wrong {wrong:?}{busy}", run.arguments.join(" "));
    }
}

/// Marsaglia's xorshift: what is drawn can be drawn again.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
