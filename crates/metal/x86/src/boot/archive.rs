//! The files that a loader gives, in one: a cpio archive of the "new ASCII" form (Linux,
//! Documentation/driver-api/early-userspace/buffer-format.rst).

use core::str;

const HEADER: usize = 110;
const TRAILER: &[u8] = b"TRAILER!!!";

/// The contents of the file `name`, in the place that it has in the archive. A leading `./` of a name does not count.
/// `None` if there is none of that name in what can be read of the archive.
pub fn find<'a>(archive: &'a [u8], name: &str) -> Option<&'a [u8]> {
    files(archive).find(|(its, _)| *its == name.as_bytes()).map(|(_, contents)| contents)
}

/// Each file, by name, up to the trailer, or to what is no header or ends too early.
pub fn files(archive: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = archive;
    core::iter::from_fn(move || {
        let (name, contents, behind) = entry(rest)?;
        rest = behind;
        (name != TRAILER).then_some((name.strip_prefix(b"./").unwrap_or(name), contents))
    })
}

/// Whether the archive has its trailer, behind what can be read. One that was cut has not, and neither has what is no archive.
pub fn is_whole(archive: &[u8]) -> bool {
    let mut rest = archive;
    while let Some((name, _, behind)) = entry(rest) {
        if name == TRAILER {
            return true;
        }
        rest = behind;
    }
    false
}

fn entry(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let header = bytes.get(..HEADER)?;
    if !matches!(&header[..6], b"070701" | b"070702") {
        return None;
    }
    // Thirteen numbers of eight hexadecimal digits; the seventh and the twelfth are sizes.
    let number = |index: usize| {
        let digits = header.get(6 + 8 * index..14 + 8 * index)?;
        usize::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
    };
    let (size, name_size) = (number(6)?, number(11)?);
    let padded = |end: usize| Some(end.checked_add(3)? & !3);
    let name_end = HEADER.checked_add(name_size)?;
    let contents = padded(name_end)?;
    let end = contents.checked_add(size)?;
    let name = bytes.get(HEADER..name_end.checked_sub(1)?)?;
    // The last entry may end without its padding.
    let behind = bytes.get(padded(end)?..).unwrap_or_default();
    Some((name, bytes.get(contents..end)?, behind))
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn archive(files: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, contents) in files.iter().chain(&[(TRAILER, &b""[..])]) {
            bytes.extend_from_slice(b"070701");
            for index in 0..13 {
                let value = match index {
                    6 => contents.len(),
                    11 => name.len() + 1,
                    _ => 0,
                };
                bytes.extend_from_slice(std::format!("{value:08X}").as_bytes());
            }
            bytes.extend_from_slice(name);
            bytes.push(0);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes.extend_from_slice(contents);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    #[test]
    fn a_cut_archive_has_the_files_before_the_cut() {
        let whole = archive(&[(b"./kernel", b"123456789"), (b"initrd", b"abc")]);
        for cut in 0..whole.len() {
            let found = find(&whole[..cut], "kernel");
            assert_eq!(found.is_some(), cut >= 120 + 9, "{cut}");
            assert!(!is_whole(&whole[..cut]), "{cut}");
        }
        assert!(is_whole(&whole));
        assert_eq!(find(&whole, "initrd"), Some(&b"abc"[..]));
        assert_eq!(find(&whole, "TRAILER!!!"), None);
    }

    proptest! {
        #[test]
        fn each_file_is_found(
            files in prop::collection::btree_map("[a-z]{1,9}", prop::collection::vec(any::<u8>(), 0..40), 0..6),
        ) {
            let list: Vec<_> = files.iter().map(|(name, contents)| (name.as_bytes(), &contents[..])).collect();
            let bytes = archive(&list);
            for (name, contents) in &files {
                prop_assert_eq!(find(&bytes, name), Some(&contents[..]));
            }
            prop_assert_eq!(super::files(&bytes).count(), files.len());
        }

        #[test]
        fn no_bytes_are_too_bad(cut in 0_usize..300, changes in prop::collection::vec((0_usize..300, any::<u8>()), 0..8)) {
            let mut bytes = archive(&[(b"kernel", b"123456789"), (b"initrd", b"abc")]);
            for (at, byte) in changes {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            bytes.truncate(cut);
            prop_assert!(files(&bytes).count() <= 3);
        }
    }
}
