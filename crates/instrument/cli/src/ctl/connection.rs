//! The connection to a machine's control port: lines, each a JSON object, and a deadline.

use std::io::{Error, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::Value;

use crate::failure::Failure;

/// The version of the protocol.
pub(super) const VERSION: u32 = 1;

/// The most bytes of a line, in either direction; and what the monitor takes at most in a request.
const LONGEST: usize = 512;
const MOST_ESCAPES: usize = 32;
const MOST_PARAMETERS: usize = 12;

/// There is no answer.
const NO_ANSWER: u8 = 3;

/// A request as it is sent: one that the monitor can read.
pub(super) struct Line(String);

impl Line {
    /// Fails where the monitor could not tell which request it was, and so could not answer it.
    pub(super) fn of(request: &Value) -> Result<Self, Failure> {
        let line = request.to_string();
        let escapes = line.bytes().filter(|byte| *byte == b'\\').count();
        let parameters = request["parameters"].as_array().map_or(0, Vec::len);
        for (count, most, what) in [
            (line.len(), LONGEST, "bytes as JSON"),
            (escapes, MOST_ESCAPES, "backslashes as JSON"),
            (parameters, MOST_PARAMETERS, "parameters"),
        ] {
            if count > most {
                return Err(Failure::usage(format!(
                    "the request is too long: {count} {what}, of {most} at most"
                )));
            }
        }
        Ok(Self(line))
    }
}

pub(super) struct Connection {
    stream: UnixStream,
    /// What has come and is not a line yet.
    bytes: Vec<u8>,
    until: Option<Instant>,
    seconds: u64,
    /// What is said when it has not come in time.
    late: Late,
}

/// What has not come in time, and why that may be.
#[derive(Clone, Copy)]
pub(super) struct Late(pub(super) &'static str, pub(super) &'static str);

const NOTHING: Late = Late(
    "nothing has come from the machine",
    "it serves one connection at a time, and the monitor may be busy",
);

impl Connection {
    /// Connects to a socket. What is waited for, the connection as well, has to be there after so many seconds.
    pub(super) fn open(path: &Path, seconds: Option<u32>) -> Result<Self, Failure> {
        let seconds = seconds.map(u64::from);
        let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let unable = |errno: Errno| {
            let (path, error) = (path.display(), Error::from(errno));
            failed(format!(
                "cannot connect to {path}: {error}; is the machine running? make metal starts one"
            ))
        };
        let address = SocketAddrUnix::new(path).map_err(unable)?;
        let (unix, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let socket = socket_with(unix, kind, SocketFlags::CLOEXEC, None).map_err(unable)?;
        let (stream, seconds) = (UnixStream::from(socket), seconds.unwrap_or(0));
        let connection = Self { stream, bytes: Vec::new(), until, seconds, late: NOTHING };
        loop {
            // For a place in the queue of connections, Linux waits as long as for room for bytes.
            let left = connection.left()?;
            connection.stream.set_write_timeout(left).map_err(|error| connection.broken(&error))?;
            match connect(&connection.stream, &address) {
                Ok(()) => return Ok(connection),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(unable(error)),
            }
        }
    }

    fn left(&self) -> Result<Option<Duration>, Failure> {
        let Some(until) = self.until else { return Ok(None) };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(self.late()) } else { Ok(Some(left)) }
    }

    fn late(&self) -> Failure {
        let Self { seconds, late: Late(what, why), .. } = self;
        failed(format!("{what} within {seconds} s; {why}"))
    }

    /// What is said from now on when nothing has come in time.
    pub(super) const fn awaits(&mut self, late: Late) {
        self.late = late;
    }

    /// Sends a request. Before it goes an empty line, which ends what another program may have left.
    pub(super) fn send(&mut self, Line(request): &Line) -> Result<(), Failure> {
        let left = self.left()?;
        let sent = self.stream.set_write_timeout(left);
        let sent = sent.and_then(|()| self.stream.write_all(format!("\n{request}\n").as_bytes()));
        sent.map_err(|error| self.broken(&error))
    }

    /// The next line that has come, as an object and as it is.
    pub(super) fn next(&mut self) -> Result<(Value, String), Failure> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                let line = line.trim_ascii();
                if line.is_empty() {
                    continue;
                }
                return read(line);
            }
            if self.bytes.len() > LONGEST {
                return Err(strange(&self.bytes));
            }
            let left = self.left()?;
            let mut more = [0; 4096];
            let count =
                self.stream.set_read_timeout(left).and_then(|()| self.stream.read(&mut more));
            match count {
                Ok(0) => return Err(failed("the machine has ended, or has closed the connection")),
                Ok(count) => self.bytes.extend_from_slice(&more[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.broken(&error)),
            }
        }
    }

    fn broken(&self, error: &Error) -> Failure {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => self.late(),
            _ => failed(format!("the connection to the machine is broken: {error}")),
        }
    }
}

/// A line of the monitor's.
fn read(line: &[u8]) -> Result<(Value, String), Failure> {
    let value: Value = serde_json::from_slice(line).map_err(|_| strange(line))?;
    match value["version"].as_u64() {
        Some(version) if version == u64::from(VERSION) => {
            Ok((value, String::from_utf8_lossy(line).into_owned()))
        }
        Some(version) => Err(failed(format!(
            "the machine speaks version {version} of the protocol, and this command version {VERSION}"
        ))),
        None => Err(strange(line)),
    }
}

fn strange(line: &[u8]) -> Failure {
    let begin = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
    failed(format!("what is at the socket is no control port of Mayfly: it says {begin:?}"))
}

pub(super) fn failed(why: impl std::fmt::Display) -> Failure {
    Failure::with_code(NO_ANSWER, why)
}
