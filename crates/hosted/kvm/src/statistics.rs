//! What KVM has counted of a VM or a vCPU (Linux v5.14 and later).
//!
//! A file holds a header, descriptors with names, and the numbers; each says where the next is
//! (`Documentation/virt/kvm/api.rst`, 4.133 `KVM_GET_STATS_FD`). It keeps the VM alive while it is
//! open, so it is read at once and closed.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use kvm_bindings::{KVM_STATS_TYPE_CUMULATIVE, KVM_STATS_TYPE_MASK, KVMIO};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, opcode};

use crate::Error;

const CALL: &str = "KVM_GET_STATS_FD";

/// The bytes of `struct kvm_stats_header`, and of `struct kvm_stats_desc` before the name.
const HEADER: usize = 24;
const DESCRIPTOR: usize = 16;

/// More than any such file has: a caller that hands one over may have another.
const MOST: usize = 1 << 20;

/// Numbers that only grow, by KVM's names for them: `exits`, `remote_tlb_flush`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics(BTreeMap<String, u64>);

impl Statistics {
    /// The number of that name, where this kernel counts it.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, number)| (name.as_str(), *number))
    }

    /// The names of what this kernel counts.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// What a statistics file says that a caller has open; the caller's position in it stays as it is.
    ///
    /// # Errors
    /// It cannot be read, or is no such file (EBADMSG).
    pub fn read(file: BorrowedFd<'_>) -> Result<Self, Error> {
        let mut bytes = Vec::new();
        loop {
            let mut part = [0; 4096];
            match rustix::io::pread(file, &mut part, bytes.len() as u64) {
                Ok(0) => break,
                Ok(read) => bytes.extend_from_slice(&part[..read]),
                Err(Errno::INTR) => {}
                Err(error) => return Err(Error::call(CALL)(error)),
            }
            if bytes.len() > MOST {
                break;
            }
        }
        Self::parse(&bytes).ok_or(Error::Call { call: CALL, errno: Errno::BADMSG.raw_os_error() })
    }

    /// Of a VM's or a vCPU's fd.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Result<Self, Error> {
        // SAFETY: the ioctl takes no argument, and returns a new fd.
        let file = unsafe { rustix::ioctl::ioctl(fd, GetStatsFd) }.map_err(Error::call(CALL))?;
        let mut bytes = Vec::new();
        File::from(file).read_to_end(&mut bytes).map_err(Error::io(CALL))?;
        Self::parse(&bytes).ok_or(Error::Call { call: CALL, errno: Errno::BADMSG.raw_os_error() })
    }

    /// What a file says; nothing where it does not hold what it says it does.
    fn parse(file: &[u8]) -> Option<Self> {
        let header: Vec<usize> =
            (4..HEADER).step_by(4).map(|at| word(file, at)).collect::<Option<_>>()?;
        let &[name_size, count, _id, descriptors, data] = &header[..] else { return None };
        let size = DESCRIPTOR.checked_add(name_size)?;
        let mut numbers = BTreeMap::new();
        for index in 0..count {
            let at = descriptors.checked_add(index.checked_mul(size)?)?;
            let descriptor = file.get(span(at, size)?)?;
            let flags = u32::from_ne_bytes(descriptor[..4].try_into().ok()?);
            let values = u16::from_ne_bytes(descriptor[6..8].try_into().ok()?);
            if flags & KVM_STATS_TYPE_MASK != KVM_STATS_TYPE_CUMULATIVE || values != 1 {
                continue;
            }
            let number = file.get(span(data.checked_add(word(descriptor, 8)?)?, 8)?)?;
            let name = descriptor[DESCRIPTOR..].split(|&byte| byte == 0).next()?;
            let name = std::str::from_utf8(name).ok()?;
            numbers.insert(name.to_owned(), u64::from_ne_bytes(number.try_into().ok()?));
        }
        Some(Self(numbers))
    }
}

fn span(at: usize, size: usize) -> Option<Range<usize>> {
    Some(at..at.checked_add(size)?)
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(span(at, 4)?)?.try_into().ok()?;
    usize::try_from(u32::from_ne_bytes(word)).ok()
}

/// `KVM_GET_STATS_FD`, which kvm-ioctls has not.
struct GetStatsFd;

// SAFETY: the opcode is the ioctl's own, which takes no argument and returns an fd that nobody else has.
unsafe impl Ioctl for GetStatsFd {
    type Output = OwnedFd;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        opcode::none(KVMIO as u8, 0xce)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(
        returned: IoctlOutput,
        _: *mut c_void,
    ) -> rustix::io::Result<OwnedFd> {
        // SAFETY: the kernel has just opened it for this caller.
        Ok(unsafe { OwnedFd::from_raw_fd(returned) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A file with these descriptors: flags, how many values, and a name; their values are 7, 8, ...
    fn file(all: &[(u32, u16, &str)]) -> Vec<u8> {
        let name_size = 16;
        let (descriptors, size) = (HEADER, DESCRIPTOR + name_size);
        let data = descriptors + all.len() * size;
        let header = [0, name_size, all.len(), 0, descriptors, data];
        let mut file: Vec<u8> =
            header.iter().flat_map(|&word| (word as u32).to_ne_bytes()).collect();
        for (index, (flags, values, name)) in all.iter().enumerate() {
            file.extend(flags.to_ne_bytes());
            file.extend(0_i16.to_ne_bytes());
            file.extend(values.to_ne_bytes());
            file.extend((index as u32 * 8).to_ne_bytes());
            file.extend(0_u32.to_ne_bytes());
            file.extend(name.bytes().chain(std::iter::repeat(0)).take(name_size));
        }
        file.extend((7..).take(all.len()).flat_map(u64::to_ne_bytes));
        file
    }

    #[test]
    fn what_grows_is_read_by_name_and_the_rest_left_out() {
        let file =
            file(&[(0, 1, "exits"), (1, 1, "guest_mode"), (0, 1, "tlb_flush"), (4, 20, "hist")]);
        let read = Statistics::parse(&file).unwrap();
        assert_eq!(read.names().collect::<Vec<_>>(), ["exits", "tlb_flush"]);
        assert_eq!(
            (read.get("exits"), read.get("tlb_flush"), read.get("hist")),
            (Some(7), Some(9), None)
        );
    }

    #[test]
    fn a_file_that_ends_early_is_refused() {
        let file = file(&[(0, 1, "exits"), (0, 1, "tlb_flush")]);
        for end in 0..file.len() {
            assert_eq!(Statistics::parse(&file[..end]), None, "{end} bytes of {}", file.len());
        }
    }

    proptest! {
        #[test]
        fn whatever_a_file_says_is_read_or_refused(
            header in prop::array::uniform6(0..200_u32),
            rest in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            let mut file: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
            file.extend(rest);
            Statistics::parse(&file);
        }

        #[test]
        fn however_far_off_a_file_points_it_is_refused(header in any::<[u32; 6]>()) {
            let file: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
            prop_assume!(header[2] > 0);
            prop_assert_eq!(Statistics::parse(&file), None);
        }
    }
}
