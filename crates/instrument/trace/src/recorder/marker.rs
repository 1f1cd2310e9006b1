//! What marks when the time begins that the report is to count from: a file that the user writes to, or a probe of the
//! program's own.

use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::clock::Clock;
use super::launch::Mark;
use super::tracefs::Uprobe;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

/// What is waited for.
pub(super) enum Marker {
    File(Written),
    Probe(Uprobe),
}

impl Marker {
    /// Waits for what a mark says, of a process and those that it will make.
    pub(super) fn of(mark: &Mark, pid: i32) -> io::Result<Self> {
        match mark {
            Mark::File(path) => Written::of(path).map(Self::File),
            Mark::Probe(probe) => Uprobe::of(probe, pid).map(Self::Probe),
        }
    }

    /// Waits for so long, or until it happens; says when that was.
    pub(super) fn happened(&mut self, within: Duration, clock: Clock) -> Option<u64> {
        match self {
            Self::File(file) => file.is_written(within).then(|| clock.now()),
            Self::Probe(probe) => probe.reached(within).map(|at| clock.relative(at)),
        }
    }
}

/// The file. Its directory is watched, so it need not be there yet.
pub(super) struct Written {
    watched: OwnedFd,
    name: OsString,
}

impl Written {
    fn of(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.map_or_else(|| PathBuf::from("."), Path::to_owned);
        let watched = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let events = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO;
        inotify::add_watch(&watched, directory, events)?;
        Ok(Self { watched, name })
    }

    /// Waits for so long, or until the file is written to; says whether it was.
    fn is_written(&self, within: Duration) -> bool {
        let time = Timespec {
            tv_sec: i64::try_from(within.as_secs()).unwrap_or(0),
            tv_nsec: i64::from(within.subsec_nanos()),
        };
        let mut polled = [PollFd::new(&self.watched, PollFlags::IN)];
        if !poll(&mut polled, Some(&time)).is_ok_and(|ready| ready > 0) {
            return false;
        }
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&self.watched, &mut room);
        let mut is_written = false;
        while let Ok(event) = events.next() {
            let is_its = |name: &std::ffi::CStr| name.to_bytes() == self.name.as_bytes();
            is_written |= event.file_name().is_some_and(is_its)
                && !event.events().contains(ReadFlags::IGNORED);
        }
        is_written
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_written_when_it_comes_or_changes_and_others_are_not_it() {
        let directory = std::env::temp_dir().join(format!("marker-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("now");
        let marker = Written::of(&path).unwrap();
        assert!(!marker.is_written(Duration::ZERO));
        fs::write(directory.join("other"), "1").unwrap();
        assert!(!marker.is_written(Duration::ZERO));
        fs::write(&path, "1").unwrap();
        assert!(marker.is_written(Duration::ZERO));
        assert!(!marker.is_written(Duration::ZERO));
        fs::write(&path, "2").unwrap();
        assert!(marker.is_written(Duration::ZERO));
        fs::remove_dir_all(&directory).unwrap();
        assert!(
            Written::of(&directory.join("gone/now")).is_err()
                && Written::of(Path::new("/")).is_err()
        );
    }
}
