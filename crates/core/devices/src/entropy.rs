//! A generator of random bytes, for a guest's entropy device.
//!
//! What it is given is hashed into a key (BLAKE2s, with the key before it). What it gives is `ChaCha20`'s stream under
//! the key. The first 32 bytes of each stream are the next key, and the old key is erased. So an attacker that learns
//! the key later learns nothing of what was given before (Bernstein, "Fast-key-erasure random-number generators",
//! 2017).
//!
//! The generator is as good as its seeds: a seed from the device tree (`/chosen/rng-seed`), the CPU's own generator
//! (`RNDR`), times of interrupts. Give it all that there is, because no seed makes it worse.

use blake2::{Blake2s256, Digest};
use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher};

/// Bytes that no guest can predict, or recover from what came after.
///
/// ```
/// use mayfly_devices::entropy::Generator;
/// use mayfly_devices::virtio::{Entropy, Mmio};
///
/// let mut generator = Generator::new(b"what firmware has left in /chosen/rng-seed");
/// generator.stir(b"what RNDR has given");
/// let device = Mmio::new(Entropy::new(move |bytes: &mut [u8]| generator.fill(bytes)));
/// # let _ = device;
/// ```
pub struct Generator {
    key: [u8; 32],
}

/// Keys are not for logs.
impl core::fmt::Debug for Generator {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Generator").finish_non_exhaustive()
    }
}

impl Generator {
    /// A generator seeded with `seed`, which has 32 bytes that no other party knows, in whatever form.
    pub fn new(seed: &[u8]) -> Self {
        let mut generator = Self { key: [0; 32] };
        generator.stir(seed);
        generator
    }

    /// Makes what comes depend on `bytes` too, and on all that it depended on before.
    pub fn stir(&mut self, bytes: &[u8]) {
        self.key = Blake2s256::new().chain_update(self.key).chain_update(bytes).finalize().into();
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        // A key is used once, so the nonce need not differ.
        let mut stream = ChaCha20::new(&self.key.into(), &[0; 12].into());
        let mut next = [0; 32];
        stream.apply_keystream(&mut next);
        bytes.fill(0);
        // A stream has 256 GiB, more than any slice that a device fills.
        stream.apply_keystream(bytes);
        self.key = next;
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;

    fn some(generator: &mut Generator, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        generator.fill(&mut bytes);
        bytes
    }

    /// RFC 8439, appendix A.1, test vector 1: the zero key's stream. The first half of it is the next key.
    #[test]
    fn it_gives_chacha20s_stream_behind_the_next_key() {
        let mut generator = Generator { key: [0; 32] };
        let given = some(&mut generator, 32);
        assert_eq!(generator.key[..8], [0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90]);
        assert_eq!(given[..8], [0xda, 0x41, 0x59, 0x7c, 0x51, 0x57, 0x48, 0x8d]);
        assert_eq!(given[24..], [0xc3, 0x87, 0xb6, 0x69, 0xb2, 0xee, 0x65, 0x86]);
    }

    #[test]
    fn the_same_seeds_give_the_same_and_any_other_gives_another() {
        let given = |seeds: &[&[u8]]| {
            let mut generator = Generator::new(seeds[0]);
            for seed in &seeds[1..] {
                generator.stir(seed);
            }
            some(&mut generator, 64)
        };
        assert_eq!(given(&[b"a", b"b"]), given(&[b"a", b"b"]));
        let others: [&[&[u8]]; 5] = [&[b"a"], &[b"b", b"a"], &[b"ab"], &[b"a", b"b", b""], &[b""]];
        for other in others {
            assert_ne!(given(&[b"a", b"b"]), given(other), "{other:?}");
        }
    }

    #[test]
    fn what_was_given_is_not_given_again() {
        let mut generator = Generator::new(b"seed");
        let first = some(&mut generator, 300);
        let second = some(&mut generator, 300);
        let again = |window: &[u8]| first.windows(8).any(|before| before == window);
        assert!(!second.windows(8).any(again));
        generator.fill(&mut []);
        assert_ne!(some(&mut generator, 300), second);
    }

    #[test]
    fn its_key_is_not_shown() {
        assert_eq!(std::format!("{:?}", Generator::new(b"s")), "Generator { .. }");
    }
}
