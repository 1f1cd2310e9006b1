//! The destination of a text, which is a record or a page: a file, a device, or a stream.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::{Errno, fcntl_dupfd_cloexec};

/// Symbolic links that are followed one after the other, as many as Linux follows.
const MOST_LINKS: usize = 40;

/// A text could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct WriteError {
    path: PathBuf,
    source: io::Error,
}

/// Where a text goes: opened before a long run, so that what is in the way is known by then.
#[derive(Debug)]
pub struct Sink {
    path: PathBuf,
    destination: Destination,
}

#[derive(Debug)]
enum Destination {
    /// A regular file, there or not yet, without symbolic links: those stay.
    File(PathBuf),
    /// A pipe or a device: renaming a file over it would destroy it.
    Special,
    /// A stream that the process was started with, whatever it leads to: where that is a file, the text belongs behind
    /// what is in it.
    Stream { of: RawFd, copy: OwnedFd },
}

impl Sink {
    /// Finds out what `path` is, and whether a text can be written there. Nothing is left behind. `-` is standard
    /// output, and so are `/dev/stdout` and whatever else leads to it; `/dev/fd/N` is the stream of that number.
    ///
    /// # Errors
    ///
    /// What [`Sink::write`] would fail with, as far as can be known now; a file that standard output or standard error
    /// goes to already.
    pub fn open(path: &Path) -> Result<Self, WriteError> {
        let open = || {
            let destination = match path.to_str() {
                Some("-") => Destination::stream(1)?,
                _ => Destination::of(path)?,
            };
            if let Destination::File(file) = &destination {
                refuse_what_streams_go_to(file)?;
                let temporary = temporary(file)?;
                File::create_new(&temporary)?;
                fs::remove_file(&temporary)?;
            }
            Ok(destination)
        };
        match open() {
            Ok(destination) => Ok(Self { path: path.into(), destination }),
            Err(source) => Err(WriteError { path: path.into(), source }),
        }
    }

    /// Whether what is written goes to standard output.
    pub fn is_stdout(&self) -> bool {
        matches!(self.destination, Destination::Stream { of: 1, .. })
    }

    /// Whether it is a regular file: what is written again replaces what was written before.
    pub const fn is_file(&self) -> bool {
        matches!(self.destination, Destination::File(_))
    }

    /// Whether it is a file in which something stands, which [`Sink::write`] would replace.
    pub fn would_replace(&self) -> bool {
        let Destination::File(file) = &self.destination else { return false };
        fs::metadata(file).is_ok_and(|meta| meta.len() > 0)
    }

    /// Writes `text`. A file is written whole or not at all: what stood there stays until the new text is on disk.
    /// Everything else is written to as it is. That the reader of a stream went away is no failure.
    ///
    /// # Errors
    ///
    /// It cannot be written; the message names the path.
    pub fn write(&self, text: &str) -> Result<(), WriteError> {
        let written = match &self.destination {
            Destination::File(file) => replace(file, text.as_bytes()),
            Destination::Special => File::options()
                .write(true)
                .open(&self.path)
                .and_then(|mut file| file.write_all(text.as_bytes())),
            Destination::Stream { copy, .. } => {
                let written =
                    copy.try_clone().and_then(|fd| File::from(fd).write_all(text.as_bytes()));
                written.or_else(|error| match error.kind() {
                    ErrorKind::BrokenPipe => Ok(()),
                    _ => Err(error),
                })
            }
        };
        written.map_err(|source| WriteError { path: self.path.clone(), source })
    }
}

impl Destination {
    /// What a path leads to, link by link: one of the process's own streams looks like the file behind it otherwise.
    fn of(path: &Path) -> io::Result<Self> {
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
            if let Some(stream) = stream_of(&path) {
                return Self::stream(stream);
            }
            let Ok(target) = fs::read_link(&path) else { return Self::of_no_link(path) };
            path = path.with_file_name(target);
        }
        Err(Errno::LOOP.into())
    }

    fn of_no_link(path: PathBuf) -> io::Result<Self> {
        match fs::metadata(&path) {
            Ok(meta) if meta.is_file() => Ok(Self::File(path)),
            Ok(meta) if meta.is_dir() => Err(ErrorKind::IsADirectory.into()),
            Ok(_) => Ok(Self::Special),
            Err(error) if error.kind() == ErrorKind::NotFound => Self::not_there(path),
            Err(error) => Err(error),
        }
    }

    /// A file that is still to be made. A path that ends in a slash or a dot can only be a directory's.
    fn not_there(path: PathBuf) -> io::Result<Self> {
        let name = path.file_name().ok_or(ErrorKind::InvalidInput)?.as_encoded_bytes();
        if !path.as_os_str().as_encoded_bytes().ends_with(name) {
            return Err(ErrorKind::NotADirectory.into());
        }
        Ok(Self::File(path))
    }

    /// The stream of a number, as a copy: opened anew by its name, a file would be written to from its beginning.
    fn stream(of: RawFd) -> io::Result<Self> {
        if of < 0 {
            return Err(Errno::BADF.into());
        }
        // SAFETY: the number is used for one system call, which fails with EBADF if nothing is open under it. What is,
        // this process was started with: it is asked before anything else is opened that is not closed again.
        let stream = unsafe { BorrowedFd::borrow_raw(of) };
        Ok(Self::Stream { of, copy: fcntl_dupfd_cloexec(stream, 3)? })
    }
}

