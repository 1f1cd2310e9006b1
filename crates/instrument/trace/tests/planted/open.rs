//! Programs are drawn at random that know by themselves when they waited: which waits are listed, and which names are right.
//!
//! `MAYFLY_OPEN` is how many programs there are, `MAYFLY_SEED` repeats the choices, and `MAYFLY_RECORDER=tracefs` has another
//! recorder than `ptrace`. What a program waited for is what it was told to, and its own clock says when: no rule of the trace
//! has a part in it. Lengths are from a fifth of a tick to fifty, as many of each order; every tenth program waits for nothing;
//! in a third, other threads do the same things and nobody waits for them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use mayfly_trace::{Cause, Choice, Error, Stall, Trace};

use crate::score::Dice;
use crate::{built, launch_of, traced_by};

/// How a program may wait.
struct Kind {
    name: &'static str,
    /// The cause that is to be named, if there is one for it.
    cause: Option<&'static str>,
    /// Other causes that are right.
    also: &'static [&'static str],
    /// Where it may: a socket or a poll before the VM is a client's.
    places: &'static [&'static str],
}

const ANYWHERE: &[&str] = &["before", "between", "after"];
const WITH_VM: &[&str] = &["between", "after"];

const fn kind(name: &'static str, cause: Option<&'static str>) -> Kind {
    Kind { name, cause, also: &[], places: ANYWHERE }
}

const KINDS: [Kind; 13] = [
    kind("sleep", Some("own-sleep")),
    Kind { also: &["own-sleep"], places: WITH_VM, ..kind("poll", None) },
    kind("child", None),
    kind("mutex", Some("lock-contention")),
    kind("file-lock", Some("lock-contention")),
    kind("pipe", None),
    Kind { places: WITH_VM, ..kind("socket", None) },
    kind("eventfd", None),
    kind("condition", None),
    kind("join", None),
    // What it has touched is freed when it ends.
    kind("touch", Some("first-touch")),
    Kind { places: &["between"], ..kind("image", Some("image-loading")) },
    // It waits for nothing.
    kind("compute", None),
];

/// A program's own account of one wait: what it was for, the threads it is of, and from when to when.
#[derive(Clone, Debug)]
struct Truth {
    kind: String,
    threads: [i32; 2],
    from: u64,
    to: u64,
}

impl Truth {
    fn kind(&self) -> &'static Kind {
        KINDS.iter().find(|one| one.name == self.kind).expect("the program knows no other")
    }

    fn overlaps(&self, stall: &Stall) -> bool {
        let (from, to) = (self.from.max(stall.at), self.to.min(stall.at + stall.took));
        let least = (self.to - self.from).min(stall.took) / 2;
        self.threads.contains(&stall.tid) && to.saturating_sub(from) >= least
    }

    fn has(&self, code: &str) -> bool {
        self.kind().cause == Some(code) || self.kind().also.contains(&code)
    }
}

/// What came of one program.
#[derive(Debug, Default, PartialEq, Eq)]
struct Judged {
    /// Of each wait that is long enough, its kind, and what is said of it: a cause, `-` if none, and nothing where it is not listed.
    told: Vec<(String, Option<String>)>,
    /// Causes that are none of what happened: code, and what the wait is called.
    wrong: Vec<(String, String)>,
}

fn code(stall: &Stall) -> Option<&str> {
    stall.cause.as_ref().map(|cause| &cause.code[..])
}

/// Holds what a trace lists against what happened; waits from `least` on are to be listed. `touches` says whether any thread
/// touched memory, which is freed when the program ends.
fn judge(trace: &Trace, truths: &[Truth], touches: bool, least: u64) -> Judged {
    let mut judged = Judged::default();
    let is_wait = |truth: &&Truth| truth.kind != "compute" && truth.to - truth.from >= least;
    for truth in truths.iter().filter(is_wait) {
        let mut stalls: Vec<&Stall> =
            trace.stalls.iter().filter(|stall| truth.overlaps(stall)).collect();
        stalls.sort_by_key(|stall| !code(stall).is_some_and(|code| truth.has(code)));
        let said = stalls.first().map(|stall| code(stall).unwrap_or("-").to_owned());
        judged.told.push((truth.kind.clone(), said));
    }
    for stall in &trace.stalls {
        let Some(code) = code(stall) else { continue };
        let is_of_end = stall.what == "close" || stall.what == "the end of the process";
        let is_natural = match code {
            "vm-destruction" => is_of_end,
            "memory-freed-at-exit" => touches && is_of_end,
            // The host's own load is not known to the program.
            "busy-processor" => true,
            _ => false,
        };
        let is_right = truths.iter().any(|truth| truth.has(code) && truth.overlaps(stall));
        if !is_natural && !is_right {
            judged.wrong.push((code.to_owned(), stall.what.clone()));
        }
    }
    judged
}

