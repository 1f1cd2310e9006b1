//! The kernel's own page merger. One run at a time controls it. It merges no memory of other processes unless the
//! caller asks for that, and its settings are always put back.
//!
//! - *One at a time.* A run takes an exclusive `flock(2)` on the merger's own file `run`. The restorer below holds it
//!   as well, so no other run takes the merger before it is put back.
//! - *No other memory.* The merger goes over all memory of all processes that let it. So a run does not take it if
//!   another process has such memory, or may have.
//! - *Put back.* This process puts the settings back, at the end, or from its signal handler. If it is killed, a
//!   restorer does, a process of its own that waits for its end. If the restorer is killed as well, the next process
//!   that takes or looks for the merger does, from a note. Each puts back what is still as the run made it, and nothing
//!   else.
//! - *Unmerged.* [`GuestMemory::let_not_merge`](crate::GuestMemory::let_not_merge) takes apart what was merged of this
//!   process's own memory. Writing 2 to `run` would take apart the pages of all processes.

mod note;
mod settings;
mod strangers;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::Error;
use note::Note;
use settings::Setting;
pub use strangers::Stranger;

/// Where Linux has it (`Documentation/admin-guide/mm/ksm.rst`).
const DIRECTORY: &str = "/sys/kernel/mm/ksm";

/// Where the note is left: gone with the boot, and root's.
const NOTE: &str = "/run/mayfly-ksm";

/// Says that it is ready; waits until this process is gone or closes its end, whatever the terminal sends meanwhile;
/// writes to each file the value that was there before, if what is there is what the run wrote; and takes the note away.
const RESTORE: &str = r#"
trap '' INT TERM HUP QUIT
echo
cat > /dev/null
note=$1
shift
while [ $# -gt 2 ]; do
    now=
    read -r now < "$1"
    case $now in
        "$3" | *"[$3]"*) printf %s "$2" > "$1" ;;
    esac
    shift 3
done
rm -f "$note"
"#;

/// Whose memory may be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Company {
    /// This process's alone.
    None,
    /// That of every process that lets it.
    Any,
}

/// Why the merger cannot be had, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is none, this user may not set it, or another process has it.
    #[error("{0}")]
    NotToBeHad(String),
    /// The memory of another process would be merged.
    #[error("{first}{}", and_more(*more))]
    Strangers {
        /// The first of them.
        first: Stranger,
        /// How many more there are.
        more: usize,
    },
}

fn and_more(more: usize) -> String {
    if more == 0 { String::new() } else { format!(", and {more} more") }
}

impl From<String> for Refused {
    fn from(why: String) -> Self {
        Self::NotToBeHad(why)
    }
}

/// The kernel's page merger, in the hands of this process until [`Ksm::put_back`], or until it is dropped.
#[derive(Debug)]
pub struct Ksm {
    places: Places,
    settings: Vec<Setting>,
    company: Company,
    /// The lock, and the process that puts everything back if this one does not. Gone when it is.
    held: Mutex<Option<(File, Child)>>,
}

/// Where everything is that is read or written.
#[derive(Clone, Debug)]
struct Places {
    directory: PathBuf,
    note: Note,
    proc: PathBuf,
}

impl Places {
    fn of_host() -> Self {
        Self { directory: DIRECTORY.into(), note: Note::at(NOTE), proc: "/proc".into() }
    }

    /// The lock, if no process has it.
    fn lock(&self) -> Result<File, String> {
        let run = self.directory.join("run");
        if !run.exists() {
            let missing = run.display();
            return Err(format!("the kernel has no page merger: there is no {missing}"));
        }
        let refused =
            |error| format!("the page merger is root's to set: {}: {error}", run.display());
        OpenOptions::new().write(true).open(&run).map_err(refused)?;
        let file = File::open(&run).map_err(refused)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(file),
            Err(Errno::WOULDBLOCK) => Err("another run has the page merger".to_owned()),
            Err(error) => Err(format!("{} cannot be locked: {error}", run.display())),
        }
    }

    /// Puts back what a run has left that was killed; how many settings. The lock is the caller's.
    fn put_back_what_is_noted(&self) -> usize {
        let noted = self.note.read().unwrap_or_default();
        let count = settings::put_back(&self.directory, &noted);
        self.note.remove();
        count
    }

    fn strangers(&self) -> Vec<Stranger> {
        strangers::all(&self.proc, std::process::id())
    }
}

impl Ksm {
    /// Takes it, to make its settings `ours`: `run`, `pages_to_scan`, `sleep_millisecs`, `use_zero_pages`; and
    /// `smart_scan` and `advisor_mode`, if the kernel knows them. [`Ksm::start`] does.
    ///
    /// # Errors
    ///
    /// Why it cannot be had.
    pub fn take(ours: &[(&str, &str)], company: Company) -> Result<Self, Refused> {
        Self::take_in(Places::of_host(), ours, company)
    }

