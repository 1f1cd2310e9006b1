//! What a manifest depends on, of every section that it has.

use std::path::{Component, Path, PathBuf};

use crate::manifest::{self, Manifest, Section};

/// One dependency.
#[derive(Debug)]
pub(super) struct Dependency {
    /// The name of the section, as it is written.
    pub(super) section: String,
    /// Whether tests, examples and benchmarks alone have it.
    pub(super) dev: bool,
    /// The name by which code imports it.
    pub(super) key: String,
    pub(super) line: usize,
    pub(super) source: Source,
}

/// Where a dependency comes from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A folder, relative to the repository's root.
    Path(PathBuf),
    /// A package by its name, from a registry or from elsewhere.
    Package(String),
}

/// Every dependency of a package. `shared` is what packages inherit from the manifest at the repository's root.
pub(super) fn of(manifest: &Manifest, shared: &Section) -> Vec<Dependency> {
    let mut found = Vec::new();
    let of_targets = manifest.targets.iter();
    let of_targets = of_targets.map(|(target, sections)| (format!("target.'{target}'."), sections));
    for (prefix, sections) in of_targets.chain([(String::new(), &manifest.sections)]) {
        for (name, section, dev) in [
            ("dependencies", &sections.dependencies, false),
            ("build-dependencies", &sections.build, false),
            ("dev-dependencies", &sections.dev, true),
        ] {
            found.extend(section.iter().map(|(key, written)| Dependency {
                section: format!("[{prefix}{name}]"),
                dev,
                key: key.get_ref().clone(),
                line: manifest::line_at(&manifest.text, key.span().start),
                source: source(key.get_ref(), written, manifest.folder(), shared),
            }));
        }
    }
    found
}

/// Where a dependency of a manifest in `folder` comes from.
fn source(key: &str, written: &manifest::Dependency, folder: &Path, shared: &Section) -> Source {
    let (written, folder) = match written {
        manifest::Dependency::Detailed { workspace: true, .. } => {
            let inherited = shared.iter().find(|(shared, _)| shared.get_ref() == key);
            (inherited.map_or(written, |(_, inherited)| inherited), Path::new(""))
        }
        _ => (written, folder),
    };
    match written {
        manifest::Dependency::Detailed { path: Some(path), .. } => {
            Source::Path(normal(&folder.join(path)))
        }
        manifest::Dependency::Detailed { package: Some(package), .. } => {
            Source::Package(package.clone())
        }
        _ => Source::Package(key.to_owned()),
    }
}

/// The path without `.` and `..`. What leads out of the repository begins with `..` still.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir if normal.file_name().is_some() => {
                normal.pop();
            }
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}
