//! For how long a control group's limit of processor time has held the program back.

use std::fs;
use std::path::{Path, PathBuf};

/// Moments that are kept.
const MOST: usize = 10_000;
/// Between two looks at which groups there are: a program may be moved, in nanoseconds.
const AGAIN: u64 = 200_000_000;

/// The groups that limit a thread, and what was seen of them.
#[derive(Default)]
pub(super) struct Limits {
    /// Files that say how long a group was held back, of the thread's group and those around it.
    files: Vec<PathBuf>,
    of: Option<(i32, u64)>,
    /// When the time was seen to have grown, and how long it was then; what there was before has no part in it.
    pub(super) seen: Vec<(u64, u64)>,
    before: Option<u64>,
    total: u64,
}

impl Limits {
    /// Looks at the groups of a thread.
    pub(super) fn look(&mut self, tid: Option<i32>, now: u64) {
        let Some(tid) = tid else { return };
        if self.of.is_none_or(|(of, at)| of != tid || now.saturating_sub(at) >= AGAIN) {
            let files = limits_of(tid);
            if files != self.files {
                (self.files, self.before) = (files, None);
            }
            self.of = Some((tid, now));
        }
        if self.files.is_empty() {
            return;
        }
        let read = |file: &PathBuf| held_back(&fs::read_to_string(file).ok()?);
        let time: u64 = self.files.iter().filter_map(read).sum();
        let grown = self.before.map_or(0, |before| time.saturating_sub(before));
        self.before = Some(time);
        if grown > 0 && self.seen.len() < MOST {
            self.total += grown;
            self.seen.push((now, self.total));
        }
    }
}

/// Nanoseconds for which a group was held back, as its `cpu.stat` says: of cgroup2 in microseconds.
fn held_back(stat: &str) -> Option<u64> {
    let value = |key: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().parse::<u64>().ok()
    };
    value("throttled_usec ").map(|time| time.saturating_mul(1000)).or(value("throttled_time "))
}

/// The `cpu.stat` of each group with a limit that a thread is in.
fn limits_of(tid: i32) -> Vec<PathBuf> {
    let read = |path: String| fs::read_to_string(path).unwrap_or_default();
    let groups = read(format!("/proc/{tid}/cgroup"));
    let mounts = read("/proc/self/mountinfo".to_owned());
    let Some((top, group)) = place(&groups, &mounts) else { return Vec::new() };
    let within = group.ancestors().map(|part| top.join(part));
    within.filter(|path| is_limited(path)).map(|path| path.join("cpu.stat")).collect()
}

fn is_limited(group: &Path) -> bool {
    let read = |name: &str| fs::read_to_string(group.join(name)).unwrap_or_default();
    let quota: i64 = read("cpu.cfs_quota_us").trim().parse().unwrap_or(-1);
    let most = read("cpu.max");
    quota > 0 || !most.is_empty() && !most.starts_with("max")
}

/// Where the groups are mounted that have the processors, and which of them a thread is in: of `/proc/TID/cgroup` and of
/// `/proc/self/mountinfo`.
fn place(groups: &str, mounts: &str) -> Option<(PathBuf, PathBuf)> {
    let of = |wanted: &dyn Fn(&str) -> bool| {
        groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            wanted(controllers).then(|| path.to_owned())
        })
    };
    let has_cpu = |names: &str| names.split(',').any(|name| name == "cpu");
    let mounted = |wanted: &dyn Fn(&str, &str) -> bool| {
        mounts.lines().find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mut fields = before.split(' ').skip(3);
            let (root, at) = (fields.next()?, fields.next()?);
            let mut last = after.split(' ');
            let kind = last.next()?;
            let options = last.nth(1)?;
            wanted(kind, options).then(|| (root.to_owned(), at.to_owned()))
        })
    };
    // A controller is in one hierarchy alone: the older has it, or the newer.
    let old = of(&has_cpu).zip(mounted(&|kind, options| kind == "cgroup" && has_cpu(options)));
    let new = || of(&str::is_empty).zip(mounted(&|kind, _| kind == "cgroup2"));
    let (path, (root, at)) = old.or_else(new)?;
    let group = Path::new(&path).strip_prefix(root).ok()?;
    Some((at.into(), group.strip_prefix("/").unwrap_or(group).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_says_how_long_it_was_held_back_in_either_version() {
        let new = "usage_usec 7\nnr_throttled 3\nthrottled_usec 250\nburst_usec 0\n";
        let old = "nr_periods 9\nnr_throttled 3\nthrottled_time 250000\n";
        assert_eq!((held_back(new), held_back(old)), (Some(250_000), Some(250_000)));
        assert_eq!((held_back(""), held_back("throttled_usec x\n")), (None, None));
    }

    #[test]
    fn the_group_is_found_where_the_processors_are() {
        let place = |groups: &str, mounts: &str| {
            let found = place(groups, mounts)?;
            Some((found.0.to_str()?.to_owned(), found.1.to_str()?.to_owned()))
        };
        let two = "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let one = "31 25 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n";
        let at = |top: &str, group: &str| Some((top.to_owned(), group.to_owned()));
        assert_eq!(place("0::/a/b\n", two), at("/sys/fs/cgroup", "a/b"));
        let both = "3:cpu,cpuacct:/x\n0::/a/b\n";
        assert_eq!(place(both, &[two, one].concat()), at("/sys/fs/cgroup/cpu", "x"));
        // Only a part of the groups is mounted, or nothing.
        let part = "30 25 0:26 /a /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(place("0::/a/b\n", part), at("/sys/fs/cgroup", "b"));
        assert_eq!(
            (place("0::/c\n", part), place("0::/a\n", ""), place("", two)),
            (None, None, None)
        );
        assert_eq!(place("0::/\n", two), at("/sys/fs/cgroup", ""));
    }

    #[test]
    fn what_has_grown_is_kept_from_the_first_look_on() {
        let file = std::env::temp_dir().join(format!("limits-{}", std::process::id()));
        let mut limits =
            Limits { files: vec![file.clone()], of: Some((1, 0)), ..Limits::default() };
        for (at, time) in [(1, 500), (2, 500), (3, 700), (4, 700), (5, 1000)] {
            fs::write(&file, format!("throttled_time {time}\n")).unwrap();
            limits.look(Some(1), at);
        }
        fs::remove_file(&file).unwrap();
        assert_eq!(limits.seen, [(3, 200), (5, 500)]);
    }
}
