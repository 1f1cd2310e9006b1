//! The files of each package, and which imports which.
//!
//! File `a.rs` imports file `b.rs` where a `use` or a path in `a.rs` stands for an item that `b.rs` defines. The check
//! follows re-exports to the definition. An associated item or a variant counts as the type that has it. These do not
//! count: a `mod` declaration, the re-export of an item by a module above it, test code, and links in documentation.
//!
//! The check reads the body of a macro as Rust where it is Rust, and else searches its tokens for paths. A method that is
//! called on a value names no path, so it does not count.

mod attributes;
mod circles;
mod code;
mod imports;
mod items;
mod modules;
mod names;
mod read;
mod resolve;
mod targets;
mod tokens;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::{Fault, Findings};
use names::{FileId, Item, Package};
use resolve::Meaning;

/// The most files that may import each other in a circle.
const MOST_FILES: usize = 8;

/// The packages whose circles must each stay within one folder.
const WITHIN_A_FOLDER: [&str; 2] = ["lab", "hypervisor"];

/// The imports between two files: each item, and the line that first names it.
type Items = BTreeMap<String, usize>;

/// The graph of one package.
#[derive(Debug)]
pub struct Graph {
    /// The folder of the package.
    pub name: String,
    /// The files, relative to the repository's root.
    pub files: Vec<PathBuf>,
    edges: BTreeMap<(FileId, FileId), Items>,
    /// Paths that begin in the package and name nothing that was found.
    unknown: Vec<Fault>,
}

/// The graph of every package under `crates/*/*`, or of the one whose folder has this name.
///
/// # Errors
/// A file that cannot be read, or is no Rust.
pub fn graphs(root: &Path, only: Option<&str>) -> Result<Vec<Graph>, Fault> {
    let sources = targets::sources(root)?;
    if let Some(name) = only
        && !sources.iter().any(|source| source.name == name)
    {
        return Err(Fault::new("crates", None, format!("there is no crate `{name}`")));
    }
    let wanted = sources.iter().filter(|source| only.is_none_or(|name| source.name == name));
    wanted
        .map(|source| Ok(Graph::new(source.name.clone(), read::package(root, &source.targets)?)))
        .collect()
}

/// Prints every circle, and finds those that are too large or cross a folder.
///
/// # Errors
/// A file that cannot be read, or is no Rust.
pub fn check(root: &Path, only: Option<&str>) -> Result<Findings, Fault> {
    let mut findings = Findings::default();
    for graph in graphs(root, only)? {
        for circle in graph.circles() {
            findings.text.push_str(&graph.describe(&circle));
            findings.faults.extend(graph.faults(&circle));
        }
        findings.faults.extend(graph.unknown);
    }
    Ok(findings)
}

impl Graph {
    fn new(name: String, package: Package) -> Graph {
        let mut graph =
            Graph { name, files: Vec::new(), edges: BTreeMap::new(), unknown: Vec::new() };
        for (index, import) in package.imports.iter().enumerate() {
            let file = package.scopes[import.scope].file;
            let meanings = package.imported(index);
            if meanings.is_empty() {
                graph.unknown(&package, file, import.line, &import.path.segments);
            }
            // A module and an item may have one name. Paths tell then which of them is used.
            let names_a_module = meanings.iter().any(|of| matches!(of, Meaning::Module(_)));
            for item in items(meanings).filter(|_| !names_a_module) {
                // A module that re-exports what a module below it defines does not need that for itself.
                let module = package.module(import.scope);
                if !(import.public && package.is_below(item.scope, module)) {
                    graph.edge(file, item, import.line);
                }
            }
        }
        for reference in &package.references {
            let file = package.scopes[reference.scope].file;
            let meanings = package.meanings(reference);
            if meanings.is_empty() && reference.path.segments.len() > 1 {
                graph.unknown(&package, file, reference.line, &reference.path.segments);
            }
            for item in items(meanings) {
                graph.edge(file, item, reference.line);
            }
        }
        graph.files = package.files;
        graph
    }

    fn edge(&mut self, from: FileId, to: Item, line: usize) {
        if from != to.file {
            let first =
                self.edges.entry((from, to.file)).or_default().entry(to.name).or_insert(line);
            *first = line.min(*first);
        }
    }

    fn unknown(&mut self, package: &Package, file: FileId, line: usize, segments: &[String]) {
        let what = format!("`{}` names nothing that this check finds", segments.join("::"));
        self.unknown.push(Fault::new(&package.files[file], Some(line), what));
    }

    /// Whether a file imports another, each named by its path relative to the repository's root.
    pub fn imports(&self, from: &str, to: &str) -> bool {
        let id = |path: &str| self.files.iter().position(|file| file == Path::new(path));
        match (id(from), id(to)) {
            (Some(from), Some(to)) => self.edges.contains_key(&(from, to)),
            _ => false,
        }
    }

    /// The circles: sets of two files or more that all import each other, directly or by way of others. Largest first.
    pub fn circles(&self) -> Vec<Vec<FileId>> {
        let mut circles = circles::find(self.files.len(), self.edges.keys().copied());
        for circle in &mut circles {
            circle.sort_by_key(|file| &self.files[*file]);
        }
        circles
            .sort_by_key(|circle| (std::cmp::Reverse(circle.len()), self.files[circle[0]].clone()));
        circles
    }

    /// The circle's files, and the imports between them.
    fn describe(&self, circle: &[FileId]) -> String {
        let mut text = format!("{}: {} files in a circle\n", self.name, circle.len());
        for (&(from, to), items) in &self.edges {
            if circle.contains(&from) && circle.contains(&to) {
                let items: Vec<String> =
                    items.iter().map(|(item, line)| format!("{item}:{line}")).collect();
                let (from, to) = (self.files[from].display(), self.files[to].display());
                let _ = writeln!(text, "    {from} -> {to} ({})", items.join(", "));
            }
        }
        text
    }

    fn faults(&self, circle: &[FileId]) -> Vec<Fault> {
        let files: Vec<&Path> = circle.iter().map(|file| self.files[*file].as_path()).collect();
        let mut faults = Vec::new();
        if files.len() > MOST_FILES {
            faults.push(Fault::new(
                files[0],
                None,
                format!(
                    "is in a circle of {} files, and {MOST_FILES} are allowed: cut it where the fewest items are imported",
                    files.len()
                ),
            ));
        }
        if WITHIN_A_FOLDER.contains(&self.name.as_str()) && !circles::in_one_folder(&files) {
            faults.push(Fault::new(
                files[0],
                None,
                format!("is in a circle that crosses a folder, which none in {} may", self.name),
            ));
        }
        faults
    }
}

/// The items among what a path stands for.
fn items(meanings: Vec<Meaning>) -> impl Iterator<Item = Item> {
    meanings.into_iter().filter_map(|meaning| match meaning {
        Meaning::Item(item) => Some(item),
        Meaning::Module(_) | Meaning::Outside => None,
    })
}
