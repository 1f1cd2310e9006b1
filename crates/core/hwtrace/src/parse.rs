//! Reading a trace, line by line.

use std::io::{BufRead, Read};

use crate::event::{Barrier, Event, Family, Reach, Record, Scope};
use crate::header::{HEADER, Options};

/// Bytes of a line, at most; no event needs so many.
const LINE: u64 = 512;

/// Numbers of frames, and of guest frames, have fewer bits than this: 2^52 frames are 2^64 bytes.
const FRAME_BITS: u32 = 52;
/// Blocks of frames are of `1 << ORDER` at most: 4 GiB.
const ORDER: u32 = 20;
/// Levels of tables, at most.
const LEVELS: u32 = 5;
/// Entries of a table.
pub(crate) const ENTRIES: u32 = 512;

/// Why a line is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Its number, from 1 on.
    pub line: u64,
    /// What is wrong with it.
    pub what: String,
}

/// A trace that is being read.
#[derive(Debug)]
pub struct Lines<R> {
    from: R,
    line: u64,
    bytes: Vec<u8>,
    last: Option<u64>,
}

impl<R: BufRead> Lines<R> {
    /// Reads the first line.
    ///
    /// # Errors
    ///
    /// [`Malformed`]: it is not the first line of a trace of this version.
    pub fn new(from: R) -> Result<(Self, Options), Malformed> {
        let mut lines = Self { from, line: 0, bytes: Vec::new(), last: None };
        let Some(first) = lines.line()? else { return Err(malformed(1, "an empty trace")) };
        let mut options = Options::default();
        let Some(rest) = first.strip_prefix(HEADER) else {
            return Err(malformed(1, format!("not a trace of version 1: {HEADER:?} is missing")));
        };
        if !rest.is_empty() && !rest.starts_with(' ') {
            return Err(malformed(1, "unknown version"));
        }
        for word in rest.split_ascii_whitespace() {
            match word {
                "caches=maintained" => options.caches_maintained = true,
                "caches=coherent" => options.caches_maintained = false,
                _ => return Err(malformed(1, format!("{word:?} is no option of the header"))),
            }
        }
        Ok((lines, options))
    }

    /// The next event, and the number of its line; `None` at the end. Empty lines, and those that begin with `#`, say
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`Malformed`]; nothing is read beyond.
    pub fn next_record(&mut self) -> Result<Option<(u64, Record)>, Malformed> {
        loop {
            let Some(text) = self.line()? else { return Ok(None) };
            if text.trim_ascii().is_empty() || text.starts_with('#') {
                continue;
            }
            let record = parse(&text).map_err(|what| Malformed { line: self.line, what })?;
            if self.last.is_some_and(|last| record.end <= last) {
                return Err(malformed(self.line, "out of order: ends before the line above"));
            }
            self.last = Some(record.end);
            return Ok(Some((self.line, record)));
        }
    }

    fn line(&mut self) -> Result<Option<String>, Malformed> {
        self.bytes.clear();
        self.line += 1;
        let line = self.line;
        let read = (&mut self.from).take(LINE).read_until(b'\n', &mut self.bytes);
        match read {
            Err(error) => return Err(malformed(line, format!("cannot be read: {error}"))),
            Ok(0) => return Ok(None),
            Ok(_) => {}
        }
        if self.bytes.last() == Some(&b'\n') {
            self.bytes.pop();
        } else if self.bytes.len() as u64 == LINE {
            return Err(malformed(line, format!("longer than {LINE} bytes")));
        } else {
            // What is left of a number is another number.
            return Err(malformed(line, "cut off: no line feed at its end"));
        }
        if self.bytes.contains(&b'\r') {
            return Err(malformed(line, "has a carriage return: lines end with a line feed alone"));
        }
        match str::from_utf8(&self.bytes) {
            Ok(text) if text.is_ascii() => Ok(Some(text.to_owned())),
            _ => Err(malformed(line, "not ASCII text")),
        }
    }
}

fn malformed(line: u64, what: impl Into<String>) -> Malformed {
    Malformed { line, what: what.into() }
}

/// The event on a line.
///
/// # Errors
///
/// What is wrong with it.
pub fn parse(line: &str) -> Result<Record, String> {
    let mut words = line.split_ascii_whitespace();
    let mut plain = |what| number(words.next().ok_or_else(|| format!("{what} is missing"))?, what);
    let (begin, end, cpu) = (plain("the first ticket")?, plain("the second")?, plain("the CPU")?);
    if begin >= end {
        return Err(format!("ticket {begin} is not before {end}"));
    }
    let cpu = u32::try_from(cpu).map_err(|_| format!("CPU {cpu} is out of range"))?;
    let name = words.next().ok_or("no event")?;
    let mut fields = Fields { words };
    let event = event(name, &mut fields)?;
    match fields.words.next() {
        None => Ok(Record { begin, end, cpu, event }),
        Some(more) => Err(format!("{more:?} is one word too many")),
    }
}

