//! Where tracefs is, and instances of our own in it.
//!
//! If tracefs is not mounted, it is mounted for this process alone, in no directory: it goes with its descriptor.
//! An instance bears the number of the process that made it, and when that began; one whose maker is gone is taken away by
//! the next that comes. The kernel refuses to remove an instance that is being read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::recorder::proc::fields;

/// Where it is mounted, mostly; and before Linux 4.1.
const MOUNTED: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// What all instances of ours begin with, and the groups of our own events.
const PREFIX: &str = "mayfly-";
const GROUP: &str = "mayfly_";
/// Where uprobes are defined.
const UPROBES: &str = "uprobe_events";

/// tracefs.
pub(super) struct Place {
    path: PathBuf,
    /// Keeps it mounted.
    mount: Option<OwnedFd>,
}

impl Place {
    /// Finds it, or mounts it.
    pub(super) fn find() -> io::Result<Self> {
        let mounted =
            MOUNTED.map(Path::new).into_iter().find(|path| path.join("instances").is_dir());
        if let Some(path) = mounted {
            return Ok(Self { path: path.to_owned(), mount: None });
        }
        let mount = mounted_for_us()?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        // Followed by its number, it would be the link that is opened.
        if path.join("instances").is_dir() {
            Ok(Self { path, mount: Some(mount) })
        } else {
            Err(io::Error::new(io::ErrorKind::Unsupported, "tracefs has no instances"))
        }
    }

    /// Descriptors that must stay open for it.
    pub(super) fn descriptor(&self) -> Option<i32> {
        self.mount.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Takes away instances and uprobes whose maker is gone.
    pub(super) fn clean(&self) {
        let Ok(entries) = fs::read_dir(self.path.join("instances")) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name
                .to_str()
                .and_then(maker)
                .is_some_and(|(pid, began)| began_at(pid) != Some(began))
            {
                let _ = fs::remove_dir(entry.path());
            }
        }
        self.clean_uprobes();
    }

    /// Defines a uprobe, or takes one away.
    pub(super) fn define(&self, uprobe: &str) -> io::Result<()> {
        write(&self.path, UPROBES, uprobe)
    }

    /// Takes away the uprobes whose maker is gone.
    fn clean_uprobes(&self) {
        let defined = fs::read_to_string(self.path.join(UPROBES)).unwrap_or_default();
        for name in defined.lines().filter_map(of_ours) {
            let is_over = |(pid, began)| began_at(pid) != Some(began);
            if definer(name).is_some_and(is_over) {
                let _ = self.define(&format!("-:{name}"));
            }
        }
    }

    /// Makes an instance of this process's own.
    pub(super) fn instance(&self, part: &str) -> io::Result<Instance> {
        let pid = std::process::id();
        let began = began_at(pid).unwrap_or(0);
        let path = self.path.join(format!("instances/{PREFIX}{pid}-{began}{part}"));
        fs::create_dir(&path)?;
        let instance = Instance { path };
        instance.write("tracing_on", "0")?;
        // The clock of everything else that is written down.
        instance.write("trace_clock", "mono")?;
        Ok(instance)
    }
}

fn mounted_for_us() -> io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

