//! The packages of the repository, and the file at the root of each library and binary.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Fault;
use crate::manifest::{self, Manifest};

/// A package under `crates/*/*`.
#[derive(Debug)]
pub(super) struct Source {
    /// The name of its folder.
    pub(super) name: String,
    pub(super) targets: Vec<Target>,
}

/// A library or a binary.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) file: PathBuf,
    /// The name by which the package's other targets import it, for a library.
    pub(super) library: Option<String>,
}

/// Every package, by path.
pub(super) fn sources(root: &Path) -> Result<Vec<Source>, Fault> {
    Ok(manifest::all(root)?.iter().map(|manifest| source(root, manifest)).collect())
}

fn source(root: &Path, manifest: &Manifest) -> Source {
    let folder = manifest.folder();
    let at = |target: &manifest::Target| target.path.as_ref().map(|path| folder.join(path));
    let mut targets = Vec::new();

    let library = manifest.library.as_ref();
    let file = library.and_then(at).unwrap_or_else(|| folder.join("src/lib.rs"));
    if root.join(&file).is_file() {
        let name = library.and_then(|target| target.name.as_ref()).unwrap_or(&manifest.package);
        let name = name.replace('-', "_");
        targets.push(Target { file, library: Some(name) });
    }

    let mut binaries = vec![folder.join("src/main.rs")];
    binaries.extend(manifest.binaries.iter().filter_map(at));
    if let Ok(entries) = fs::read_dir(root.join(folder).join("src/bin")) {
        for entry in entries.flatten() {
            let path = folder.join("src/bin").join(entry.file_name());
            let is_file = path.extension().is_some_and(|of| of == "rs");
            binaries.push(if is_file { path } else { path.join("main.rs") });
        }
    }
    binaries.sort();
    binaries.dedup();
    binaries.retain(|file| root.join(file).is_file());
    targets.extend(binaries.into_iter().map(|file| Target { file, library: None }));
    Source { name: manifest.name(), targets }
}
