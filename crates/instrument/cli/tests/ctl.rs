//! `mayfly metal ctl` as a process, with a monitor that a test plays at the other end of the socket.

#[path = "common/records.rs"]
mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};

use common::{mayfly, scratch, text};

/// What is asked for, and what the monitor says then; `ID` in it is the number of the request.
fn played(
    name: &str,
    monitor: impl FnOnce(&mut BufReader<UnixStream>, &mut UnixStream) + Send + 'static,
) -> (PathBuf, JoinHandle<()>) {
    let socket = scratch(name).join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        monitor(&mut lines, &mut stream);
    });
    (socket, thread)
}

/// The next request; an empty line comes before it.
fn request(lines: &mut BufReader<UnixStream>) -> Value {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "\n");
    line.clear();
    lines.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

/// The next request that may change something. A harmless one comes before it, and is answered.
fn request_behind_stat(lines: &mut BufReader<UnixStream>, stream: &mut UnixStream) -> Value {
    let stat = request(lines);
    assert_eq!((&stat["version"], &stat["do"]), (&json!(1), &json!("stat")));
    let refused = json!({ "version": 1, "id": stat["id"], "error": "refused", "message": "there is no VM web" });
    stream.write_all(format!("{refused}\n").as_bytes()).unwrap();
    let request = request(lines);
    assert_ne!(request["id"], stat["id"]);
    request
}

fn arguments<'a>(socket: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["metal", "ctl", "--socket", socket.to_str().unwrap()];
    all.extend_from_slice(more);
    all
}

fn ctl(socket: &Path, more: &[&str]) -> Output {
    mayfly(&arguments(socket, more))
}

/// Plays a monitor that says these lines to the request that matters. Returns the request and what the command says.
fn asked(name: &str, said: &[&str], arguments: &[&str]) -> (Value, Output) {
    let kept = scratch(&format!("{name}-request")).join("r");
    let (to, said, is_stat) = (kept.clone(), said.concat(), arguments.contains(&"stat"));
    let (socket, thread) = played(name, move |lines, stream| {
        let request = if is_stat { request(lines) } else { request_behind_stat(lines, stream) };
        fs::write(to, request.to_string()).unwrap();
        let said = said.replace("ID", &request["id"].to_string());
        stream.write_all(said.as_bytes()).unwrap();
    });
    let output = ctl(&socket, arguments);
    thread.join().unwrap();
    let mut request: Value = serde_json::from_slice(&fs::read(kept).unwrap()).unwrap();
    assert!(request["id"].take().as_u64().is_some_and(|id| u32::try_from(id).is_ok()));
    assert_eq!(request["version"].take(), 1);
    request.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    (request, output)
}

const OK: &str = "{\"version\":1,\"id\":ID,\"ok\":true}\n";

#[test]
fn each_command_is_a_request_of_the_protocol() {
    for (number, (arguments, expected)) in [
        (
            &["create", "web", "linux", "memory=64M", "vcpus=2", "--", "console=ttyAMA0", "a=\"b c\""][..],
            json!({ "do": "create", "name": "web", "like": "linux", "parameters": ["memory=64M", "vcpus=2"], "arguments": "console=ttyAMA0 a=\"b c\"" }),
        ),
        (
            &["create", "web", "linux"],
            json!({ "do": "create", "name": "web", "like": "linux", "parameters": [] }),
        ),
        (&["start", "web"], json!({ "do": "start", "name": "web" })),
        (&["stop", "web"], json!({ "do": "stop", "name": "web" })),
        (&["destroy", "web"], json!({ "do": "destroy", "name": "web" })),
        (&["freeze", "web"], json!({ "do": "freeze", "name": "web" })),
        (&["reset", "web"], json!({ "do": "reset", "name": "web" })),
        (
            &["fork", "one", "web", "cap=5", "--count", "3"],
            json!({ "do": "fork", "name": "one", "from": "web", "parameters": ["cap=5"], "count": 3 }),
        ),
        (
            &["balloon", "web", "256M"],
            json!({ "do": "balloon", "name": "web", "size": "256M" }),
        ),
        (&["stat", "web"], json!({ "do": "stat", "name": "web" })),
        (&["stat"], json!({ "do": "stat" })),
    ]
    .into_iter()
    .enumerate()
    {
        let (request, output) = asked(&format!("ctl-request-{number}"), &[OK], arguments);
        assert_eq!(request, expected);
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    }
}

