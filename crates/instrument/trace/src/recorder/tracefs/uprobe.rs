//! When a program first comes to a probe of its own, by uprobes: the kernel puts a breakpoint where the probe is, adds one to its
//! counter, and writes down each time that a thread comes there.
//!
//! Uprobes are the whole host's: other processes may execute the same file. What is listened to are the program and the processes
//! that it makes, in an instance of our own. A probe that this process could not take away goes when the next one is placed.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::place::{Instance, Place, group};
use crate::usdt::{Probe, traced_path};

/// A probe has no more places than this.
const MOST: usize = 64;
/// Text that is read at once, in bytes.
const PART: usize = 4096;

/// A probe that is listened to.
pub(in crate::recorder) struct Uprobe {
    place: Place,
    /// Where each of its places is known by, in the kernel.
    names: Vec<String>,
    /// What is read, and the instance that writes it; none when that is given up.
    source: Option<(File, Instance)>,
    text: Vec<u8>,
}

impl Uprobe {
    /// Listens to a probe in a process, and in those that it will make.
    pub(in crate::recorder) fn of(probe: &Probe, pid: i32) -> io::Result<Self> {
        let unseen = |error: io::Error| {
            io::Error::new(error.kind(), format!("{probe} cannot be seen: {error}"))
        };
        Self::placed(probe, pid).map_err(unseen)
    }

    fn placed(probe: &Probe, pid: i32) -> io::Result<Self> {
        let (sites, path) = (probe.sites()?, traced_path(&probe.path)?);
        let place = Place::find()?;
        place.clean();
        // Where this fails midway, what was made last is dropped first: the kernel keeps a uprobe that an instance listens to.
        let mut uprobe = Self { place, names: Vec::new(), source: None, text: Vec::new() };
        let instance = uprobe.place.instance("-probe")?;
        let group = group();
        for (number, site) in sites.iter().take(MOST).enumerate() {
            let name = format!("{group}/site{number}");
            let counter = site.counter.map_or_else(String::new, |at| format!("({at:#x})"));
            uprobe.place.define(&format!("p:{name} {path}:{:#x}{counter}", site.offset))?;
            uprobe.names.push(name);
        }
        instance.write("options/event-fork", "1")?;
        instance.write("set_event_pid", &pid.to_string())?;
        for name in &uprobe.names {
            instance.write(&format!("events/{name}/enable"), "1")?;
        }
        instance.write("tracing_on", "1")?;
        uprobe.source = Some((instance.pipe()?, instance));
        Ok(uprobe)
    }

    /// Waits for so long, or until a thread comes to the probe; says when that was, by the kernel's clock.
    pub(in crate::recorder) fn reached(&mut self, within: Duration) -> Option<u64> {
        let (pipe, _) = self.source.as_mut()?;
        let time = Timespec {
            tv_sec: i64::try_from(within.as_secs()).unwrap_or(0),
            tv_nsec: i64::from(within.subsec_nanos()),
        };
        poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&time)).ok()?;
        let mut part = [0; PART];
        let read = pipe.read(&mut part).unwrap_or(0);
        self.text.extend_from_slice(&part[..read]);
        while let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.text.drain(..=end).collect();
            if let Some(at) = moment(&String::from_utf8_lossy(&line)) {
                return Some(at);
            }
        }
        None
    }
}

impl Drop for Uprobe {
    fn drop(&mut self) {
        // The kernel keeps what an instance listens to.
        self.source = None;
        for name in &self.names {
            let _ = self.place.define(&format!("-:{name}"));
        }
    }
}

/// When an event of a line of `trace_pipe` was, in nanoseconds: `COMMAND-PID [CPU] FLAGS SECONDS: EVENT: (ADDRESS)`.
fn moment(line: &str) -> Option<u64> {
    let (before, _) = line.rsplit_once(": (0x")?;
    let (before, _) = before.rsplit_once(": ")?;
    let (seconds, rest) = before.rsplit(' ').next()?.split_once('.')?;
    let digits = u32::try_from(rest.len()).ok().filter(|digits| *digits <= 9)?;
    let rest: u64 = rest.parse().ok()?;
    seconds
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(rest * 10u64.pow(9 - digits))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::usdt::tests::{file, note};

    #[test]
    fn a_line_says_when_a_thread_came_there_whatever_its_command_is_called() {
        let line = "  a b: (0x-4242  [001] d..1.  1234.567890: site0: (0x55d0c0de1010)\n";
        assert_eq!(moment(line), Some(1_234_567_890_000));
        for other in
            ["CPU:1 [LOST 5 EVENTS]\n", "", ": (0x", "x: y: (0x1)", "1.0000000000: y: (0x1)"]
        {
            assert_eq!(moment(other), None, "{other}");
        }
    }

    #[test]
    fn a_probe_that_cannot_be_placed_in_all_its_places_leaves_none_of_them() {
        let path = std::env::temp_dir().join(format!("uprobe-{}", std::process::id()));
        // The second place is behind the file's end, where the kernel listens to nothing.
        let notes = [0x40_1010, 0x40_1030].map(|at| note([at, 0, 0], "vmm\0asked\0\0")).concat();
        let mut contents = file(&notes, 0);
        contents.resize(0x1020, 0x90);
        fs::write(&path, contents).unwrap();
        let probe =
            Probe { path: path.clone(), provider: "vmm".to_owned(), name: "asked".to_owned() };
        let placed = Uprobe::of(&probe, std::process::id().cast_signed());
        fs::remove_file(path).unwrap();
        assert!(placed.is_err());
        // Where not even the first can be placed, as by a user without rights, it cannot be taken away either.
        let stayed = Place::find()
            .and_then(|place| place.define(&format!("-:{}/site0", group())))
            .map_err(|error| error.kind());
        assert!(!matches!(stayed, Ok(()) | Err(io::ErrorKind::ResourceBusy)), "{stayed:?}");
    }
}
