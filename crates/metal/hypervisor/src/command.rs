//! The monitor's commands, as the user types them, or writes them in the boot arguments.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use mayfly_lifecycle_steps::times;

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
    /// `vm freeze`, `vm fork`, `vm reset`
    Forks(Forks),
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
    /// `lives COUNT LIKE [MILLISECONDS]`
    Lives {
        /// How many.
        count: u32,
        /// The VM whose kernel, ramdisks and parameters they get.
        like: String,
        /// The longest time that one runs, in milliseconds.
        most: u64,
    },
    /// `shares [SECONDS]`
    Shares(u64),
    /// `uplink [RATE]`
    Uplink(Option<u64>),
    /// `measure [ROUNDS]`
    Measure(u32),
    /// `overflow [NAME]`
    Overflow(Option<String>),
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
        /// The frozen VM that it begins as.
        from: String,
        /// How many, if the user says so.
        count: Option<u32>,
        /// Parameters of the VM.
        parameters: Vec<String>,
    },
    /// `vm reset NAME`
    Reset(String),
}

/// The most VMs that one command forks.
const MOST_FORKS: u32 = 4096;

/// The longest time that a VM of `lives` runs, in milliseconds, unless the user gives another.
const LONGEST_RUN: u64 = 50;

/// The seconds for which shares are measured, unless the user gives another number; and the most.
const SECONDS: u64 = 2;
const MOST_SECONDS: u64 = 3600;

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
                                 a VM that goes on as the frozen VM FROM was, or COUNT of them, NAME-0 and so on; reserve=,
                                 overcommit=, weight= and cap= change it
vm reset NAME                    has a fork go on as its frozen VM was, again
vm start NAME                    starts it; a fork goes on as its frozen VM was, again
vm stop NAME                     ends it, and waits until everything that it had is freed
vm kill NAME                     ends it, and does not wait
vm restart NAME                  stops it, and starts it again
vm destroy NAME                  stops it, and removes it
console NAME                     goes to its console; Ctrl-] returns to the monitor
log NAME                         prints the last 4 KiB that it has printed
wait [NAME]                      waits until it has stopped, or until all have
await NAME TEXT                  waits until it has printed TEXT
type NAME TEXT                   types TEXT, and the end of a line, at its console
lives COUNT NAME [MILLISECONDS]  runs COUNT VMs like it, one after the other, and kills each at a random moment
shares [SECONDS]                 prints what part of a CPU each VM has, in windows of 500 ms
uplink [RATE]                    prints what has come in and gone out; from now on RATE bytes a second come in at most
measure [ROUNDS]                 counts the instructions of each step in the lifecycles of a bare guest
sleep MILLISECONDS               waits
overflow [NAME]                  ends the program, for tests: a thread of the VM, or of an idle CPU, overflows its stack
trace on [MIB]                   keeps what hardware sees of VMs' tables from now on, before any VM runs
trace print                      prints that, for mayfly check-trace, and stops
poweroff                         ends all VMs, prints whether anything was lost, and powers the machine off
Commands are separated by ';' in the boot arguments.";

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
        let name = |word: Option<&str>| {
            word.map(ToString::to_string).ok_or("the command needs the name of a VM: try 'help'")
        };
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
            ("vm", Some("freeze")) => Self::Forks(Forks::Freeze(name(third)?)),
            ("vm", Some("fork")) => {
                let name = name(third)?;
                let from =
                    words.next().ok_or("vm fork needs the name of a frozen VM: try 'help'")?;
                Self::Forks(Forks::fork(name, from, words)?)
            }
            ("vm", Some("reset")) => Self::Forks(Forks::Reset(name(third)?)),
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
            ("type", _) => {
                let name = name(second)?;
                let text = behind(line, first, &name).unwrap_or_default();
                Self::Type { name, text }
            }
            ("lives", Some(number)) => {
                let count = number
                    .parse()
                    .map_err(|_| "lives needs a number of VMs: lives COUNT NAME [MILLISECONDS]")?;
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
            ("uplink", None) => Self::Uplink(None),
            ("uplink", Some(rate)) => {
                let rate = bytes(rate).ok_or("a rate is a number of bytes: 10M; 0 is no limit");
                Self::Uplink(Some(rate?))
            }
            ("measure", rounds) => {
                let rounds = rounds.map_or(Ok(times::ROUNDS), str::parse).ok();
                let rounds = rounds.filter(|rounds| (1..=times::MOST_ROUNDS).contains(rounds));
                Self::Measure(rounds.ok_or("measure takes a number of rounds, 1 to 100")?)
            }
            ("overflow", name) => Self::Overflow(name.map(ToString::to_string)),
            ("sleep", Some(number)) => {
                Self::Sleep(number.parse().map_err(|_| "sleep takes a number of milliseconds")?)
            }
            ("trace", Some("on")) => {
                let mib = third.map_or(Ok(TRACE), str::parse);
                let fits = mib.ok().filter(|mib| (1..=LARGEST_TRACE).contains(mib));
                Self::TraceOn(fits.ok_or("trace on takes 1 to 1024 MiB")?)
            }
            ("trace", Some("print")) => Self::TracePrint,
            ("poweroff", _) => Self::PowerOff,
            _ => return Err("there is no such command: try 'help'"),
        })
    }

    /// The commands of boot arguments.
    pub fn script(arguments: &str) -> impl Iterator<Item = Result<Self, &'static str>> + '_ {
        arguments.split(';').map(Self::read)
    }
}

