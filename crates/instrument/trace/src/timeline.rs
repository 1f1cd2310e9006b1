//! A trace as a timeline that <https://ui.perfetto.dev> shows: Chrome's trace events, as JSON.
//!
//! Each thread has a track of its calls. If the thread was seen at something between them, a second track has that.
//! The phases have a track of their own, and so have the longest waits. A call that is one of these waits also says
//! so itself.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use mayfly_record::units::duration;
use serde::Serialize;

use crate::phases::metric;
use crate::record::{Call, Phase, Sample, Stall, Thread, Trace};
use crate::words::{argument, cause, doing, lived, program, result, verdict};

/// The first number that no process and no thread of Linux has: what stands for neither has one from here on.
const NOBODY: i32 = 1 << 22;

/// The document.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    display_time_unit: &'static str,
    other_data: BTreeMap<&'static str, String>,
    trace_events: Vec<Event<'a>>,
}

/// An event. Times are in microseconds there.
#[derive(Serialize)]
struct Event<'a> {
    /// `X` is a slice, `i` a moment, `M` says something of a track.
    ph: &'static str,
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    pid: i32,
    tid: i32,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    /// How far a moment goes: `t`, over its thread's track.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    args: BTreeMap<Cow<'a, str>, Value>,
}

/// What an argument of an event is.
#[derive(Serialize)]
#[serde(untagged)]
enum Value {
    Text(String),
    Number(i64),
}

type Arguments<'a> = BTreeMap<Cow<'a, str>, Value>;

/// A track: a process and a thread.
type Track = (i32, i32);

fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

fn slice<'a>(
    (pid, tid): Track,
    cat: &'static str,
    name: impl Into<Cow<'a, str>>,
    (from, to): (u64, u64),
    args: Arguments<'a>,
) -> Event<'a> {
    let dur = Some(microseconds(to.saturating_sub(from)));
    let (cat, ts) = (Some(cat), microseconds(from));
    Event { ph: "X", name: name.into(), cat, pid, tid, ts, dur, s: None, args }
}

fn moment<'a>((pid, tid): Track, cat: &'static str, name: String, at: u64) -> Event<'a> {
    let (cat, ts, args) = (Some(cat), microseconds(at), Arguments::new());
    Event { ph: "i", name: name.into(), cat, pid, tid, ts, dur: None, s: Some("t"), args }
}

/// What a track is to be called, and in which place it stands.
fn names<'a>(
    (pid, tid): Track,
    of: [&'static str; 2],
    name: String,
    place: usize,
) -> [Event<'a>; 2] {
    let said = [("name", Value::Text(name)), ("sort_index", Value::Number(place as i64))];
    let mut what = of.into_iter();
    said.map(|(argument, value)| Event {
        ph: "M",
        name: what.next().unwrap_or_default().into(),
        cat: None,
        pid,
        tid,
        ts: 0.0,
        dur: None,
        s: None,
        args: Arguments::from([(argument.into(), value)]),
    })
}

const OF_PROCESS: [&str; 2] = ["process_name", "process_sort_index"];
const OF_THREAD: [&str; 2] = ["thread_name", "thread_sort_index"];

impl Trace {
    /// The document for a timeline, as it is kept in a file.
    pub fn to_timeline(&self) -> String {
        let mut events = self.named();
        events.extend(self.phases.iter().map(phase));
        events.extend(self.waits());
        events.extend(self.slices());
        events.extend(self.seen());
        events.extend(self.moments());
        let said = |what, of: Option<u64>| of.map(|time| (what, duration(time)));
        let mut about = BTreeMap::from([
            ("command", self.command.join(" ")),
            ("recorder", self.recorder.to_string()),
            ("notes", self.notes.join("; ")),
        ]);
        about.extend(said("start", self.start()));
        about.extend(said("stop", self.stop()));
        about.extend(self.host.as_ref().map(|host| ("kernel", host.kernel.clone())));
        about.retain(|_, text| !text.is_empty());
        let document =
            Document { display_time_unit: "ms", other_data: about, trace_events: events };
        let mut text = serde_json::to_string(&document).unwrap_or_default();
        text.push('\n');
        text
    }

