//! The guest's memory, as a device reaches it.

use core::any::Any;

/// Bytes that are copied at a time from one memory to another by way of neither.
const PIECE: usize = 1024;

/// There is no memory of the guest's at an address, or not all of it, or it may not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the guest has no memory at {address:#x}")]
pub struct BadAddress {
    /// Where the access began.
    pub address: u64,
}

/// Why bytes were not copied from one memory to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCopy {
    /// There is nothing to copy from.
    #[error("nothing can be copied from there: {0}")]
    From(BadAddress),
    /// There is nothing to copy to.
    #[error("nothing can be copied to there: {0}")]
    To(BadAddress),
}

/// Memory that a guest shares with its devices: it changes at any time, and nothing that is in it can be relied on.
///
/// Addresses are the guest's physical ones, any `u64` with any length: an implementation checks that all of it is memory
/// (no device, no hole, no wrap around the end) before it touches any.
pub trait GuestMemory {
    /// Copies from the guest.
    ///
    /// # Errors
    ///
    /// [`BadAddress`]; `into` may have been changed.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), BadAddress>;

    /// Copies to the guest.
    ///
    /// # Errors
    ///
    /// [`BadAddress`]; nothing was written.
    fn write(&self, address: u64, from: &[u8]) -> Result<(), BadAddress>;

    /// Loads a little-endian number at an even address by one access, which is an acquire: what is read after it is as
    /// new as the number.
    ///
    /// # Errors
    ///
    /// [`BadAddress`].
    fn load_acquire(&self, address: u64) -> Result<u16, BadAddress>;

    /// Stores a little-endian number at an even address by one access, which is a release: a party that sees it sees
    /// what was written before.
    ///
    /// # Errors
    ///
    /// [`BadAddress`].
    fn store_release(&self, address: u64, value: u16) -> Result<(), BadAddress>;

    /// What this is to another memory of the same embedder's, which may copy from it without a detour
    /// ([`GuestMemory::copy_from`]). Nothing, unless an embedder says so.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }

    /// Copies `bytes` bytes to `to` on, from `from` on in another memory, which is given by what it is to this one. Nothing,
    /// if it is none of those from which this one copies without a detour: then they are read, and written.
    ///
    /// # Errors
    ///
    /// [`BadCopy`]; some bytes may have been written.
    fn copy_from(
        &self,
        to: u64,
        (other, from): (&dyn Any, u64),
        bytes: usize,
    ) -> Option<Result<(), BadCopy>> {
        let _ = (to, other, from, bytes);
        None
    }
}

/// Copies `bytes` bytes from an address in one memory to an address in another.
pub(crate) fn copy(
    (source, from): (&impl GuestMemory, u64),
    (memory, to): (&impl GuestMemory, u64),
    bytes: usize,
) -> Result<(), BadCopy> {
    let copied = source.as_any().and_then(|other| memory.copy_from(to, (other, from), bytes));
    copied.unwrap_or_else(|| {
        let read = |at, piece: &mut [u8]| source.read(from.saturating_add(at), piece);
        copy_in_pieces(read, (memory, to), bytes)
    })
}

/// Copies what `read` gives, which is told how many bytes of it come before.
pub(crate) fn copy_in_pieces(
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), BadAddress>,
    (memory, to): (&impl GuestMemory, u64),
    bytes: usize,
) -> Result<(), BadCopy> {
    let mut piece = [0; PIECE];
    let mut done = 0;
    while done < bytes {
        let piece = &mut piece[..PIECE.min(bytes - done)];
        read(done as u64, piece).map_err(BadCopy::From)?;
        memory.write(to.saturating_add(done as u64), piece).map_err(BadCopy::To)?;
        done += piece.len();
    }
    Ok(())
}