#[test]
fn vms_are_printed_and_events_and_answers_to_others_are_not_among_them() {
    let vm = |name: &str| {
        format!(
            "{{\"version\":1,\"id\":ID,\"vm\":{{\"name\":\"{name}\",\"state\":\"running\",\"vcpus\":2,\"memory\":134217728,\"used\":8192,\"cpu\":7}}}}\n"
        )
    };
    let said = [
        "{\"version\":1,\"id\":null,\"error\":\"not-a-request\",\"message\":\"half a line\"}\n",
        "{\"version\":1,\"id\":4294967296,\"error\":\"refused\",\"message\":\"another's\"}\n",
        &vm("web"),
        "{\"version\":1,\"event\":\"out-of-memory\",\"name\":\"big\"}\n",
        &vm("db"),
        OK,
    ];
    let (_, output) = asked("ctl-stat", &said, &["stat"]);
    assert_eq!(
        text(&output.stdout),
        "web: running, 2 vCPUs, 128 MiB of memory, 8 KiB used, 7 ms of CPU time\n\
         db: running, 2 vCPUs, 128 MiB of memory, 8 KiB used, 7 ms of CPU time\n"
    );
    assert_eq!(text(&output.stderr), "mayfly: big was ended: memory had ended\n");
    assert!(output.status.success());
    let (_, output) = asked("ctl-stat-json", &said, &["--json", "stat"]);
    let lines: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (lines.len(), &lines[1]["vm"]["name"], &lines[2]["ok"]),
        (3, &json!("db"), &json!(true))
    );
}

