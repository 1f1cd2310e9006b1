//! An initial file system, as Linux unpacks it: `Documentation/driver-api/early-userspace/buffer-format.rst`.

/// Files and directories, one after the other.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    inodes: usize,
}

/// `S_IFDIR` and `S_IFREG`, with permissions for all users.
const DIRECTORY: usize = 0o040_755;
const EXECUTABLE: usize = 0o100_755;

impl Archive {
    /// A directory.
    pub fn directory(&mut self, name: &str) {
        self.entry(name, DIRECTORY, &[]);
    }

    /// A file that may be run.
    pub fn file(&mut self, name: &str, contents: &[u8]) {
        self.entry(name, EXECUTABLE, contents);
    }

    /// All of it.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: usize, contents: &[u8]) {
        self.inodes += 1;
        // Inode, mode, user, group, links, time, size, four numbers of devices, length of the name, checksum.
        let fields = [self.inodes, mode, 0, 0, 1, 0, contents.len(), 0, 0, 0, 0, name.len() + 1, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").into_bytes());
        }
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn every_part_begins_at_a_multiple_of_four_and_says_how_long_it_is() {
        let mut archive = Archive::default();
        archive.directory("dev");
        archive.file("init", b"#!/bin/sh");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let second = 110 + 4 + 2;
        assert_eq!(&bytes[second..second + 6], b"070701");
        assert_eq!(&bytes[second + 54..second + 62], b"00000009", "the size");
        let name = second + 110;
        assert_eq!(&bytes[name..name + 5], b"init\0");
        let contents = (name + 5).next_multiple_of(4);
        assert_eq!(&bytes[contents..contents + 9], b"#!/bin/sh");
        assert!(bytes.windows(11).any(|part| part == b"TRAILER!!!\0"));
    }

    #[test]
    fn cpio_reads_it_where_there_is_one() {
        let mut archive = Archive::default();
        archive.directory("bin");
        archive.file("bin/a", &[7; 4097]);
        let mut list = Command::new("cpio");
        list.args(["-t", "--quiet"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut child) = list.spawn() else { return };
        child.stdin.take().unwrap().write_all(&archive.finish()).unwrap();
        let printed = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(printed.stdout).unwrap(), "bin\nbin/a\n");
    }
}
