//! The monitor's commands, as the user types them, or writes them in the boot arguments.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use mayfly_lifecycle_steps::{Course, times};

use crate::needs::MOST_VMS;
use crate::plan::bytes;

/// A command to the monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Nothing.
    Nothing,
    /// `help`
    Help,
    /// `vm list`
    List,
    /// `vm stat [NAME]`
    Stat(Option<String>),
    /// `vm create NAME LIKE [PARAMETER]... [-- ARGUMENT...]`
    Create {
        /// The name of the new VM.
        name: String,
        /// The VM whose kernel and ramdisks it gets.
        like: String,
        /// Parameters of the VM.
        parameters: Vec<String>,
        /// The arguments of its kernel, if they are not those of the other VM.
        arguments: Option<String>,
    },
    /// `vm freeze`, `vm fork`, `vm reset`, `vm serve`
    Forks(Forks),
    /// `vm balloon NAME SIZE`
    Balloon {
        /// Which VM.
        name: String,
        /// How many bytes its guest is asked for.
        bytes: u64,
    },
    /// `type NAME TEXT...`
    Type {
        /// Which VM.
        name: String,
        /// What is typed at its console, before the end of a line.
        text: String,
    },
    /// `vm start NAME`
    Start(String),
    /// `vm stop NAME`
    Stop(String),
    /// `vm kill NAME`
    Kill(String),
    /// `vm restart NAME`
    Restart(String),
    /// `vm destroy NAME`
    Destroy(String),
    /// `console NAME`
    Console(String),
    /// `log NAME`
    Log(String),
    /// `wait [NAME]`
    Wait(Option<String>),
    /// `await NAME TEXT...`
    Await {
        /// Which VM.
        name: String,
        /// The text to wait for.
        text: String,
    },
    /// `served NAME COUNT`
    Served {
        /// Which service.
        name: String,
        /// Until how many of its forks have ended.
        count: u64,
    },
    /// `lives COUNT LIKE [MILLISECONDS]`
    Lives {
        /// How many.
        count: u32,
        /// The VM whose kernel, ramdisks and parameters they get.
        like: String,
        /// The longest time that one runs, in milliseconds.
        most: u64,
    },
    /// `turnover COUNT FROM [MILLISECONDS]`
    Turnover {
        /// How many.
        count: u32,
        /// The frozen VM that each begins as.
        from: String,
        /// After how many milliseconds each is reset, and destroyed; none, if it answers a request first.
        after: Option<u64>,
    },
    /// `ask NAME COUNT SECONDS`
    Ask {
        /// What stands before the numbers of the VMs' names.
        name: String,
        /// How many requests each of them gets.
        count: u32,
        /// Within how many seconds.
        seconds: u64,
    },
    /// `shares [SECONDS]`
    Shares(u64),
    /// `uplink [RATE]`
    Uplink(Option<u64>),
    /// `merge [HUNDREDTHS]`
    Merge(Option<u32>),
    /// `measure [dirty-log|fork] [ROUNDS]`
    Measure(Course, u32),
    /// `count [NAME]`
    Count(Option<String>),
    /// `stacks`
    Stacks,
    /// `overflow [NAME]`
    Overflow(Option<String>),
    /// `serror NAME`
    SystemError(String),
    /// `sleep MILLISECONDS`
    Sleep(u64),
    /// `trace on [MIB]`
    TraceOn(u64),
    /// `trace print`
    TracePrint,
    /// `poweroff`
    PowerOff,
}

/// A command about VMs that are frozen, and those that begin as they were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forks {
    /// `vm freeze NAME`
    Freeze(String),
    /// `vm fork NAME FROM [COUNT] [PARAMETER]...`
    Fork {
        /// The name of the new VM; with a number behind it, where there are several.
        name: String,
        /// The VM that it begins as: one that is frozen, or runs.
        from: String,
        /// How many, if the user says so.
        count: Option<u32>,
        /// Parameters of the VM.
        parameters: Vec<String>,
    },
    /// `vm reset NAME`
    Reset(String),
    /// `vm serve NAME FROM [PARAMETER]...`
    Serve {
        /// The name of the service.
        name: String,
        /// The frozen VM that its forks begin as.
        from: String,
        /// Parameters of the service and of its forks.
        parameters: Vec<String>,
    },
}

