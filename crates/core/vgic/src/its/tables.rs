//! What an ITS knows: its registers and its mappings.

use alloc::boxed::Box;

use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::{AtomicU32, AtomicU64, Ordering};

use crate::collect::{half, try_copy, try_fill, word};
use crate::{Error, MAX_LPIS};

/// What an ITS has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItsConfig {
    /// How many LPIs: a power of two, of 64 to [`MAX_LPIS`]. A vCPU that enters may have to look at each.
    pub lpis: usize,
    /// How many bits the number of a device has: 1 to 15.
    pub device_bits: u32,
    /// How many bits the number of an event has: 1 to 15. With those of a device, they are 16 at most; each event of each
    /// device takes four bytes, and up to eight of a saved state.
    pub event_bits: u32,
}

/// Where an event is mapped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Counted from the first LPI.
    pub(crate) lpi: usize,
    pub(crate) collection: usize,
}

/// How many mappings are undone between two pauses.
const CHUNK: usize = 64;

const MAPPED: u32 = 1 << 31;
const COLLECTION: u32 = 16;

impl Mapping {
    const fn to_word(self) -> u32 {
        MAPPED | (self.collection as u32) << COLLECTION | self.lpi as u32
    }

    const fn from_word(word: u32) -> Option<Self> {
        let (lpi, collection) = (word & 0xffff, (word & !MAPPED) >> COLLECTION);
        if word & MAPPED == 0 {
            return None;
        }
        Some(Self { lpi: lpi as usize, collection: collection as usize })
    }
}

/// The registers and mappings of an ITS.
#[derive(Debug)]
pub(crate) struct Its {
    pub(crate) config: ItsConfig,
    /// `GITS_CTLR.Enabled`.
    pub(crate) enabled: AtomicU32,
    pub(crate) cbaser: AtomicU64,
    pub(crate) cwriter: AtomicU64,
    pub(crate) creadr: AtomicU64,
    /// `GITS_BASER0`, of devices, and `GITS_BASER1`, of collections.
    pub(crate) basers: [AtomicU64; 2],
    /// `GICR_PROPBASER`, which all redistributors share.
    pub(crate) propbaser: AtomicU64,
    /// Of each device, how many bits the numbers of its events have, or 0 if it is not mapped.
    pub(crate) devices: Box<[AtomicU32]>,
    /// Of each collection, its vCPU plus 1, or 0 if it is not mapped.
    pub(crate) collections: Box<[AtomicU32]>,
    /// Of each event of each device.
    pub(crate) events: Box<[AtomicU32]>,
    /// Something is to be done by [`serve_its`](crate::Vgic::serve_its).
    work: AtomicU32,
    /// A thread is in there.
    busy: AtomicU32,
}

/// A thread works; no more, once this is dropped. Unless it has done all, it notes that there is work: also where it ends by
/// a panic of the embedder's.
pub(crate) struct Busy<'a> {
    its: &'a Its,
    done: bool,
}

impl Busy<'_> {
    /// Nothing is left to do.
    pub(crate) fn finish(&mut self) {
        self.done = true;
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.its.has_work();
        }
        self.its.busy.store(0, Ordering::Release);
    }
}

/// Bits of the number of a collection: as many as vCPUs have, and one at least.
const fn collection_bits(vcpus: usize) -> u32 {
    let bits = vcpus.next_power_of_two().ilog2();
    if bits == 0 { 1 } else { bits }
}

