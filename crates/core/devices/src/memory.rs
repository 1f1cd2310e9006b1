//! The guest's memory, as a device reaches it.

/// There is no memory of the guest's at an address, or not all of it, or it may not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the guest has no memory at {address:#x}")]
pub struct BadAddress {
    /// Where the access began.
    pub address: u64,
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
}
