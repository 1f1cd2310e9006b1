//! The registers of a virtio device: virtio 1.2, 4.2.2.

use super::backend::Device;
use super::chain::{Chain, Malformed};
use super::queue::{MAX_SIZE, Queue, Rules};
use crate::memory::GuestMemory;

/// The bytes of a device's registers, with its configuration.
pub const SIZE: u64 = 0x200;

/// `VIRTIO_F_INDIRECT_DESC`, `VIRTIO_F_EVENT_IDX`, `VIRTIO_F_VERSION_1`.
const INDIRECT: u64 = 1 << 28;
const EVENT_INDEX: u64 = 1 << 29;
const VERSION_1: u64 = 1 << 32;

mod status {
    pub(super) const DRIVER_OK: u32 = 4;
    pub(super) const FEATURES_OK: u32 = 8;
    pub(super) const NEEDS_RESET: u32 = 64;
    pub(super) const ALL: u32 = 0xcf;
}

/// Bits of the interrupt status.
const USED: u32 = 1;
const CONFIG: u32 = 2;

/// Whether a chain was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// One was; there may be more.
    One,
    /// There was none, and the driver tells when there is one.
    Nothing,
}

/// A virtio device with its registers. It drives one line, of which [`Mmio::interrupt`] is the level: see
/// [`settle`](crate::line::settle).
#[derive(Debug)]
pub struct Mmio<D> {
    device: D,
    chain: Chain,
    queue: Queue,
    /// Which queue the driver speaks of; there is queue 0 alone.
    selected: u32,
    features: u64,
    device_features_word: u32,
    driver_features_word: u32,
    status: u32,
    interrupts: u32,
}

impl<D: Device> Mmio<D> {
    /// The device after reset.
    pub fn new(device: D) -> Self {
        Self {
            device,
            chain: Chain::new(),
            queue: Queue::new(),
            selected: 0,
            features: 0,
            device_features_word: 0,
            driver_features_word: 0,
            status: 0,
            interrupts: 0,
        }
    }

    /// What is behind the registers.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The level of its interrupt line: high until the driver has acknowledged all that it was told of.
    pub const fn interrupt(&self) -> bool {
        self.interrupts != 0
    }

    /// Whether its rings made no sense: it waits for its reset.
    pub const fn is_broken(&self) -> bool {
        self.status & status::NEEDS_RESET != 0
    }

    /// As it was at first: whatever was under way is forgotten. The driver does this too, by its status.
    pub fn reset(&mut self) {
        self.queue = Queue::new();
        self.selected = 0;
        self.features = 0;
        self.device_features_word = 0;
        self.driver_features_word = 0;
        self.status = 0;
        self.interrupts = 0;
    }

