use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::command::{Command, Forks};

fn read(line: &str) -> Result<Request, Refused> {
    Request::read(Line::Whole(line.as_bytes()), || {})
}

fn command(value: &Value) -> Result<Command, Why> {
    match read(&value.to_string()) {
        Ok(Request { id: 7, command }) => Ok(command),
        Err(Refused { id: Some(7), why }) => Err(why),
        other => panic!("{other:?}"),
    }
}

fn said(said: Said<'_>) -> Value {
    let mut line = [0; LONGEST + 1];
    let line = said.write(&mut line);
    assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
    serde_json::from_slice(line.strip_suffix(b"\n").unwrap()).unwrap()
}

fn text(text: &str) -> String {
    text.to_string()
}

#[test]
fn each_request_is_a_command_of_the_monitor() {
    let created = |parameters, arguments| {
        Ok(Command::Create { name: text("b"), like: text("a"), parameters, arguments })
    };
    let create = json!({ "version": 1, "id": 7, "do": "create", "name": "b", "like": "a" });
    assert_eq!(command(&create), created(vec![], None));
    let mut more = create.clone();
    more["parameters"] = json!(["vcpus=2", "memory=64M"]);
    more["arguments"] = json!("a=\"b c\" \\ quiet");
    let parameters = vec![text("vcpus=2"), text("memory=64M")];
    assert_eq!(command(&more), created(parameters, Some(text("a=\"b c\" \\ quiet"))));

    let named = |what: &str| command(&json!({ "do": what, "id": 7, "name": "a-0", "version": 1 }));
    assert_eq!(named("start"), Ok(Command::Start(text("a-0"))));
    assert_eq!(named("stop"), Ok(Command::Stop(text("a-0"))));
    assert_eq!(named("destroy"), Ok(Command::Destroy(text("a-0"))));
    assert_eq!(named("reset"), Ok(Command::Forks(Forks::Reset(text("a-0")))));
    assert_eq!(named("freeze"), Ok(Command::Forks(Forks::Freeze(text("a-0")))));
    assert_eq!(named("stat"), Ok(Command::Stat(Some(text("a-0")))));
    assert_eq!(command(&json!({ "version": 1, "id": 7, "do": "stat" })), Ok(Command::Stat(None)));

    let balloon = |size: Value| {
        command(&json!({ "version": 1, "id": 7, "do": "balloon", "name": "a", "size": size }))
    };
    let asked = Command::Balloon { name: text("a"), bytes: 256 << 20 };
    assert_eq!(balloon(json!("256M")), Ok(asked));
    assert_eq!(balloon(json!("much")), Err(Why::Field("size")));

    let fork = |count: Option<u32>| {
        let mut fork = json!({ "version": 1, "id": 7, "do": "fork", "name": "b", "from": "a", "parameters": ["cap=5"] });
        if let Some(count) = count {
            fork["count"] = json!(count);
        }
        command(&fork)
    };
    let forked = |count| {
        let parameters = vec![text("cap=5")];
        Ok(Command::Forks(Forks::Fork { name: text("b"), from: text("a"), count, parameters }))
    };
    assert_eq!(fork(None), forked(None));
    assert_eq!(fork(Some(2048)), forked(Some(2048)));
    assert_eq!(fork(Some(0)), Err(Why::Field("count")));
    assert_eq!(fork(Some(2049)), Err(Why::Field("count")));
}

