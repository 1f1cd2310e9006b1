//! A request, and the command of the monitor that it is.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

use super::VERSION;
use super::lines::{LONGEST, Line};
use crate::command::{Command, Forks, MOST_FORKS};
use crate::plan::is_name;

/// The most parameters of a VM: what a line has of them is read without a look for interrupts.
const MOST_PARAMETERS: usize = 16;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The number that its answer has.
    pub id: u32,
    /// What the monitor does.
    pub command: Command,
}

/// A line that is no request that can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its number, where it could be read.
    pub id: Option<u32>,
    /// What is wrong.
    pub why: Why,
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It has more than [`LONGEST`] bytes.
    TooLong,
    /// It is no JSON object; or has a field that no request has, or twice, or of another kind.
    NotARequest,
    /// It is of another version.
    Version,
    /// There is nothing of that name to do.
    NoSuchRequest,
    /// This field is missing, or does not belong there, or has a value that cannot be.
    Field(&'static str),
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    version: u32,
    id: u32,
    r#do: String,
    name: Option<String>,
    like: Option<String>,
    from: Option<String>,
    count: Option<u32>,
    parameters: Option<Words>,
    arguments: Option<String>,
}

/// A list of texts, of a bounded length.
struct Words(Vec<String>);

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(WordsOf)
    }
}

struct WordsOf;

impl<'de> Visitor<'de> for WordsOf {
    type Value = Words;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST_PARAMETERS} texts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Words, A::Error> {
        let mut words = Vec::new();
        while let Some(word) = list.next_element()? {
            if words.len() == MOST_PARAMETERS {
                return Err(Error::invalid_length(words.len() + 1, &self));
            }
            words.push(word);
        }
        Ok(Words(words))
    }
}

impl Request {
    /// Reads a line.
    ///
    /// # Errors
    ///
    /// Why it is no request.
    pub fn read(line: Line<'_>) -> Result<Self, Refused> {
        let refused = |why| Refused { id: None, why };
        let Line::Whole(bytes) = line else { return Err(refused(Why::TooLong)) };
        let mut unescaped = [0; LONGEST];
        let read = serde_json_core::from_slice_escaped::<Fields>(bytes, &mut unescaped);
        let (fields, len) = read.map_err(|_| refused(Why::NotARequest))?;
        // What comes behind the object.
        if bytes.get(len..).is_none_or(|rest| !rest.trim_ascii().is_empty()) {
            return Err(refused(Why::NotARequest));
        }
        let id = fields.id;
        let command = fields.command().map_err(|why| Refused { id: Some(id), why })?;
        Ok(Self { id, command })
    }
}

impl Fields {
    fn command(mut self) -> Result<Command, Why> {
        if self.version != VERSION {
            return Err(Why::Version);
        }
        let command = match self.r#do.as_str() {
            "create" => Command::Create {
                name: vm(self.name.take(), "name")?,
                like: vm(self.like.take(), "like")?,
                parameters: parameters(self.parameters.take())?,
                arguments: self.arguments.take().map(arguments).transpose()?,
            },
            "start" => Command::Start(vm(self.name.take(), "name")?),
            "stop" => Command::Stop(vm(self.name.take(), "name")?),
            "destroy" => Command::Destroy(vm(self.name.take(), "name")?),
            "freeze" => Command::Forks(Forks::Freeze(vm(self.name.take(), "name")?)),
            "reset" => Command::Forks(Forks::Reset(vm(self.name.take(), "name")?)),
            "fork" => Command::Forks(Forks::Fork {
                name: vm(self.name.take(), "name")?,
                from: vm(self.from.take(), "from")?,
                count: self.count.take().map(count).transpose()?,
                parameters: parameters(self.parameters.take())?,
            }),
            "stat" => {
                Command::Stat(self.name.take().map(|name| vm(Some(name), "name")).transpose()?)
            }
            _ => return Err(Why::NoSuchRequest),
        };
        self.is_used_up().map(|()| command)
    }

    /// Whether all that was there belongs there.
    fn is_used_up(&self) -> Result<(), Why> {
        let left = [
            ("name", self.name.is_some()),
            ("like", self.like.is_some()),
            ("from", self.from.is_some()),
            ("count", self.count.is_some()),
            ("parameters", self.parameters.is_some()),
            ("arguments", self.arguments.is_some()),
        ];
        match left.into_iter().find(|(_, is_left)| *is_left) {
            Some((field, _)) => Err(Why::Field(field)),
            None => Ok(()),
        }
    }
}

/// The name of a VM.
fn vm(name: Option<String>, field: &'static str) -> Result<String, Why> {
    name.filter(|name| is_name(name)).ok_or(Why::Field(field))
}

/// Each is one word. What it means is judged where the VM is made.
fn parameters(words: Option<Words>) -> Result<Vec<String>, Why> {
    let words = words.map_or_else(Vec::new, |Words(words)| words);
    let is_word = |word: &String| {
        !word.is_empty() && word != "--" && word.bytes().all(|byte| byte.is_ascii_graphic())
    };
    if words.iter().all(is_word) { Ok(words) } else { Err(Why::Field("parameters")) }
}

/// The command line of a kernel.
fn arguments(text: String) -> Result<String, Why> {
    let is_printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if is_printable { Ok(text) } else { Err(Why::Field("arguments")) }
}

fn count(count: u32) -> Result<u32, Why> {
    if (1..=MOST_FORKS).contains(&count) { Ok(count) } else { Err(Why::Field("count")) }
}