/// What a program has written down, in the trace's time.
fn truths(log: &str, trace: &Trace) -> Vec<Truth> {
    let number = |word: &str| word.parse::<u64>().unwrap();
    let created = log.lines().find_map(|line| line.strip_prefix("created ")).map(number).unwrap();
    let seen = trace.calls.iter().find(|call| call.name == "KVM_CREATE_VM").unwrap().at;
    let relative = |at: &str| (number(at) + seen).saturating_sub(created);
    let truth = |line: &str| {
        let words: Vec<&str> = line.strip_prefix("wait ")?.split(' ').collect();
        let [kind, tid, helper, from, to] = words[..] else { panic!("{line}") };
        let threads = [tid, helper].map(|tid| tid.parse().unwrap());
        let (from, to) = (relative(from), relative(to));
        Some(Truth { kind: kind.to_owned(), threads, from, to })
    };
    log.lines().filter_map(truth).collect()
}

/// One step of a program: where, what and for how many microseconds.
fn step(place: &str, kind: &Kind, tick: u64, dice: &mut Dice) -> String {
    let part = dice.below(1_000_001) as f64 / 1e6;
    let ticks = 0.2 * (50.0f64 / 0.2).powf(part);
    let length = Duration::from_nanos(tick).mul_f64(ticks).as_micros();
    format!("{place}:{}:{length}", kind.name)
}

fn draw(turn: u64, tick: u64, dice: &mut Dice) -> Vec<String> {
    let any = |dice: &mut Dice| &KINDS[dice.below(KINDS.len() as u64) as usize];
    let mut steps = Vec::new();
    let waits = if turn.is_multiple_of(10) { 0 } else { 1 + dice.below(4) };
    for _ in 0..waits {
        let kind = any(dice);
        let place = kind.places[dice.below(kind.places.len() as u64) as usize];
        steps.push(step(place, kind, tick, dice));
    }
    if dice.below(3) == 0 {
        for _ in 0..=dice.below(2) {
            let kind = any(dice);
            steps.push(step("beside", kind, tick, dice));
        }
    }
    steps
}

pub(crate) fn score() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let Some(count) = number("MAYFLY_OPEN") else {
        return println!("not run: MAYFLY_OPEN says how many programs are drawn");
    };
    let now = UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64);
    let seed = number("MAYFLY_SEED").unwrap_or(now).max(1);
    let is_by_events = std::env::var("MAYFLY_RECORDER").is_ok_and(|one| one == "tracefs");
    let choice = if is_by_events { Choice::Tracefs } else { Choice::Ptrace };
    println!("MAYFLY_SEED={seed} by {}", if is_by_events { "tracefs" } else { "ptrace" });
    let mut dice = Dice(seed);
    let mut all: Vec<(Vec<String>, Judged)> = Vec::new();
    for turn in 0..count {
        let log = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("composed.log");
        let mut arguments = vec![log.display().to_string()];
        let host = mayfly_record::Host::gather(["test".to_owned()]);
        let tick = 1_000_000_000 / u64::from(host.hz.unwrap_or(250).max(1));
        let steps = draw(turn, tick, &mut dice);
        arguments.extend(steps.iter().cloned());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let trace = match traced_by(choice, &launch_of(built("composed"), &arguments)) {
            Err(Error::NoTracefs(why)) => return println!("not run: {why}"),
            traced => traced.unwrap(),
        };
        // Half a tick, and a quarter more: the program's clock and the recorder's stops are not of one moment.
        let least = (tick / 2).clamp(1_000_000, 2_000_000) / 4 * 5;
        let truths = truths(&std::fs::read_to_string(&log).unwrap(), &trace);
        let touches = steps.iter().any(|step| step.contains(":touch:"));
        all.push((steps, judge(&trace, &truths, touches, least)));
    }
    print(&all);
}

