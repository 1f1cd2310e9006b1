//! Writing a record.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::document::Record;

/// A record could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct WriteError {
    path: PathBuf,
    source: io::Error,
}

impl Record {
    /// The document, indented, with a final newline.
    ///
    /// # Panics
    ///
    /// Never: every map of a record has strings for keys, and no number of it is without a JSON form.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a record has a JSON form");
        text.push('\n');
        text
    }

    /// Writes the record to a file, whole or not at all: what stood there stays until the new text is on
    /// disk. A path that is not a regular file, such as a pipe, is written to as it is.
    ///
    /// # Errors
    ///
    /// The file cannot be written; the message names it.
    pub fn write(&self, path: &Path) -> Result<(), WriteError> {
        let write = || match Destination::of(path)? {
            Destination::File(file) => replace(&file, self.to_json().as_bytes()),
            Destination::Stream => {
                File::options().write(true).open(path)?.write_all(self.to_json().as_bytes())
            }
        };
        write().map_err(|source| WriteError { path: path.into(), source })
    }
}

/// Finds out before a long run whether its record can be written to `path`, and leaves nothing behind.
///
/// # Errors
///
/// What [`Record::write`] would fail with, as far as can be known now.
pub fn check_writable(path: &Path) -> Result<(), WriteError> {
    let check = || match Destination::of(path)? {
        Destination::File(file) => {
            let temporary = temporary(&file)?;
            File::create_new(&temporary)?;
            fs::remove_file(&temporary)
        }
        Destination::Stream => Ok(()),
    };
    check().map_err(|source| WriteError { path: path.into(), source })
}

/// Where the text of a record goes.
enum Destination {
    /// A regular file, there or not yet; symbolic links are followed, so that the link stays.
    File(PathBuf),
    /// A pipe or a device: renaming a file over it would destroy it.
    Stream,
}

impl Destination {
    fn of(path: &Path) -> io::Result<Self> {
        match fs::metadata(path) {
            Ok(meta) if meta.is_file() => Ok(Self::File(fs::canonicalize(path)?)),
            Ok(meta) if meta.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            Ok(_) => Ok(Self::Stream),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::not_there(path),
            Err(error) => Err(error),
        }
    }

    /// A file that is still to be made. A path that ends in a slash or a dot can only be a directory's.
    fn not_there(path: &Path) -> io::Result<Self> {
        if let Ok(target) = fs::read_link(path) {
            // Links in a circle have been refused with another error.
            return Self::of(&path.with_file_name(target));
        }
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.as_encoded_bytes();
        if !path.as_os_str().as_encoded_bytes().ends_with(name) {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self::File(path.into()))
    }
}

/// Replaces a file's content in one step. Who may read it stays as it was.
fn replace(file: &Path, text: &[u8]) -> io::Result<()> {
    let temporary = temporary(file)?;
    let written = File::create_new(&temporary)
        .and_then(|mut new| {
            if let Ok(old) = fs::metadata(file) {
                new.set_permissions(old.permissions())?;
            }
            new.write_all(text).and_then(|()| new.sync_all())
        })
        .and_then(|()| fs::rename(&temporary, file));
    if written.is_err() {
        // Best effort: the error worth telling is the one that led here.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// A name beside the file, since only within one file system is renaming atomic.
fn temporary(file: &Path) -> io::Result<PathBuf> {
    let name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.tmp", std::process::id()));
    Ok(file.with_file_name(hidden))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::host::Host;

    /// A directory of a test's own, gone at its end.
    struct Directory(PathBuf);

    impl Directory {
        fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("mayfly-{test}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn entries(&self) -> usize {
            fs::read_dir(&self.0).unwrap().count()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn record() -> Record {
        Record::new(Host::default(), Vec::new())
    }

    #[test]
    fn a_written_record_replaces_the_old_file_and_leaves_nothing_beside_it() {
        let directory = Directory::new("replace");
        let path = directory.0.join("r.json");
        fs::write(&path, "older and much longer".repeat(1000)).unwrap();
        record().write(&path).unwrap();
        assert_eq!(Record::read(&path).unwrap(), record());
        assert_eq!(directory.entries(), 1);
    }

    #[test]
    fn a_file_that_only_its_owner_may_read_stays_so() {
        let directory = Directory::new("mode");
        let path = directory.0.join("r.json");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        record().write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_link_stays_a_link_and_its_target_is_written() {
        let directory = Directory::new("link");
        let (target, link) = (directory.0.join("target.json"), directory.0.join("link.json"));
        fs::write(&target, "old").unwrap();
        symlink(&target, &link).unwrap();
        record().write(&link).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(Record::read(&target).unwrap(), record());
    }

    #[test]
    fn a_link_to_a_file_that_is_not_there_yet_stays_a_link_and_the_file_is_written() {
        let directory = Directory::new("dangling");
        let (target, link) = (directory.0.join("target.json"), directory.0.join("link.json"));
        let chain = directory.0.join("chain.json");
        symlink("target.json", &link).unwrap();
        symlink(&link, &chain).unwrap();
        check_writable(&chain).unwrap();
        assert!(!target.exists());
        record().write(&chain).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::symlink_metadata(&chain).unwrap().is_symlink());
        assert_eq!(Record::read(&target).unwrap(), record());
    }

    #[test]
    fn a_device_is_written_to_and_not_replaced() {
        use std::os::unix::fs::FileTypeExt;
        record().write(Path::new("/dev/null")).unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    }

    #[test]
    fn a_path_that_cannot_be_written_is_named_before_the_run_and_after() {
        let directory = Directory::new("refused");
        let missing =
            ["missing/r.json", "missing/", "missing/."].map(|path| directory.0.join(path));
        for path in [directory.0.clone(), PathBuf::new()].into_iter().chain(missing) {
            for error in [check_writable(&path).unwrap_err(), record().write(&path).unwrap_err()] {
                let message = error.to_string();
                assert!(
                    message.starts_with(&format!("cannot write {}: ", path.display())),
                    "{message}"
                );
            }
        }
    }

    #[test]
    fn asking_whether_a_file_can_be_written_changes_nothing() {
        let directory = Directory::new("asked");
        let path = directory.0.join("r.json");
        check_writable(&path).unwrap();
        assert_eq!(directory.entries(), 0);
        fs::write(&path, "kept").unwrap();
        check_writable(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
    }
}
