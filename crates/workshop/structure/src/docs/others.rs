//! Names of other projects that pages have: files of the Linux kernel, say.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use crate::Fault;
use crate::manifest::{line_at, parse, text};

/// Where these names stand.
pub const FILE: &str = "docs/names-of-others.toml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    project: Vec<Project>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Project {
    name: String,
    names: Vec<Spanned<String>>,
}

/// The names of others, and which of them pages have.
pub(super) struct Others {
    written: Written,
    text: String,
    used: BTreeSet<String>,
}

impl Others {
    pub(super) fn read(root: &Path) -> Result<Others, Fault> {
        let path = Path::new(FILE);
        let text = text(root, path)?;
        Ok(Others { written: parse(path, &text)?, text, used: BTreeSet::new() })
    }

    /// Whether a name that a page has is another project's.
    pub(super) fn has(&mut self, name: &str) -> bool {
        let mut names = self.written.project.iter().flat_map(|project| &project.names);
        let has = names.any(|known| known.get_ref() == name);
        if has {
            self.used.insert(name.to_owned());
        }
        has
    }

    /// The names that no page has, or that are ours.
    pub(super) fn unused(&self) -> Vec<Fault> {
        let of_project = |project: &Project| {
            let unused = project.names.iter().filter(|name| !self.used.contains(name.get_ref()));
            let fault = |name: &Spanned<String>| {
                let line = line_at(&self.text, name.span().start);
                let what = format!(
                    "no page needs `{}` of {} to be listed: remove the entry",
                    name.get_ref(),
                    project.name
                );
                Fault::new(FILE, Some(line), what)
            };
            unused.map(fault).collect::<Vec<_>>()
        };
        self.written.project.iter().flat_map(of_project).collect()
    }
}
