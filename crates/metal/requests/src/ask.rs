//! The client: many requests, some at a time, and what became of each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The most bytes of an answer.
const MOST: usize = 64 << 10;
const MOST_HEADERS: usize = 64;

/// After how long a SYN is sent again.
const SYN_AGAIN: Duration = Duration::from_millis(200);

/// The most requests at a time.
pub const MOST_AT_ONCE: u32 = 1024;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// A port of the loopback.
    pub port: u16,
    /// How many requests there are.
    pub count: u64,
    /// How many of them at a time, at most [`MOST_AT_ONCE`].
    pub at_once: u32,
    /// How long each may take, from its connection to the end of its answer.
    pub patience: Duration,
}

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// There was no connection.
    NotConnected,
    /// The connection was reset, or was not there any more.
    Broken,
    /// The connection was closed before the answer was whole.
    Short,
    /// Something came after the answer, or it is longer than any that is right.
    Long,
    /// There was no end of it in time.
    Late,
    /// It is no answer of HTTP.
    Malformed,
    /// The status was another than 200.
    Status,
    /// It does not say of which fork it is.
    NoNumber,
    /// It is of a VM that is no fork.
    NoFork,
    /// It is of a fork that has answered another request.
    Again,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotConnected => "not connected",
            Self::Broken => "reset",
            Self::Short => "closed before the answer was whole",
            Self::Long => "more than one answer, or too long",
            Self::Late => "no answer in time",
            Self::Malformed => "not HTTP",
            Self::Status => "a status other than 200",
            Self::NoNumber => "no number of a fork",
            Self::NoFork => "answered by a VM that is no fork",
            Self::Again => "answered by a fork that had answered another",
        })
    }
}

/// What became of all requests.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// How many were at a time.
    pub at_once: u32,
    /// How long each took that was answered, in their order.
    pub times: Vec<Duration>,
    /// How many others failed, and why.
    pub failures: BTreeMap<Failure, u64>,
}

impl Outcome {
    /// How many have failed.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// The time within which so many hundredths of those that were answered had their answers, at least.
    pub fn within(&self, percent: usize) -> Option<Duration> {
        let place = (self.times.len() * percent).div_ceil(100);
        self.times.get(place.checked_sub(1)?).copied()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (answered, failed) = (self.times.len(), self.failed());
        write!(f, "{answered} answered, {failed} failed, {} at a time", self.at_once)?;
        let times = [50, 99, 100].map(|percent| self.within(percent).map(|time| time.as_millis()));
        if let [Some(half), Some(most), Some(all)] = times {
            write!(f, "\nan answer took {half} ms (p50), {most} ms (p99), {all} ms at most")?;
        }
        for (why, count) in &self.failures {
            write!(f, "\n{count} failed: {why}")?;
        }
        Ok(())
    }
}

/// Asks, and waits for all answers.
///
/// # Errors
///
/// Where a thread cannot be started, or panics.
pub fn run(load: &Load) -> io::Result<Outcome> {
    let next = AtomicU64::new(0);
    let at_once = load.at_once.clamp(1, MOST_AT_ONCE);
    let one_by_one = || {
        let mut all = Vec::new();
        while next.fetch_add(1, Ordering::Relaxed) < load.count {
            let begin = Instant::now();
            all.push(request(load).map(|number| (number, begin.elapsed())));
        }
        all
    };
    let all = thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, one_by_one);
        let threads = (0..at_once).map(start).collect::<io::Result<Vec<_>>>()?;
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| io::Error::other("a thread has panicked"))?);
        }
        Ok::<_, io::Error>(all)
    })?;
    let mut outcome = Outcome { at_once, ..Outcome::default() };
    let mut numbers = BTreeSet::new();
    for each in all {
        let judged =
            each.and_then(
                |(number, time)| {
                    if numbers.insert(number) { Ok(time) } else { Err(Failure::Again) }
                },
            );
        match judged {
            Ok(time) => outcome.times.push(time),
            Err(why) => *outcome.failures.entry(why).or_default() += 1,
        }
    }
    outcome.times.sort_unstable();
    Ok(outcome)
}

/// One request. Returns which fork has answered it.
fn request(load: &Load) -> Result<u64, Failure> {
    let end = Instant::now() + load.patience;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, load.port));
    let mut connection = connect(&address, end)?;
    connection.set_write_timeout(Some(left(end)?)).map_err(|_| Failure::Broken)?;
    let asked =
        connection.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    asked.map_err(|error| why(&error, Failure::Broken))?;
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        connection.set_read_timeout(Some(left(end)?)).map_err(|_| Failure::Broken)?;
        let count = connection.read(&mut part).map_err(|error| why(&error, Failure::Broken))?;
        if count == 0 {
            return judge(&bytes);
        }
        bytes.extend_from_slice(&part[..count]);
        if bytes.len() > MOST {
            return Err(Failure::Long);
        }
    }
}

/// Connects. A listener drops a SYN for which its queue has no room (that of QEMU has room for two), and the host sends the
/// next one after a second, and then ever later: so it is sent again soon, from another port. A SYN that was dropped has left
/// nothing.
fn connect(address: &SocketAddr, end: Instant) -> Result<TcpStream, Failure> {
    loop {
        let patience = left(end)?.min(SYN_AGAIN);
        match TcpStream::connect_timeout(address, patience) {
            Ok(connection) => return Ok(connection),
            Err(error) => match why(&error, Failure::NotConnected) {
                Failure::Late => {}
                failure => return Err(failure),
            },
        }
    }
}

/// How long there is until `end`.
fn left(end: Instant) -> Result<Duration, Failure> {
    end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()).ok_or(Failure::Late)
}

fn why(error: &io::Error, other: Failure) -> Failure {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Failure::Late,
        _ => other,
    }
}

/// Whether all that came on a connection is one answer, and of which fork.
fn judge(bytes: &[u8]) -> Result<u64, Failure> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut answer = httparse::Response::new(&mut headers);
    let head = match answer.parse(bytes) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) => return Err(Failure::Short),
        Err(_) => return Err(Failure::Malformed),
    };
    if answer.code != Some(200) {
        return Err(Failure::Status);
    }
    let body = bytes.get(head..).unwrap_or_default();
    // A server that says no length ends its answer with the connection: then what is missing does not show but in it.
    let length =
        answer.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    if let Some(length) = length {
        let length =
            core::str::from_utf8(length.value).ok().and_then(|length| length.trim().parse().ok());
        match body.len().cmp(&length.ok_or(Failure::Malformed)?) {
            core::cmp::Ordering::Less => return Err(Failure::Short),
            core::cmp::Ordering::Greater => return Err(Failure::Long),
            core::cmp::Ordering::Equal => {}
        }
    }
    match crate::number(body).ok_or(Failure::NoNumber)? {
        0 => Err(Failure::NoFork),
        number => Ok(number),
    }
}