/// The process that has made an instance with this name, and when that had begun.
fn maker(name: &str) -> Option<(u32, u64)> {
    let mut numbers = name.strip_prefix(PREFIX)?.split('-');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The group of this process's own events.
pub(super) fn group() -> String {
    let pid = std::process::id();
    format!("{GROUP}{pid}_{}", began_at(pid).unwrap_or(0))
}

/// The name of a uprobe of ours, of a line of `uprobe_events`: `p:GROUP/NAME PATH:OFFSET`.
fn of_ours(line: &str) -> Option<&str> {
    let name = line.strip_prefix("p:")?.split(' ').next()?;
    name.starts_with(GROUP).then_some(name)
}

/// The process that has defined a uprobe of ours, and when that had begun.
fn definer(name: &str) -> Option<(u32, u64)> {
    let (group, _) = name.strip_prefix(GROUP)?.split_once('/')?;
    let (pid, began) = group.split_once('_')?;
    Some((pid.parse().ok()?, began.parse().ok()?))
}

fn write(directory: &Path, file: &str, text: &str) -> io::Result<()> {
    let opened = OpenOptions::new().append(true).open(directory.join(file));
    let mut opened = opened.map_err(|e| named(file, &e))?;
    opened.write_all(text.as_bytes()).map_err(|e| named(file, &e))
}

/// When a process began, in the kernel's unit; none where it is gone.
fn began_at(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The 22nd field.
    fields(&stat)?.nth(19)?.parse().ok()
}

/// An instance: buffers and events of our own, which no other process sees. It is gone when this is dropped.
pub(super) struct Instance {
    path: PathBuf,
}

impl Instance {
    pub(super) fn write(&self, file: &str, text: &str) -> io::Result<()> {
        write(&self.path, file, text)
    }

    /// What is written, as text; reading does not wait.
    pub(super) fn pipe(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(CWD, self.path.join("trace_pipe"), flags, Mode::empty())?.into())
    }

    pub(super) fn text(&self, file: &str) -> io::Result<String> {
        fs::read_to_string(self.path.join(file)).map_err(|e| named(file, &e))
    }

    /// Whether it has an event.
    pub(super) fn has(&self, event: &str) -> bool {
        self.path.join("events").join(event).is_dir()
    }

    /// What each processor writes, in binary.
    pub(super) fn pipes(&self) -> io::Result<Vec<OwnedFd>> {
        let mut pipes = Vec::new();
        for entry in fs::read_dir(self.path.join("per_cpu"))? {
            let path = entry?.path().join("trace_pipe_raw");
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            pipes.push(rustix::fs::openat(CWD, &path, flags, Mode::empty())?);
        }
        Ok(pipes)
    }

    /// Events that were overwritten before they were read, or had no room.
    pub(super) fn lost(&self) -> u64 {
        let Ok(entries) = fs::read_dir(self.path.join("per_cpu")) else { return 0 };
        let of = |path: PathBuf| {
            let text = fs::read_to_string(path.join("stats")).unwrap_or_default();
            lost(&text)
        };
        entries.flatten().map(|entry| of(entry.path())).sum()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

/// What `per_cpu/cpuN/stats` says is lost.
fn lost(stats: &str) -> u64 {
    let lines = stats.lines().filter_map(|line| line.split_once(": "));
    let meant =
        lines.filter(|(key, _)| ["overrun", "commit overrun", "dropped events"].contains(key));
    meant.filter_map(|(_, number)| number.trim().parse::<u64>().ok()).sum()
}

fn named(file: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{file}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_s_name_says_who_made_it_and_those_of_others_say_nothing() {
        assert_eq!(maker("mayfly-12-345"), Some((12, 345)));
        assert_eq!(maker("mayfly-12-345-ends"), Some((12, 345)));
        for other in ["mayfly", "mayfly-", "mayfly-12", "mayfly-x-1", "amayfly-1-1", "foo"] {
            assert_eq!(maker(other), None, "{other}");
        }
        let me = std::process::id();
        assert!(began_at(me).is_some() && began_at(me) == began_at(me));
        assert_eq!(began_at(u32::MAX), None);
    }

    #[test]
    fn a_uprobe_s_group_says_who_defined_it_and_those_of_others_say_nothing() {
        let line = "p:mayfly_12_345/site0 /usr/bin/vmm:0x0000000000001010(0x3008)";
        assert_eq!(of_ours(line).and_then(definer), Some((12, 345)));
        for other in
            ["p:mine/site0 /a:0x1", "r:mayfly_12_345/site0 /a:0x1", "p:mayfly_12/site0 /a:0x1", ""]
        {
            assert_eq!(of_ours(other).and_then(definer), None, "{other}");
        }
    }

    #[test]
    fn what_was_overwritten_and_what_had_no_room_is_lost() {
        let stats = "entries: 5\noverrun: 7\ncommit overrun: 1\nbytes: 99\ndropped events: 2\nread events: 3\n";
        assert_eq!((lost(stats), lost(""), lost("overrun: x\n")), (10, 0, 0));
    }
}