#[test]
fn what_the_monitor_refuses_is_said_in_one_line() {
    for (said, expected) in [
        (
            "\"error\":\"refused\",\"message\":\"there is no VM\\n\\u001b[31m web\"",
            "there is no VM\\n\\u{1b}[31m web",
        ),
        (
            "\"error\":\"field\",\"message\":\"parameters\"",
            "the monitor does not take this value of 'parameters'",
        ),
        (
            "\"error\":\"version\",\"message\":\"this is version 1\"",
            "the monitor does not take the request: version: this is version 1",
        ),
    ] {
        let said = format!("{{\"version\":1,\"id\":ID,{said}}}\n");
        let (_, output) = asked("ctl-refused", &[&said], &["start", "web"]);
        assert_eq!(text(&output.stderr), format!("mayfly: {expected}\n"));
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn what_is_no_monitor_and_what_does_not_answer_end_the_command_with_3() {
    let long = "x".repeat(5000);
    for (number, (said, expected)) in [
        ("SSH-2.0-OpenSSH_9\r\n", "no control port of Mayfly: it says \"SSH-2.0-OpenSSH_9\""),
        (&*long, "no control port of Mayfly"),
        ("{}\n", "no control port of Mayfly"),
        ("[1]\n", "no control port of Mayfly"),
        (
            "{\"version\":2,\"id\":ID,\"ok\":true}\n",
            "version 2 of the protocol, and this command version 1",
        ),
        ("{\"version\":1,\"id\":ID}\n", "answered what makes no sense"),
        ("{\"version\":1,\"id\":ID,\"vm\":{\"name\":\"a\"}}\n", "answered what makes no sense"),
        ("{\"version\":1,", "the machine has ended, or has closed the connection"),
        ("", "the machine has ended, or has closed the connection"),
    ]
    .into_iter()
    .enumerate()
    {
        let (_, output) = asked(&format!("ctl-strange-{number}"), &[said], &["stat"]);
        let stderr = text(&output.stderr);
        assert!(stderr.contains(expected) && stderr.lines().count() == 1, "{said}: {stderr}");
        assert_eq!(output.status.code(), Some(3), "{said}");
    }
    let nowhere = scratch("ctl-nowhere").join("s");
    let output = ctl(&nowhere, &["stat"]);
    assert!(text(&output.stderr).contains("is the machine running?"), "{output:?}");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn one_that_says_nothing_or_never_ends_is_waited_for_no_longer_than_was_said() {
    // It answers to others without an end.
    let (socket, thread) = played("ctl-late", |lines, stream| {
        request(lines);
        while stream.write_all(b"{\"version\":1,\"id\":null,\"ok\":true}\n").is_ok() {}
    });
    let output = ctl(&socket, &["--timeout", "1", "stat"]);
    assert!(
        text(&output.stderr).contains("nothing has come from the machine within 1 s"),
        "{output:?}"
    );
    assert_eq!(output.status.code(), Some(3));
    thread.join().unwrap();
    let (socket, thread) = played("ctl-silent", |lines, _| {
        let mut rest = Vec::new();
        lines.read_to_end(&mut rest).unwrap();
    });
    let output = ctl(&socket, &["--timeout", "1", "events"]);
    assert_eq!(
        text(&output.stderr),
        "mayfly: no event has come within 1 s; another program that is connected to the machine would get them\n"
    );
    assert_eq!(output.status.code(), Some(3));
    thread.join().unwrap();
    let (socket, thread) = played("ctl-one-event", |lines, stream| {
        stream.write_all(b"{\"version\":1,\"event\":\"ended\",\"name\":\"a\"}\n").unwrap();
        lines.read_to_end(&mut Vec::new()).unwrap();
    });
    let output = ctl(&socket, &["--timeout", "1", "events", "--count", "2"]);
    assert_eq!(text(&output.stdout), "a has ended\n");
    assert!(text(&output.stderr).contains("no further event has come within 1 s"), "{output:?}");
    thread.join().unwrap();
}

#[test]
fn events_are_printed_until_there_are_as_many_as_were_wanted() {
    let (socket, thread) = played("ctl-events", |_, stream| {
        let said = "{\"version\":1,\"event\":\"ended\",\"name\":\"a\"}\n{\"version\":1,\"id\":3,\"ok\":true}\n\
                    {\"version\":1,\"event\":\"crashed\",\"name\":\"b\"}\n{\"version\":1,\"event\":\"lost\",\"count\":7}\n\
                    {\"version\":1,\"event\":\"ended\",\"name\":\"c\"}\n";
        stream.write_all(said.as_bytes()).unwrap();
        let _ = stream.read(&mut [0]);
    });
    let output = ctl(&socket, &["events", "--count", "3"]);
    assert_eq!(
        text(&output.stdout),
        "a has ended\nb has crashed: it could not go on, or could not begin\n7 events were lost\n"
    );
    assert!(output.status.success());
    thread.join().unwrap();
}

#[test]
fn what_cannot_be_asked_for_is_an_error_of_the_command_line() {
    let nowhere = scratch("ctl-usage").join("s");
    for arguments in [
        &["fork", "a", "b", "--count", "0"][..],
        &["start"],
        &["poweroff"],
        &["--timeout", "0", "stat"],
        &["events", "--count", "-1"],
    ] {
        assert_eq!(ctl(&nowhere, arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_command_that_there_is_not_is_answered_by_those_of_ctl() {
    let nowhere = scratch("ctl-nonsense").join("s");
    for (given, expected) in [
        (
            "nonsense",
            "; there are create, start, stop, destroy, freeze, fork, reset, balloon, stat, events",
        ),
        ("baloon", "a similar subcommand exists: 'balloon'"),
    ] {
        let output = ctl(&nowhere, &[given]);
        let said = text(&output.stderr);
        assert!(said.contains(expected) && !said.contains("doctor"), "{said}");
        assert_eq!(output.status.code(), Some(2), "{given}");
    }
    let said = text(&mayfly(&["metal", "nonsense"]).stderr).to_string();
    assert!(said.contains("; there are ctl") && !said.contains("doctor"), "{said}");
    // What no user is shown is not named.
    let said = text(&mayfly(&["nonsense"]).stderr).to_string();
    assert!(said.contains("doctor") && !said.contains("phases"), "{said}");
}

#[test]
fn what_the_monitor_cannot_read_is_not_sent() {
    let nowhere = scratch("ctl-unread").join("s");
    let long = "x".repeat(2000);
    let escaped = "\"".repeat(33);
    let many = ["create", "a", "b"].into_iter().chain(["cap=1"; 13]).collect::<Vec<_>>();
    for (arguments, expected) in [
        (&["create", "a", "b", "--", &long][..], "the request is too long"),
        (&["create", "a", "b", "--", &escaped], "33 backslashes"),
        (&["start", &escaped], "33 backslashes"),
        (&many, "13 parameters"),
    ] {
        let output = ctl(&nowhere, arguments);
        assert!(text(&output.stderr).contains(expected), "{output:?}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
    let (_, output) = asked("ctl-most-escapes", &[OK], &["create", "a", "b", "--", &escaped[1..]]);
    assert!(output.status.success(), "{output:?}");
    let (request, output) = asked("ctl-most", &[OK], &many[..15]);
    assert_eq!(request["parameters"].as_array().map(Vec::len), Some(12));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_socket_that_accepts_nobody_is_waited_for_no_longer_than_was_said() {
    let socket = scratch("ctl-full").join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    // One connection waits, and there is room for no other.
    rustix::net::listen(&listener, 0).unwrap();
    let waiting = UnixStream::connect(&socket).unwrap();
    for more in [&["--timeout", "1", "stop", "web"][..], &["--timeout", "1", "events"]] {
        let output = ctl(&socket, more);
        assert!(
            text(&output.stderr).contains("nothing has come from the machine within 1 s"),
            "{output:?}"
        );
        assert_eq!(output.status.code(), Some(3));
    }
    // It is connected as soon as there is room.
    let thread = thread::spawn(move || {
        drop(listener.accept().unwrap());
        drop(waiting);
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        let said = OK.replace("ID", &request(&mut lines)["id"].to_string());
        stream.write_all(said.as_bytes()).unwrap();
    });
    assert!(ctl(&socket, &["stat"]).status.success());
    thread.join().unwrap();
}

/// A device may read what was sent when the command has gone.
#[test]
fn what_changes_something_is_not_sent_before_the_monitor_has_answered() {
    let (socket, thread) = played("ctl-dead", |lines, _| {
        assert_eq!(request(lines)["do"], "stat");
        let mut rest = Vec::new();
        lines.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty(), "{}", text(&rest));
    });
    let output = ctl(&socket, &["--timeout", "1", "destroy", "web"]);
    assert!(text(&output.stderr).contains("nothing was asked for"), "{output:?}");
    assert_eq!(output.status.code(), Some(3));
    thread.join().unwrap();
    for (number, says) in [true, false].into_iter().enumerate() {
        let (socket, thread) = played(&format!("ctl-maybe-{number}"), move |lines, stream| {
            assert_eq!(request_behind_stat(lines, stream)["do"], "destroy");
            if says {
                let mut rest = Vec::new();
                lines.read_to_end(&mut rest).unwrap();
            }
        });
        let output = ctl(&socket, &["--timeout", "1", "destroy", "web"]);
        let expected = "what was asked for may still be done";
        assert!(text(&output.stderr).contains(expected), "{output:?}");
        assert_eq!(output.status.code(), Some(3));
        thread.join().unwrap();
    }
}

#[test]
fn an_event_that_cannot_be_printed_does_not_end_the_wait_for_the_answer() {
    let (socket, thread) = played("ctl-full-disk", |lines, stream| {
        let event = b"{\"version\":1,\"event\":\"ended\",\"name\":\"a\"}\n";
        stream.write_all(event).unwrap();
        let request = request_behind_stat(lines, stream);
        stream.write_all(event).unwrap();
        let said = OK.replace("ID", &request["id"].to_string());
        stream.write_all(said.as_bytes()).unwrap();
    });
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_mayfly"));
    let status = command.args(arguments(&socket, &["stop", "web"])).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(0));
    thread.join().unwrap();
}
