//! A source of random bytes: virtio 1.2, 5.4.

use mayfly_state::{Error, SectionReader};

use super::backend::{Backend, sealed};
use super::chain::{Chain, Malformed};
use crate::memory::GuestMemory;

/// How many bytes are given at a time; a driver asks again for more.
const MOST: usize = 256;

/// An entropy device, over whatever fills a buffer with random bytes.
#[derive(Debug)]
pub struct Entropy<F> {
    fill: F,
}

impl<F: FnMut(&mut [u8])> Entropy<F> {
    /// A device that has its bytes from `fill`, which has them from a generator that is fit for keys.
    pub const fn new(fill: F) -> Self {
        Self { fill }
    }
}

impl<F> sealed::Device for Entropy<F> {}

impl<F: FnMut(&mut [u8])> Backend for Entropy<F> {
    const ID: u32 = 4;

    /// Nothing: a generator that was saved would give the same bytes twice.
    type Saved = ();

    fn state(&self) {}

    fn saved(&self, _: &mut SectionReader<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn adopt(&mut self, (): ()) {}

    fn serve(
        &mut self,
        chain: &Chain,
        _features: u64,
        memory: &impl GuestMemory,
    ) -> Result<u32, Malformed> {
        let mut bytes = [0; MOST];
        let count = chain.writable().min(MOST as u64) as usize;
        if count == 0 {
            return Err(Malformed);
        }
        (self.fill)(&mut bytes[..count]);
        chain.write(0, &bytes[..count], memory)?;
        Ok(count as u32)
    }
}
