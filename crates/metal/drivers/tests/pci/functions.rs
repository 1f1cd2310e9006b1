//! The configuration of functions, which a test plays.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use mayfly_drivers::pci::{ConfigurationAccess, DeviceFunction, Window, Windows};

/// Where the list of capabilities begins.
pub(crate) const FIRST: u8 = 0x40;
/// Bits of `Command`.
pub(crate) const MEMORY_AND_MASTER: u32 = 6;
pub(crate) const SILENT: u32 = 1 << 10;

/// A function: what each word reads as, and which of its bits can be written.
#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) words: [u32; 64],
    pub(crate) writable: [u32; 64],
}

impl Fake {
    /// A function that is no bridge, with a list of capabilities that is empty, and the pin INTA.
    pub(crate) fn new(vendor: u16, device: u16) -> Self {
        let mut fake = Self { words: [0; 64], writable: [0; 64] };
        fake.words[0] = u32::from(vendor) | u32::from(device) << 16;
        fake.words[1] = 1 << 20;
        fake.writable[1] = 0x7ff;
        fake.words[0x3c / 4] = 0x100;
        fake
    }

    /// With a BAR: in its lower bits what kind it is.
    pub(crate) fn with_bar(mut self, number: usize, bytes: u64, kind: u32) -> Self {
        let mask = bytes.wrapping_neg();
        self.words[4 + number] = kind;
        self.writable[4 + number] = mask as u32 & !0xf;
        if kind & 6 == 4 {
            self.writable[5 + number] = (mask >> 32) as u32;
        }
        self
    }

    /// With a capability at the end of its list, which has the words behind the first, too.
    pub(crate) fn with_capability(mut self, id: u8, upper: u32, rest: &[u32]) -> Self {
        let mut at = usize::from(FIRST) / 4;
        let mut link = (0x34 / 4, 0);
        while self.words[link.0] >> link.1 & 0xff != 0 {
            at = (self.words[link.0] >> link.1 & 0xff) as usize / 4;
            link = (at, 8);
            at += 6;
        }
        self.words[link.0] |= (4 * at as u32) << link.1;
        self.words[at] = u32::from(id) | upper << 16;
        self.words[at + 1..at + 1 + rest.len()].copy_from_slice(rest);
        self
    }

    /// With a structure of virtio's.
    pub(crate) fn with_structure(self, kind: u32, bar: u32, offset: u32, bytes: u32) -> Self {
        self.with_capability(9, 0x14 | kind << 8, &[bar, offset, bytes, 4])
    }

    /// A device of virtio 1.0 with its registers in BAR 4, as QEMU has it.
    pub(crate) fn virtio(device: u16) -> Self {
        Self::new(0x1af4, device)
            .with_bar(1, 0x1000, 0)
            .with_bar(4, 0x4000, 0xc)
            .with_capability(0x11, 1 | 1 << 15, &[1, 0x801])
            .with_structure(1, 4, 0, 0x1000)
            .with_structure(3, 4, 0x1000, 0x1000)
            .with_structure(4, 4, 0x2000, 0x1000)
            .with_structure(2, 4, 0x3000, 0x1000)
    }
}

/// A bus of functions, by the numbers of device and function.
#[derive(Clone, Default)]
pub(crate) struct Machine(pub(crate) Arc<Mutex<BTreeMap<(u8, u8), Fake>>>);

impl Machine {
    pub(crate) fn with(functions: impl IntoIterator<Item = ((u8, u8), Fake)>) -> Self {
        Self(Arc::new(Mutex::new(functions.into_iter().collect())))
    }

    /// A word of a function.
    pub(crate) fn word(&self, at: (u8, u8), offset: usize) -> u32 {
        self.0.lock().unwrap()[&at].words[offset / 4]
    }

    /// The lower half of the word of command and status.
    pub(crate) fn command(&self, at: (u8, u8)) -> u32 {
        self.word(at, 4) & 0xffff
    }
}

impl ConfigurationAccess for Machine {
    fn read_word(&self, at: DeviceFunction, offset: u8) -> u32 {
        let functions = self.0.lock().unwrap();
        let function = functions.get(&(at.device, at.function));
        function.map_or(u32::MAX, |function| function.words[usize::from(offset) / 4])
    }

    fn write_word(&mut self, at: DeviceFunction, offset: u8, data: u32) {
        let mut functions = self.0.lock().unwrap();
        let Some(function) = functions.get_mut(&(at.device, at.function)) else { return };
        let (place, writable) =
            (usize::from(offset) / 4, function.writable[usize::from(offset) / 4]);
        let word = &mut function.words[place];
        *word = *word & !writable | data & writable;
    }

    unsafe fn unsafe_clone(&self) -> Self {
        self.clone()
    }
}

/// The windows of QEMU's `virt` with `highmem=on`.
pub(crate) fn windows() -> Windows {
    let window = |at, bytes| Window { bus: at, cpu: at, bytes, is_prefetchable: false };
    Windows::new([window(0x1000_0000, 0x2eff_0000), window(0x80_0000_0000, 0x80_0000_0000)])
}
