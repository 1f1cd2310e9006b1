//! What a process's cgroups leave it of memory, in either version of them.
//!
//! Each level from the process's own up to the hierarchy's root may have a limit, and the least of what they leave
//! counts. File pages in use are the kernel's to take back, so they are not counted as used
//! (`Documentation/admin-guide/cgroup-v2.rst`, `cgroup-v1/memory.rst`).

use std::fs;
use std::path::{Path, PathBuf};

/// The files of one version.
struct Files {
    limit: &'static str,
    usage: &'static str,
    /// Fields of `memory.stat` that count file pages.
    file: [&'static str; 2],
}

const V1: Files = Files {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    file: ["total_inactive_file", "total_active_file"],
};

const V2: Files =
    Files { limit: "memory.max", usage: "memory.current", file: ["inactive_file", "active_file"] };

/// Bytes that are left, if there is a limit.
pub(super) fn left() -> Option<u64> {
    let read = |name| fs::read_to_string(Path::new("/proc/self").join(name)).unwrap_or_default();
    left_in(&read("cgroup"), &read("mountinfo"))
}

fn left_in(cgroup: &str, mountinfo: &str) -> Option<u64> {
    hierarchies(cgroup, mountinfo)
        .filter_map(|(mount, own, files)| left_below(&mount, &own, &files))
        .min()
}

/// Where the hierarchies are mounted that limit memory, the process's directory in each, and what files are there.
fn hierarchies(cgroup: &str, mountinfo: &str) -> impl Iterator<Item = (PathBuf, PathBuf, Files)> {
    cgroup.lines().filter_map(move |line| {
        let [number, controllers, path] =
            line.splitn(3, ':').collect::<Vec<_>>().try_into().ok()?;
        let (fs_type, files) = match controllers {
            "" if number == "0" => ("cgroup2", V2),
            _ if controllers.split(',').any(|name| name == "memory") => ("cgroup", V1),
            _ => return None,
        };
        let (root, mount) = mountinfo.lines().find_map(|line| mounted(line, fs_type))?;
        // A mount may show a part of the hierarchy alone, such as a container's own.
        let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
        let own = below.components().fold(PathBuf::from(mount), |own, part| own.join(part));
        Some((mount.into(), own, files))
    })
}

/// Root and mount point in a line of `mountinfo`, if it is a hierarchy that has memory's files (`proc_pid_mountinfo(5)`).
fn mounted<'a>(line: &'a str, fs_type: &str) -> Option<(&'a str, &'a str)> {
    let (mount, options) = line.split_once(" - ")?;
    let mut options = options.split(' ');
    let is_it = options.next() == Some(fs_type)
        && (fs_type == "cgroup2" || options.nth(1)?.split(',').any(|option| option == "memory"));
    let mut fields = mount.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    is_it
        .then_some((root.trim_end_matches('/'), point))
        .map(|(root, point)| (if root.is_empty() { "/" } else { root }, point))
}

/// The least that a directory or one above it leaves, up to where the hierarchy is mounted.
fn left_below(mount: &Path, own: &Path, files: &Files) -> Option<u64> {
    own.ancestors()
        .take_while(|directory| directory.starts_with(mount))
        .filter_map(|directory| left_by(directory, files))
        .min()
}

fn left_by(directory: &Path, files: &Files) -> Option<u64> {
    let read = |name| fs::read_to_string(directory.join(name)).ok();
    let number = |name| read(name)?.trim().parse::<u64>().ok();
    // "max", and the largest number of pages in version 1, are none.
    let limit = number(files.limit).filter(|limit| *limit < u64::MAX >> 2)?;
    let stat = read("memory.stat").unwrap_or_default();
    let count = |field: &str| {
        let value = stat.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(' '));
        value.and_then(|value| value.parse::<u64>().ok()).unwrap_or(0)
    };
    let file: u64 = files.file.into_iter().map(count).sum();
    Some(limit.saturating_sub(number(files.usage)?.saturating_sub(file)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that looks like a hierarchy, removed when dropped.
    struct Hierarchy(PathBuf);

    impl Hierarchy {
        fn new(name: &str) -> Self {
            let name = format!("mayfly-cgroup-{}-{name}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn level(&self, path: &str, files: &[(&str, &str)]) {
            let level = self.0.join(path);
            fs::create_dir_all(&level).unwrap();
            for (name, text) in files {
                fs::write(level.join(name), text).unwrap();
            }
        }

        fn mounted(&self, root: &str, kind: &str) -> String {
            format!("31 23 0:28 {root} {} rw,relatime shared:9 - {kind}\n", self.0.display())
        }
    }

    impl Drop for Hierarchy {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn the_narrowest_level_of_version_2_counts_and_file_pages_do_not() {
        let of = Hierarchy::new("v2");
        of.level("", &[]);
        of.level("slice", &[("memory.max", "1000\n"), ("memory.current", "900\n")]);
        let stat = "anon 1\ninactive_file 500\nactive_file 300\n";
        of.level("slice/own", &[("memory.max", "max\n"), ("memory.current", "400\n")]);
        let mountinfo = of.mounted("/", "cgroup2 cgroup2 rw");
        assert_eq!(left_in("0::/slice/own\n", &mountinfo), Some(100));
        of.level("slice", &[("memory.stat", stat)]);
        assert_eq!(left_in("0::/slice/own\n", &mountinfo), Some(900));
        assert_eq!(left_in("0::/\n", &mountinfo), None);
    }

    #[test]
    fn version_1_is_found_by_its_controller_beside_an_empty_version_2() {
        let of = Hierarchy::new("v1");
        of.level(
            "own",
            &[
                ("memory.limit_in_bytes", "5000\n"),
                ("memory.usage_in_bytes", "2000\n"),
                ("memory.stat", "total_inactive_file 400\ntotal_active_file 100\n"),
            ],
        );
        of.level(
            "",
            &[
                ("memory.limit_in_bytes", "9223372036854771712\n"),
                ("memory.usage_in_bytes", "7000\n"),
            ],
        );
        let mountinfo = format!(
            "32 31 0:29 / /nowhere rw - cgroup cgroup rw,cpu\n{}",
            of.mounted("/", "cgroup cgroup rw,memory")
        );
        assert_eq!(left_in("4:memory:/own\n1:cpu:/\n0::/\n", &mountinfo), Some(3500));
    }

    #[test]
    fn a_mount_that_shows_a_part_alone_is_gone_into_from_there() {
        let of = Hierarchy::new("part");
        of.level("own", &[("memory.max", "10\n"), ("memory.current", "4\n")]);
        let mountinfo = of.mounted("/containers/one", "cgroup2 cgroup2 rw");
        assert_eq!(left_in("0::/containers/one/own\n", &mountinfo), Some(6));
    }
}
