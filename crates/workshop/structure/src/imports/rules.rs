//! The rule file: which folder, and which crate of a folder, may import which.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use crate::Fault;
use crate::manifest;

/// Where the rules stand.
pub const FILE: &str = "crates/imports.toml";

/// A crate, by the folder that it is in and its name in that.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) folder: String,
    pub(super) name: String,
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.folder, self.name)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    folders: BTreeMap<String, Vec<String>>,
    crates: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    #[serde(default)]
    exception: Vec<Spanned<Exception>>,
}

/// What a dev-dependency may import beyond the rules.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exception {
    #[serde(rename = "crate")]
    pub(super) importer: String,
    pub(super) imports: String,
    pub(super) why: String,
}

/// The rules.
#[derive(Debug)]
pub(super) struct Rules {
    written: Written,
    text: String,
}

impl Rules {
    pub(super) fn read(root: &Path) -> Result<Rules, Fault> {
        let path = Path::new(FILE);
        let text = manifest::text(root, path)?;
        let written = manifest::parse(path, &text)?;
        Ok(Rules { written, text })
    }

    /// Whether a rule names the crate.
    pub(super) fn knows(&self, name: &Name) -> bool {
        self.written.folders.contains_key(&name.folder)
            && self.written.crates.get(&name.folder).is_some_and(|of| of.contains_key(&name.name))
    }

    /// Whether a crate may import another.
    pub(super) fn allows(&self, importer: &Name, other: &Name) -> bool {
        if importer.folder == other.folder {
            return self.below(importer).contains(&other.name);
        }
        let folders = self.written.folders.get(&importer.folder);
        folders.into_iter().flatten().any(|of| *of == other.folder || *of == other.to_string())
    }

    /// The exceptions, and the line of each.
    pub(super) fn exceptions(&self) -> impl Iterator<Item = (&Exception, usize)> {
        let line = |of: &Spanned<Exception>| manifest::line_at(&self.text, of.span().start);
        self.written.exception.iter().map(move |of| (of.get_ref(), line(of)))
    }

    /// The exception that lets the dev-dependencies of a crate import another, as an index into [`Self::exceptions`].
    pub(super) fn exception(&self, importer: &Name, other: &Name) -> Option<usize> {
        self.written.exception.iter().position(|of| {
            let Exception { importer: from, imports: to, .. } = of.get_ref();
            *from == importer.to_string() && *to == other.to_string()
        })
    }

    /// The crates of its own folder that a crate may import, directly or by way of others.
    fn below(&self, importer: &Name) -> BTreeSet<String> {
        let mut below = BTreeSet::new();
        let Some(of_folder) = self.written.crates.get(&importer.folder) else { return below };
        let mut open = vec![&importer.name];
        while let Some(name) = open.pop() {
            for next in of_folder.get(name).into_iter().flatten() {
                if below.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        below
    }

    /// What is wrong with the rules themselves, where these are the crates.
    pub(super) fn faults(&self, crates: &[Name]) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut fault = |what: String| faults.push(Fault::new(FILE, None, what));
        let exists = |folder: &str, name: &str| {
            crates.iter().any(|known| known.folder == folder && known.name == name)
        };
        let Written { folders, crates: rules, exception } = &self.written;
        for (folder, others) in folders {
            if !rules.contains_key(folder) {
                fault(format!(
                    "[folders] names {folder}, and there is no [crates.{folder}]: add it"
                ));
            }
            for other in others {
                let known = match other.split_once('/') {
                    Some((folder, name)) => exists(folder, name),
                    None => folders.contains_key(other),
                };
                if !known {
                    fault(format!(
                        "[folders] lets {folder} import {other}, which is not there: remove it"
                    ));
                }
            }
        }
        for (folder, of_folder) in rules {
            if !folders.contains_key(folder) {
                fault(format!("[crates.{folder}] is no folder of [folders]: add it there"));
            }
            for (name, imports) in of_folder {
                for name in
                    std::iter::once(name).chain(imports).filter(|name| !exists(folder, name))
                {
                    fault(format!(
                        "[crates.{folder}] names {name}, and there is no crates/{folder}/{name}: remove it"
                    ));
                }
                let name = Name { folder: folder.clone(), name: name.clone() };
                if self.below(&name).contains(&name.name) {
                    fault(format!(
                        "lets {name} import itself by way of others: the crates of a folder need an order"
                    ));
                }
            }
        }
        for exception in exception {
            if exception.get_ref().why.trim().is_empty() {
                let line = manifest::line_at(&self.text, exception.span().start);
                faults.push(Fault::new(
                    FILE,
                    Some(line),
                    "is an exception without a reason: write it after `why`",
                ));
            }
        }
        faults
    }
}
