//! `mayfly metal ctl`: asks the monitor of a machine by its control port (docs/control.md).

mod connection;

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use crate::args::{Ctl, Request};
use crate::failure::Failure;
use crate::output::Stream;
use connection::{Connection, Late, Line, VERSION, failed};

/// How many seconds an answer is waited for, unless the user says otherwise.
const PATIENCE: u32 = 60;

/// Has the monitor do what was asked for, or prints events.
pub(crate) fn ctl(options: &Ctl) -> Result<(), Failure> {
    if let Request::Events { count } = &options.request {
        let connection = Connection::open(&options.socket, options.timeout)?;
        return follow(connection, *count, options.json);
    }
    let asked = Asked::of(&options.request)?;
    let connection = Connection::open(&options.socket, options.timeout.or(Some(PATIENCE)))?;
    ask(connection, &asked, options.json)
}

/// What a request consists of, without its version and number.
fn fields(request: &Request) -> Map<String, Value> {
    let named = |what: &str, name: &str| json!({ "do": what, "name": name });
    let mut fields = match request {
        Request::Create { name, like, parameters, arguments } => {
            let mut fields = named("create", name);
            fields["like"] = json!(like);
            fields["parameters"] = json!(parameters);
            if !arguments.is_empty() {
                fields["arguments"] = json!(arguments.join(" "));
            }
            fields
        }
        Request::Fork { name, from, parameters, count } => {
            let mut fields = named("fork", name);
            fields["from"] = json!(from);
            fields["parameters"] = json!(parameters);
            if let Some(count) = count {
                fields["count"] = json!(count);
            }
            fields
        }
        Request::Start { name } => named("start", name),
        Request::Stop { name } => named("stop", name),
        Request::Destroy { name } => named("destroy", name),
        Request::Freeze { name } => named("freeze", name),
        Request::Reset { name } => named("reset", name),
        Request::Balloon { name, size } => {
            let mut fields = named("balloon", name);
            fields["size"] = json!(size);
            fields
        }
        Request::Stat { name: Some(name) } => named("stat", name),
        Request::Stat { name: None } | Request::Events { .. } => json!({ "do": "stat" }),
    };
    fields.as_object_mut().map(std::mem::take).unwrap_or_default()
}

/// A number that no program before has used on this connection: an answer to one of its requests may still come.
fn number() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.subsec_nanos() ^ std::process::id().rotate_left(16)
}

/// A request, and its number.
struct Numbered {
    id: u32,
    line: Line,
}

impl Numbered {
    fn of(id: u32, mut fields: Map<String, Value>) -> Result<Self, Failure> {
        fields.insert("version".to_owned(), json!(VERSION));
        fields.insert("id".to_owned(), json!(id));
        Ok(Self { id, line: Line::of(&Value::Object(fields))? })
    }
}

/// What is asked for.
struct Asked {
    /// What is sent and answered before, if the request changes something. The machine may read what was sent long after the
    /// command has gone. So a request that changes something is sent when the machine is known to read.
    before: Option<Numbered>,
    request: Numbered,
}

impl Asked {
    fn of(request: &Request) -> Result<Self, Failure> {
        let (id, fields) = (number(), fields(request));
        let before = match (request, fields.get("name")) {
            (Request::Stat { .. }, _) | (_, None) => None,
            // Of one VM at most: so the answer is short.
            (_, Some(name)) => {
                let stat = [("do", json!("stat")), ("name", name.clone())];
                let stat = stat.into_iter().map(|(field, value)| (field.to_owned(), value));
                Some(Numbered::of(id ^ 1, stat.collect())?)
            }
        };
        Ok(Self { before, request: Numbered::of(id, fields)? })
    }
}

