use std::cell::RefCell;
use std::collections::VecDeque;
use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::command::{Command, Forks};
use crate::control::{Name, Vm};

/// The events that there is room for.
const EVENTS: usize = 3;

struct Under(RefCell<Desk>);

impl Locked for Under {
    fn with<R>(&self, work: impl FnOnce(&mut Desk) -> R) -> R {
        work(&mut self.0.borrow_mut())
    }
}

/// The port, and a program on its other side.
#[derive(Default)]
struct Other {
    is_open: bool,
    /// That it has come was not told.
    is_untold: bool,
    sent: VecDeque<u8>,
    /// How many lines find room.
    room: usize,
    got: Vec<u8>,
}

impl Port for Other {
    fn is_open(&mut self) -> bool {
        self.is_open && !self.is_untold
    }

    fn read(&mut self, into: &mut [u8]) -> usize {
        let count = self.sent.len().min(into.len());
        into.iter_mut().zip(self.sent.drain(..count)).for_each(|(to, byte)| *to = byte);
        count
    }

    fn write(&mut self, bytes: &[u8]) -> bool {
        // A device drops what is written to nobody.
        if !self.is_open {
            return true;
        }
        if self.room == 0 {
            return false;
        }
        self.room -= 1;
        self.got.extend_from_slice(bytes);
        true
    }
}

struct World {
    talk: Talk,
    desk: Under,
    other: Other,
}

impl World {
    fn new() -> Self {
        let desk = Under(RefCell::new(Desk::try_new(EVENTS).unwrap()));
        let other = Other { is_open: true, room: usize::MAX, ..Other::default() };
        Self { talk: Talk::new(|| {}), desk, other }
    }

    fn sends(&mut self, text: &str) {
        self.other.sent.extend(text.bytes());
    }

    /// Lets the console do all that it can.
    fn runs(&mut self) {
        let mut turns = 0;
        while self.talk.turn(&mut self.other, &self.desk) {
            turns += 1;
            assert!(turns < 100_000, "it ends");
        }
    }

    /// The monitor answers the request that it has, if it has one, with the next of so many VMs for `stat`.
    fn answers(&mut self, vms: u64) -> Option<u32> {
        let asked = self.desk.with(Desk::take)?;
        let (id, mut line) = (asked.request.id, [0; LONGEST + 1]);
        let (said, again) = match &asked.request.command {
            Command::Stat(_) if asked.after < vms => {
                let vm = Vm {
                    name: "a",
                    state: "running",
                    vcpus: 1,
                    memory: asked.after,
                    used: 0,
                    cpu: 0,
                };
                (Said::Vm(id, vm), Some(Asked { after: asked.after + 1, ..asked }))
            }
            Command::Start(_) => (Said::Failed(id, "there is no VM a"), None),
            _ => (Said::Done(id), None),
        };
        let dropped = self.desk.with(|desk| desk.answer(said.write(&mut line), again));
        assert!(dropped.is_none());
        Some(id)
    }

    fn happens(&mut self, number: u64) {
        self.desk.with(|desk| desk.event(Event::Ended(Name::new(&number.to_string()))));
    }

    /// The lines that the program on the other side has got.
    fn got(&mut self) -> Vec<Value> {
        let got = core::mem::take(&mut self.other.got);
        assert!(got.is_empty() || got.ends_with(b"\n"), "whole lines");
        let lines = got.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }
}

fn request(id: u32, what: &str) -> String {
    let name = if what == "stat" { Value::Null } else { json!("a") };
    let mut request = json!({ "version": 1, "id": id, "do": what });
    if !name.is_null() {
        request["name"] = name;
    }
    format!("{request}\n")
}

#[test]
fn a_request_is_done_once_and_answered_and_the_next_waits_for_that() {
    let mut world = World::new();
    world.sends(&format!("\n{}{}", request(1, "stop"), request(2, "start")));
    world.runs();
    assert_eq!(world.got(), Vec::<Value>::new());
    assert_eq!(world.answers(0), Some(1));
    assert_eq!(world.answers(0), None, "the second is not there before the first is answered");
    world.runs();
    assert_eq!(world.got(), [json!({ "version": 1, "id": 1, "ok": true })]);
    assert_eq!(world.answers(0), Some(2));
    world.runs();
    assert_eq!(world.got()[0]["error"], "refused");
}

#[test]
fn an_answer_of_several_lines_asks_for_the_next_when_one_has_gone_out() {
    let mut world = World::new();
    world.other.room = 2;
    world.sends(&request(7, "stat"));
    for _ in 0..10 {
        world.runs();
        world.answers(5);
    }
    assert_eq!(world.got().len(), 2, "and one that waits");
    assert!(!world.desk.with(|desk| desk.has_asked()), "nothing is asked for that nobody reads");
    world.other.room = usize::MAX;
    for _ in 0..10 {
        world.runs();
        world.answers(5);
    }
    let got = world.got();
    let memory: Vec<_> = got.iter().filter_map(|line| line["vm"]["memory"].as_u64()).collect();
    assert_eq!(memory, [2, 3, 4]);
    assert_eq!(got.last(), Some(&json!({ "version": 1, "id": 7, "ok": true })));
}

