//! A repository in a temporary directory.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// A repository with these files, each given by its path and its text.
pub(crate) fn repository(files: &[(&str, &str)]) -> TempDir {
    let root = TempDir::new().unwrap();
    for (path, text) in files {
        write(root.path(), path, text);
    }
    root
}

/// Writes one more file, or another text of one.
pub(crate) fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}