#[test]
fn a_field_that_is_missing_or_does_not_belong_there_or_cannot_be_is_named() {
    let of = |fields: Value| {
        let mut request = json!({ "version": 1, "id": 7 });
        request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        command(&request)
    };
    for (fields, field) in [
        (json!({ "do": "start" }), "name"),
        (json!({ "do": "create", "name": "b" }), "like"),
        (json!({ "do": "fork", "name": "b", "like": "a" }), "from"),
        (json!({ "do": "start", "name": "a", "count": 1 }), "count"),
        (json!({ "do": "start", "name": "a", "size": "1M" }), "size"),
        (json!({ "do": "balloon", "name": "a" }), "size"),
        (json!({ "do": "stat", "like": "a" }), "like"),
        (json!({ "do": "create", "name": "b", "like": "a", "from": "a" }), "from"),
        (json!({ "do": "fork", "name": "b", "from": "a", "arguments": "" }), "arguments"),
        (json!({ "do": "create", "name": "b", "like": "a", "parameters": ["a b"] }), "parameters"),
        (json!({ "do": "create", "name": "b", "like": "a", "parameters": [""] }), "parameters"),
        (json!({ "do": "create", "name": "b", "like": "a", "parameters": ["--"] }), "parameters"),
        (json!({ "do": "create", "name": "b", "like": "a", "arguments": "a\nb" }), "arguments"),
        (json!({ "do": "create", "name": "b", "like": "a", "arguments": "\u{e4}" }), "arguments"),
    ] {
        assert_eq!(of(fields.clone()), Err(Why::Field(field)), "{fields}");
    }
    // No word of a command, or two, or what ends a command.
    for name in ["", "a b", "a;poweroff", "a\n", "x=1", "a.b", "\u{e4}", "a\"", &"a".repeat(33)] {
        assert_eq!(of(json!({ "do": "stop", "name": name })), Err(Why::Field("name")), "{name}");
    }
    assert!(of(json!({ "do": "stop", "name": "a".repeat(32) })).is_ok());
    assert_eq!(of(json!({ "do": "poweroff" })), Err(Why::NoSuchRequest));
    assert_eq!(command(&json!({ "version": 2, "id": 7, "do": "stat" })), Err(Why::Version));
}

#[test]
fn what_is_no_request_is_refused_without_a_number() {
    for line in [
        "help",
        "{}",
        "[]",
        "null",
        "7",
        "\"",
        "{\"version\":1,\"id\":7}",
        "{\"version\":1,\"do\":\"stat\"}",
        "{\"id\":7,\"do\":\"stat\"}",
        "{\"version\":1,\"id\":7,\"do\":\"stat\"",
        "{\"version\":1,\"id\":7,\"do\":\"stat\"}}",
        "{\"version\":1,\"id\":7,\"do\":\"stat\"}{}",
        "{\"version\":1,\"id\":7,\"id\":8,\"do\":\"stat\"}",
        "{\"version\":1,\"id\":7,\"do\":\"stat\",\"nam\":\"a\"}",
        "{\"version\":1,\"id\":7,\"do\":\"stat\",\"name\":[\"a\"]}",
        "{\"version\":1,\"id\":7,\"do\":\"stat\",\"more\":[[[[[[]]]]]]}",
        "{\"version\":1,\"id\":-7,\"do\":\"stat\"}",
        "{\"version\":1,\"id\":4294967296,\"do\":\"stat\"}",
        "{\"version\":1,\"id\":7.5,\"do\":\"stat\"}",
        "{\"version\":1,\"id\":\"7\",\"do\":\"stat\"}",
        "{\"version\":1,\"id\":7,\"do\":\"\\ud800\"}",
        "{\"version\":1,\"id\":7,\"do\":\"\\x\"}",
    ] {
        assert_eq!(read(line), Err(Refused { id: None, why: Why::NotARequest }), "{line}");
    }
    // Blanks around it are none of its business.
    assert!(read(" { \"version\" : 1 , \"id\" : 7 , \"do\" : \"stat\" } \t").is_ok());
}

/// The lines of bytes; none is one that is too long.
fn fed(lines: &mut Lines, bytes: &[u8]) -> Vec<Option<Vec<u8>>> {
    let mut all = Vec::new();
    for byte in bytes {
        match lines.push(*byte) {
            Some(Line::Whole(line)) => all.push(Some(line.to_vec())),
            Some(Line::TooLong) => all.push(None),
            None => {}
        }
    }
    all
}