    /// The tracks' names: the phases and the waits first, then processes and threads as they came.
    fn named(&self) -> Vec<Event<'_>> {
        let mut events = Vec::new();
        events.extend(names((NOBODY, NOBODY), OF_PROCESS, "the VM's life".to_owned(), 0));
        events.extend(names((NOBODY, NOBODY), OF_THREAD, "phases".to_owned(), 0));
        for (place, process) in self.processes.iter().enumerate() {
            let track = (process.pid, process.pid);
            events.extend(names(track, OF_PROCESS, program(process).to_owned(), place + 1));
        }
        let called = self.threads.iter().zip(self.thread_names());
        for (place, (thread, name)) in called.enumerate() {
            events.extend(names((thread.pid, thread.tid), OF_THREAD, name, 2 * place));
        }
        events
    }

    /// The longest waits, side by side where they were at the same time.
    fn waits(&self) -> Vec<Event<'_>> {
        let mut waits: Vec<&Stall> = self.stalls.iter().collect();
        waits.sort_by_key(|stall| stall.at);
        let mut until: Vec<u64> = Vec::new();
        let mut events = Vec::new();
        for stall in waits {
            let free = until.iter().position(|end| *end <= stall.at).unwrap_or(until.len());
            let track = (NOBODY, NOBODY + 1 + free as i32);
            if free == until.len() {
                until.push(0);
                events.extend(names(track, OF_THREAD, "waits".to_owned(), free + 1));
            }
            until[free] = stall.at + stall.took;
            let name = format!("{}: {}", stall.what, cause(stall));
            let mut args = why(stall);
            args.insert("thread".into(), Value::Number(stall.tid.into()));
            events.push(slice(track, "wait", name, (stall.at, until[free]), args));
        }
        events
    }

    /// The calls, each on its thread's track.
    fn slices(&self) -> Vec<Event<'_>> {
        let waits: HashMap<(i32, u64, &str), &Stall> =
            self.stalls.iter().map(|one| ((one.tid, one.at, &one.what[..]), one)).collect();
        let mut next: HashMap<i32, u64> = HashMap::new();
        let mut events = Vec::with_capacity(self.calls.len());
        for call in self.calls.iter().rev() {
            let to = self.ended_by(call, next.insert(call.tid, call.at));
            let mut args = arguments(call);
            if let Some(stall) = waits.get(&(call.tid, call.at, &call.name[..])) {
                args.insert("wait".into(), Value::Text(cause(stall)));
                args.extend(why(stall));
            }
            let cat = if call.is_kvm() { "kvm" } else { "call" };
            let track = (call.pid, call.tid);
            events.push(slice(track, cat, call.name.as_str(), (call.at, to), args));
        }
        events.reverse();
        events
    }

    /// What threads were seen to do, each on a track beside its thread's.
    fn seen(&self) -> Vec<Event<'_>> {
        let mut tracks: HashMap<usize, Track> = HashMap::new();
        let mut events = Vec::new();
        for sample in &self.samples {
            let of = |one: &Thread| one.tid == sample.tid && lived(one, sample.at);
            let Some(place) = self.threads.iter().position(of) else { continue };
            let thread = &self.threads[place];
            let track = (thread.pid, NOBODY + place as i32);
            if tracks.insert(place, track).is_none() {
                let name = format!("thread {}, as it was seen", thread.tid);
                events.extend(names(track, OF_THREAD, name, 2 * place + 1));
            }
            let times = (sample.at, sample.at + sample.took);
            events.push(slice(track, "seen", doing(sample), times, looked(sample)));
        }
        events
    }

    /// Programs that were executed, and signals that came.
    fn moments(&self) -> Vec<Event<'_>> {
        let executed = self.processes.iter().flat_map(|process| {
            let track = (process.pid, process.pid);
            let executed = process.executed.iter();
            executed.map(move |(at, path)| moment(track, "exec", format!("exec {path}"), *at))
        });
        let signals = self.threads.iter().flat_map(|thread| {
            let track = (thread.pid, thread.tid);
            let signals = thread.signals.iter();
            signals
                .map(move |(at, signal)| moment(track, "signal", format!("signal {signal}"), *at))
        });
        executed.chain(signals).collect()
    }
}

fn phase(phase: &Phase) -> Event<'_> {
    let mut args = Arguments::from([("bound".into(), Value::Text(metric(&phase.name)))]);
    if phase.calls > 0 {
        args.insert("calls".into(), Value::Number(phase.calls as i64));
        args.insert("in calls".into(), Value::Text(duration(phase.in_calls)));
    }
    let times = (phase.at.saturating_sub(phase.took), phase.at);
    slice((NOBODY, NOBODY), "phase", phase.name.as_str(), times, args)
}

/// A call's arguments that matter, and what became of it.
fn arguments(call: &Call) -> Arguments<'_> {
    let mut args: Arguments<'_> = Arguments::new();
    for (name, value) in &call.arguments {
        args.insert(name.as_str().into(), Value::Text(argument(name, *value)));
    }
    if let Some(fd) = call.fd {
        args.insert("fd".into(), Value::Number(fd.into()));
    }
    if let Some(on) = &call.on {
        args.insert("on".into(), Value::Text(on.to_string()));
    }
    if let Some(used) = call.used {
        args.insert("ran".into(), Value::Text(duration(used.ran)));
        args.insert("waited for a processor".into(), Value::Text(duration(used.queued)));
    }
    let returned = call.result.map_or_else(|| "not seen".to_owned(), result);
    args.insert("result".into(), Value::Text(returned));
    args
}

/// What a wait is made of.
fn why<'a>(stall: &Stall) -> Arguments<'a> {
    let mut args = Arguments::new();
    if let Some(ticks) = stall.ticks {
        args.insert("ticks".into(), Value::Text(format!("{ticks:.1}")));
    }
    if !stall.known.is_empty() {
        args.insert("known".into(), Value::Text(stall.known.join("; ")));
    }
    if let Some(cause) = &stall.cause {
        for (name, text) in [
            ("cause", &cause.what),
            ("code", &cause.code),
            ("remedy", &cause.remedy),
            ("because", &cause.evidence.join("; ")),
        ] {
            args.insert(name.into(), Value::Text(text.clone()));
        }
        args.insert("verdict".into(), Value::Text(verdict(cause.verdict).to_owned()));
    }
    args
}

fn looked<'a>(sample: &Sample) -> Arguments<'a> {
    let mut args = Arguments::from([
        ("seen".into(), Value::Number(sample.seen as i64)),
        ("ran".into(), Value::Text(duration(sample.ran))),
    ]);
    if !sample.stack.is_empty() {
        args.insert("stack".into(), Value::Text(sample.stack.join(" < ")));
    }
    args
}

#[cfg(test)]
mod tests;