impl Forks {
    /// `vm fork` with these words behind the names.
    fn fork<'a>(
        name: String,
        from: &str,
        words: impl Iterator<Item = &'a str>,
    ) -> Result<Self, &'static str> {
        let mut words = words.peekable();
        let count = match words.next_if(|word| !word.contains('=')) {
            Some(word) => {
                let count = word.parse().ok().filter(|count| (1..=MOST_FORKS).contains(count));
                Some(count.ok_or("vm fork takes a number of VMs, 1 to 4096")?)
            }
            None => None,
        };
        let parameters = words.map(ToString::to_string).collect();
        Ok(Self::Fork { name, from: from.to_string(), count, parameters })
    }
}

/// What stands behind two words of a line, if anything does.
fn behind(line: &str, first: &str, second: &str) -> Option<String> {
    let text = line.trim_start().strip_prefix(first)?.trim_start().strip_prefix(second)?.trim();
    (!text.is_empty()).then(|| text.to_string())
}

#[cfg(test)]
mod tests {
    use std::vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn boot_arguments_are_commands() {
        let commands: Vec<_> = Command::script("wait vm0; vm stat vm0 ;poweroff").collect();
        let name = || "vm0".to_string();
        assert_eq!(
            commands,
            [
                Ok(Command::Wait(Some(name()))),
                Ok(Command::Stat(Some(name()))),
                Ok(Command::PowerOff)
            ]
        );
        assert_eq!(Command::script("").next(), Some(Ok(Command::Nothing)));
    }

    #[test]
    fn a_vm_is_created_like_another() {
        let (name, like) = ("b".to_string(), "a".to_string());
        let parameters = vec!["vcpus=2".to_string()];
        let created = |arguments| {
            let (name, like, parameters) = (name.clone(), like.clone(), parameters.clone());
            Ok(Command::Create { name, like, parameters, arguments })
        };
        assert_eq!(Command::read("vm create b a vcpus=2"), created(None));
        let arguments = Some("console=ttyAMA0  quiet".to_string());
        let typed = "vm create b a vcpus=2 -- console=ttyAMA0  quiet ";
        assert_eq!(Command::read(typed), created(arguments));
        assert_eq!(Command::read("vm create b a vcpus=2 -- "), created(Some(String::new())));
        assert!(Command::read("vm create b").is_err());
        assert!(Command::read("vm create b -- quiet").is_err());
    }

