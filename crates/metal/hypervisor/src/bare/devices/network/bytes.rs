//! Frames whose bytes the hypervisor has.

use mayfly_devices::memory::{BadAddress, BadCopy, GuestMemory};
use mayfly_devices::virtio::net::{Frame, Lost, Source};

/// The bytes of a frame, which are copied.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl Source for Bytes<'_> {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), BadAddress> {
        into.copy_from_slice(self.part(offset, into.len())?);
        Ok(())
    }

    fn copy(
        &self,
        offset: u64,
        bytes: usize,
        (memory, to): (&impl GuestMemory, u64),
    ) -> Result<(), BadCopy> {
        let part = self.part(offset, bytes).map_err(BadCopy::From)?;
        memory.write(to, part).map_err(BadCopy::To)
    }
}

impl Bytes<'_> {
    fn part(&self, offset: u64, bytes: usize) -> Result<&[u8], BadAddress> {
        let from = usize::try_from(offset).ok().and_then(|start| self.0.get(start..));
        from.and_then(|rest| rest.get(..bytes)).ok_or(BadAddress { address: offset })
    }
}

/// Copies a frame to the beginning of `into`.
pub(super) fn copy<'a>(
    frame: &Frame<'_>,
    source: &impl Source,
    into: &'a mut [u8],
) -> Result<&'a [u8], Lost> {
    let len = usize::try_from(frame.len()).unwrap_or(usize::MAX);
    let bytes = into.get_mut(..len).ok_or(Lost::TooLong)?;
    let (head, rest) = bytes.split_at_mut(frame.head.len());
    head.copy_from_slice(frame.head);
    source.read(frame.rest.start, rest).map_err(|_| Lost::Unreadable)?;
    Ok(bytes)
}