#[test]
fn a_program_that_never_reads_keeps_nobody_and_is_told_what_was_lost() {
    let mut world = World::new();
    world.other.room = 0;
    world.sends(&"garbage\n".repeat(1000));
    for number in 0..100 {
        world.happens(number);
        world.runs();
    }
    assert!(world.other.sent.len() > 7000, "it is not read further");
    world.other.room = usize::MAX;
    world.runs();
    let got = world.got();
    let events: Vec<_> = got.iter().filter(|line| line["event"].is_string()).collect();
    // One waits as a line, and three wait at the desk.
    assert_eq!(events.len(), EVENTS + 2);
    assert_eq!(events[EVENTS + 1], &json!({ "version": 1, "event": "lost", "count": 96 }));
    assert_eq!(got.iter().filter(|line| line["error"] == "not-a-request").count(), 1000);
}

#[test]
fn events_wait_until_a_program_is_there_and_answers_do_not() {
    let mut world = World::new();
    world.sends(&request(1, "stop"));
    world.runs();
    world.other.is_open = false;
    world.talk.changed();
    world.happens(1);
    assert_eq!(world.answers(0), Some(1), "what was asked for is done");
    world.runs();
    // It was about to be said.
    world.other.is_open = true;
    world.other.room = 0;
    world.talk.changed();
    world.runs();
    world.other.is_open = false;
    world.talk.changed();
    world.runs();
    world.happens(2);
    (world.other.is_open, world.other.room) = (true, usize::MAX);
    world.talk.changed();
    world.runs();
    let names: Vec<_> = world.got().iter().map(|line| line["name"].clone()).collect();
    assert_eq!(names, ["1", "2"]);
    world.sends(&request(2, "stop"));
    world.runs();
    assert_eq!(world.answers(0), Some(2));
    world.runs();
    assert_eq!(world.got(), [json!({ "version": 1, "id": 2, "ok": true })]);
}

#[test]
fn a_program_whose_coming_was_not_told_is_answered_and_events_wait() {
    let mut world = World::new();
    world.other.is_untold = true;
    world.happens(1);
    world.sends(&format!("garbage\n{}", request(1, "stat")));
    for _ in 0..3 {
        world.runs();
        world.answers(1);
    }
    world.runs();
    let got = world.got();
    assert_eq!((got.len(), &got[0]["error"]), (3, &json!("not-a-request")));
    assert_eq!(
        (&got[1]["vm"]["name"], &got[2]),
        (&json!("a"), &json!({ "version": 1, "id": 1, "ok": true }))
    );
    world.other.is_untold = false;
    world.talk.changed();
    world.runs();
    assert_eq!(world.got()[0]["name"], "1");
}

#[test]
fn what_a_program_that_has_gone_had_asked_for_is_done_and_events_wait_for_the_next() {
    let mut world = World::new();
    world.sends(&request(1, "stop"));
    world.other.is_open = false;
    world.talk.changed();
    world.runs();
    world.happens(1);
    assert_eq!(world.answers(0), Some(1));
    world.happens(2);
    world.runs();
    world.other.is_open = true;
    world.talk.changed();
    world.runs();
    let names: Vec<_> = world.got().iter().map(|line| line["name"].clone()).collect();
    assert_eq!(names, ["1", "2"]);
}

#[test]
fn a_desk_that_is_closed_keeps_nothing() {
    let mut world = World::new();
    world.sends(&request(1, "stat").repeat(3));
    world.runs();
    let asked = world.desk.with(Desk::take).unwrap();
    let closed = world.desk.with(Desk::close);
    drop(closed);
    let dropped = world.desk.with(|desk| desk.answer(b"{}\n", Some(asked)));
    assert!(dropped.is_some());
    world.runs();
    assert_eq!(world.got(), Vec::<Value>::new());
    assert!(!world.talk.reads());
    assert!(!world.desk.with(|desk| desk.has_asked()));
    let asked = Asked { request: Request { id: 1, command: Command::Stat(None) }, after: 0 };
    assert!(world.desk.with(|desk| desk.ask(asked)).is_some());
}

#[derive(Clone, Debug)]
enum Step {
    Sends(String),
    Turns(usize),
    Answers,
    Happens,
    Room(usize),
    Leaves,
    Comes,
}

fn any_step() -> impl Strategy<Value = Step> {
    let line = prop_oneof![
        3 => prop::sample::select(vec!["stop", "start", "stat", "freeze", "reset", "nothing"])
            .prop_map(|what| request(7, what)),
        1 => "\\PC{0,20}\n",
        1 => Just(format!("{}\n", "x".repeat(1100))),
        1 => "[\r\n]{1,3}",
    ];
    prop_oneof![
        4 => line.prop_map(Step::Sends),
        6 => (1..20_usize).prop_map(Step::Turns),
        4 => Just(Step::Answers),
        3 => Just(Step::Happens),
        3 => (0..4_usize).prop_map(Step::Room),
        1 => Just(Step::Leaves),
        1 => Just(Step::Comes),
    ]
}