/// The most VMs that one command forks.
pub const MOST_FORKS: u32 = MOST_VMS as u32;

/// The longest time that a VM of `lives` runs, in milliseconds, unless the user gives another.
const LONGEST_RUN: u64 = 50;

/// The seconds for which shares are measured, unless the user gives another number; and the most.
const SECONDS: u64 = 2;
const MOST_SECONDS: u64 = 3600;

/// The most requests that a VM gets.
const MOST_REQUESTS: u32 = 1000;

/// The MiB that a trace has room in, unless the user gives another number; and the most.
const TRACE: u64 = 8;
const LARGEST_TRACE: u64 = 1024;

/// What `help` prints.
pub const HELP: &str = "\
vm list                          the VMs and their states
vm stat [NAME]                   exits by reason, memory, CPU time
vm create NAME LIKE [PARAMETER]  a VM with the kernel and ramdisks of VM LIKE; vcpus=, memory=, overcommit=, reserve=,
                                 disk=, weight= and cap= change it, and '-- ARGUMENT...' gives its kernel other arguments
vm freeze NAME                   ends it, and keeps what it was, so that forks can begin as it was
vm fork NAME FROM [COUNT] [PARAMETER]
                                 a VM that goes on as the frozen VM FROM was, or as FROM is, which goes on, too; or COUNT of
                                 them, NAME-0 and so on; reserve=, overcommit=, weight= and cap= change it
vm serve NAME FROM ip=ADDRESS [PARAMETER]
                                 each TCP connection to port 80 of ADDRESS gets a fork of its own of FROM, until vm destroy
                                 NAME; port=, forks=, waiting=, half-open=, abandoned=, longest= and those of vm fork
vm reset NAME                    has a fork go on as its frozen VM was, again
vm balloon NAME SIZE             asks its guest to give back SIZE of its memory, as of balloon=yes; 0 asks for nothing
vm start NAME                    starts it; a fork goes on as its frozen VM was, again
vm stop NAME                     ends it, and waits until everything that it had is freed
vm kill NAME                     ends it, and does not wait
vm restart NAME                  stops it, and starts it again
vm destroy NAME                  stops it, and removes it
console NAME                     goes to its console; Ctrl-] returns to the monitor
log NAME                         prints the last 4 KiB that it has printed
wait [NAME]                      waits until it has stopped, or until all have
await NAME TEXT                  waits until it has printed TEXT
served NAME COUNT                waits until so many forks of the service NAME have ended, and none is left
type NAME TEXT                   types TEXT, and the end of a line, at its console
lives COUNT NAME [MILLISECONDS]  runs COUNT VMs like it, one after the other, and kills each at a random moment
turnover COUNT FROM [MILLISECONDS]
                                 makes COUNT forks of the frozen VM FROM, one after the other: each answers 'write 1' by 'wrote
                                 1,' or is reset after so long, and is destroyed; prints what that took, and what was lost
ask NAME COUNT SECONDS           types 'write 1' to 'write COUNT', at random moments within SECONDS, at each of the VMs
                                 NAME-0, NAME-1 and so on, and prints how long they took to answer 'wrote 1,' and so on
shares [SECONDS]                 prints what part of a CPU each VM has, in windows of 500 ms
uplink [RATE]                    prints what has come in and gone out; from now on RATE bytes a second come in at most
merge [HUNDREDTHS]               prints how much of a CPU the merger of pages takes at most; sets it
measure [dirty-log|fork] [ROUNDS]
                                 counts the instructions of each step in the lifecycles of a bare guest, of its dirty log, or of
                                 its forks
count [NAME]                     counts instructions from now on; with NAME, prints those since the last count as phase NAME
sleep MILLISECONDS               waits
stacks                           from now on, measures how deep the stacks of VMs' threads become; then prints the deepest
overflow [NAME]                  ends the program, for tests: a thread of the VM, or of an idle CPU, overflows its stack
serror NAME                      has the guest of its first vCPU take an SError, for tests
trace on [MIB]                   keeps what hardware sees of VMs' tables from now on, before any VM runs
trace print                      prints that, for mayfly check-trace, and stops
poweroff                         ends all VMs, prints whether anything was lost, and powers the machine off
Commands are separated by ';' in the boot arguments. Ctrl-C ends a wait; what is typed meanwhile is done afterwards.";

