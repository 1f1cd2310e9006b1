//! A request, and the command of the monitor that it is.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::VERSION;
use super::lines::{LONGEST, Line};
use crate::command::{Command, Forks, MOST_FORKS};
use crate::plan::{bytes, is_name};

/// The most parameters of a VM.
const MOST_PARAMETERS: usize = 12;

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
    /// It has more than [`LONGEST`] bytes, or more backslashes than are taken.
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

/// What a line has, and nothing is known of yet.
#[derive(Default)]
struct Fields {
    version: Option<u32>,
    id: Option<u32>,
    what: Option<String>,
    name: Option<String>,
    like: Option<String>,
    from: Option<String>,
    count: Option<u32>,
    size: Option<String>,
    parameters: Option<Vec<String>>,
    arguments: Option<String>,
}

/// Reads fields. Between two it looks for interrupts.
struct FieldsOf(fn());

impl<'de> Visitor<'de> for FieldsOf {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        fn set<'de, A: MapAccess<'de>, T: Deserialize<'de>>(
            field: &mut Option<T>,
            map: &mut A,
        ) -> Result<(), A::Error> {
            match field.replace(map.next_value()?) {
                None => Ok(()),
                Some(_) => Err(Error::custom("a field is there twice")),
            }
        }
        let mut fields = Fields::default();
        while let Some(name) = map.next_key::<&str>()? {
            (self.0)();
            match name {
                "version" => set(&mut fields.version, &mut map)?,
                "id" => set(&mut fields.id, &mut map)?,
                "do" => set(&mut fields.what, &mut map)?,
                "name" => set(&mut fields.name, &mut map)?,
                "like" => set(&mut fields.like, &mut map)?,
                "from" => set(&mut fields.from, &mut map)?,
                "count" => set(&mut fields.count, &mut map)?,
                "size" => set(&mut fields.size, &mut map)?,
                "arguments" => set(&mut fields.arguments, &mut map)?,
                "parameters" if fields.parameters.is_none() => {
                    fields.parameters = Some(map.next_value_seed(WordsOf(self.0))?);
                }
                _ => return Err(Error::custom("there is no such field")),
            }
            (self.0)();
        }
        Ok(fields)
    }
}

/// Reads a list of texts, of a bounded length. Between two it looks for interrupts.
struct WordsOf(fn());

impl<'de> DeserializeSeed<'de> for WordsOf {
    type Value = Vec<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for WordsOf {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MOST_PARAMETERS} texts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<String>, A::Error> {
        let mut words = Vec::new();
        while let Some(word) = list.next_element()? {
            if words.len() == MOST_PARAMETERS {
                return Err(Error::custom("there are too many texts"));
            }
            words.push(word);
            (self.0)();
        }
        Ok(words)
    }
}

impl Request {
    /// Reads a line, and calls `look` between its fields: to look for interrupts, or for nothing.
    ///
    /// # Errors
    ///
    /// Why it is no request.
    pub fn read(line: Line<'_>, look: fn()) -> Result<Self, Refused> {
        let refused = |why| Refused { id: None, why };
        let Line::Whole(bytes) = line else { return Err(refused(Why::TooLong)) };
        let mut unescaped = [0; LONGEST];
        let mut deserializer = serde_json_core::de::Deserializer::new(bytes, Some(&mut unescaped));
        let read = deserializer.deserialize_map(FieldsOf(look));
        // Nothing comes behind the object.
        let whole = read.and_then(|fields| deserializer.end().map(|_| fields));
        let mut fields = whole.map_err(|_| refused(Why::NotARequest))?;
        look();
        let what = fields.what.take();
        let (Some(version), Some(id), Some(what)) = (fields.version, fields.id, what) else {
            return Err(refused(Why::NotARequest));
        };
        let command =
            fields.command(version, &what).map_err(|why| Refused { id: Some(id), why })?;
        Ok(Self { id, command })
    }
}

impl Fields {
    fn command(mut self, version: u32, what: &str) -> Result<Command, Why> {
        if version != VERSION {
            return Err(Why::Version);
        }
        let command = match what {
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
            "balloon" => Command::Balloon {
                name: vm(self.name.take(), "name")?,
                bytes: self.size.take().and_then(|size| bytes(&size)).ok_or(Why::Field("size"))?,
            },
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
            ("size", self.size.is_some()),
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
fn parameters(words: Option<Vec<String>>) -> Result<Vec<String>, Why> {
    let words = words.unwrap_or_default();
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
