//! Paths of the repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::missing::Missing;
use super::page::Snippet;
use crate::Fault;

/// Folders at the repository's root. A path that begins with one of them is meant from the root.
const FOLDERS: [&str; 5] = [".ci", "crates", "docs", "packaging", "scripts"];

/// Folders of a crate. A path that begins with one of them is meant from a crate, which the text around names.
const OF_CRATES: [&str; 5] = ["benches", "examples", "litmus", "src", "tests"];

/// What names of files with source or text end in.
const ENDINGS: [&str; 19] = [
    "S", "c", "cat", "cfg", "css", "h", "html", "js", "json", "litmus", "md", "py", "rs", "rst",
    "sh", "svg", "toml", "txt", "yml",
];

/// The files and folders of the repository, but for those that are built.
pub(super) struct Tree {
    files: BTreeSet<PathBuf>,
    folders: BTreeSet<PathBuf>,
}

impl Tree {
    pub(super) fn read(root: &Path) -> Result<Tree, Fault> {
        let mut tree = Tree { files: BTreeSet::new(), folders: BTreeSet::new() };
        let mut open = vec![PathBuf::new()];
        while let Some(folder) = open.pop() {
            let entries = fs::read_dir(root.join(&folder))
                .map_err(|error| Fault::new(&folder, None, format!("cannot be listed: {error}")))?;
            for entry in entries.flatten() {
                let path = folder.join(entry.file_name());
                if [".git", "target"].iter().any(|built| path == Path::new(built)) {
                    continue;
                }
                if entry.path().is_dir() {
                    open.push(path.clone());
                    tree.folders.insert(path);
                } else {
                    tree.files.insert(path);
                }
            }
        }
        Ok(tree)
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.iter()
    }

    /// Whether a path from the root is a file or a folder.
    pub(super) fn has(&self, path: &Path) -> bool {
        path.as_os_str().is_empty() || self.files.contains(path) || self.folders.contains(path)
    }

    /// The paths in a snippet that are not there. A path may be meant from the folder of the page.
    pub(super) fn missing(&self, snippet: &Snippet, folder: &Path) -> Vec<Missing> {
        let mut missing = Vec::new();
        for (line, text) in &snippet.lines {
            for word in words(text).filter(|word| is_path(word)) {
                if !self.is_there(word, folder) {
                    let what = format!(
                        "`{word}` is no file or folder of this repository: correct the path, or list it in {} with the \
                         project that it belongs to",
                        super::OTHERS
                    );
                    missing.push(Missing { line: *line, name: word.to_owned(), what });
                }
            }
        }
        missing
    }

    fn is_there(&self, word: &str, folder: &Path) -> bool {
        let from_root = FOLDERS.contains(&word.split('/').next().unwrap_or(""));
        let mut all = self.files.iter().chain(&self.folders);
        if word.contains('*') {
            return all.any(|path| matches(&path.to_string_lossy(), word, !from_root));
        }
        let Some(from_page) = normal(&folder.join(word)) else { return false };
        let from_crate = !from_root && all.any(|path| path.ends_with(word.trim_end_matches('/')));
        self.has(Path::new(word.trim_end_matches('/'))) || self.has(&from_page) || from_crate
    }
}

/// The path without `.` and `..`, or `None` where it leads out of the repository.
pub(super) fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                if !normal.pop() {
                    return None;
                }
            }
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    Some(normal)
}

/// Whether a path is what a word with `*` describes. One that is meant from a crate may begin anywhere.
fn matches(path: &str, word: &str, anywhere: bool) -> bool {
    let (path, word): (Vec<&str>, Vec<&str>) =
        (path.split('/').collect(), word.split('/').collect());
    let Some(skipped) = path.len().checked_sub(word.len()) else { return false };
    (skipped == 0 || anywhere)
        && path[skipped..].iter().zip(word).all(|(part, word)| part_matches(part, word))
}

/// Whether a part of a path is what a part with `*` describes.
fn part_matches(part: &str, word: &str) -> bool {
    match word.split_once('*') {
        None => part == word,
        Some((before, after)) => part.strip_prefix(before).is_some_and(|rest| {
            let ends = (0..=rest.len()).filter(|end| rest.is_char_boundary(*end));
            ends.into_iter().any(|end| part_matches(&rest[end..], after))
        }),
    }
}

/// The words of a line that may be paths, without the signs around them and the line number after them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|sign: char| sign.is_whitespace() || "()[]{}<>\"'`,;|=".contains(sign));
    words.map(|word| {
        let word = word.trim_end_matches(['.', ':', '?', '!']);
        let (path, line) = word.split_once(':').unwrap_or((word, ""));
        let path = if line.chars().all(|sign| sign.is_ascii_digit() || sign == ':' || sign == '-') {
            path
        } else {
            word
        };
        path.strip_prefix("./").unwrap_or(path)
    })
}

/// Whether a word looks like a path of this repository, or of another one.
fn is_path(word: &str) -> bool {
    let is_part = |sign: char| sign.is_ascii_alphanumeric() || "._*/-+".contains(sign);
    let parts: Vec<&str> = word.split('/').collect();
    let is_placeholder =
        |part: &&str| part.chars().all(|sign| sign.is_ascii_uppercase()) || part.contains("...");
    if parts.len() < 2 || !word.chars().all(is_part) || parts[0].is_empty() || parts[0] == "target"
    {
        return false;
    }
    if parts.iter().filter(|part| !part.is_empty()).any(is_placeholder) {
        return false;
    }
    let ending = parts[parts.len() - 1].rsplit_once('.').map(|(_, ending)| ending);
    FOLDERS.contains(&parts[0])
        || OF_CRATES.contains(&parts[0])
        || ending.is_some_and(|ending| ENDINGS.contains(&ending))
}
