//! The registers of a virtio device: virtio 1.2, 4.2.2.

mod saved;

use super::backend::Device;
use super::chain::{Chain, Malformed};
use super::queue::{MAX_SIZE, Queue, Rules, Used};
use crate::memory::GuestMemory;
pub use saved::{NotDrained, STATE};

/// The bytes of a device's registers, with its configuration.
pub const SIZE: u64 = 0x200;

/// The most queues of a device.
pub(crate) const MAX_QUEUES: usize = 3;

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
    queues: [Queue; MAX_QUEUES],
    /// Which queue the driver speaks of.
    selected: u32,
    /// How often its queues have begun anew.
    epoch: u32,
    /// Chains that were taken in this epoch, and not given back.
    under_way: u32,
    features: u64,
    device_features_word: u32,
    driver_features_word: u32,
    status: u32,
    interrupts: u32,
    /// Bytes of chains that were used, and of which the driver wants to be told, but has not been.
    untold: u64,
}

impl<D: Device> Mmio<D> {
    /// The device after reset.
    pub fn new(device: D) -> Self {
        Self {
            device,
            queues: [Queue::new(); MAX_QUEUES],
            selected: 0,
            epoch: 0,
            under_way: 0,
            features: 0,
            device_features_word: 0,
            driver_features_word: 0,
            status: 0,
            interrupts: 0,
            untold: 0,
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

    /// Why its interrupt line is high (`InterruptStatus`): none of its bits are set where the line is low.
    pub const fn interrupt_status(&self) -> u32 {
        self.interrupts
    }

    /// Whether its rings made no sense: it waits for its reset.
    pub const fn is_broken(&self) -> bool {
        self.status & status::NEEDS_RESET != 0
    }

    /// The rings of the queues that are on, by their addresses and how many bytes they have: of each queue that which its
    /// driver writes, and that which the device writes. The device reads and writes a number in each.
    pub fn rings(&self) -> impl Iterator<Item = (u64, u64)> {
        self.queues.iter().filter(|queue| queue.ready).flat_map(Queue::rings)
    }

    /// As it was at first: whatever was under way is forgotten. The driver does this too, by its status.
    pub fn reset(&mut self) {
        self.device.reset();
        self.queues = [Queue::new(); MAX_QUEUES];
        self.selected = 0;
        self.begin_epoch();
        self.features = 0;
        self.device_features_word = 0;
        self.driver_features_word = 0;
        self.status = 0;
        self.interrupts = 0;
        self.untold = 0;
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

    /// The 32 bits at a multiple of four below [`SIZE`].
    pub(super) fn word_at(&self, offset: u64) -> u32 {
        match offset.checked_sub(0x100) {
            Some(start) => {
                u32::from_le_bytes([0, 1, 2, 3].map(|byte| self.device.config(start + byte)))
            }
            None => self.register(offset),
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
            0x034 if self.selected().is_some() => MAX_SIZE.into(),
            0x044 => self.selected().is_some_and(|queue| self.queues[queue].ready).into(),
            0x060 => self.interrupts,
            0x070 => self.status,
            // Length and place of a shared memory that there is not.
            0x0b0..=0x0bc => u32::MAX,
            _ => 0,
        }
    }

    /// The queue that the driver speaks of, if there is one.
    fn selected(&self) -> Option<usize> {
        usize::try_from(self.selected).ok().filter(|queue| *queue < D::QUEUES)
    }

    /// Writes `data`, little-endian, at `offset`; whether the queues are to be looked at ([`Mmio::serve`]). Registers
    /// and what may be written of the configuration are written by 32 bits at a time; whatever else is written is ignored.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> bool {
        let Ok(value) = data.try_into().map(u32::from_le_bytes) else { return false };
        match offset {
            0x014 => self.device_features_word = value,
            0x020 => self.accept(value),
            0x024 => self.driver_features_word = value,
            0x030 => self.selected = value,
            0x050 => return (value as usize) < D::QUEUES,
            0x064 => self.interrupts &= !value,
            0x070 => self.set_status(value),
            0x038 | 0x044 | 0x080..=0x0a4 => self.set_queue(offset, value),
            0x100.. => {
                self.device.set_config(offset - 0x100, value, self.status & status::DRIVER_OK != 0);
            }
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
        let is_offered = self.features & !self.offered() == 0 && self.features & VERSION_1 != 0;
        if !is_offered || !self.device.may_take(self.features) {
            status &= !status::FEATURES_OK;
        }
        if status & status::FEATURES_OK == 0 {
            status &= !status::DRIVER_OK;
        }
        self.status = status;
    }

    fn set_queue(&mut self, offset: u64, value: u32) {
        let Some(selected) = self.selected() else { return };
        let queue = &mut self.queues[selected];
        if offset == 0x044 {
            match value & 1 {
                0 => queue.ready = false,
                _ if !queue.ready => {
                    queue.start();
                    self.device.forget(selected);
                    self.begin_epoch();
                }
                _ => {}
            }
            return;
        }
        // What is in use does not move.
        if queue.ready {
            return;
        }
        let (low, high) = (u64::from(value), u64::from(value) << 32);
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

    /// Serves one chain of those that ask for something, if there is one.
    pub fn serve(&mut self, memory: &impl GuestMemory) -> Served {
        let Some(queue) = D::SERVED.filter(|queue| self.is_live(*queue)) else {
            return Served::Nothing;
        };
        let served = self.serve_next(queue, memory);
        self.unless_malformed(served, Served::Nothing)
    }

    /// Not inlined, as others that have a chain: its caller's stack has room for that while it is here.
    #[inline(never)]
    fn serve_next(&mut self, queue: usize, memory: &impl GuestMemory) -> Result<Served, Malformed> {
        let (rules, features) = (self.rules(), self.features);
        let Self { queues, device, .. } = self;
        let (queue, mut chain) = (&mut queues[queue], Chain::new());
        let Some(head) = queue.next(rules, &mut chain, memory)? else {
            let more = queue.rest(rules, memory)?;
            return Ok(if more { Served::One } else { Served::Nothing });
        };
        let written = device.serve(&chain, features, memory)?;
        if queue.complete(rules, Used { head, written }, memory)? {
            self.tell();
        }
        Ok(Served::One)
    }

    /// Whether the driver has the device work, and has turned that queue on.
    pub(super) fn is_live(&self, queue: usize) -> bool {
        self.works() && self.queues[queue].ready
    }

    /// Whether the driver has the device work.
    pub(super) const fn works(&self) -> bool {
        self.status & (status::DRIVER_OK | status::NEEDS_RESET) == status::DRIVER_OK
    }

    /// What has been agreed about rings.
    pub(super) fn rules(&self) -> Rules {
        Rules { indirect: self.has_agreed(INDIRECT), event_index: self.has_agreed(EVENT_INDEX) }
    }

    /// Whether the driver has taken one of these features.
    pub(super) fn has_agreed(&self, features: u64) -> bool {
        self.features & features != 0
    }

    /// The features that the driver has taken.
    pub(super) fn agreed(&self) -> u64 {
        self.features
    }

    /// Another number each time that a queue begins anew: what was taken before that is to be given back no more.
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// What is under way is forgotten.
    fn begin_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.under_way = 0;
    }

    /// A chain is under way from now on, until it is given back in the same epoch.
    pub(super) fn took(&mut self) {
        self.under_way += 1;
    }

    /// One is no more.
    pub(super) fn gave_back(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    pub(super) fn queue(&mut self, queue: usize) -> &mut Queue {
        &mut self.queues[queue]
    }

    /// A queue, and what is behind the registers.
    pub(super) fn queue_and_device(&mut self, queue: usize) -> (&mut Queue, &mut D) {
        (&mut self.queues[queue], &mut self.device)
    }

    /// The next chain of a queue, in `chain`; its head. Where there is none, the driver tells when there is.
    pub(super) fn next_chain(
        &mut self,
        queue: usize,
        chain: &mut Chain,
        memory: &impl GuestMemory,
    ) -> Result<Option<u16>, Malformed> {
        let rules = self.rules();
        let queue = self.queue(queue);
        match queue.next(rules, chain, memory)? {
            // Looked for again once: a driver that takes back what it has offered is not followed.
            None if queue.rest(rules, memory)? => queue.next(rules, chain, memory),
            found => Ok(found),
        }
    }

    /// Gives a chain of a queue back. The driver may be told.
    pub(super) fn give_back_chain(
        &mut self,
        queue: usize,
        used: Used,
        memory: &impl GuestMemory,
    ) -> Result<(), Malformed> {
        let rules = self.rules();
        if self.queue(queue).complete(rules, used, memory)? {
            self.tell();
        }
        Ok(())
    }

    /// What is behind the registers.
    pub(super) fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// The driver is told that the configuration has changed.
    pub(super) fn tell_of_configuration(&mut self) {
        self.interrupts |= CONFIG;
    }

    /// The driver is told of chains that were used.
    pub(super) fn tell(&mut self) {
        self.interrupts |= USED;
        self.untold = 0;
    }

    /// The driver wants to be told of so many bytes that were used, or of some before them. It is told later, but at once if
    /// the bytes come to `most`.
    pub(super) fn tell_later(&mut self, bytes: u64, most: u64) {
        self.untold = self.untold.saturating_add(bytes);
        if self.untold >= most {
            self.tell();
        }
    }

    /// Whether chains were used of which the driver is to be told, and has not been.
    pub const fn is_untold(&self) -> bool {
        self.untold > 0
    }

    /// What was found; or `broken`, where the rings made no sense: the device asks for its reset.
    pub(super) fn unless_malformed<T>(&mut self, found: Result<T, Malformed>, broken: T) -> T {
        found.unwrap_or_else(|Malformed| {
            self.status |= status::NEEDS_RESET;
            self.interrupts |= CONFIG;
            broken
        })
    }
}

const fn word(bits: u64, index: u32) -> u32 {
    match index {
        0 => bits as u32,
        1 => (bits >> 32) as u32,
        _ => 0,
    }
}
