//! The commands of an ITS (Arm IHI 0069, 5.3), as they are in memory.

/// The bytes of a command.
pub(crate) const COMMAND_BYTES: u64 = 32;

/// A command. Numbers are as the guest wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// `MAPD`: `bits` is 0 to unmap the device.
    MapDevice { device: u32, bits: u32 },
    /// `MAPC`: to a vCPU, or to none.
    MapCollection { collection: usize, vcpu: Option<usize> },
    /// `MAPTI`, and `MAPI`, whose interrupt has the number of the event.
    MapEvent { device: u32, event: u32, intid: u32, collection: usize },
    /// `MOVI`.
    MoveEvent { device: u32, event: u32, collection: usize },
    /// `MOVALL`.
    MoveAll { from: usize, to: usize },
    /// `DISCARD`.
    Discard { device: u32, event: u32 },
    /// `INT`.
    Interrupt { device: u32, event: u32 },
    /// `CLEAR`.
    Clear { device: u32, event: u32 },
    /// `INV`.
    Invalidate { device: u32, event: u32 },
    /// `INVALL`.
    InvalidateAll { collection: usize },
    /// `SYNC`.
    Sync,
}

impl Command {
    /// The command that these bytes are, if they are one.
    pub(crate) fn decode(bytes: &[u8; COMMAND_BYTES as usize]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| words.get(at).map_or(0, |word| u64::from_le_bytes(*word));
        let (device, event) = ((word(0) >> 32) as u32, word(1) as u32);
        let (intid, collection) = ((word(1) >> 32) as u32, word(2) as usize & 0xffff);
        let vcpu = |at| (word(at) >> 16) as usize & 0x7_ffff_ffff;
        let is_valid = word(2) >> 63 != 0;
        Some(match word(0) as u8 {
            0x01 => Self::MoveEvent { device, event, collection },
            0x03 => Self::Interrupt { device, event },
            0x04 => Self::Clear { device, event },
            0x05 => Self::Sync,
            0x08 => {
                let bits = (word(1) as u32 & 0x1f) + 1;
                Self::MapDevice { device, bits: if is_valid { bits } else { 0 } }
            }
            0x09 => Self::MapCollection { collection, vcpu: is_valid.then(|| vcpu(2)) },
            0x0a => Self::MapEvent { device, event, intid, collection },
            0x0b => Self::MapEvent { device, event, intid: event, collection },
            0x0c => Self::Invalidate { device, event },
            0x0d => Self::InvalidateAll { collection },
            0x0e => Self::MoveAll { from: vcpu(2), to: vcpu(3) },
            0x0f => Self::Discard { device, event },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: [u64; 4]) -> Option<Command> {
        let mut bytes = [0; COMMAND_BYTES as usize];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        Command::decode(&bytes)
    }

    #[test]
    fn each_command_is_as_in_the_manual() {
        const VALID: u64 = 1 << 63;
        let (device, event, collection) = (7, 0x15, 3);
        let first = |number: u64| 7 << 32 | number;
        let of_event = |number| [first(number), 0x15, 3, 0];
        let expected = [
            (of_event(0x01), Command::MoveEvent { device, event, collection }),
            (of_event(0x03), Command::Interrupt { device, event }),
            (of_event(0x04), Command::Clear { device, event }),
            ([5, 0, 1 << 16, 0], Command::Sync),
            ([first(8), 7, VALID | 0x4_0000_0100, 0], Command::MapDevice { device, bits: 8 }),
            ([first(8), 7, 0, 0], Command::MapDevice { device, bits: 0 }),
            ([9, 0, VALID | 2 << 16 | 3, 0], Command::MapCollection { collection, vcpu: Some(2) }),
            ([9, 0, 2 << 16 | 3, 0], Command::MapCollection { collection, vcpu: None }),
            (
                [first(0xa), 8195 << 32 | 0x15, 3, 0],
                Command::MapEvent { device, event, intid: 8195, collection },
            ),
            (
                [first(0xb), 8195, 3, 0],
                Command::MapEvent { device, event: 8195, intid: 8195, collection },
            ),
            (of_event(0xc), Command::Invalidate { device, event }),
            ([0xd, 0, 3, 0], Command::InvalidateAll { collection }),
            ([0xe, 0, 1 << 16, 2 << 16], Command::MoveAll { from: 1, to: 2 }),
            (of_event(0xf), Command::Discard { device, event }),
        ];
        for (words, is) in expected {
            assert_eq!(command(words), Some(is), "{words:x?}");
        }
        for number in [0, 2, 6, 7, 0x10, 0x21, 0xff] {
            assert_eq!(command([number, 0, 0, 0]), None, "{number:#x}");
        }
    }
}