#[test]
fn a_line_that_is_too_long_is_said_once_and_the_next_is_read() {
    let mut lines = Lines::new();
    let whole = |line: &[u8]| Some(line.to_vec());
    let none: [Option<Vec<u8>>; 0] = [];
    assert_eq!(fed(&mut lines, b"\n\r\n\r\n"), none);
    assert_eq!(fed(&mut lines, b"one\r\ntwo\n"), [whole(b"one"), whole(b"two")]);
    let longest = vec![b'x'; LONGEST];
    assert_eq!(fed(&mut lines, &longest), none);
    assert_eq!(fed(&mut lines, b"\n"), [whole(&longest)]);
    assert_eq!(fed(&mut lines, &vec![b'x'; 10 * LONGEST]), none);
    assert_eq!(fed(&mut lines, b"\nnext\n"), [None, whole(b"next")]);
    assert_eq!(fed(&mut lines, &[longest, b"x\n\n".to_vec()].concat()), [None]);
    let escaped = br"\".repeat(32);
    assert_eq!(
        fed(&mut lines, &[&escaped[..], b"x\n"].concat()),
        [whole(&[&escaped[..], b"x"].concat())]
    );
    assert_eq!(fed(&mut lines, &[&escaped[..], b"\\\nx\n"].concat()), [None, whole(b"x")]);
    assert_eq!(Request::read(Line::TooLong, || {}), Err(Refused { id: None, why: Why::TooLong }));
}

#[test]
fn what_is_said_is_one_json_object_a_line() {
    assert_eq!(said(Said::Done(7)), json!({ "version": 1, "id": 7, "ok": true }));
    let vm = Vm { name: "a", state: "running", vcpus: 2, memory: 1 << 40, used: 4096, cpu: 5 };
    assert_eq!(
        said(Said::Vm(7, vm)),
        json!({ "version": 1, "id": 7, "vm": { "name": "a", "state": "running", "vcpus": 2, "memory": 1_u64 << 40, "used": 4096, "cpu": 5 } })
    );
    assert_eq!(
        said(Said::Failed(7, "there is no VM \"\\\n\u{1}\u{e4}")),
        json!({ "version": 1, "id": 7, "error": "refused", "message": "there is no VM \"\\\n\u{1}\u{e4}" })
    );
    for (why, error) in [
        (Why::TooLong, "line-too-long"),
        (Why::NotARequest, "not-a-request"),
        (Why::Version, "version"),
        (Why::NoSuchRequest, "no-such-request"),
        (Why::Field("count"), "field"),
    ] {
        for id in [None, Some(7)] {
            let value = said(Said::Refused(Refused { id, why }));
            assert_eq!((&value["id"], &value["error"]), (&json!(id), &json!(error)));
            assert!(value["message"].is_string());
        }
    }
    assert_eq!(
        said(Said::Refused(Refused { id: None, why: Why::Field("count") }))["message"],
        json!("count")
    );
    for (event, name) in [
        (Event::Ended(Name::new("a")), "ended"),
        (Event::OutOfMemory(Name::new("a")), "out-of-memory"),
        (Event::Crashed(Name::new("a")), "crashed"),
    ] {
        assert_eq!(said(Said::Event(&event)), json!({ "version": 1, "event": name, "name": "a" }));
    }
    assert_eq!(
        said(Said::Event(&Event::Lost(3))),
        json!({ "version": 1, "event": "lost", "count": 3 })
    );
    // Longer than a line may be.
    for long in ["x", "\u{1}", "\u{20ac}"] {
        let message = long.repeat(LONGEST);
        let short = said(Said::Failed(7, &message))["message"].as_str().unwrap().to_string();
        assert!(message.starts_with(&short) && short.len() >= 60, "{short}");
    }
}

/// A line that is nearly a request.
fn any_line() -> impl Strategy<Value = String> {
    let field = prop_oneof![
        Just("\"version\":1".to_string()),
        Just("\"id\":7".to_string()),
        prop::sample::select(vec!["create", "start", "fork", "stat", "stop"])
            .prop_map(|what| format!("\"do\":\"{what}\"")),
        "\"(name|like|from|arguments|do)\":\"([a-z]|\\\\[n\"u]|[0-9a-f]|\\PC){0,6}\"",
        "\"(count|id|version)\":-?[0-9]{1,11}(\\.[0-9])?",
        "\"parameters\":\\[(\"[a-z=]{0,3}\",?){0,3}\\]",
        "\"[a-z]{0,4}\":(null|true|\\[\\]|\\{\\}|1)",
    ];
    let object =
        prop::collection::vec(field, 0..7).prop_map(|fields| format!("{{{}}}", fields.join(",")));
    prop_oneof![6 => object, 1 => "\\PC{0,80}", 1 => "[\\[\\]{}\",:0-9a-z\\\\ ]{0,80}"]
}

