//! Whose memory the merger would merge beside one's own.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::io::Errno;

/// The PID namespace that has all processes: `PROC_PID_INIT_INO`, `include/linux/proc_ns.h`.
const OF_THE_HOST: &str = "pid:[4026531836]";

/// A process whose memory would be merged, or may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stranger {
    /// A process with mergeable memory.
    Process {
        /// Its number.
        pid: u32,
        /// Its name; control characters are escaped.
        name: String,
    },
    /// A process of which cannot be read whether it has such memory.
    Unreadable {
        /// Its number.
        pid: u32,
        /// Its name.
        name: String,
        /// What the system said.
        why: String,
    },
    /// Processes that are not in this process's PID namespace.
    Unseen,
}

impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, name } => write!(f, "process {pid} ({name}) has mergeable memory"),
            Self::Unreadable { pid, name, why } => {
                write!(f, "process {pid} ({name}) may have mergeable memory: {why}")
            }
            Self::Unseen => {
                f.write_str("processes outside of this PID namespace may have mergeable memory")
            }
        }
    }
}

/// All there are, by what `proc` (`/proc`) tells, but for the process `own`.
pub(super) fn all(proc: &Path, own: u32) -> Vec<Stranger> {
    let mut strangers = Vec::new();
    match fs::read_link(proc.join("self/ns/pid")) {
        Ok(namespace) if namespace == Path::new(OF_THE_HOST) => {}
        _ => strangers.push(Stranger::Unseen),
    }
    let Ok(entries) = fs::read_dir(proc) else { return vec![Stranger::Unseen] };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let mut pids: Vec<u32> = pids.filter(|pid| *pid != own).collect();
    pids.sort_unstable();
    strangers
        .extend(pids.into_iter().filter_map(|pid| of_process(&proc.join(pid.to_string()), pid)));
    strangers
}

fn of_process(process: &Path, pid: u32) -> Option<Stranger> {
    let name = || {
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        let escape = |c: char| match c {
            _ if c.is_control() => c.escape_default().to_string(),
            _ => c.to_string(),
        };
        name.trim_end().chars().map(escape).collect()
    };
    match has_mergeable(process) {
        Ok(true) => Some(Stranger::Process { pid, name: name() }),
        Ok(false) => None,
        Err(error) if is_gone(&error) => None,
        Err(error) => Some(Stranger::Unreadable { pid, name: name(), why: error.to_string() }),
    }
}

/// It has ended since it was listed.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

/// Whether a process has memory that may be merged, or will have all that it maps from now on (`PR_SET_MEMORY_MERGE`).
///
/// `ksm_stat` says the latter since Linux v6.4 and the former since v6.15; otherwise each mapping's flags do.
fn has_mergeable(process: &Path) -> io::Result<bool> {
    let stat = match fs::read_to_string(process.join("ksm_stat")) {
        Ok(stat) => stat,
        // Older kernels have no such file; whether the process is gone, the next one says.
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let says = |field: &str| {
        let value = stat.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.map(|value| value.trim() == "yes")
    };
    match (says("ksm_mergeable"), says("ksm_merge_any")) {
        (Some(true), _) | (_, Some(true)) => Ok(true),
        (Some(false), _) => Ok(false),
        (None, _) => {
            let smaps = fs::read_to_string(process.join("smaps"))?;
            let mut flags = smaps.lines().filter_map(|line| line.strip_prefix("VmFlags:"));
            Ok(flags.any(|flags| flags.split_whitespace().any(|flag| flag == "mg")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    /// A directory that looks like /proc, removed when dropped.
    struct Proc(PathBuf);

    impl Proc {
        fn new(name: &str, namespace: &str) -> Self {
            let name = format!("mayfly-proc-{}-{name}", std::process::id());
            let proc = Self(std::env::temp_dir().join(name));
            fs::create_dir_all(proc.0.join("self/ns")).unwrap();
            symlink(namespace, proc.0.join("self/ns/pid")).unwrap();
            proc
        }

        fn process(&self, pid: u32, files: &[(&str, &str)]) {
            let process = self.0.join(pid.to_string());
            fs::create_dir_all(&process).unwrap();
            fs::write(process.join("comm"), format!("p{pid}\x07\n")).unwrap();
            for (name, text) in files {
                fs::write(process.join(name), text).unwrap();
            }
        }

        fn strangers(&self) -> Vec<String> {
            all(&self.0, 7).iter().map(ToString::to_string).collect()
        }
    }

    impl Drop for Proc {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    const MERGEABLE: &str = "ksm_merge_any: no\nksm_mergeable: yes\n";

    #[test]
    fn strangers_are_those_whose_memory_may_be_merged_now_or_later() {
        let proc = Proc::new("yes", OF_THE_HOST);
        proc.process(7, &[("ksm_stat", MERGEABLE)]);
        proc.process(20, &[("ksm_stat", MERGEABLE)]);
        proc.process(21, &[("ksm_stat", "ksm_merge_any: no\nksm_mergeable: no\n")]);
        proc.process(22, &[("ksm_stat", "ksm_merge_any: yes\nksm_mergeable: no\n")]);
        let say = |pid| format!(r"process {pid} (p{pid}\u{{7}}) has mergeable memory");
        assert_eq!(proc.strangers(), [say(20), say(22)]);
    }

    #[test]
    fn where_ksm_stat_does_not_say_each_mappings_flags_do() {
        let proc = Proc::new("smaps", OF_THE_HOST);
        let smaps = "7f0 rw-p\nRss: 4 kB\nVmFlags: rd wr mr mw me ac sd mg\n";
        proc.process(30, &[("ksm_stat", "ksm_merge_any: no\n"), ("smaps", smaps)]);
        proc.process(31, &[("smaps", smaps)]);
        proc.process(32, &[("smaps", "7f0 rw-p mg\nVmFlags: rd wr\n")]);
        proc.process(33, &[("ksm_stat", ""), ("smaps", "")]);
        let found = proc.strangers();
        assert!(
            found[0].contains("30") && found[1].contains("31") && found.len() == 2,
            "{found:?}"
        );
    }

    #[test]
    fn what_cannot_be_read_counts_and_who_has_ended_does_not() {
        let proc = Proc::new("unreadable", OF_THE_HOST);
        proc.process(40, &[]);
        proc.process(41, &[("ksm_stat", "ksm_merge_any: no\n")]);
        fs::create_dir(proc.0.join("41/smaps")).unwrap();
        let found = proc.strangers();
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("process 41 (p41"), "{found:?}");
        assert!(found[0].contains("may have mergeable memory: "), "{found:?}");
    }

    #[test]
    fn in_another_pid_namespace_nobody_knows_who_else_there_is() {
        let proc = Proc::new("namespace", "pid:[4026532999]");
        assert_eq!(all(&proc.0, 7), [Stranger::Unseen]);
    }

    #[test]
    fn of_this_host_whatever_there_is_can_be_listed() {
        for stranger in all(Path::new("/proc"), std::process::id()) {
            println!("{stranger}");
        }
    }
}
