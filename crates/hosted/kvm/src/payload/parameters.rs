//! What the guest's code is told.

use std::ops::Range;

/// Parameters of the guest's code.
///
/// Each pass writes the pass's number, from 1, as 8 bytes at the start of each 4096 bytes of
/// `touch`; then, with a `doorbell`, as 4 bytes to that address; then, as 4 bytes, to `port`.
///
/// The guest's virtual addresses are its physical ones. They end with the memory that the code was installed in,
/// rounded up to whole GiB; at 4 GiB at least, and at [`Payload::REACH`] at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The guest physical range to write to. May be empty.
    pub touch: Range<u64>,
    /// A guest physical address without memory behind it: an MMIO exit
    /// ([`crate::Exit::MmioWrite`]), unless an ioeventfd takes it.
    pub doorbell: Option<u64>,
    /// The I/O port that ends the pass ([`crate::Exit::PortWrite`]). Not one of the in-kernel
    /// PIC's: 0x20, 0x21, 0xa0, 0xa1, 0x4d0, 0x4d1. On arm64, where ports are a window of addresses, a multiple of 4.
    pub port: u16,
}
