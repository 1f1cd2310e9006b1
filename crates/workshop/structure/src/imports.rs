//! Which crate imports which, held against the rules in `crates/imports.toml`.
//!
//! Every dependency section of every manifest counts: dependencies, dev-dependencies and build-dependencies, and those of
//! a target. A dependency counts under another name and by a path, too. A dev-dependency may break a rule where an
//! exception is listed.

mod dependencies;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::manifest::{self, Manifest};
use crate::{Fault, Findings};
use dependencies::{Dependency, Source};
use rules::{Name, Rules};

pub use rules::FILE as RULES;

/// Finds imports that the rules do not allow, crates that no rule names, and exceptions that nothing needs.
///
/// # Errors
/// A manifest, or the rule file, that cannot be read, or is no TOML.
pub fn check(root: &Path) -> Result<Findings, Fault> {
    let shared = manifest::shared(root)?;
    let manifests = manifest::all(root)?;
    let rules = Rules::read(root)?;
    let crates = Crates::new(&manifests);

    let names: Vec<Name> = manifests.iter().map(name).collect();
    let mut faults = rules.faults(&names);
    let mut excepted = BTreeSet::new();
    for (manifest, importer) in manifests.iter().zip(&names) {
        if !rules.knows(importer) {
            let what = format!("is named by no rule: add {importer} to {RULES}");
            faults.push(Fault::new(&manifest.path, None, what));
        }
        for dependency in dependencies::of(manifest, &shared) {
            let what = match crates.find(&dependency) {
                Ok(None) => continue,
                Ok(Some(other)) if other == importer || rules.allows(importer, other) => continue,
                Ok(Some(other)) => {
                    match rules.exception(importer, other).filter(|_| dependency.dev) {
                        Some(exception) => {
                            excepted.insert(exception);
                            continue;
                        }
                        None => not_allowed(importer, other, &dependency),
                    }
                }
                Err(what) => what,
            };
            faults.push(Fault::new(&manifest.path, Some(dependency.line), what));
        }
    }
    for path in manifest::misplaced(root)? {
        let what = "is not at crates/FOLDER/CRATE, where rules can name it: move it there";
        faults.push(Fault::new(path, None, what));
    }
    for (index, (exception, line)) in rules.exceptions().enumerate() {
        if !excepted.contains(&index) {
            let (importer, imports) = (&exception.importer, &exception.imports);
            let what = format!(
                "no dev-dependency needs the exception that lets {importer} import {imports}: remove it"
            );
            faults.push(Fault::new(RULES, Some(line), what));
        }
    }
    Ok(Findings { text: String::new(), faults })
}

fn not_allowed(importer: &Name, other: &Name, dependency: &Dependency) -> String {
    let Dependency { section, key, dev, .. } = dependency;
    let or = if *dev { ", or list an exception there with its reason" } else { "" };
    format!(
        "{section} has `{key}`, and {RULES} does not let {importer} import {other}: move what both need into a crate \
         that both may import{or}"
    )
}

fn name(manifest: &Manifest) -> Name {
    let folder = manifest.folder().parent().and_then(Path::file_name).unwrap_or_default();
    Name { folder: folder.to_string_lossy().into_owned(), name: manifest.name() }
}

/// The crates of the repository, by folder and by name of their package.
struct Crates {
    folders: BTreeMap<PathBuf, Name>,
    packages: BTreeMap<String, Name>,
}

impl Crates {
    fn new(manifests: &[Manifest]) -> Crates {
        let folders = manifests.iter().map(|of| (of.folder().to_path_buf(), name(of))).collect();
        let packages = manifests.iter().map(|of| (of.package.clone(), name(of))).collect();
        Crates { folders, packages }
    }

    /// The crate that a dependency is, or `None` where it is another project's.
    fn find(&self, dependency: &Dependency) -> Result<Option<&Name>, String> {
        match &dependency.source {
            Source::Package(package) => Ok(self.packages.get(package)),
            Source::Path(path) => self.folders.get(path).map(Some).ok_or_else(|| {
                let (section, key, path) = (&dependency.section, &dependency.key, path.display());
                format!("{section} has `{key}` from {path}, which is no crate under crates/*/*: no rule can name it")
            }),
        }
    }
}