    #[test]
    fn a_vm_is_forked_from_a_frozen_one() {
        let forked = |count, parameters: &[&str]| {
            let parameters = parameters.iter().map(ToString::to_string).collect();
            let (name, from) = ("b".to_string(), "a".to_string());
            Ok(Command::Forks(Forks::Fork { name, from, count, parameters }))
        };
        assert_eq!(
            Command::read("vm freeze a"),
            Ok(Command::Forks(Forks::Freeze("a".to_string())))
        );
        assert_eq!(Command::read("vm reset a"), Ok(Command::Forks(Forks::Reset("a".to_string()))));
        assert_eq!(Command::read("vm fork b a"), forked(None, &[]));
        assert_eq!(Command::read("vm fork b a 1000"), forked(Some(1000), &[]));
        assert_eq!(Command::read("vm fork b a weight=2"), forked(None, &["weight=2"]));
        let both = forked(Some(2), &["overcommit=yes", "cap=5"]);
        assert_eq!(Command::read("vm fork b a 2 overcommit=yes cap=5"), both);
        for line in [
            "vm freeze",
            "vm fork",
            "vm fork b",
            "vm fork b a 0",
            "vm fork b a -1",
            "vm fork b a 4097",
        ] {
            assert!(Command::read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn what_is_awaited_is_taken_as_it_stands() {
        let expected = |name: &str, text: &str| {
            Ok(Command::Await { name: name.to_string(), text: text.to_string() })
        };
        assert_eq!(Command::read("await a in user  space"), expected("a", "in user  space"));
        assert_eq!(Command::read(" await await await "), expected("await", "await"));
        assert!(Command::read("await a").is_err());
        let typed =
            |text: &str| Ok(Command::Type { name: "a".to_string(), text: text.to_string() });
        assert_eq!(Command::read("type a echo  1 "), typed("echo  1"));
        assert_eq!(Command::read("type a"), typed(""));
        assert!(Command::read("type").is_err());
        assert!(Command::read("await").is_err());
    }

    #[test]
    fn lives_are_counted_and_bounded() {
        let expected = |count, most| Ok(Command::Lives { count, like: "a".to_string(), most });
        assert_eq!(Command::read("lives 1000 a"), expected(1000, LONGEST_RUN));
        assert_eq!(Command::read("lives 50 a 400"), expected(50, 400));
        for line in
            ["lives", "lives a", "lives 5", "lives -1 a", "lives 5 a b", "lives 5000000000 a"]
        {
            assert!(Command::read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn what_is_measured_is_measured_in_rounds() {
        assert_eq!(Command::read("measure"), Ok(Command::Measure(times::ROUNDS)));
        assert_eq!(Command::read("measure 7"), Ok(Command::Measure(7)));
        for line in ["measure 0", "measure 101", "measure x", "measure -1"] {
            assert!(Command::read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn shares_are_measured_for_seconds() {
        assert_eq!(Command::read("shares"), Ok(Command::Shares(SECONDS)));
        assert_eq!(Command::read("shares 7"), Ok(Command::Shares(7)));
        assert_eq!(Command::read("uplink"), Ok(Command::Uplink(None)));
        assert_eq!(Command::read("uplink 2M"), Ok(Command::Uplink(Some(2 << 20))));
        assert_eq!(Command::read("uplink 0"), Ok(Command::Uplink(Some(0))));
        assert!(Command::read("uplink fast").is_err());
        for line in ["shares 0", "shares 3601", "shares x", "shares -1"] {
            assert!(Command::read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_trace_has_room_that_is_bounded() {
        assert_eq!(Command::read("trace on"), Ok(Command::TraceOn(TRACE)));
        assert_eq!(Command::read("trace on 1024"), Ok(Command::TraceOn(LARGEST_TRACE)));
        assert_eq!(Command::read("trace print"), Ok(Command::TracePrint));
        for line in ["trace", "trace off", "trace on 0", "trace on 1025", "trace on x"] {
            assert!(Command::read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_stack_is_overflowed_of_a_vm_or_of_an_idle_processor() {
        assert_eq!(Command::read("overflow"), Ok(Command::Overflow(None)));
        assert_eq!(Command::read("overflow a"), Ok(Command::Overflow(Some("a".to_string()))));
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for line in ["vm frobnicate", "vm start", "sleep x", "sleep", "reboot"] {
            assert!(Command::read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn every_command_is_helped_with() {
        let is_command =
            |line: &&str| !line.starts_with(char::is_uppercase) && !line.starts_with(' ');
        for line in HELP.lines().filter(is_command) {
            let is_number = |word: &str| {
                word.contains("MILLISECONDS")
                    || matches!(
                        word,
                        "COUNT" | "[COUNT]" | "[ROUNDS]" | "[MIB]" | "[SECONDS]" | "[RATE]"
                    )
            };
            let words: Vec<&str> = line.split("  ").next().unwrap().split(' ').collect();
            let plain: Vec<&str> =
                words.iter().map(|word| if is_number(word) { "1" } else { word }).collect();
            assert!(Command::read(&plain.join(" ")).is_ok(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in ".{0,80}") {
            let _ = Command::read(&line);
        }
    }
}
