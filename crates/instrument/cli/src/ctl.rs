//! `mayfly metal ctl`: asks the monitor of a machine by its control port (docs/control.md).

mod connection;

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use crate::args::{Ctl, Request};
use crate::failure::Failure;
use crate::output::Stream;
use connection::{Connection, VERSION, failed};

/// How many seconds an answer is waited for, unless the user says otherwise.
const PATIENCE: u32 = 60;

/// Has the monitor do what was asked for, or prints events.
pub(crate) fn ctl(options: &Ctl) -> Result<(), Failure> {
    if let Request::Events { count } = &options.request {
        let connection = Connection::open(&options.socket, options.timeout)?;
        return follow(connection, *count, options.json);
    }
    let connection = Connection::open(&options.socket, options.timeout.or(Some(PATIENCE)))?;
    ask(connection, fields(&options.request), options.json)
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

fn ask(
    mut connection: Connection,
    mut request: Map<String, Value>,
    as_json: bool,
) -> Result<(), Failure> {
    let id = number();
    request.insert("version".to_owned(), json!(VERSION));
    request.insert("id".to_owned(), json!(id));
    connection.send(&Value::Object(request))?;
    loop {
        let (line, text) = connection.next()?;
        if let Some(event) = event(&line) {
            let said = if as_json { text } else { format!("mayfly: {event}") };
            Stream::Err.write(&format!("{said}\n"))?;
            continue;
        }
        // An answer to another program, which has gone.
        if line["id"].as_u64() != Some(u64::from(id)) {
            continue;
        }
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

/// Prints events.
fn follow(mut connection: Connection, count: Option<u32>, as_json: bool) -> Result<(), Failure> {
    let mut seen = 0;
    while count.is_none_or(|count| seen < count) {
        let (line, text) = connection.next()?;
        let Some(event) = event(&line) else { continue };
        let said = if as_json { text } else { event };
        if !Stream::Out.goes_on(&format!("{said}\n"))? {
            return Ok(());
        }
        seen += 1;
    }
    Ok(())
}
