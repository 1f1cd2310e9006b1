//! The monitor's commands, as they are typed, or stand in the boot arguments.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// What is asked of the monitor.
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
    /// `vm create NAME LIKE [PARAMETER]...`
    Create {
        /// What it is to be named.
        name: String,
        /// Whose kernel and ramdisks it has.
        like: String,
        /// Its own parameters.
        parameters: Vec<String>,
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
    /// `sleep MILLISECONDS`
    Sleep(u64),
    /// `poweroff`
    PowerOff,
}

/// What there is, for `help`.
pub const HELP: &str = "\
vm list                          VMs, and what they are at
vm stat [NAME]                   exits by reason, memory, processor time
vm create NAME LIKE [PARAMETER]  a VM with the kernel and ramdisks of another: vcpus=, memory=, disk=
vm start NAME                    has it begin
vm stop NAME                     ends it, and waits until all that it had is back
vm kill NAME                     ends it, and does not wait
vm restart NAME                  stops it, and has it begin anew
vm destroy NAME                  stops it, and forgets it
console NAME                     its console; Ctrl-] comes back here
log NAME                         the last that it has said
wait [NAME]                      until it, or all, have ended
sleep MILLISECONDS               waits
poweroff                         ends all VMs, says whether anything was lost, and ends the machine
Commands are separated by ';' in the boot arguments.";

impl Command {
    /// Reads a command.
    ///
    /// # Errors
    ///
    /// Says what it could have been.
    pub fn read(line: &str) -> Result<Self, &'static str> {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { return Ok(Self::Nothing) };
        let second = words.next();
        let third = words.next();
        let name =
            |word: Option<&str>| word.map(ToString::to_string).ok_or("a VM is named: try 'help'");
        Ok(match (first, second) {
            ("help" | "?", _) => Self::Help,
            ("vm", Some("list") | None) => Self::List,
            ("vm", Some("stat")) => Self::Stat(third.map(ToString::to_string)),
            ("vm", Some("create")) => Self::Create {
                name: name(third)?,
                like: words.next().ok_or("a VM is created like another: try 'help'")?.to_string(),
                parameters: words.map(ToString::to_string).collect(),
            },
            ("vm", Some("start")) => Self::Start(name(third)?),
            ("vm", Some("stop")) => Self::Stop(name(third)?),
            ("vm", Some("kill")) => Self::Kill(name(third)?),
            ("vm", Some("restart")) => Self::Restart(name(third)?),
            ("vm", Some("destroy")) => Self::Destroy(name(third)?),
            ("console", _) => Self::Console(name(second)?),
            ("log", _) => Self::Log(name(second)?),
            ("wait", _) => Self::Wait(second.map(ToString::to_string)),
            ("sleep", Some(number)) => {
                Self::Sleep(number.parse().map_err(|_| "sleep takes a number of milliseconds")?)
            }
            ("poweroff", _) => Self::PowerOff,
            _ => return Err("there is no such command: try 'help'"),
        })
    }

    /// The commands of boot arguments.
    pub fn script(arguments: &str) -> impl Iterator<Item = Result<Self, &'static str>> + '_ {
        arguments.split(';').map(Self::read)
    }
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
        let expected = Command::Create { name, like, parameters };
        assert_eq!(Command::read("vm create b a vcpus=2"), Ok(expected));
        assert!(Command::read("vm create b").is_err());
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for line in ["vm frobnicate", "vm start", "sleep x", "sleep", "reboot"] {
            assert!(Command::read(line).is_err(), "{line}");
        }
    }

    #[test]
    fn every_command_is_helped_with() {
        for line in HELP.lines().filter(|line| !line.starts_with("Commands")) {
            let words: Vec<&str> = line.split("  ").next().unwrap().split(' ').collect();
            let plain: Vec<&str> =
                words.iter().map(|word| if *word == "MILLISECONDS" { "1" } else { word }).collect();
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
