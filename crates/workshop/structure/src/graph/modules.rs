//! Which file holds the contents of `mod name;`.

use std::path::{Component, Path, PathBuf};

use super::attributes;
use crate::Fault;

/// A file that is read, and where the files of its modules are.
#[derive(Clone, Debug)]
pub(super) struct Location {
    /// The repository's root. The other paths are relative to it.
    pub(super) root: PathBuf,
    pub(super) file: PathBuf,
    /// The directory of the modules that are declared here.
    pub(super) directory: PathBuf,
    /// Whether the declaration stands in an inline module of the file.
    pub(super) inline: bool,
}

impl Location {
    /// The root file of a library or a binary. Its modules lie beside it.
    pub(super) fn of_root(root: &Path, file: &Path) -> Location {
        let directory = folder(file);
        Location { root: root.to_path_buf(), file: file.to_path_buf(), directory, inline: false }
    }

    /// Inside of the inline module `mod name { … }`.
    pub(super) fn inside(&self, module: &syn::ItemMod) -> Location {
        let name =
            attributes::path(&module.attrs).unwrap_or_else(|| super::names::plain(&module.ident));
        Location { directory: self.directory.join(name), inline: true, ..self.clone() }
    }

    /// Where the contents of `mod name;` are.
    pub(super) fn of(&self, module: &syn::ItemMod) -> Result<Location, Fault> {
        let name = super::names::plain(&module.ident);
        let (file, directory) = if let Some(path) = attributes::path(&module.attrs) {
            // Outside of inline modules such a path is relative to the file.
            let base = if self.inline { self.directory.clone() } else { folder(&self.file) };
            let file = normal(&base.join(path));
            let directory = folder(&file);
            (file, directory)
        } else {
            let flat = self.directory.join(format!("{name}.rs"));
            let nested = self.directory.join(&name).join("mod.rs");
            let found = [flat, nested].into_iter().find(|path| self.root.join(path).is_file());
            let Some(file) = found else {
                let line = module.ident.span().start().line;
                let directory = self.directory.display();
                let what = format!(
                    "`mod {name};` has no file: add {directory}/{name}.rs, or remove the declaration"
                );
                return Err(Fault::new(&self.file, Some(line), what));
            };
            (file, self.directory.join(name))
        };
        Ok(Location { root: self.root.clone(), file, directory, inline: false })
    }
}

fn folder(file: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).to_path_buf()
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}
