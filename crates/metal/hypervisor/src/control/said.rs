//! What is said: answers and events, a line each.

use mayfly_desk::{Event, Name, beginning};
use serde::Serialize;

use super::VERSION;
use super::desk::LineBytes;
use super::lines::LONGEST;
use super::request::{Refused, Why};

/// So many bytes of a message fit into a line, if each is six bytes there, `\\u0001`.
const SHORT: usize = 64;

/// What a VM has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Vm<'a> {
    /// Its name.
    pub name: &'a str,
    /// As `vm list` prints it.
    pub state: &'a str,
    /// How many vCPUs.
    pub vcpus: u32,
    /// Bytes of the guest's memory.
    pub memory: u64,
    /// Bytes that are allocated for it.
    pub used: u64,
    /// Milliseconds of CPU time.
    pub cpu: u64,
}

/// A line that is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said<'a> {
    /// A request was done.
    Done(u32),
    /// The answer to `stat` has this VM.
    Vm(u32, Vm<'a>),
    /// A line was no request.
    Refused(Refused),
    /// The monitor could not do a request, and says why.
    Failed(u32, &'a str),
    /// Something has happened by itself.
    Event(&'a Event),
}

#[derive(Serialize)]
struct Fields<'a> {
    version: u32,
    #[serde(skip_serializing_if = "Id::is_event")]
    id: Id,
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vm: Option<Vm<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
}

/// The number of an answer; an event has none.
#[derive(Serialize)]
#[serde(untagged)]
enum Id {
    Of(Option<u32>),
    Event,
}

impl Id {
    const fn is_event(&self) -> bool {
        matches!(self, Self::Event)
    }
}

impl Why {
    /// By which a program knows it, and what people read.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::TooLong => ("line-too-long", "a line has at most 512 bytes, and 32 backslashes"),
            Self::NotARequest => (
                "not-a-request",
                "a line is a JSON object: version, id, do, and what belongs to that",
            ),
            Self::Version => ("version", "this is version 1 of the protocol"),
            Self::NoSuchRequest => (
                "no-such-request",
                "do is create, start, stop, destroy, freeze, fork, reset or stat",
            ),
            Self::Field(field) => ("field", field),
        }
    }
}

impl<'a> Said<'a> {
    /// Writes the line with its end. Of a message that is too long for a line, the beginning is said.
    pub fn write(self, line: &mut LineBytes) -> &[u8] {
        let whole = serde_json_core::to_slice(&self.fields(), &mut line[..LONGEST]);
        let len = match (whole, self) {
            (Ok(len), _) => len,
            (Err(_), Self::Failed(id, why)) => {
                let short = Self::Failed(id, beginning(why, SHORT));
                serde_json_core::to_slice(&short.fields(), &mut line[..LONGEST]).unwrap_or(0)
            }
            // All else that is said is shorter.
            (Err(_), _) => 0,
        };
        line[len] = b'\n';
        &line[..=len]
    }

    fn fields(self) -> Fields<'a> {
        let none = Fields {
            version: VERSION,
            id: Id::Event,
            ok: None,
            vm: None,
            error: None,
            message: None,
            event: None,
            name: None,
            count: None,
        };
        let of = |id| Id::Of(Some(id));
        match self {
            Self::Done(id) => Fields { id: of(id), ok: Some(true), ..none },
            Self::Vm(id, vm) => Fields { id: of(id), vm: Some(vm), ..none },
            Self::Refused(Refused { id, why }) => {
                let (error, message) = why.words();
                Fields { id: Id::Of(id), error: Some(error), message: Some(message), ..none }
            }
            Self::Failed(id, why) => {
                Fields { id: of(id), error: Some("refused"), message: Some(why), ..none }
            }
            Self::Event(event) => {
                let (event, name, count) = match event {
                    Event::Ended(name) => ("ended", Some(name), None),
                    Event::OutOfMemory(name) => ("out-of-memory", Some(name), None),
                    Event::Crashed(name) => ("crashed", Some(name), None),
                    Event::Lost(count) => ("lost", None, Some(*count)),
                };
                Fields { event: Some(event), name: name.map(Name::as_str), count, ..none }
            }
        }
    }
}