/// How a model answers a line: with how many lines of VMs, and whether it is done.
fn expected(line: &str, vms: u64) -> Option<(u64, bool)> {
    if line.is_empty() {
        return None;
    }
    let read = (line.len() <= LONGEST).then(|| serde_json::from_str::<Value>(line).ok()).flatten();
    let what = read.as_ref().and_then(|value| value["do"].as_str()).unwrap_or("nothing");
    Some(match what {
        "stat" => (vms, true),
        "stop" | "freeze" | "reset" => (0, true),
        _ => (0, false),
    })
}

proptest! {
    /// One program that stays: it has an answer to each line, in order, and each event, or that it was lost.
    #[test]
    fn each_line_has_one_answer_in_order_and_each_event_is_said_or_counted(
        steps in prop::collection::vec(any_step(), 0..120),
        vms in 0..4_u64,
    ) {
        let mut world = World::new();
        world.other.room = 0;
        let (mut sent, mut happened, mut all) = (String::new(), 0, Vec::new());
        for step in steps {
            match step {
                Step::Sends(text) => {
                    world.sends(&text);
                    sent += &text;
                }
                Step::Turns(count) => for _ in 0..count { world.talk.turn(&mut world.other, &world.desk); },
                Step::Answers => { world.answers(vms); }
                Step::Happens => { world.happens(happened); happened += 1; }
                Step::Room(more) => world.other.room += more,
                Step::Leaves | Step::Comes => {}
            }
            all.extend(world.got());
        }
        world.other.room = usize::MAX;
        world.runs();
        while world.answers(vms).is_some() {
            world.runs();
        }
        all.extend(world.got());
        let mut answers = all.iter().filter(|line| line.get("event").is_none());
        for line in sent.split(['\n', '\r']) {
            let Some((lines, is_done)) = expected(line, vms) else { continue };
            for number in 0..lines {
                prop_assert_eq!(&answers.next().unwrap()["vm"]["memory"], &json!(number));
            }
            prop_assert_eq!(answers.next().unwrap().get("ok").is_some(), is_done, "{}", line);
        }
        prop_assert_eq!(answers.next(), None);
        let mut next = 0;
        for event in all.iter().filter(|line| line.get("event").is_some()) {
            if let Some(count) = event["count"].as_u64() {
                next += count;
            } else {
                prop_assert_eq!(&event["name"], &json!(next.to_string()));
                next += 1;
            }
        }
        prop_assert_eq!(next, happened);
    }

    /// Programs that come and go: each request is done once, none gets another's answer, and all events are said or counted.
    #[test]
    fn no_program_gets_the_answer_to_another(steps in prop::collection::vec(any_step(), 0..120)) {
        let mut world = World::new();
        (world.other.is_open, world.other.room) = (false, 0);
        let (mut program, mut sent, mut done, mut happened, mut said) = (0_u32, 0, 0, 0, 0);
        for step in steps.into_iter().chain([Step::Leaves, Step::Comes, Step::Room(1000)]) {
            match step {
                Step::Sends(_) if world.other.is_open => {
                    world.sends(&request(program, "stop"));
                    sent += 1;
                }
                Step::Turns(count) => for _ in 0..count { world.talk.turn(&mut world.other, &world.desk); },
                Step::Answers => done += u32::from(world.answers(2).is_some()),
                Step::Happens => { world.happens(happened); happened += 1; }
                Step::Room(more) => world.other.room += more,
                Step::Leaves if world.other.is_open => {
                    // What it has sent is read before the next comes, or is the next one's, which does not know its number.
                    while world.other.sent.len() + world.talk.to - world.talk.from > 0 {
                        world.other.is_open = false;
                        world.runs();
                        done += u32::from(world.answers(2).is_some());
                    }
                    world.other.is_open = false;
                    world.talk.changed();
                }
                Step::Comes if !world.other.is_open => {
                    (world.other.is_open, world.other.room, program) = (true, 0, program + 1);
                    world.talk.changed();
                }
                _ => {}
            }
            for line in world.got() {
                match line["id"].as_u64() {
                    Some(id) => prop_assert_eq!(id, u64::from(program)),
                    None => said += line["count"].as_u64().unwrap_or(1),
                }
            }
        }
        world.runs();
        while world.answers(2).is_some() {
            done += 1;
            world.runs();
        }
        prop_assert_eq!(done, sent);
        for line in world.got() {
            said += if line["id"].is_null() { line["count"].as_u64().unwrap_or(1) } else { 0 };
        }
        prop_assert_eq!(said, happened);
    }
}

/// Commands of forks are asked for like others.
#[test]
fn what_is_asked_for_is_what_the_line_says() {
    let mut world = World::new();
    world.sends("{\"version\":1,\"id\":3,\"do\":\"reset\",\"name\":\"a\"}\n");
    world.runs();
    let asked = world.desk.with(Desk::take).unwrap();
    assert_eq!(asked.request.command, Command::Forks(Forks::Reset("a".to_string())));
}