/// A rate of `uplink`.
fn rate_of(word: &str) -> Result<u64, &'static str> {
    bytes(word).ok_or("a rate is a number of bytes: 10M; 0 is no limit")
}

/// A part of a CPU of `merge`.
fn hundredths(word: &str) -> Result<u32, &'static str> {
    let part = word.parse().ok().filter(|part| *part <= 100);
    part.ok_or("merge takes hundredths of a CPU, 0 to 100")
}

impl Command {
    /// Reads a command.
    ///
    /// # Errors
    ///
    /// Why it is no command.
    pub fn read(line: &str) -> Result<Self, &'static str> {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { return Ok(Self::Nothing) };
        let second = words.next();
        let third = words.next();
        Ok(match (first, second) {
            ("help" | "?", _) => Self::Help,
            ("vm", Some("list") | None) => Self::List,
            ("vm", Some("stat")) => Self::Stat(third.map(ToString::to_string)),
            ("vm", Some("create")) => Self::Create {
                name: name(third)?,
                like: words
                    .next()
                    .filter(|word| *word != "--")
                    .ok_or("vm create needs the name of a VM to copy: try 'help'")?
                    .to_string(),
                parameters: words
                    .by_ref()
                    .take_while(|word| *word != "--")
                    .map(ToString::to_string)
                    .collect(),
                arguments: line.split_once(" -- ").map(|(_, words)| words.trim().to_string()),
            },
            ("vm", Some(what @ ("freeze" | "fork" | "serve" | "reset"))) => {
                Self::Forks(Forks::read(what, name(third)?, words)?)
            }
            ("vm", Some("balloon")) => Self::balloon(name(third)?, words.next())?,
            ("vm", Some("start")) => Self::Start(name(third)?),
            ("vm", Some("stop")) => Self::Stop(name(third)?),
            ("vm", Some("kill")) => Self::Kill(name(third)?),
            ("vm", Some("restart")) => Self::Restart(name(third)?),
            ("vm", Some("destroy")) => Self::Destroy(name(third)?),
            ("console", _) => Self::Console(name(second)?),
            ("log", _) => Self::Log(name(second)?),
            ("wait", _) => Self::Wait(second.map(ToString::to_string)),
            ("await", _) => {
                let name = name(second)?;
                let text =
                    behind(line, first, &name).ok_or("await needs a text: await NAME TEXT")?;
                Self::Await { name, text }
            }
            ("served", _) => {
                let count = third.and_then(|word| word.parse().ok());
                let count = count.ok_or("served needs a number of forks: served NAME COUNT")?;
                Self::Served { name: name(second)?, count }
            }
            ("type", _) => {
                let name = name(second)?;
                let text = behind(line, first, &name).unwrap_or_default();
                Self::Type { name, text }
            }
            ("turnover", count) => Self::turnover(count, third, words.next())?,
            ("ask", _) => Self::ask(name(second)?, third, words.next())?,
            ("lives", number) => {
                let count = number.and_then(|number| number.parse().ok());
                let count =
                    count.ok_or("lives needs a number of VMs: lives COUNT NAME [MILLISECONDS]")?;
                let most = words.next().map_or(Ok(LONGEST_RUN), str::parse);
                let most = most.map_err(
                    |_| "lives takes a number of milliseconds: lives COUNT NAME [MILLISECONDS]",
                )?;
                Self::Lives { count, like: name(third)?, most }
            }
            ("shares", seconds) => {
                let seconds = seconds.map_or(Ok(SECONDS), str::parse).ok();
                let seconds = seconds.filter(|seconds| (1..=MOST_SECONDS).contains(seconds));
                Self::Shares(seconds.ok_or("shares takes a number of seconds, 1 to 3600")?)
            }
            ("uplink", rate) => Self::Uplink(rate.map(rate_of).transpose()?),
            ("merge", part) => Self::Merge(part.map(hundredths).transpose()?),
            ("measure", what) => {
                let (course, rounds) = match what.and_then(Course::named) {
                    Some(course) => (course, third),
                    None => (Course::Lives, what),
                };
                let rounds = rounds.map_or(Ok(course.rounds()), str::parse).ok();
                let rounds = rounds.filter(|rounds| (1..=times::MOST_ROUNDS).contains(rounds));
                let rounds = rounds.ok_or("measure takes a number of rounds, 1 to 100")?;
                Self::Measure(course, rounds)
            }
            ("count", name) => Self::Count(name.map(ToString::to_string)),
            ("stacks", None) => Self::Stacks,
            ("overflow", name) => Self::Overflow(name.map(ToString::to_string)),
            ("serror", _) => Self::SystemError(name(second)?),
            ("sleep", number) => {
                let number = number.and_then(|number| number.parse().ok());
                Self::Sleep(number.ok_or("sleep needs a number of milliseconds: sleep 1000")?)
            }
            ("trace", Some("on")) => {
                let mib = third.map_or(Ok(TRACE), str::parse);
                let fits = mib.ok().filter(|mib| (1..=LARGEST_TRACE).contains(mib));
                Self::TraceOn(fits.ok_or("trace on takes 1 to 1024 MiB")?)
            }
            ("trace", Some("print")) => Self::TracePrint,
            ("trace", _) => return Err("trace needs one of two words: trace on, trace print"),
            ("poweroff", _) => Self::PowerOff,
            _ => return Err("there is no such command: try 'help'"),
        })
    }

    /// `vm balloon`, with what stands behind the name.
    fn balloon(name: String, size: Option<&str>) -> Result<Self, &'static str> {
        let bytes = size.and_then(bytes).ok_or("vm balloon needs a size: vm balloon NAME 256M")?;
        Ok(Self::Balloon { name, bytes })
    }

    /// `turnover`, with these words behind it.
    fn turnover(
        count: Option<&str>,
        from: Option<&str>,
        after: Option<&str>,
    ) -> Result<Self, &'static str> {
        let count = count.and_then(|count| count.parse().ok());
        let count = count.ok_or("turnover needs a number of forks: turnover COUNT FROM")?;
        let after = after.map(str::parse).transpose();
        let after = after.map_err(|_| "turnover takes a number of milliseconds")?;
        Ok(Self::Turnover { count, from: name(from)?, after })
    }

    /// `ask`, with what stands behind the name.
    fn ask(name: String, count: Option<&str>, seconds: Option<&str>) -> Result<Self, &'static str> {
        let count = count.and_then(|word| word.parse().ok());
        let count = count.filter(|count| (1..=MOST_REQUESTS).contains(count));
        let seconds = seconds.and_then(|word| word.parse().ok());
        let seconds = seconds.filter(|seconds| (1..=MOST_SECONDS).contains(seconds));
        let (count, seconds) = count
            .zip(seconds)
            .ok_or("ask needs numbers of requests and seconds: ask NAME COUNT SECONDS")?;
        Ok(Self::Ask { name, count, seconds })
    }

    /// The commands of boot arguments.
    pub fn script(arguments: &str) -> impl Iterator<Item = Result<Self, &'static str>> + '_ {
        arguments.split(';').map(Self::read)
    }
}

