//! The instructions that guests come out for most, in their plain form: without prefixes, and without operands. Their bytes mean
//! the same in each mode, so how long they are is known without decoding them.

/// How long the instruction is that these bytes begin with, if it is HLT, WRMSR, RDMSR or CPUID.
#[inline]
pub fn length(bytes: &[u8; 16]) -> Option<u8> {
    match bytes {
        [0xf4, ..] => Some(1),
        [0x0f, 0x30 | 0x32 | 0xa2, ..] => Some(2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use mayfly_x86_decode::{Mode, decode};

    use super::*;

    #[test]
    fn each_is_as_long_as_it_is_decoded_to_be_in_every_mode() {
        let all: [&[u8]; 4] = [&[0xf4], &[0x0f, 0x30], &[0x0f, 0x32], &[0x0f, 0xa2]];
        for plain in all {
            let mut bytes = [0x90; 16];
            bytes[..plain.len()].copy_from_slice(plain);
            for mode in [Mode::Bits16, Mode::Bits32, Mode::Bits64] {
                let decoded = decode(mode, &bytes).unwrap();
                assert_eq!(length(&bytes), Some(decoded.length), "{plain:x?}");
            }
        }
    }

    #[test]
    fn with_a_prefix_and_of_others_it_is_not_known() {
        let mut bytes = [0x90; 16];
        assert_eq!(length(&bytes), None);
        // A lock, and the prefix of another operand size; RDTSC.
        for first in [[0xf0, 0x0f, 0xa2], [0x66, 0x0f, 0xa2], [0x0f, 0x31, 0x90]] {
            bytes[..3].copy_from_slice(&first);
            assert_eq!(length(&bytes), None, "{first:x?}");
        }
    }
}
