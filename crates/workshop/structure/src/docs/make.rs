//! The Makefile: its targets, and the variables that a user may set.

use std::collections::BTreeSet;
use std::path::Path;

use super::commands::{Command, is_variable};
use super::missing::Missing;
use crate::Fault;
use crate::manifest::text;

/// What `make` knows.
pub(super) struct Makefile {
    targets: BTreeSet<String>,
    /// Every word of capitals: some variables only reach programs that a target runs.
    variables: BTreeSet<String>,
}

impl Makefile {
    pub(super) fn read(root: &Path) -> Result<Makefile, Fault> {
        let text = text(root, Path::new("Makefile"))?;
        let rules = text.lines().filter(|line| !line.starts_with(['\t', '#', '.', ' ']));
        let rules = rules.filter_map(|line| {
            let (targets, rest) = line.split_once(':')?;
            (!rest.starts_with('=') && !targets.contains('=')).then_some(targets)
        });
        let targets = rules.flat_map(str::split_whitespace).map(str::to_owned).collect();
        let words = text.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_');
        let variables = words.filter(|word| is_variable(word)).map(str::to_owned).collect();
        Ok(Makefile { targets, variables })
    }

    /// The targets and variables of commands that are not there.
    pub(super) fn missing(&self, commands: &[Command]) -> Vec<Missing> {
        let makes = commands.iter().filter(|command| command.words[0] == "make");
        makes
            .flat_map(|command| {
                command.words[1..].iter().filter_map(|word| self.word(command.line, word))
            })
            .collect()
    }

    fn word(&self, line: usize, word: &str) -> Option<Missing> {
        if let Some((name, _)) = word.split_once('=') {
            return (is_variable(name) && !self.variables.contains(name)).then(|| Missing {
                line,
                name: format!("make {name}="),
                what: format!("sets `{name}` for make, and the Makefile has no such variable: correct the name"),
            });
        }
        let word = word.trim_matches(|sign| matches!(sign, '[' | ']' | ',' | '.'));
        let is_target = word.starts_with(|sign: char| sign.is_ascii_lowercase())
            && word.chars().all(|sign| sign.is_ascii_alphanumeric() || sign == '-');
        (is_target && !self.targets.contains(word)).then(|| Missing {
            line,
            name: format!("make {word}"),
            what: format!(
                "`make {word}` is no target of the Makefile: correct the name, or add the target"
            ),
        })
    }
}
