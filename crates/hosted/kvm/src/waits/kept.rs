//! Keeps what was measured for as long as the host is up.
//!
//! The file has lines: the format, the host, the pairs, and how many pairs there are, so that a file that was cut off
//! is not taken for whole. The writer replaces the file by renaming. A reader believes it only if the file belongs to
//! the reader's user.

use std::env;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::Waits;
use crate::{Call, Facts};

const FORMAT: &str = "mayfly-waits/1";

/// More bytes than any such file has.
const MOST: u64 = 64 << 10;

/// Where they are kept.
pub(super) fn path() -> Option<PathBuf> {
    if geteuid().is_root() {
        return Some("/run/mayfly/waits".into());
    }
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("mayfly/waits"))
}

/// What they hold for: this boot, this kernel, and KVM's modules as they are loaded. One line. A host that does not say
/// which boot it is has none.
pub(super) fn host() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let modules = Facts::of_host().modules.unwrap_or_default();
    let line = format!("{} {release} {modules}", boot.trim());
    (!line.chars().any(char::is_control)).then_some(line)
}

/// What is kept at `path` of `host`.
pub(super) fn read(path: &Path, host: &str) -> Option<Waits> {
    let file = File::open(path).ok()?;
    let about = file.metadata().ok()?;
    // Another user's file could say anything.
    if !about.is_file() || about.uid() != geteuid().as_raw() {
        return None;
    }
    let mut text = String::new();
    file.take(MOST).read_to_string(&mut text).ok()?;
    parse(&text, host)
}

/// Keeps `waits`, if it can.
pub(super) fn write(path: &Path, host: &str, waits: &Waits) {
    let Some(directory) = path.parent() else { return };
    let temporary = directory.join(format!(".waits.{}", std::process::id()));
    let written = || -> std::io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o644)
            .open(&temporary)?;
        file.write_all(text(host, waits).as_bytes())?;
        fs::rename(&temporary, path)
    };
    if written().is_err() {
        let _ = fs::remove_file(&temporary);
    }
}

fn text(host: &str, waits: &Waits) -> String {
    let mut text = format!("{FORMAT}\nhost {host}\n");
    for ((after, call), wait) in &waits.of {
        // Writing to a String does not fail.
        let _ = writeln!(text, "wait {after} {call} {wait}");
    }
    let _ = write!(text, "vcpus-in-parallel {}\nend {}\n", waits.parallel_vcpus, waits.of.len());
    text
}

fn parse(text: &str, host: &str) -> Option<Waits> {
    let mut lines = text.strip_suffix('\n')?.split('\n');
    if lines.next()? != FORMAT || lines.next()?.strip_prefix("host ")? != host {
        return None;
    }
    let mut waits = Waits::default();
    for line in lines.by_ref() {
        if let Some(value) = line.strip_prefix("vcpus-in-parallel ") {
            waits.parallel_vcpus = value.parse().ok()?;
            break;
        }
        let mut words = line.strip_prefix("wait ")?.split(' ');
        let (after, call): (Call, Call) =
            (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let wait = words.next()?.parse().ok()?;
        if words.next().is_some() || waits.of.insert((after, call), wait).is_some() {
            return None;
        }
    }
    let count: usize = lines.next()?.strip_prefix("end ")?.parse().ok()?;
    (lines.next().is_none() && count == waits.of.len()).then_some(waits)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;

    use super::*;

    fn waits() -> Waits {
        let of = [
            ((Call::IrqchipFull, Call::MemslotAdd), 6_100_000),
            ((Call::MemslotAdd, Call::IrqchipFull), 0),
        ];
        Waits { of: of.into(), parallel_vcpus: true }
    }

    fn scratch(name: &str) -> PathBuf {
        let directory = env::temp_dir().join(format!("mayfly-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        directory
    }

    #[test]
    fn what_is_kept_is_found_again_by_the_same_host_alone() {
        let directory = scratch("kept");
        let path = directory.join("deep/waits");
        write(&path, "boot 6.18", &waits());
        assert_eq!(read(&path, "boot 6.18"), Some(waits()));
        assert_eq!(read(&path, "boot 6.19"), None);
        write(&path, "another", &Waits::default());
        assert_eq!(
            (read(&path, "boot 6.18"), read(&path, "another")),
            (None, Some(Waits::default()))
        );
        let names: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().collect();
        assert_eq!(names.len(), 1, "no temporary file is left: {names:?}");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_is_not_what_was_written_is_ignored() {
        let whole = text("h", &waits());
        assert_eq!(parse(&whole, "h"), Some(waits()));
        for at in 0..whole.len() {
            assert_eq!(parse(&whole[..at], "h"), None, "cut off at {at}");
        }
        for (one, other) in [
            ("memslot-add", "memslot"),
            ("6100000", "-1"),
            ("6100000", "6100000 7"),
            ("true", "yes"),
            ("end 2", "end 3"),
            ("end 2\n", "end 2\nmore\n"),
            ("waits/1", "waits/2"),
        ] {
            assert_eq!(parse(&whole.replacen(one, other, 1), "h"), None, "{other}");
        }
    }

    #[test]
    fn a_directory_a_device_and_what_is_no_text_are_ignored_and_not_in_the_way() {
        let directory = scratch("garbage");
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("waits");
        assert_eq!(read(&directory, "h"), None);
        symlink("/dev/zero", &path).unwrap();
        assert_eq!(read(&path, "h"), None);
        write(&path, "h", &waits());
        assert_eq!(read(&path, "h"), Some(waits()), "the link is replaced, not written through");
        fs::write(&path, [0xff; 100]).unwrap();
        assert_eq!(read(&path, "h"), None);
        // Where a directory is to be, a file is.
        write(&path.join("waits"), "h", &waits());
        fs::remove_dir_all(directory).unwrap();
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(lines in "(mayfly-waits/1\nhost h\n)?((wait|end|vcpus-in-parallel) [a-z0-9 -]{0,30}\n?){0,4}") {
            let _ = parse(&lines, "h");
        }
    }
}
