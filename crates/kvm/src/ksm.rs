//! The kernel's own page merger: its settings, which are put back as they were, and its counters.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::io::Errno;

use crate::Error;

/// Where Linux has it (`Documentation/admin-guide/mm/ksm.rst`).
const DIRECTORY: &str = "/sys/kernel/mm/ksm";

/// What may be set. The first two need not be there: kernels before v6.8 and v6.7 do not know them.
const SETTINGS: [&str; 6] =
    ["advisor_mode", "smart_scan", "pages_to_scan", "sleep_millisecs", "use_zero_pages", "run"];

/// Says that it is ready; waits until this process is gone or closes its end, whatever the terminal sends meanwhile;
/// and writes each value to its file.
const RESTORE: &str = r#"
trap '' INT TERM HUP QUIT
echo
cat > /dev/null
while [ $# -gt 1 ]; do printf %s "$2" > "$1"; shift 2; done
"#;

/// The kernel's page merger, in the hands of this process. It has its settings back when this is dropped; and, should
/// that not come about (an interrupt, a signal that cannot be caught), when the process ends: another process sees to
/// it.
#[derive(Debug)]
pub struct Ksm {
    directory: PathBuf,
    restorer: Child,
}

impl Ksm {
    /// Takes it.
    ///
    /// # Errors
    ///
    /// Why it cannot be had, in one line: there is none, it is not this user's to set, or somebody uses it.
    pub fn take() -> Result<Self, String> {
        Self::take_in(Path::new(DIRECTORY))
    }

    fn take_in(directory: &Path) -> Result<Self, String> {
        if !directory.is_dir() {
            return Err(format!(
                "the kernel has no page merger: there is no {}",
                directory.display()
            ));
        }
        let run = directory.join("run");
        if let Err(error) = fs::OpenOptions::new().write(true).open(&run) {
            return Err(format!("the page merger is root's to set: {}: {error}", run.display()));
        }
        let mut restore = Command::new("sh");
        restore.args(["-c", RESTORE, "sh"]).stdin(Stdio::piped());
        restore.stdout(Stdio::piped()).stderr(Stdio::null());
        // Signals that a terminal sends go to the group that is in its foreground.
        restore.process_group(0);
        for name in SETTINGS {
            let file = directory.join(name);
            match fs::read_to_string(&file) {
                Ok(text) if name == "run" && text.trim() != "0" => {
                    return Err("somebody else has the page merger run".to_owned());
                }
                Ok(text) => drop(restore.arg(file).arg(selected(&text))),
                Err(_) if matches!(name, "advisor_mode" | "smart_scan") => {}
                Err(error) => return Err(format!("{}: {error}", file.display())),
            }
        }
        let no_restorer = |error: io::Error| {
            format!("no process can be had that puts the page merger's settings back: {error}")
        };
        let mut restorer = restore.spawn().map_err(no_restorer)?;
        let ready = restorer.stdout.take().map_or(Ok(()), |mut out| out.read_exact(&mut [0]));
        let ksm = Self { directory: directory.to_owned(), restorer };
        ready.map_err(no_restorer)?;
        Ok(ksm)
    }

    /// Sets `run`, `pages_to_scan`, `sleep_millisecs`, `use_zero_pages`; and `smart_scan` and `advisor_mode`, if the
    /// kernel knows them.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] with the file's name: EINVAL for a value that it does not take.
    pub fn set(&self, name: &'static str, value: &str) -> Result<(), Error> {
        write(&self.directory.join(name), value).map_err(Error::io(name))
    }

    /// A counter: `pages_sharing`, say.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] with the file's name: ENOENT for one that the kernel does not have.
    pub fn counter(&self, name: &'static str) -> Result<u64, Error> {
        let text = fs::read_to_string(self.directory.join(name)).map_err(Error::io(name))?;
        text.trim().parse().map_err(|_| Error::call(name)(Errno::INVAL))
    }
}

impl Drop for Ksm {
    fn drop(&mut self) {
        drop(self.restorer.stdin.take());
        // It ends when it has put everything back; where it cannot be waited for, it does so all the same.
        let _ = self.restorer.wait();
    }
}

/// Writes a value to a file, if it is there. It is not opened as one that may be made: sysfs, where no file can be,
/// answers that with EACCES and not with ENOENT.
fn write(file: &Path, value: &str) -> io::Result<()> {
    match fs::OpenOptions::new().write(true).truncate(true).open(file) {
        Ok(mut file) => file.write_all(value.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The value in force: that in brackets, where the file lists all there are.
fn selected(text: &str) -> &str {
    let bracketed = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    bracketed.map_or(text.trim(), |(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that looks like the kernel's.
    fn directory(name: &str, settings: &[(&str, &str)]) -> PathBuf {
        let directory =
            std::env::temp_dir().join(format!("mayfly-ksm-{}-{name}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        for (name, value) in settings {
            fs::write(directory.join(name), value).unwrap();
        }
        directory
    }

    const SOME: [(&str, &str); 5] = [
        ("advisor_mode", "none [scan-time]\n"),
        ("pages_to_scan", "100\n"),
        ("sleep_millisecs", "20\n"),
        ("use_zero_pages", "0\n"),
        ("run", "0\n"),
    ];

    #[test]
    fn every_setting_is_put_back_as_it_was() {
        let directory = directory("back", &SOME);
        let ksm = Ksm::take_in(&directory).unwrap();
        for (name, value) in
            [("advisor_mode", "none"), ("pages_to_scan", "5000"), ("run", "1"), ("smart_scan", "0")]
        {
            ksm.set(name, value).unwrap();
        }
        assert_eq!(ksm.counter("pages_to_scan").unwrap(), 5000);
        drop(ksm);
        let read = |name| fs::read_to_string(directory.join(name)).unwrap();
        let values = ["advisor_mode", "pages_to_scan", "sleep_millisecs", "run"].map(read);
        assert_eq!(values, ["scan-time", "100", "20", "0"]);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn settings_are_put_back_when_nobody_is_left_to_do_it_even_after_an_interrupt() {
        let directory = directory("gone", &SOME);
        let mut ksm = Ksm::take_in(&directory).unwrap();
        ksm.set("run", "1").unwrap();
        // As when the process ends without dropping anything: its end of the pipe is closed.
        let pid = rustix::process::Pid::from_child(&ksm.restorer);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        drop(ksm.restorer.stdin.take());
        ksm.restorer.wait().unwrap();
        assert_eq!(fs::read_to_string(directory.join("run")).unwrap(), "0");
        fs::remove_dir_all(&directory).unwrap();
        std::mem::forget(ksm);
    }

    #[test]
    fn a_setting_that_an_older_kernel_lacks_is_passed_over_in_a_file_system_where_no_file_can_be_made()
     {
        let nowhere = Path::new("/sys/kernel/mm/mayfly_knows_of_no_such_setting");
        write(nowhere, "1").unwrap();
        assert!(!nowhere.exists());
        assert!(write(Path::new("/sys/kernel/mm"), "1").is_err());
    }

    #[test]
    fn a_merger_that_is_not_there_or_that_somebody_runs_is_not_taken() {
        let missing = Ksm::take_in(Path::new("/nowhere/ksm")).unwrap_err();
        assert!(missing.contains("no page merger"), "{missing}");
        let directory = directory("runs", &[("run", "1\n"), ("pages_to_scan", "1\n")]);
        assert!(Ksm::take_in(&directory).is_err());
        fs::remove_dir_all(directory).unwrap();
    }
}
