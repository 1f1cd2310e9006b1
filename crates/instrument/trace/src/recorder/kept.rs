//! Files of `/proc` that stay open: to read one again is one system call, and not six.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// More than the files that are read here have.
const ROOM: usize = 4096;

/// A file that is read again and again, from its beginning.
pub(super) struct Kept(File);

impl Kept {
    pub(super) fn open(path: impl AsRef<Path>) -> Option<Self> {
        File::open(path).ok().map(Self)
    }

    /// Has `use_of` look at the text that the file has now; nothing where it has none, or what it tells of is gone.
    pub(super) fn read<T>(&self, use_of: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let mut room = [0; ROOM];
        let read = self.0.read_at(&mut room, 0).ok()?;
        let text = &room[..read];
        // Of a longer text, whole lines are there.
        let whole =
            if read < ROOM { read } else { text.iter().rposition(|byte| *byte == b'\n')? };
        use_of(std::str::from_utf8(&text[..whole]).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_each_time_what_is_so_and_nothing_of_a_thread_that_is_gone() {
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let (told, tid) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let _ = told.send(rustix::thread::gettid().as_raw_nonzero().get());
            let _ = wait.recv();
        });
        let name = format!("/proc/self/task/{}/comm", tid.recv().unwrap());
        let kept = Kept::open(&name).unwrap();
        let read = || kept.read(|text| Some(text.trim().to_owned()));
        assert!(read().is_some());
        std::fs::write(&name, "other").unwrap();
        assert_eq!(read().as_deref(), Some("other"));
        go.send(()).unwrap();
        thread.join().unwrap();
        // The kernel may tell that a thread is over before it has let go of all that it had.
        while read().is_some() {
            std::thread::yield_now();
        }
        assert!(Kept::open("/proc/self/nothing").is_none());
    }
}