/// The number in a path that names a stream of this process: `N` in the directory that `/dev/fd` leads to.
fn stream_of(path: &Path) -> Option<RawFd> {
    let number = path.file_name()?.to_str()?.parse().ok()?;
    let parent = match path.parent()? {
        parent if parent.as_os_str().is_empty() => Path::new("."),
        parent => parent,
    };
    let parent = fs::canonicalize(parent).ok()?;
    let is_own = |own: &str| fs::canonicalize(own).is_ok_and(|own| own == parent);
    (is_own("/proc/self/fd") || is_own("/proc/thread-self/fd")).then_some(number)
}

/// A record that replaced the file would take from it what standard output or standard error has written.
fn refuse_what_streams_go_to(file: &Path) -> io::Result<()> {
    let Ok(file) = fs::metadata(file) else { return Ok(()) };
    let is_it = |stream: BorrowedFd<'_>| {
        rustix::fs::fstat(stream)
            .is_ok_and(|other| (other.st_dev, other.st_ino) == (file.dev(), file.ino()))
    };
    for (name, stream) in [("output", io::stdout().as_fd()), ("error", io::stderr().as_fd())] {
        if is_it(stream) {
            return Err(io::Error::other(format!("standard {name} goes to this file already")));
        }
    }
    Ok(())
}

/// Replaces a file's content in one step. The file's permissions stay as they were.
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
    let name = file.file_name().ok_or(ErrorKind::InvalidInput)?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.tmp", std::process::id()));
    Ok(file.with_file_name(hidden))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::document::Record;
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

    fn write(path: &Path) {
        Sink::open(path).unwrap().write(&record().to_json()).unwrap();
    }

    #[test]
    fn a_path_that_leads_to_a_stream_is_the_stream_and_not_the_file_behind_it() {
        let directory = Directory::new("streams");
        let log = directory.0.join("log");
        let behind = || fs::read_to_string(&log).unwrap();
        fs::write(&log, "a log\n").unwrap();
        let file = File::options().append(true).open(&log).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        let link = directory.0.join("link");
        symlink(format!("/dev/fd/{number}"), &link).unwrap();
        for (round, path) in
            [format!("/dev/fd/{number}"), format!("/proc/self/fd/{number}")].iter().enumerate()
        {
            write(Path::new(path));
            let text = behind();
            assert!(text.starts_with("a log\n{") && text.matches("schema").count() == round + 1);
        }
        write(&link);
        assert_eq!(behind().matches("schema").count(), 3);
        assert_eq!(directory.entries(), 2);
    }

    #[test]
    fn standard_output_has_more_than_one_name() {
        for (name, is_stdout) in
            [("-", true), ("/dev/stdout", true), ("/dev/fd/1", true), ("/dev/stderr", false)]
        {
            assert_eq!(Sink::open(Path::new(name)).unwrap().is_stdout(), is_stdout, "{name}");
        }
    }

    #[test]
    fn a_stream_that_is_not_open_is_known_before_the_run() {
        let message = Sink::open(Path::new("/dev/fd/9999")).unwrap_err().to_string();
        assert!(message.starts_with("cannot write /dev/fd/9999: Bad file descriptor"), "{message}");
    }

    #[test]
    fn a_written_record_replaces_the_old_file_and_leaves_nothing_beside_it() {
        let directory = Directory::new("replace");
        let path = directory.0.join("r.json");
        fs::write(&path, "older and much longer".repeat(1000)).unwrap();
        write(&path);
        assert_eq!(Record::read(&path).unwrap(), record());
        assert_eq!(directory.entries(), 1);
    }

    #[test]
    fn a_file_that_only_its_owner_may_read_stays_so() {
        let directory = Directory::new("mode");
        let path = directory.0.join("r.json");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        write(&path);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_link_stays_a_link_and_its_target_is_written() {
        let directory = Directory::new("link");
        let (target, link) = (directory.0.join("target.json"), directory.0.join("link.json"));
        fs::write(&target, "old").unwrap();
        symlink(&target, &link).unwrap();
        write(&link);
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
        Sink::open(&chain).unwrap();
        assert!(!target.exists());
        write(&chain);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::symlink_metadata(&chain).unwrap().is_symlink());
        assert_eq!(Record::read(&target).unwrap(), record());
    }

    #[test]
    fn a_device_is_written_to_and_not_replaced() {
        use std::os::unix::fs::FileTypeExt;
        write(Path::new("/dev/null"));
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    }

    #[test]
    fn a_path_that_cannot_be_written_is_named_before_the_run_or_after() {
        let directory = Directory::new("refused");
        let missing =
            ["missing/r.json", "missing/", "missing/."].map(|path| directory.0.join(path));
        for path in [directory.0.clone(), PathBuf::new()].into_iter().chain(missing) {
            let message = Sink::open(&path).unwrap_err().to_string();
            let named = format!("cannot write {}: ", path.display());
            assert!(message.starts_with(&named), "{message}");
        }
        let late = directory.0.join("late");
        fs::create_dir(&late).unwrap();
        let sink = Sink::open(&late.join("r.json")).unwrap();
        fs::remove_dir(&late).unwrap();
        let message = sink.write(&record().to_json()).unwrap_err().to_string();
        assert!(message.starts_with("cannot write ") && message.contains("late"), "{message}");
    }

    #[test]
    fn asking_whether_a_file_can_be_written_changes_nothing() {
        let directory = Directory::new("asked");
        let path = directory.0.join("r.json");
        Sink::open(&path).unwrap();
        assert_eq!(directory.entries(), 0);
        fs::write(&path, "kept").unwrap();
        Sink::open(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
    }
}