impl Forks {
    /// A command of a VM, with these words behind its name.
    fn read<'a>(
        what: &str,
        name: String,
        mut words: impl Iterator<Item = &'a str>,
    ) -> Result<Self, &'static str> {
        match what {
            "freeze" => return Ok(Self::Freeze(name)),
            "reset" => return Ok(Self::Reset(name)),
            _ => {}
        }
        let from = words.next().ok_or("the command needs the name of a frozen VM: try 'help'")?;
        let from = from.to_string();
        let mut words = words.peekable();
        if what == "serve" {
            let parameters = words.map(ToString::to_string).collect();
            return Ok(Self::Serve { name, from, parameters });
        }
        let count = match words.next_if(|word| !word.contains('=')) {
            Some(word) => {
                let count = word.parse().ok().filter(|count| (1..=MOST_FORKS).contains(count));
                Some(count.ok_or("vm fork takes a number of VMs, 1 to 2048")?)
            }
            None => None,
        };
        let parameters = words.map(ToString::to_string).collect();
        Ok(Self::Fork { name, from, count, parameters })
    }
}

/// The name that a word is.
fn name(word: Option<&str>) -> Result<String, &'static str> {
    word.map(ToString::to_string).ok_or("the command needs the name of a VM: try 'help'")
}

/// What stands behind two words of a line, if anything does.
fn behind(line: &str, first: &str, second: &str) -> Option<String> {
    let text = line.trim_start().strip_prefix(first)?.trim_start().strip_prefix(second)?.trim();
    (!text.is_empty()).then(|| text.to_string())
}

#[cfg(test)]
mod tests;
