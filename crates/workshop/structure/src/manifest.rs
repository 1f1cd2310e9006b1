//! The manifests of the packages under `crates/*/*`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::Spanned;

use crate::Fault;

/// The manifest of one package.
#[derive(Debug)]
pub(crate) struct Manifest {
    /// Relative to the repository's root.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// The name of the package.
    pub(crate) package: String,
    pub(crate) library: Option<Target>,
    pub(crate) binaries: Vec<Target>,
    /// What it depends on wherever it is built.
    pub(crate) sections: Sections,
    /// What it depends on where it is built for a target, by the target's name or `cfg`.
    pub(crate) targets: BTreeMap<String, Sections>,
}

/// A library or a binary, as far as the manifest describes it.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: Option<String>,
    pub(crate) path: Option<PathBuf>,
}

/// The sections that list dependencies. Cargo takes `_` for `-` in their names.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Sections {
    pub(crate) dependencies: Section,
    #[serde(rename = "dev-dependencies", alias = "dev_dependencies")]
    pub(crate) dev: Section,
    #[serde(rename = "build-dependencies", alias = "build_dependencies")]
    pub(crate) build: Section,
}

/// Dependencies, by the names by which code imports them.
pub(crate) type Section = BTreeMap<Spanned<String>, Dependency>;

/// A dependency, as it is written.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Dependency {
    /// A version of what has the name.
    Version(#[expect(dead_code, reason = "no rule is about versions")] String),
    Detailed {
        path: Option<PathBuf>,
        package: Option<String>,
        #[serde(default)]
        workspace: bool,
    },
}

#[derive(Deserialize)]
struct Written {
    package: Package,
    lib: Option<Target>,
    #[serde(default)]
    bin: Vec<Target>,
    #[serde(default)]
    target: BTreeMap<String, Sections>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
}

impl Manifest {
    fn read(root: &Path, path: PathBuf) -> Result<Manifest, Fault> {
        let text = text(root, &path)?;
        let written: Written = parse(&path, &text)?;
        Ok(Manifest {
            package: written.package.name,
            library: written.lib,
            binaries: written.bin,
            sections: parse(&path, &text)?,
            targets: written.target,
            path,
            text,
        })
    }

    /// The folder of the package, relative to the repository's root.
    pub(crate) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// The last part of [`Self::folder`].
    pub(crate) fn name(&self) -> String {
        self.folder().file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// The manifests below `crates` that are not at `crates/FOLDER/CRATE`.
pub(crate) fn misplaced(root: &Path) -> Result<Vec<PathBuf>, Fault> {
    let mut found = Vec::new();
    let mut open = vec![(PathBuf::from("crates"), 0)];
    while let Some((directory, depth)) = open.pop() {
        let manifest = directory.join("Cargo.toml");
        if depth != 2 && root.join(&manifest).is_file() {
            found.push(manifest);
        }
        let below =
            directories(root, &directory)?.into_iter().filter(|path| !path.ends_with("target"));
        open.extend(below.map(|path| (path, depth + 1)));
    }
    found.sort();
    Ok(found)
}

/// What the manifest at the root says of dependencies that packages inherit.
pub(crate) fn shared(root: &Path) -> Result<Section, Fault> {
    #[derive(Deserialize)]
    struct Written {
        workspace: Workspace,
    }
    #[derive(Deserialize)]
    struct Workspace {
        #[serde(default)]
        dependencies: Section,
    }
    let path = Path::new("Cargo.toml");
    let written: Written = parse(path, &text(root, path)?)?;
    Ok(written.workspace.dependencies)
}

/// What a file of TOML says.
pub(crate) fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Fault> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| line_at(text, span.start));
        Fault::new(path, line, format!("cannot be read: {}", error.message()))
    })
}

/// The text of a file, by its path relative to the root.
pub(crate) fn text(root: &Path, path: &Path) -> Result<String, Fault> {
    fs::read_to_string(root.join(path))
        .map_err(|error| Fault::new(path, None, format!("cannot be read: {error}")))
}

/// The manifest of every package, by path.
pub(crate) fn all(root: &Path) -> Result<Vec<Manifest>, Fault> {
    let mut manifests = Vec::new();
    for folder in directories(root, Path::new("crates"))? {
        for package in directories(root, &folder)? {
            let path = package.join("Cargo.toml");
            if root.join(&path).is_file() {
                manifests.push(Manifest::read(root, path)?);
            }
        }
    }
    Ok(manifests)
}

/// The line of a byte of a text, from 1.
pub(crate) fn line_at(text: &str, byte: usize) -> usize {
    text.bytes().take(byte).filter(|byte| *byte == b'\n').count() + 1
}

/// The directories in a directory, by name.
fn directories(root: &Path, path: &Path) -> Result<Vec<PathBuf>, Fault> {
    let entries = fs::read_dir(root.join(path))
        .map_err(|error| Fault::new(path, None, format!("cannot be listed: {error}")))?;
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .map(|entry| path.join(entry.file_name()))
        .collect();
    found.sort();
    Ok(found)
}