fn event(name: &str, fields: &mut Fields<'_>) -> Result<Event, String> {
    Ok(match name {
        "root" => Event::Root {
            top: fields.frame("top")?,
            order: fields.below("order", 5)?,
            levels: fields.below("levels", LEVELS + 1)?.max(1),
            family: fields.one_of("format", &Family::NAMES)?,
        },
        "root-gone" => Event::RootGone { top: fields.frame("top")? },
        "entry" | "mark" => {
            let (table, index) = (fields.frame("table")?, fields.below("index", ENTRIES)?);
            let (old, new) = (fields.number("old")?, fields.number("new")?);
            if name == "entry" {
                Event::Entry { table, index, old, new }
            } else {
                Event::Mark { table, index, old, new }
            }
        }
        "fill" => {
            let (table, index) = (fields.frame("table")?, fields.below("index", ENTRIES)?);
            let count = fields.below("count", ENTRIES - index + 1)?;
            let (value, step) = (fields.number("value")?, fields.number("step")?);
            Event::Fill { table, index, count, value, step }
        }
        "vmid-take" => {
            Event::VmidTake { vmid: fields.vmid()?, generation: fields.number("generation")? }
        }
        "vmid-give" => Event::VmidGive { vmid: fields.vmid()? },
        "vmid-keep" => {
            Event::VmidKeep { vmid: fields.vmid()?, generation: fields.number("generation")? }
        }
        "generation" => Event::Generation { generation: fields.number("generation")? },
        "enter" => Event::Enter {
            tlb: fields.below("tlb", u32::MAX)?,
            top: fields.frame("top")?,
            vmid: fields.vmid()?,
        },
        "leave" => Event::Leave { tlb: fields.below("tlb", u32::MAX)?, vmid: fields.vmid()? },
        "barrier" => Event::Barrier { kind: fields.one_of("orders", &Barrier::NAMES)? },
        "tlbi" => {
            let (id, vmid) = (fields.number("id")?, fields.vmid()?);
            let (first, end) = (fields.frame("first")?, fields.frame("end")?);
            let stride = fields.frame("stride")?;
            let reach = fields.one_of("reach", &Reach::NAMES)?;
            if first >= end || !stride.is_power_of_two() {
                return Err(format!("no frames from {first:#x} to {end:#x} by {stride}"));
            }
            Event::Tlbi { id, vmid, scope: Scope::Range { first, end, stride, reach } }
        }
        "tlbi-all" => {
            Event::Tlbi { id: fields.number("id")?, vmid: fields.vmid()?, scope: Scope::All }
        }
        "tlbi-everything" => Event::TlbiEverything { id: fields.number("id")? },
        "tlbi-sync" => Event::Sync { id: fields.number("id")? },
        "give" | "free" => {
            let (frame, order) = (fields.frame("frame")?, fields.below("order", ORDER + 1)?);
            if name == "give" { Event::Give { frame, order } } else { Event::Free { frame, order } }
        }
        "clean" | "flush" | "fetch" => {
            let (frame, count) = (fields.frame("frame")?, fields.frame("count")?);
            if count > 1 << ORDER {
                return Err(format!("{count} frames are too many"));
            }
            match name {
                "clean" => Event::Clean { frame, count },
                "flush" => Event::Flush { frame, count },
                _ => Event::Fetch { frame, count },
            }
        }
        "access" => Event::Access {
            tlb: fields.below("tlb", u32::MAX)?,
            vmid: fields.vmid()?,
            gfn: fields.frame("gfn")?,
            frame: fields.frame("frame")?,
            write: fields.below("write", 2)? == 1,
        },
        "dropped" => Event::Dropped { count: fields.number("count")? },
        _ => return Err(format!("{name:?} is no event")),
    })
}

/// What follows the name of an event.
struct Fields<'a> {
    words: std::str::SplitAsciiWhitespace<'a>,
}

impl<'a> Fields<'a> {
    fn text(&mut self, name: &str) -> Result<&'a str, String> {
        let word = self.words.next().ok_or_else(|| format!("{name}= is missing"))?;
        let value = word.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
        value.ok_or_else(|| format!("{word:?} where {name}= belongs"))
    }

    fn number(&mut self, name: &str) -> Result<u64, String> {
        number(self.text(name)?, name)
    }

    fn below(&mut self, name: &str, limit: u32) -> Result<u32, String> {
        let value = self.number(name)?;
        if value < u64::from(limit) {
            Ok(value as u32)
        } else {
            Err(format!("{name} {value} is not below {limit}"))
        }
    }

    fn frame(&mut self, name: &str) -> Result<u64, String> {
        let value = self.number(name)?;
        if value >> FRAME_BITS == 0 {
            Ok(value)
        } else {
            Err(format!("{name} {value:#x} has more than {FRAME_BITS} bits"))
        }
    }

    fn vmid(&mut self) -> Result<u16, String> {
        let value = self.number("vmid")?;
        u16::try_from(value).map_err(|_| format!("vmid {value} has more than 16 bits"))
    }

    fn one_of<T: Copy>(&mut self, name: &str, names: &[(&str, T)]) -> Result<T, String> {
        let text = self.text(name)?;
        let found = names.iter().find(|(one, _)| *one == text);
        found.map(|(_, one)| *one).ok_or_else(|| format!("{name} cannot be {text:?}"))
    }
}

/// A number, in decimal, or in hexadecimal after `0x`.
fn number(text: &str, what: &str) -> Result<u64, String> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let refused = || format!("{text:?} is no number for {what}");
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(refused());
    }
    u64::from_str_radix(digits, radix).map_err(|_| refused())
}
