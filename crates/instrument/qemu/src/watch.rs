//! Runs QEMU until it ends, makes no more progress, or is interrupted.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::param::clock_ticks_per_second;

use crate::interrupt::Interrupt;

/// How often QEMU is checked.
const LOOK: Duration = Duration::from_millis(100);

/// CPU time that QEMU may use without output on its serial line. Not wall-clock time, since hosts are busy.
const PATIENCE: Duration = Duration::from_secs(240);

/// Wall-clock time in which it must use some CPU time: it is never idle.
const STANDSTILL: Duration = Duration::from_secs(300);

/// A process, which is killed when this is dropped.
#[derive(Debug)]
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        // If it has ended by itself, neither does anything.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs QEMU until it ends, or makes no more progress. Its serial line is written to the file `serial`.
///
/// # Errors
///
/// Why it could not be started, was stopped, or failed.
pub fn to_the_end(command: Command, serial: &Path, interrupt: &Interrupt) -> anyhow::Result<()> {
    to_the_end_with(0, command, serial, interrupt)
}

/// The same, of a machine that ends with this status when it has done what it should. Where that is not 0, QEMU itself may
/// have failed with it: then it says why.
///
/// # Errors
///
/// As [`to_the_end`].
pub fn to_the_end_with(
    expected: i32,
    mut command: Command,
    serial: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    let mut running = Running(child);
    let mut bounds = Bounds::new();
    loop {
        if let Some(status) = running.0.try_wait()? {
            let mut said = String::new();
            if let Some(mut stderr) = running.0.stderr.take() {
                let _ = stderr.read_to_string(&mut said);
            }
            // QEMU exits with success when a signal ends it.
            let killed = said.lines().find(|line| line.contains("terminating on signal"));
            if let Some(killed) = killed {
                bail!("QEMU was ended: {killed}");
            }
            let wrong = said.lines().rfind(|line| !line.contains("warning"));
            if status.code() == Some(expected) && (expected == 0 || wrong.is_none()) {
                return Ok(());
            }
            bail!("QEMU ended with {status}: {}", wrong.unwrap_or_default());
        }
        if interrupt.came() {
            bail!("interrupted");
        }
        let written = fs::metadata(serial).map_or(0, |file| file.len());
        let used = processor_time(running.0.id());
        if let Some(why) = bounds.passed(Instant::now(), written, used) {
            bail!("{why}");
        }
        sleep(LOOK);
    }
}

/// Since when there has been no progress.
struct Bounds {
    written: (u64, Duration),
    used: (Duration, Instant),
}

impl Bounds {
    fn new() -> Self {
        Self { written: (0, Duration::ZERO), used: (Duration::ZERO, Instant::now()) }
    }

    /// Why the run is to be given up, if it is.
    fn passed(&mut self, now: Instant, written: u64, used: Duration) -> Option<String> {
        if written != self.written.0 {
            self.written = (written, used);
        }
        if used != self.used.0 {
            self.used = (used, now);
        }
        if used.saturating_sub(self.written.1) > PATIENCE {
            return Some(format!("it said nothing for {PATIENCE:?} of its processor time"));
        }
        if now.saturating_duration_since(self.used.1) > STANDSTILL {
            return Some(format!("it stood still for {STANDSTILL:?}"));
        }
        None
    }
}

/// Processor time of a process, in all of its threads; nothing if it is gone.
fn processor_time(process: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let ticks = ticks(&stat).unwrap_or_default();
    Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64)
}

/// User's and system's, of a line of `/proc/PID/stat` (proc(5)): the 14th and 15th field, the second of which is a name
/// that may have blanks and parentheses.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_past_any_name() {
        let line = "7 (a (b) c) R 1 1 1 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 4 0 1 1 1";
        assert_eq!(ticks(line), Some(300));
        assert_eq!(ticks(""), None);
        assert_eq!(ticks("7 (a) R 1"), None);
        let before = processor_time(std::process::id());
        assert!(processor_time(u32::MAX).is_zero());
        while processor_time(std::process::id()) == before {}
    }

    #[test]
    fn who_says_something_is_waited_for_and_who_does_not_is_not() {
        let start = Instant::now();
        let mut bounds = Bounds::new();
        let second = Duration::from_secs(1);
        for step in 1..2000 {
            // A line for every 100 s of processor time, on a host that gives it a tenth of one.
            let passed =
                bounds.passed(start + 10 * step * second, u64::from(step / 100), step * second);
            assert_eq!(passed, None, "{step}");
        }
        let mut silent = Bounds::new();
        let mut step = 0;
        while silent.passed(start + step * second, 5, step * second).is_none() {
            step += 1;
        }
        assert_eq!(step, 241);
    }

    #[test]
    fn who_stands_still_is_not_waited_for_for_ever() {
        let start = Instant::now();
        let mut bounds = Bounds::new();
        assert_eq!(bounds.passed(start, 1, Duration::from_secs(1)), None);
        let later = start + STANDSTILL + LOOK;
        assert!(bounds.passed(later, 1, Duration::from_secs(1)).unwrap().contains("stood still"));
    }

    #[test]
    fn a_process_that_is_no_longer_wanted_is_ended() {
        let interrupt = Interrupt::by(2);
        let mut sleeps = Command::new("sleep");
        sleeps.arg("1000");
        let error = to_the_end(sleeps, Path::new("/nowhere"), &interrupt).unwrap_err();
        assert_eq!(error.to_string(), "interrupted");
        let quiet = Interrupt::by(0);
        let error = to_the_end(Command::new("false"), Path::new("/nowhere"), &quiet).unwrap_err();
        assert!(error.to_string().contains("exit status: 1"), "{error}");
    }

    #[test]
    fn a_machine_may_end_with_another_status_unless_qemu_says_what_is_wrong() {
        let quiet = Interrupt::by(0);
        let ends = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            to_the_end_with(1, command, Path::new("/nowhere"), &quiet)
        };
        assert!(ends("echo a warning: nothing >&2; exit 1").is_ok());
        let error = ends("echo no such machine >&2; exit 1").unwrap_err();
        assert!(error.to_string().contains("no such machine"), "{error}");
        assert!(ends("exit 0").is_err());
    }
}
