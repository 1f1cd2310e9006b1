//! Names that begin with `mayfly-`: crates, and their binaries.

use std::collections::BTreeSet;

use super::missing::Missing;
use super::page::Snippet;
use crate::manifest::Manifest;

/// The names of all crates and of their binaries.
pub(super) struct Crates(BTreeSet<String>);

impl Crates {
    pub(super) fn new(manifests: &[Manifest]) -> Crates {
        let of_one = |manifest: &Manifest| {
            let binaries = manifest.binaries.iter().filter_map(|target| target.name.clone());
            binaries.chain([manifest.package.clone()]).collect::<Vec<_>>()
        };
        Crates(manifests.iter().flat_map(of_one).collect())
    }

    /// The names in a snippet that are not there.
    pub(super) fn missing(&self, snippet: &Snippet) -> Vec<Missing> {
        let in_line = |(line, text): &(usize, String)| -> Vec<(usize, String)> {
            names(text).into_iter().map(|name| (*line, name)).collect()
        };
        let named = snippet.lines.iter().flat_map(in_line);
        named
            .filter(|(_, name)| !self.0.contains(name))
            .map(|(line, name)| {
                let what = format!(
                    "`{name}` is no crate and no binary of this repository: correct the name"
                );
                Missing { line, name, what }
            })
            .collect()
    }
}

/// The words that begin with `mayfly-`, and crates at the beginning of a path, as `mayfly_vm::Vm`, without names of files, as `mayfly-trace.json`, and placeholders, as `mayfly-PID`.
fn names(text: &str) -> Vec<String> {
    let is_part = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '-' | '_' | '.');
    let words = text.split(|sign| !is_part(sign)).map(|word| word.trim_end_matches(['.', '-']));
    let words = words.map(|word| word.strip_suffix(".workspace").unwrap_or(word));
    let words =
        words.filter(|word| word.strip_prefix("mayfly-").is_some_and(|rest| !rest.is_empty()));
    let words =
        words.filter(|word| !word.contains(|sign: char| sign == '.' || sign.is_ascii_uppercase()));
    let paths = text.split("::").filter(|before| before.len() < text.len());
    let paths = paths.filter_map(|before| {
        let first = before.rsplit(|sign| !is_part(sign)).next()?;
        first.starts_with("mayfly_").then(|| first.replace('_', "-"))
    });
    words.map(str::to_owned).chain(paths).collect()
}
