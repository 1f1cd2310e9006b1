//! The commands in a code span or a code block, as a shell would see them.

use super::page::Snippet;

/// A program and its arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) line: usize,
    /// Never empty.
    pub(super) words: Vec<String>,
}

/// Every command of a snippet. Lines of output look like commands, too: a check looks at the programs that it knows.
pub(super) fn of(snippet: &Snippet) -> Vec<Command> {
    if !snippet.is_shell {
        return Vec::new();
    }
    joined(&snippet.lines).iter().flat_map(|(line, text)| split(*line, text)).collect()
}

/// Lines, with those that continue another joined to it: after `\`, or where a list of options goes on.
fn joined(lines: &[(usize, String)]) -> Vec<(usize, String)> {
    let mut joined: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (line, text) in lines {
        let begins = text.trim_start();
        let goes_on = open || begins.starts_with("[-") || begins.starts_with("--");
        open = text.trim_end().ends_with('\\');
        let text = text.trim().trim_end_matches('\\').trim_end();
        match joined.last_mut().filter(|_| goes_on) {
            Some((_, command)) => {
                command.push(' ');
                command.push_str(text);
            }
            None => joined.push((*line, text.to_owned())),
        }
    }
    joined
}

/// The commands of one line. A comment, or a gap of two spaces, as before what a column says of a command, ends it.
fn split(line: usize, text: &str) -> Vec<Command> {
    let mut commands = Vec::new();
    let mut words = Vec::new();
    for word in words_of(text) {
        if matches!(word.as_str(), "&&" | "||" | "|" | ";" | "&") {
            commands.push(std::mem::take(&mut words));
        } else if let Some(last) = word.strip_suffix(';') {
            words.push(last.to_owned());
            commands.push(std::mem::take(&mut words));
        } else {
            words.push(word);
        }
    }
    commands.push(words);
    let commands = commands
        .into_iter()
        .map(|words| words.into_iter().skip_while(|word| is_before(word)).collect());
    let commands = commands.filter(|words: &Vec<String>| !words.is_empty());
    commands.map(|words| Command { line, words }).collect()
}

/// Whether a word may stand before a program: a prompt, `sudo`, a variable of the environment.
fn is_before(word: &str) -> bool {
    let is_variable = word.split_once('=').is_some_and(|(name, _)| is_variable(name));
    matches!(word, "$" | "#" | "sudo" | "time" | "env") || is_variable
}

/// Whether a word is the name of a variable.
pub(super) fn is_variable(name: &str) -> bool {
    let all =
        name.chars().all(|sign| sign.is_ascii_uppercase() || sign.is_ascii_digit() || sign == '_');
    all && name.starts_with(|sign: char| sign.is_ascii_uppercase())
}

/// The words of a line, up to a comment or a gap. Quotes hold a word together, where they are closed.
pub(super) fn words_of(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut rest = text.trim_start();
    while let Some(sign) = rest.chars().next() {
        rest = &rest[sign.len_utf8()..];
        match sign {
            '\'' | '"' if rest.contains(sign) => {
                let (quoted, after) = rest.split_once(sign).unwrap_or((rest, ""));
                word.push_str(quoted);
                rest = after;
            }
            ' ' | '\t' => {
                words.push(std::mem::take(&mut word));
                if rest.starts_with([' ', '\t', '#']) {
                    return words;
                }
            }
            sign => word.push(sign),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}