    /// Puts back what a run has left that was killed, and whose restorer was. Returns how many settings that were: none
    /// where nothing was left, where the run is alive, or for a user who may not.
    pub fn put_back_what_was_left() -> usize {
        Self::put_back_what_was_left_in(&Places::of_host())
    }

    fn put_back_what_was_left_in(places: &Places) -> usize {
        if !places.note.path().exists() {
            return 0;
        }
        let Ok(_lock) = places.lock() else { return 0 };
        places.put_back_what_is_noted()
    }

    fn take_in(places: Places, ours: &[(&str, &str)], company: Company) -> Result<Self, Refused> {
        let lock = places.lock()?;
        places.put_back_what_is_noted();
        let settings = settings::read(&places.directory, ours)?;
        if settings.iter().any(|setting| setting.name == "run" && setting.before != "0") {
            return Err("somebody else has the page merger run".to_owned().into());
        }
        let ksm = Self { places, settings, company, held: Mutex::new(None) };
        ksm.check_company()?;
        let note = &ksm.places.note;
        let no_note = |error| format!("no note can be left: {}: {error}", note.path().display());
        note.leave(&ksm.settings).map_err(no_note)?;
        let restorer = ksm.restorer(&lock).inspect_err(|_| note.remove()).map_err(|error| {
            format!("no process can be had that puts the page merger's settings back: {error}")
        })?;
        *ksm.held() = Some((lock, restorer));
        Ok(ksm)
    }

    /// A process that puts everything back when this one is gone, and has the lock until it has.
    fn restorer(&self, lock: &File) -> io::Result<Child> {
        let mut restore = Command::new("sh");
        restore.args(["-c", RESTORE, "sh"]).arg(self.places.note.path());
        for Setting { name, before, ours } in &self.settings {
            restore.arg(self.places.directory.join(name)).args([before, ours]);
        }
        // Its standard error keeps the lock, and is not to be written to.
        let lock = lock.try_clone()?;
        restore.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(lock);
        // Signals that a terminal sends go to the group that is in its foreground.
        restore.process_group(0);
        let mut restorer = restore.spawn()?;
        match restorer.stdout.take().map_or(Ok(()), |mut out| out.read_exact(&mut [0])) {
            Ok(()) => Ok(restorer),
            Err(error) => {
                drop(restorer.stdin.take());
                let _ = restorer.wait();
                Err(error)
            }
        }
    }

    /// Makes the settings the run's. Where `run` is among them, the merger starts.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] with the file's name: EINVAL for a value that it does not take; EPERM if the settings have been
    /// put back.
    pub fn start(&self) -> Result<(), Error> {
        // Held, so that the process that puts them back does so before, and nothing is started, or after.
        let held = self.held();
        if held.is_none() {
            return Err(Error::call("run")(Errno::PERM));
        }
        let failed = |(name, error)| Error::io(name)(error);
        settings::make_ours(&self.places.directory, &self.settings).map_err(failed)
    }

    /// Whether no other process's memory is merged: a process that comes after the merger was taken can still be seen
    /// so.
    ///
    /// # Errors
    ///
    /// [`Refused::Strangers`], unless any company will do.
    pub fn check_company(&self) -> Result<(), Refused> {
        if self.company == Company::Any {
            return Ok(());
        }
        let mut strangers = self.places.strangers().into_iter();
        match strangers.next() {
            None => Ok(()),
            Some(first) => Err(Refused::Strangers { first, more: strangers.count() }),
        }
    }

    /// The other processes that have mergeable memory, or may have.
    pub fn strangers(&self) -> Vec<Stranger> {
        self.places.strangers()
    }

    /// A counter of the merger's, over all processes: `pages_sharing`, say.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] with the file's name: ENOENT for one that the kernel does not have.
    pub fn counter(&self, name: &'static str) -> Result<u64, Error> {
        let text = fs::read_to_string(self.places.directory.join(name)).map_err(Error::io(name))?;
        text.trim().parse().map_err(|_| Error::call(name)(Errno::INVAL))
    }

    /// How many of this process's pages are merged, whichever other processes' are: `ksm_merging_pages`, since Linux
    /// v5.19.
    pub fn own_merged(&self) -> Option<u64> {
        let text = fs::read_to_string(self.places.proc.join("self/ksm_merging_pages")).ok()?;
        text.trim().parse().ok()
    }

    /// Puts the settings back, and lets others have the merger. Once, on any thread.
    pub fn put_back(&self) {
        let mut held = self.held();
        let Some((lock, mut restorer)) = held.take() else { return };
        settings::put_back(&self.places.directory, &self.settings);
        self.places.note.remove();
        drop(restorer.stdin.take());
        // It finds nothing to do; where it cannot be waited for, it does so all the same.
        let _ = restorer.wait();
        drop(lock);
    }

    fn held(&self) -> MutexGuard<'_, Option<(File, Child)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ksm {
    fn drop(&mut self) {
        self.put_back();
    }
}

#[cfg(test)]
mod tests;