/// The next line of the answer to a request, as an object and as it is. Events before it are printed.
fn answer(connection: &mut Connection, id: u32, as_json: bool) -> Result<(Value, String), Failure> {
    loop {
        let (line, text) = connection.next()?;
        if let Some(event) = event(&line) {
            let said = if as_json { text } else { format!("mayfly: {event}") };
            // The answer is still to come, whether this can be printed or not.
            let _ = Stream::Err.write(&format!("{said}\n"));
            continue;
        }
        // Others are answers to another program, which has gone.
        if line["id"].as_u64() == Some(u64::from(id)) {
            return Ok((line, text));
        }
    }
}

/// Sends a harmless request, and waits until the monitor has answered it, in whatever way.
fn await_turn(
    connection: &mut Connection,
    before: &Numbered,
    as_json: bool,
) -> Result<(), Failure> {
    connection.send(&before.line)?;
    while !answer(connection, before.id, as_json)?.0["vm"].is_null() {}
    Ok(())
}

fn ask(mut connection: Connection, asked: &Asked, as_json: bool) -> Result<(), Failure> {
    let Asked { before, request } = asked;
    if let Some(before) = before {
        let turn = await_turn(&mut connection, before, as_json);
        turn.map_err(|why| why.and("nothing was asked for"))?;
    }
    let unknown = |why: Failure| match before {
        Some(_) => why.and("what was asked for may still be done"),
        None => why,
    };
    connection.send(&request.line).map_err(unknown)?;
    loop {
        let (line, text) = answer(&mut connection, request.id, as_json).map_err(unknown)?;
        if as_json {
            Stream::Out.write(&format!("{text}\n"))?;
        }
        if let Some(error) = line["error"].as_str() {
            let message = line["message"].as_str().unwrap_or_default();
            return Err(Failure::runtime(match error {
                "refused" => message.to_owned(),
                "field" => format!("the monitor does not take this value of '{message}'"),
                _ => format!("the monitor does not take the request: {error}: {message}"),
            }));
        }
        if line["ok"] == true {
            return Ok(());
        }
        match said_of_vm(&line["vm"]) {
            Some(said) if !as_json => Stream::Out.write(&said)?,
            Some(_) => {}
            None => {
                return Err(failed(format!(
                    "the machine has answered what makes no sense: {line}"
                )));
            }
        }
    }
}

/// A line of a VM that `stat` has found.
fn said_of_vm(vm: &Value) -> Option<String> {
    let number = |field: &str| vm[field].as_u64();
    let (name, state) = (vm["name"].as_str()?, vm["state"].as_str()?);
    let (vcpus, memory) = (number("vcpus")?, number("memory")? >> 20);
    let (used, cpu) = (number("used")? >> 10, number("cpu")?);
    Some(format!(
        "{name}: {state}, {vcpus} vCPUs, {memory} MiB of memory, {used} KiB used, {cpu} ms of CPU time\n"
    ))
}

/// What an event says, if the line is one.
fn event(line: &Value) -> Option<String> {
    let name = line["name"].as_str().unwrap_or_default();
    Some(match line["event"].as_str()? {
        "ended" => format!("{name} has ended"),
        "out-of-memory" => format!("{name} was ended: memory had ended"),
        "crashed" => format!("{name} has crashed: it could not go on, or could not begin"),
        "lost" => format!("{} events were lost", line["count"].as_u64().unwrap_or_default()),
        other => format!("{other}: {name}"),
    })
}

/// Where events go that have not come.
const ELSEWHERE: &str = "another program that is connected to the machine would get them";

/// Prints events.
fn follow(mut connection: Connection, count: Option<u32>, as_json: bool) -> Result<(), Failure> {
    let mut seen = 0;
    connection.awaits(Late("no event has come", ELSEWHERE));
    while count.is_none_or(|count| seen < count) {
        let (line, text) = connection.next()?;
        let Some(event) = event(&line) else { continue };
        let said = if as_json { text } else { event };
        if !Stream::Out.goes_on(&format!("{said}\n"))? {
            return Ok(());
        }
        seen += 1;
        connection.awaits(Late("no further event has come", ELSEWHERE));
    }
    Ok(())
}
