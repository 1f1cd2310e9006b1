//! Reads the files of a package into scopes, imports and references. Reading begins at the root of each library and
//! binary, follows `mod` declarations, and leaves test code out.

use std::fs;
use std::path::Path;

use super::attributes;
use super::code::{Code, Found};
use super::modules::Location;
use super::names::{Package, Place};
use super::targets::Target;
use crate::Fault;

/// Reads every target of a package. Paths in the result are relative to `root`.
pub(super) fn package(root: &Path, targets: &[Target]) -> Result<Package, Fault> {
    let mut package = Package::default();
    for target in targets {
        let id = package.file(target.file.clone());
        let scope = package.add_scope(id, Place::Root);
        if let Some(name) = &target.library {
            package.library = Some((name.clone(), scope));
        }
        let mut unread = vec![Found { scope, at: Location::of_root(root, &target.file) }];
        while let Some(module) = unread.pop() {
            unread.extend(file(&mut package, module)?);
        }
    }
    Ok(package)
}

/// Reads one file as the contents of a module. Returns the modules that it declares in files of their own.
fn file(package: &mut Package, module: Found) -> Result<Vec<Found>, Fault> {
    let path = &module.at.file;
    let text = fs::read_to_string(module.at.root.join(path))
        .map_err(|error| Fault::new(path, None, format!("cannot be read: {error}")))?;
    let file = syn::parse_file(&text).map_err(|error| {
        let line = error.span().start().line;
        Fault::new(path, Some(line), format!("cannot be parsed as Rust: {error}"))
    })?;
    if attributes::is_test(&file.attrs) {
        return Ok(Vec::new());
    }
    Code::new(package, module).read(&file.items)
}
