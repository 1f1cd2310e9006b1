//! Names in the documentation: what a page tells a reader to run or to open is there.
//!
//! In README.md, CONTRIBUTING.md, the pages of `docs` and the READMEs under `crates`, these are looked up:
//!
//! - `make TARGET` and `make TARGET VARIABLE=...`, in the Makefile,
//! - `mayfly SUBCOMMAND --flag`, in the help of the command that is built from this repository,
//! - `mayfly-*`, among the crates and their binaries,
//! - paths, and links with their anchors, among the files of the repository.
//!
//! Names are searched in code spans and code blocks. A name that belongs to another project stands in [`OTHERS`].

mod commands;
mod crates;
mod help;
mod links;
mod make;
mod mayfly;
mod missing;
mod others;
mod page;
mod paths;

use std::path::{Path, PathBuf};

use crate::{Fault, Findings, manifest};
use crates::Crates;
use make::Makefile;
use missing::Missing;
use others::Others;
use page::Page;
use paths::Tree;

pub use help::Help;
pub use others::FILE as OTHERS;

/// The most characters that README.md may have, so that a reader is through it in some minutes.
pub const README_CHARACTERS: usize = 9_000;

/// Finds names that are not there, names of others that no page has, and a README that is too long.
///
/// # Errors
/// A page, a manifest, the Makefile or the list of others' names that cannot be read.
pub fn check(root: &Path, help: &Help) -> Result<Findings, Fault> {
    let makefile = Makefile::read(root)?;
    let crates = Crates::new(&manifest::all(root)?);
    let tree = Tree::read(root)?;
    let mut others = Others::read(root)?;
    let pages: Vec<Page> =
        pages(&tree).into_iter().map(|path| Page::read(root, path)).collect::<Result<_, _>>()?;

    let mut faults = Vec::new();
    for page in &pages {
        faults.extend(length(page));
        let mut missing = links::missing(root, page, &pages, &tree);
        for snippet in &page.snippets {
            let commands = commands::of(snippet);
            missing.extend(makefile.missing(&commands));
            missing.extend(mayfly::missing(&commands, help));
            missing.extend(crates.missing(snippet));
            missing.extend(tree.missing(snippet, page.folder()));
        }
        missing.sort();
        missing.dedup();
        missing.retain(|one| !others.has(&one.name));
        let fault = |Missing { line, what, .. }| Fault::new(&page.path, Some(line), what);
        faults.extend(missing.into_iter().map(fault));
    }
    faults.extend(others.unused());
    Ok(Findings { text: String::new(), faults })
}

/// The pages that are checked.
fn pages(tree: &Tree) -> Vec<PathBuf> {
    let is_page = |path: &&PathBuf| {
        let is_readme = path.ends_with("README.md");
        path.extension().is_some_and(|of| of == "md")
            && (path.starts_with("docs")
                || path.starts_with("crates") && is_readme
                || path.as_path() == Path::new("README.md")
                || path.as_path() == Path::new("CONTRIBUTING.md"))
    };
    tree.files().filter(is_page).cloned().collect()
}

fn length(page: &Page) -> Option<Fault> {
    let is_long = page.path == Path::new("README.md") && page.characters > README_CHARACTERS;
    is_long.then(|| {
        let what = format!(
            "has {} characters, and {README_CHARACTERS} are the most: move what only some readers need to docs/",
            page.characters
        );
        Fault::new(&page.path, None, what)
    })
}
