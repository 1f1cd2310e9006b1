//! What a fork is told of itself: registers of the machine's own, which `devmem` reads.
//!
//! | offset | bytes | |
//! | --- | --- | --- |
//! | 0 | 8 | number of the fork: 1 and up, of all that this machine makes; 0 of a VM that is none |
//! | 8 | 8 | for how many nanoseconds it was frozen: its clocks that follow `CNTVCT_EL0` are behind by as much |
//!
//! They change only where a fork begins, so each access of any size is answered at once, and none changes anything. All
//! other bytes are zero.

/// Bytes of the registers that there are.
const BYTES: usize = 16;

/// What a VM is told of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The number of the fork; 0 of a VM that is none.
    pub number: u64,
    /// Nanoseconds for which it was frozen.
    pub frozen: u64,
}

impl Identity {
    /// Answers a read at `offset`.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..].copy_from_slice(&self.frozen.to_le_bytes());
        let first = usize::try_from(offset).unwrap_or(BYTES).min(BYTES);
        data.fill(0);
        for (byte, known) in data.iter_mut().zip(&bytes[first..]) {
            *byte = *known;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORK: Identity =
        Identity { number: 0x0807_0605_0403_0201, frozen: 0x100f_0e0d_0c0b_0a09 };

    #[test]
    fn an_access_of_any_size_reads_the_bytes_that_are_there_and_zeroes_beyond() {
        for size in [1, 2, 4, 8] {
            for offset in 0..20_u64 {
                let mut data = [0xff; 8];
                FORK.read(offset, &mut data[..size]);
                for (at, byte) in (offset + 1..).zip(&data[..size]) {
                    assert_eq!(u64::from(*byte), if at <= 16 { at } else { 0 });
                }
            }
        }
        let mut data = [0xff; 8];
        FORK.read(u64::MAX, &mut data);
        assert_eq!(data, [0; 8]);
    }

    #[test]
    fn a_vm_that_is_no_fork_reads_zeroes() {
        let mut data = [0xff; 8];
        Identity::default().read(4, &mut data);
        assert_eq!(data, [0; 8]);
    }
}