impl Its {
    /// One that is turned off, and has mapped nothing.
    pub(crate) fn try_new(config: ItsConfig, vcpus: usize) -> Result<Self, Error> {
        let ItsConfig { lpis, device_bits, event_bits } = config;
        let zeroes = |count| try_fill(count, |_| AtomicU32::new(0));
        if !lpis.is_power_of_two() || !(64..=MAX_LPIS).contains(&lpis) {
            return Err(Error::Lpis(lpis));
        }
        let bits = 1..=15;
        if !bits.contains(&device_bits)
            || !bits.contains(&event_bits)
            || device_bits + event_bits > 16
        {
            return Err(Error::Events { device_bits, event_bits });
        }
        Ok(Self {
            config,
            enabled: AtomicU32::new(0),
            cbaser: AtomicU64::new(0),
            cwriter: AtomicU64::new(0),
            creadr: AtomicU64::new(0),
            basers: [AtomicU64::new(0), AtomicU64::new(0)],
            propbaser: AtomicU64::new(0),
            devices: zeroes(1 << device_bits)?,
            collections: zeroes(1 << collection_bits(vcpus))?,
            events: zeroes(1 << (device_bits + event_bits))?,
            work: AtomicU32::new(0),
            busy: AtomicU32::new(0),
        })
    }

    /// One with the same registers and mappings, which looks whether there is work. Calls `pause` now and then.
    pub(crate) fn try_copy(&self, pause: &mut dyn FnMut()) -> Result<Self, OutOfMemory> {
        Ok(Self {
            config: self.config,
            enabled: half(&self.enabled),
            cbaser: word(&self.cbaser),
            cwriter: word(&self.cwriter),
            creadr: word(&self.creadr),
            basers: self.basers.each_ref().map(word),
            propbaser: word(&self.propbaser),
            devices: try_copy(&self.devices, half, pause)?,
            collections: try_copy(&self.collections, half, pause)?,
            events: try_copy(&self.events, half, pause)?,
            work: AtomicU32::new(1),
            busy: AtomicU32::new(0),
        })
    }

    /// Bytes of memory that it has allocated.
    pub(crate) fn heap_bytes(&self) -> usize {
        let lists = [&self.devices, &self.collections, &self.events];
        lists.map(|list| size_of_val(&**list)).into_iter().sum()
    }