proptest! {
    #[test]
    fn whatever_comes_each_line_has_one_answer_and_what_is_done_was_said(
        lines_of in prop::collection::vec(any_line(), 0..6),
        noise in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut lines = Lines::new();
        for line in &lines_of {
            let mut answers = 0;
            for byte in line.bytes().chain([b'\n']) {
                let Some(whole) = lines.push(byte) else { continue };
                answers += 1;
                prop_assert_eq!(whole, Line::Whole(line.as_bytes()));
                let Ok(request) = Request::read(whole, || {}) else { continue };
                let value: Value = serde_json::from_str(line).unwrap();
                prop_assert_eq!(&value["version"], &json!(1));
                prop_assert_eq!(&value["id"], &json!(request.id));
                let (what, name) = match &request.command {
                    Command::Create { name, .. } => ("create", Some(name)),
                    Command::Start(name) => ("start", Some(name)),
                    Command::Stop(name) => ("stop", Some(name)),
                    Command::Forks(Forks::Fork { name, .. }) => ("fork", Some(name)),
                    Command::Stat(name) => ("stat", name.as_ref()),
                    other => panic!("{other:?}"),
                };
                prop_assert_eq!(&value["do"], &json!(what));
                prop_assert_eq!(value.get("name").and_then(Value::as_str), name.map(String::as_str));
            }
            prop_assert_eq!(answers, usize::from(!line.is_empty()));
        }
        let mut count = 0;
        for byte in noise.iter().chain(b"\n") {
            if let Some(line) = lines.push(*byte) {
                count += 1;
                let _ = Request::read(line, || {});
            }
        }
        let whole = noise.split(|byte| matches!(byte, b'\n' | b'\r'));
        prop_assert_eq!(count, whole.filter(|line| !line.is_empty()).count());
    }

    #[test]
    fn what_a_command_says_is_read_as_it_was_said(
        name in "[a-zA-Z0-9_-]{1,32}",
        like in "[a-zA-Z0-9_-]{1,32}",
        parameters in prop::collection::vec("[!-~]{1,20}", 0..14),
        arguments in prop::option::of("[ -~]{0,200}"),
        id in any::<u32>(),
    ) {
        let mut request = json!({ "version": 1, "id": id, "do": "create", "name": name, "like": like, "parameters": parameters });
        if let Some(arguments) = &arguments {
            request["arguments"] = json!(arguments);
        }
        let line = request.to_string();
        let mut lines = Lines::new();
        let read = line.bytes().chain([b'\n']).find_map(|byte| lines.push(byte).map(|line| Request::read(line, || {}))).unwrap();
        if line.len() > LONGEST || line.matches('\\').count() > 32 {
            prop_assert_eq!(read, Err(Refused { id: None, why: Why::TooLong }));
        } else if parameters.len() > 12 || parameters.iter().any(|word| word == "--") {
            prop_assert!(read.is_err());
        } else {
            prop_assert_eq!(read, Ok(Request { id, command: Command::Create { name, like, parameters, arguments } }));
        }
    }

    #[test]
    fn events_come_in_order_and_those_that_are_lost_are_counted(
        most in 0..4_usize,
        steps in prop::collection::vec(any::<bool>(), 0..60),
    ) {
        let mut events = Events::try_new(most).unwrap();
        let (mut pushed, mut said, mut lost) = (0_u64, 0_u64, 0_u64);
        for is_push in steps {
            if is_push {
                events.push(Event::Ended(Name::new(&pushed.to_string())));
                pushed += 1;
                continue;
            }
            match events.take() {
                // Its number is that of all before it: said, or said to be lost.
                Some(Event::Ended(number)) => {
                    prop_assert_eq!(number.as_str(), (said + lost).to_string());
                    said += 1;
                }
                Some(Event::Lost(count)) => {
                    prop_assert!(count > 0);
                    lost += count;
                }
                Some(other) => panic!("{other:?}"),
                None => prop_assert_eq!(said + lost, pushed),
            }
        }
        while let Some(event) = events.take() {
            match event {
                Event::Lost(count) => lost += count,
                _ => said += 1,
            }
        }
        prop_assert_eq!(said + lost, pushed);
    }
}
