//! Subcommands and flags of `mayfly`.

use super::commands::{Command, words_of};
use super::help::Help;
use super::missing::Missing;

/// Targets of the Makefile that pass `ARGS` on to `mayfly run`.
const PASS_ON: [&str; 2] = ["run", "metal-run"];

/// The subcommands and flags of commands that are not there.
pub(super) fn missing(commands: &[Command], help: &Help) -> Vec<Missing> {
    commands.iter().flat_map(|command| of_command(command, help)).collect()
}

fn of_command(command: &Command, help: &Help) -> Vec<Missing> {
    let Command { line, words } = command;
    if words[0] == "mayfly" || words[0].ends_with("/mayfly") {
        return arguments(*line, &words[1..], help);
    }
    if words[0] == "make" && words.iter().any(|word| PASS_ON.contains(&word.as_str())) {
        let passed_on = words.iter().filter_map(|word| word.strip_prefix("ARGS="));
        return passed_on
            .flat_map(|arguments| {
                let mut words = words_of(arguments);
                words.insert(0, "run".to_owned());
                self::arguments(*line, &words, help)
            })
            .collect();
    }
    // A flag alone is one of `mayfly`'s, whichever subcommand a page speaks of, or stands in the list of others' names.
    match flag(plain(&words[0])) {
        Some(name) if name.starts_with("--") && !help.has_any(name) => {
            let what = format!(
                "`{name}`: no subcommand's --help names this flag: correct it, or name its program"
            );
            vec![Missing { line: *line, name: name.to_owned(), what }]
        }
        _ => Vec::new(),
    }
}

fn arguments(line: usize, words: &[String], help: &Help) -> Vec<Missing> {
    // What follows `--` is another program.
    let words = words.iter().take_while(|word| *word != "--").map(|word| plain(word));
    let mut subcommand = None;
    let mut missing = Vec::new();
    for word in words {
        if let Some(flag) = flag(word) {
            let (is_there, name) = match subcommand {
                Some((name, flags)) => {
                    let flags: &std::collections::BTreeSet<String> = flags;
                    (flags.contains(flag), format!("mayfly {name} {flag}"))
                }
                None => (help.has(flag), format!("mayfly {flag}")),
            };
            if !is_there {
                let what =
                    format!("`{name}`: --help names no such flag: correct the name, or remove it");
                missing.push(Missing { line, name, what });
            }
        } else if subcommand.is_none() {
            if !is_name(word) {
                break;
            }
            let Some(flags) = help.subcommand(word) else {
                let name = format!("mayfly {word}");
                let what = format!(
                    "`{name}`: --help names no such subcommand: correct the name, or remove it"
                );
                missing.push(Missing { line, name, what });
                break;
            };
            subcommand = Some((word, flags));
        }
    }
    missing
}

/// The word without the brackets of a synopsis: `[--full]`, `[--fail-if THRESHOLD]...`.
fn plain(word: &str) -> &str {
    word.trim_matches(|sign| matches!(sign, '[' | ']' | '(' | ')' | ',' | '.' | '…'))
}

/// The flag that a word is, without its value.
fn flag(word: &str) -> Option<&str> {
    let flag = word.split(['=', '[']).next()?;
    let name = flag.strip_prefix("--").or_else(|| flag.strip_prefix('-'))?;
    name.starts_with(|sign: char| sign.is_ascii_alphabetic()).then_some(flag)
}

/// Whether a word may name a subcommand, and is no placeholder.
fn is_name(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|sign| sign.is_ascii_lowercase() || sign == '-')
}
