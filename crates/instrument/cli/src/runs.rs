//! `mayfly trace --runs`.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};

use mayfly_record::{Begun, Record, Sink};
use mayfly_trace::{End, Runs, Trace, record_by};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::args;
use crate::built::host;
use crate::failure::Failure;
use crate::output::Stream;
use crate::traced::{end_as, failure, launch, may_write, within};

/// What a pipe holds whoever reads it.
const IN_A_PIPE: usize = 16 << 10;

/// Runs a program several times, one after the other, and says what that came to. Ends as the first run did that did not
/// end well.
pub(crate) fn runs(options: &args::Trace, count: u32) -> Result<(), Failure> {
    let sink = options.json.as_deref().map(Sink::open).transpose().map_err(Failure::runtime)?;
    let launch = launch(options);
    let input = Input::read().map_err(Failure::runtime)?;
    let (begun, mut runs) = (Begun::now(), Runs::default());
    let host = host();
    let mut end = None;
    let mut partial = None;
    for number in 0..count {
        input.give().map_err(Failure::runtime)?;
        let mut warn = |line: &str| {
            if number == 0 {
                may_write(line);
            }
        };
        let recorded = record_by(options.recorder.into(), &launch, &mut warn).map_err(failure)?;
        let trace: Trace = recorded.trace.concluded_from(host.clone(), &options.from);
        if end.is_none_or(|end| end == End::Code(0)) {
            end = trace.end;
        }
        runs.add(&trace);
        if recorded.was_interrupted && number + 1 < count {
            partial = Some(format!("interrupted after {} of {count} runs", number + 1));
            break;
        }
    }
    let mut record = Record::new(host, runs.rows()).describing([runs.description()]);
    record.conditions = Some(begun.until_now());
    record.partial.clone_from(&partial);
    let kept = sink.map_or(Ok(()), |sink| sink.write(&record.to_json()).map_err(Failure::runtime));
    if !options.quiet {
        Stream::Err.write(&runs.to_string())?;
    }
    let whole = partial.map_or(Ok(()), |why| Err(Failure::runtime(why)));
    let kept = kept.and(whole);
    let kept = kept.and(Failure::if_incomplete(&options.fail_if, runs.incomplete()));
    end_as(end, kept.and_then(|()| within(&options.fail_if, &record)))
}

/// What each run has as its standard input: that of this process where it is a terminal, else a copy of all of it.
struct Input(Option<Vec<u8>>);

impl Input {
    fn read() -> io::Result<Self> {
        let mut stdin = io::stdin();
        if stdin.is_terminal() {
            return Ok(Self(None));
        }
        let mut all = Vec::new();
        match stdin.read_to_end(&mut all) {
            // It may be closed.
            Err(error) if error.raw_os_error() == Some(Errno::BADF.raw_os_error()) => {
                Ok(Self(None))
            }
            read => read.map(|_| Self(Some(all))),
        }
    }

    /// Makes it the standard input of this process, and so of the program that is run next.
    fn give(&self) -> io::Result<()> {
        let Some(all) = &self.0 else { return Ok(()) };
        let input = if all.len() <= IN_A_PIPE { in_a_pipe(all)? } else { in_a_file(all)? };
        Ok(rustix::stdio::dup2_stdin(input.as_fd())?)
    }
}

fn in_a_pipe(all: &[u8]) -> io::Result<OwnedFd> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    File::from(write).write_all(all)?;
    Ok(read)
}

fn in_a_file(all: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(c"input", MemfdFlags::CLOEXEC)?);
    file.write_all(all)?;
    file.rewind()?;
    Ok(file.into())
}
