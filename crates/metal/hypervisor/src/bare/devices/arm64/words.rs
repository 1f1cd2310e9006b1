//! Registers of 32 bits, at accesses of any size.

/// Answers a read of a register whose value is `value`: bytes beyond it are zero.
pub(super) fn answer(value: u32, data: &mut [u8]) {
    let length = data.len().min(8);
    data[..length].copy_from_slice(&u64::from(value).to_le_bytes()[..length]);
}

/// The value that a write of `data` gives a register: bytes that are missing are zero.
pub(super) fn written(data: &[u8]) -> u32 {
    let mut value = [0; 4];
    let length = data.len().min(4);
    value[..length].copy_from_slice(&data[..length]);
    u32::from_le_bytes(value)
}
