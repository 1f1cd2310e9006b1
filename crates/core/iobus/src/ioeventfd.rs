//! Writes that only signal: what `KVM_IOEVENTFD` describes, by the rules of Linux' `virt/kvm/eventfd.c`.

use core::fmt;

use crate::Error;

/// Which writes signal.
///
/// Shown as `0x1050/4`, or `0x1050/4=0x1` with a datamatch; `0x1050/any` without a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ioeventfd {
    /// The address that is written to, exactly.
    pub address: u64,
    /// The length of the write in bytes: 1, 2, 4 or 8; 0 for any length.
    pub len: u32,
    /// The value written, zero-extended; `None` for any value. Only together with a length. A value that does not fit
    /// the length is accepted, as KVM does, and never matches.
    pub datamatch: Option<u64>,
}

impl Ioeventfd {
    /// The checks of `kvm_assign_ioeventfd`.
    pub(crate) fn check(self) -> Result<(), Error> {
        match self.len {
            0 if self.datamatch.is_some() => Err(Error::EventfdDatamatchWithoutLength(self)),
            0 | 1 | 2 | 4 | 8 if self.address.checked_add(self.len.into()).is_none() => {
                Err(Error::EventfdOverflow(self))
            }
            0 | 1 | 2 | 4 | 8 => Ok(()),
            _ => Err(Error::EventfdLength(self)),
        }
    }

    /// Whether one write can match both: `ioeventfd_check_collision`.
    pub(crate) fn collides(self, other: Self) -> bool {
        let same_len = self.len == other.len;
        let same_data = match (self.datamatch, other.datamatch) {
            (Some(one), Some(two)) => one == two,
            _ => true,
        };
        self.address == other.address
            && (self.len == 0 || other.len == 0 || (same_len && same_data))
    }

    /// Whether the write signals: `ioeventfd_in_range`.
    #[inline]
    pub(crate) fn matches(&self, write: &Write) -> bool {
        self.address == write.address
            && (self.len == 0
                || (u64::from(self.len) == write.len
                    && self.datamatch.is_none_or(|value| value == write.value)))
    }

    /// Where this stands among others. Of those that do not collide, at most one matches a write; it is then the last
    /// one that does not stand after [`Write::key`]:
    ///
    /// - one of any length is the only one at its address, and nothing at that address stands before it;
    /// - one of any value is the only one of its address and length, and stands first among those;
    /// - one with a datamatch has the write's own key.
    #[inline]
    pub(crate) fn key(&self) -> (u64, u64, u64) {
        (self.address, self.len.into(), self.datamatch.unwrap_or(0))
    }
}

impl fmt::Display for Ioeventfd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}/", self.address)?;
        match self.len {
            0 => f.write_str("any")?,
            len => write!(f, "{len}")?,
        }
        match self.datamatch {
            Some(value) => write!(f, "={value:#x}"),
            None => Ok(()),
        }
    }
}

/// A write by the guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) address: u64,
    pub(crate) len: u64,
    /// Zero-extended from `len` bytes.
    value: u64,
}

impl Write {
    /// A write of the low `len` bytes of `value`.
    #[inline]
    pub(crate) fn new(address: u64, len: u64, value: u64) -> Self {
        let written = if len < 8 { !(u64::MAX << (8 * len)) } else { u64::MAX };
        Self { address, len, value: value & written }
    }

    #[inline]
    pub(crate) fn key(&self) -> (u64, u64, u64) {
        (self.address, self.len, self.value)
    }
}