/// The judge's own test, on traces that are written down here.
pub(crate) fn judges() {
    const MS: u64 = 1_000_000;
    let stall = |tid, at: u64, took: u64, what: &str, code: Option<&str>| {
        let cause = code.map(|code| Cause { code: code.to_owned(), ..Cause::default() });
        Stall {
            tid,
            at: at * MS,
            took: took * MS,
            what: what.to_owned(),
            cause,
            ..Stall::default()
        }
    };
    let truth = |kind: &str, threads, from: u64, to: u64| {
        let (kind, from, to) = (kind.to_owned(), from * MS, to * MS);
        Truth { kind, threads, from, to }
    };
    let truths = [
        truth("sleep", [7, 0], 10, 20),
        truth("pipe", [7, 8], 30, 40),
        truth("mutex", [7, 0], 50, 60),
        truth("child", [7, 0], 70, 71),
        truth("compute", [7, 0], 80, 90),
    ];
    let stalls = vec![
        stall(7, 10, 10, "sleep", Some("own-sleep")),
        stall(8, 31, 9, "sleep", None),
        stall(7, 54, 30, "futex", Some("own-sleep")),
        stall(7, 95, 5, "close", Some("vm-destruction")),
        stall(7, 95, 5, "KVM_CREATE_VM", Some("vm-destruction")),
        stall(7, 96, 4, "close", Some("memory-freed-at-exit")),
        stall(9, 10, 10, "sleep", Some("own-sleep")),
    ];
    let judged = judge(&Trace { stalls, ..Trace::default() }, &truths, false, 2 * MS);
    let said = |kind: &str, said: &str| (kind.to_owned(), Some(said.to_owned()));
    assert_eq!(
        judged.told,
        [said("sleep", "own-sleep"), said("pipe", "-"), said("mutex", "own-sleep")]
    );
    let wrong: Vec<(&str, &str)> =
        judged.wrong.iter().map(|(code, what)| (&code[..], &what[..])).collect();
    // A name of another thread's time, of another kind of wait, or of another call is wrong.
    let expected = [
        ("own-sleep", "futex"),
        ("vm-destruction", "KVM_CREATE_VM"),
        ("memory-freed-at-exit", "close"),
        ("own-sleep", "sleep"),
    ];
    assert_eq!(wrong, expected);
    assert!(judge(&Trace::default(), &truths[..1], false, MS).told == [("sleep".to_owned(), None)]);
}

fn print(all: &[(Vec<String>, Judged)]) {
    for (steps, judged) in all {
        for (code, what) in &judged.wrong {
            println!("wrong: {code} of {what}, in {}", steps.join(" "));
        }
    }
    let told = || all.iter().flat_map(|(_, judged)| &judged.told);
    let mut rows: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for (kind, said) in told() {
        let said = said.as_deref().unwrap_or("not listed");
        *rows.entry(kind).or_default().entry(said).or_default() += 1;
    }
    for (kind, said) in rows {
        let said = said.iter().map(|(said, count)| format!("{said} {count}"));
        println!("{kind:<12} {}", said.collect::<Vec<_>>().join(", "));
    }
    let count = told().count();
    let listed = told().filter(|(_, said)| said.is_some()).count();
    let cause = |kind: &str| KINDS.iter().find(|one| one.name == kind).and_then(|one| one.cause);
    let nameable = told().filter(|(kind, _)| cause(kind).is_some());
    let named = nameable.clone().filter(|(kind, said)| said.as_deref() == cause(kind)).count();
    let wrong: usize = all.iter().map(|(_, judged)| judged.wrong.len()).sum();
    println!(
        "{} programs: {wrong} wrong names; {listed} of {count} waits listed; {named} of {} named that have a name",
        all.len(),
        nameable.count()
    );
    assert_eq!(wrong, 0);
}
