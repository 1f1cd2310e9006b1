//! What `mayfly --help` says: the subcommands, and the flags of each.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

/// The subcommands of `mayfly`, and their flags.
#[derive(Clone, Debug)]
pub struct Help {
    subcommands: BTreeMap<String, BTreeSet<String>>,
    /// Those before a subcommand.
    flags: BTreeSet<String>,
}

impl Help {
    /// Builds `mayfly` in the repository at `root`, and asks it.
    ///
    /// # Errors
    /// `mayfly` cannot be built or run.
    pub fn build(root: &Path) -> io::Result<Help> {
        #[derive(Deserialize)]
        struct Message {
            executable: Option<PathBuf>,
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args([
                "build",
                "--quiet",
                "--package",
                "mayfly-cli",
                "--bin",
                "mayfly",
                "--message-format",
                "json",
            ])
            .current_dir(root)
            .output()?;
        let messages = String::from_utf8_lossy(&output.stdout).into_owned();
        let messages =
            messages.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
        match messages.filter_map(|message| message.executable).next_back() {
            Some(mayfly) => Help::of(&mayfly),
            None => Err(io::Error::other(format!(
                "cargo did not build mayfly: {}",
                String::from_utf8_lossy(&output.stderr)
            ))),
        }
    }

    /// Asks a `mayfly` that is built.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn of(mayfly: &Path) -> io::Result<Help> {
        let ask = |arguments: &[&str]| -> io::Result<String> {
            let output = Command::new(mayfly).args(arguments).arg("--help").output()?;
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let top = ask(&[])?;
        let subcommands = subcommands(&top).into_iter().map(|name| {
            let flags = all_flags(&ask, &[&name])?;
            Ok((name, flags))
        });
        Ok(Help { subcommands: subcommands.collect::<io::Result<_>>()?, flags: flags(&top) })
    }

    /// The flags of a subcommand, if there is one of this name.
    pub(super) fn subcommand(&self, name: &str) -> Option<&BTreeSet<String>> {
        self.subcommands.get(name)
    }

    /// Whether `mayfly` or any subcommand has the flag.
    pub(super) fn has_any(&self, flag: &str) -> bool {
        self.has(flag) || self.subcommands.values().any(|flags| flags.contains(flag))
    }

    /// Whether `mayfly` itself has the flag, before a subcommand.
    pub(super) fn has(&self, flag: &str) -> bool {
        self.flags.contains(flag)
    }
}

/// The flags of a subcommand, and of those below it.
fn all_flags(
    ask: &impl Fn(&[&str]) -> io::Result<String>,
    command: &[&str],
) -> io::Result<BTreeSet<String>> {
    let help = ask(command)?;
    let mut all = flags(&help);
    for name in subcommands(&help).iter().filter(|name| *name != "help") {
        all.extend(all_flags(ask, &[command, &[&**name]].concat())?);
    }
    Ok(all)
}

/// The first words under `Commands:`. Their descriptions are indented further.
fn subcommands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The flags at the beginnings of lines, as in `  -o, --output <FILE>`. Their descriptions are indented further.
fn flags(help: &str) -> BTreeSet<String> {
    let lines = help.lines().filter(|line| line.trim_start().starts_with('-'));
    let lines = lines.filter(|line| line.len() - line.trim_start().len() < 8);
    let words =
        lines.flat_map(|line| line.split_whitespace().take_while(|word| word.starts_with('-')));
    words.map(|word| word.split(['=', '[', ',']).next().unwrap_or(word).to_owned()).collect()
}
