//! Why an address space was not changed, and why an address has no frame.

use mayfly_platform::memory::OutOfMemory;

/// Why an address space was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The size is zero, or the range is empty or not of whole pages; or this cannot be done to what is there (EINVAL).
    #[error("not a range of whole pages, or not of such")]
    Invalid,
    /// Some of the range is not mapped (ENOMEM).
    #[error("not all of it is mapped")]
    NotMapped,
    /// There are not so many addresses or frames (ENOMEM).
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// Why an address has no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is not mapped (SIGSEGV).
    #[error("not mapped")]
    NotMapped,
    /// It is mapped to be read only (SIGSEGV).
    #[error("mapped to be read only")]
    ReadOnly,
    /// No frame is left.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}