    /// Reads `data.len()` bytes at `offset`. Registers are read by 32 bits at a time, the configuration by any size;
    /// whatever else is read is zero.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        if let Some(start) = offset.checked_sub(0x100) {
            for (at, byte) in (start..SIZE - 0x100).zip(data) {
                *byte = self.device.config(at);
            }
        } else if data.len() == 4 && offset.is_multiple_of(4) {
            data.copy_from_slice(&self.register(offset).to_le_bytes());
        }
    }

    fn register(&self, offset: u64) -> u32 {
        match offset {
            0x000 => 0x7472_6976,
            0x004 => 2,
            0x008 => D::ID,
            // No vendor in particular, as the specification says for a vendor that has no number.
            0x00c => 0x554d_4551,
            0x010 => word(self.offered(), self.device_features_word),
            0x034 if self.selected == 0 => MAX_SIZE.into(),
            0x044 if self.selected == 0 => self.queue.ready.into(),
            0x060 => self.interrupts,
            0x070 => self.status,
            // Length and place of a shared memory that there is not.
            0x0b0..=0x0bc => u32::MAX,
            _ => 0,
        }
    }

    /// Writes `data`, little-endian, at `offset`; whether the queue is to be looked at ([`Mmio::serve`]). Registers are
    /// written by 32 bits at a time; whatever else is written is ignored, and so is the configuration.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> bool {
        let Ok(value) = data.try_into().map(u32::from_le_bytes) else { return false };
        match offset {
            0x014 => self.device_features_word = value,
            0x020 => self.accept(value),
            0x024 => self.driver_features_word = value,
            0x030 => self.selected = value,
            0x050 => return value == 0,
            0x064 => self.interrupts &= !value,
            0x070 => self.set_status(value),
            0x038 | 0x044 | 0x080..=0x0a4 if self.selected == 0 => self.set_queue(offset, value),
            _ => {}
        }
        false
    }

    fn offered(&self) -> u64 {
        INDIRECT | EVENT_INDEX | VERSION_1 | self.device.features()
    }

    fn accept(&mut self, value: u32) {
        if self.status & status::FEATURES_OK != 0 || self.driver_features_word > 1 {
            return;
        }
        let shift = 32 * self.driver_features_word;
        self.features = self.features & !(0xffff_ffff << shift) | u64::from(value) << shift;
    }

    fn set_status(&mut self, value: u32) {
        if value == 0 {
            self.reset();
            return;
        }
        let mut status = value & status::ALL | self.status & status::NEEDS_RESET;
        // A driver reads whether this bit has stayed, and does not go on without it.
        if self.features & !self.offered() != 0 || self.features & VERSION_1 == 0 {
            status &= !status::FEATURES_OK;
        }
        if status & status::FEATURES_OK == 0 {
            status &= !status::DRIVER_OK;
        }
        self.status = status;
    }

    fn set_queue(&mut self, offset: u64, value: u32) {
        if offset == 0x044 {
            match value & 1 {
                0 => self.queue.ready = false,
                _ if !self.queue.ready => self.queue.start(),
                _ => {}
            }
            return;
        }
        // What is in use does not move.
        if self.queue.ready {
            return;
        }
        let (low, high) = (u64::from(value), u64::from(value) << 32);
        let queue = &mut self.queue;
        match offset {
            // A number that it cannot have leaves a queue that does not start.
            0x038 => queue.size = u16::try_from(value).unwrap_or(0),
            0x080 => queue.descriptors = queue.descriptors & !0xffff_ffff | low,
            0x084 => queue.descriptors = queue.descriptors & 0xffff_ffff | high,
            0x090 => queue.driver = queue.driver & !0xffff_ffff | low,
            0x094 => queue.driver = queue.driver & 0xffff_ffff | high,
            0x0a0 => queue.device = queue.device & !0xffff_ffff | low,
            0x0a4 => queue.device = queue.device & 0xffff_ffff | high,
            _ => {}
        }
    }

    /// Serves one chain, if there is one.
    pub fn serve(&mut self, memory: &impl GuestMemory) -> Served {
        let live = self.status & (status::DRIVER_OK | status::NEEDS_RESET) == status::DRIVER_OK;
        if !live || !self.queue.ready {
            return Served::Nothing;
        }
        self.serve_next(memory).unwrap_or_else(|Malformed| {
            self.status |= status::NEEDS_RESET;
            self.interrupts |= CONFIG;
            Served::Nothing
        })
    }

    fn serve_next(&mut self, memory: &impl GuestMemory) -> Result<Served, Malformed> {
        let rules = Rules {
            indirect: self.features & INDIRECT != 0,
            event_index: self.features & EVENT_INDEX != 0,
        };
        let Some(head) = self.queue.next(rules, &mut self.chain, memory)? else {
            let more = self.queue.rest(rules, memory)?;
            return Ok(if more { Served::One } else { Served::Nothing });
        };
        let written = self.device.serve(&self.chain, memory)?;
        if self.queue.complete(rules, head, written, memory)? {
            self.interrupts |= USED;
        }
        Ok(Served::One)
    }
}

const fn word(bits: u64, index: u32) -> u32 {
    match index {
        0 => bits as u32,
        1 => (bits >> 32) as u32,
        _ => 0,
    }
}
