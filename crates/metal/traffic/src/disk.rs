//! Accesses to a disk, of a page each, one at a time and past the page cache, so that each is a request of its driver.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

/// Bytes of an access.
pub const PAGE: usize = 4096;

/// What the kernel takes past its page cache: memory at a multiple of the disk's blocks.
#[repr(align(4096))]
struct Page([u8; PAGE]);

impl Page {
    /// The page of this number: each word has the number, and its own.
    fn filled(&mut self, number: u64) {
        for (word, bytes) in (0_u64..).zip(self.0.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&(number << 16 | word).to_le_bytes());
        }
    }
}

/// Where a page is: neighbours in time are none on the disk, and no page is accessed twice.
fn place(number: u64, count: u64) -> u64 {
    let half = count.div_ceil(2);
    (number / 2 + number % 2 * half) * PAGE as u64
}

fn opened(disk: &Path, flags: OFlags) -> io::Result<File> {
    Ok(File::from(open(disk, flags | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())?))
}

/// Writes so many pages.
///
/// # Errors
///
/// Of the disk.
pub fn write(disk: &Path, count: u64) -> io::Result<()> {
    let (disk, mut page) = (opened(disk, OFlags::WRONLY)?, Page([0; PAGE]));
    for number in 0..count {
        page.filled(number);
        disk.write_all_at(&page.0, place(number, count))?;
    }
    Ok(())
}

/// Reads as many, which [`write()`] has written.
///
/// # Errors
///
/// Of the disk, and if a page is not as it was written.
pub fn read(disk: &Path, count: u64) -> io::Result<()> {
    let (disk, mut page) = (opened(disk, OFlags::RDONLY)?, Page([0; PAGE]));
    let mut expected = Page([0; PAGE]);
    for number in 0..count {
        disk.read_exact_at(&mut page.0, place(number, count))?;
        expected.filled(number);
        if page.0 != expected.0 {
            return Err(io::Error::other(format!("page {number} is not as it was written")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_page_has_a_place_of_its_own_and_neighbours_lie_apart() {
        for count in [1, 2, 7, 1000] {
            let places: Vec<_> = (0..count).map(|number| place(number, count)).collect();
            let all: BTreeSet<_> = places.iter().copied().collect();
            assert_eq!(all.len() as u64, count);
            assert!(places.iter().all(|place| place % 4096 == 0 && *place < count * 4096));
            if count > 4 {
                assert!(places.windows(2).all(|two| two[0].abs_diff(two[1]) > 4096));
            }
        }
    }
}