    /// As it was made. No other thread uses it.
    pub(crate) fn reset(&self) {
        let registers = [&self.cbaser, &self.cwriter, &self.creadr, &self.propbaser];
        for register in registers.into_iter().chain(&self.basers) {
            register.store(0, Ordering::Relaxed);
        }
        let words = [&self.enabled, &self.work, &self.busy];
        let mappings = self.devices.iter().chain(&self.collections).chain(&self.events);
        for word in words.into_iter().chain(mappings) {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Bits of the number of a collection.
    pub(crate) fn collection_bits(&self) -> u32 {
        self.collections.len().ilog2()
    }

    /// Notes that there is work, after what makes it. A read-modify-write, as that of the thread is: so they have one order.
    pub(crate) fn has_work(&self) {
        self.work.swap(1, Ordering::AcqRel);
    }

    pub(crate) fn is_work_left(&self) -> bool {
        self.work.load(Ordering::Relaxed) != 0
    }

    /// Takes the note, before the registers are looked at.
    pub(crate) fn take_work(&self) {
        self.work.swap(0, Ordering::AcqRel);
    }

    /// Begins to work, unless another thread does. It ends with what is returned.
    pub(crate) fn begin(&self) -> Option<Busy<'_>> {
        // Released by the note that is taken next.
        let begins = self.busy.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        begins.then(|| Busy { its: self, done: false })
    }

    /// Whether the ITS is off, and no command is under way.
    pub(crate) fn is_quiescent(&self) -> bool {
        self.enabled.load(Ordering::Acquire) == 0 && self.busy.load(Ordering::Acquire) == 0
    }

    /// Where in `events` the events of a device are.
    fn events_of(&self, device: usize) -> &[AtomicU32] {
        let count = 1 << self.config.event_bits;
        self.events.get(device * count..(device + 1) * count).unwrap_or_default()
    }

    /// The word of an event, if its device is mapped and has such an event.
    fn event(&self, device: u32, event: u32) -> Option<&AtomicU32> {
        let bits = self.devices.get(device as usize)?.load(Ordering::Acquire);
        if bits == 0 || u64::from(event) >> bits != 0 {
            return None;
        }
        self.events_of(device as usize).get(event as usize)
    }

    /// Where an event is mapped to, if it is.
    pub(crate) fn mapping(&self, device: u32, event: u32) -> Option<Mapping> {
        Mapping::from_word(self.event(device, event)?.load(Ordering::Acquire))
    }

    /// The vCPU of a collection, if it is mapped.
    pub(crate) fn target(&self, collection: usize) -> Option<usize> {
        let word = self.collections.get(collection)?.load(Ordering::Acquire);
        (word as usize).checked_sub(1)
    }

    /// Maps an event, or unmaps it. Whether there is such an event.
    pub(crate) fn map_event(&self, device: u32, event: u32, to: Option<Mapping>) -> bool {
        let Some(word) = self.event(device, event) else { return false };
        word.store(to.map_or(0, Mapping::to_word), Ordering::Release);
        true
    }

    /// Maps a device whose events have numbers of so many bits, or unmaps it. It has no events mapped then. `pause` is
    /// called now and then.
    pub(crate) fn map_device(&self, device: u32, bits: u32, pause: &mut dyn FnMut()) {
        let Some(word) = self.devices.get(device as usize) else { return };
        word.store(0, Ordering::Release);
        for events in self.events_of(device as usize).chunks(CHUNK) {
            for event in events {
                event.store(0, Ordering::Release);
            }
            pause();
        }
        word.store(bits, Ordering::Release);
    }

    /// Maps a collection to a vCPU, or unmaps it.
    pub(crate) fn map_collection(&self, collection: usize, vcpu: Option<usize>) {
        if let Some(word) = self.collections.get(collection) {
            word.store(vcpu.map_or(0, |vcpu| vcpu as u32 + 1), Ordering::Release);
        }
    }

    /// A table of `GITS_BASERn` is another one: what it had mapped is gone.
    pub(crate) fn forget(&self, table: usize, pause: &mut dyn FnMut()) {
        let words = if table == 0 { &self.devices } else { &self.collections };
        for some in words.chunks(CHUNK) {
            for word in some {
                word.store(0, Ordering::Release);
            }
            pause();
        }
    }

    /// As a saved one was: a word of `events`, if this one can have it.
    pub(crate) fn is_event(&self, word: u32) -> bool {
        Mapping::from_word(word).is_some_and(|mapping| {
            mapping.lpi < self.config.lpis && mapping.collection < self.collections.len()
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_mapping_is_what_its_word_says(lpi in 0..MAX_LPIS, collection in 0..512_usize) {
            let mapping = Mapping { lpi, collection };
            prop_assert_eq!(Mapping::from_word(mapping.to_word()), Some(mapping));
        }
    }

    #[test]
    fn what_is_out_of_bounds_is_refused() {
        let fits = ItsConfig { lpis: 256, device_bits: 4, event_bits: 8 };
        assert!(Its::try_new(fits, 4).is_ok());
        for lpis in [0, 1, 32, 63, 100, MAX_LPIS * 2] {
            let error = Its::try_new(ItsConfig { lpis, ..fits }, 4).unwrap_err();
            assert_eq!(error, Error::Lpis(lpis));
        }
        for (device_bits, event_bits) in [(0, 8), (8, 0), (9, 8), (16, 1), (1, 16), (u32::MAX, 2)] {
            let config = ItsConfig { device_bits, event_bits, ..fits };
            let error = Its::try_new(config, 4).unwrap_err();
            assert_eq!(error, Error::Events { device_bits, event_bits });
        }
    }

    #[test]
    fn there_are_as_many_collections_as_vcpus_and_two_at_least() {
        for (vcpus, bits) in [(1, 1), (2, 1), (3, 2), (64, 6), (512, 9)] {
            assert_eq!(collection_bits(vcpus), bits, "{vcpus}");
        }
    }
}
