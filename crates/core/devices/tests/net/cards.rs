//! Guests with a card: their memory, and a driver of each queue.

use std::cell::RefCell;

use mayfly_devices::memory::{BadAddress, GuestMemory};
use mayfly_devices::virtio::net::{Frame, Lost, Net, Offload, Packet};
use mayfly_devices::virtio::{Mmio, Served};

const BASE: u64 = 0x4000_0000;
pub(crate) const BYTES: usize = 0x20_0000;

pub(crate) const RECEIVE: u32 = 0;
pub(crate) const TRANSMIT: u32 = 1;
pub(crate) const CONTROL: u32 = 2;

pub(crate) const VERSION_1: u64 = 1 << 32;
pub(crate) const EVENT_INDEX: u64 = 1 << 29;
pub(crate) const CSUM: u64 = 1;
pub(crate) const GUEST_CSUM: u64 = 1 << 1;
pub(crate) const TSO: u64 = 1 << 7 | 1 << 8 | 1 << 11 | 1 << 12;
pub(crate) const MERGE: u64 = 1 << 15;
pub(crate) const STATUS: u64 = 1 << 16;
pub(crate) const CONTROLS: u64 = 1 << 17 | 1 << 18 | 1 << 21;
pub(crate) const ALL: u64 = VERSION_1 | CSUM | GUEST_CSUM | TSO | MERGE | CONTROLS;

/// The bytes before a frame.
pub(crate) const HEADER: usize = 12;

pub(crate) struct Memory(RefCell<Vec<u8>>);

impl Memory {
    fn place(address: u64, len: usize) -> Result<usize, BadAddress> {
        let start = address.checked_sub(BASE).and_then(|start| usize::try_from(start).ok());
        start
            .filter(|start| start.checked_add(len).is_some_and(|end| end <= BYTES))
            .ok_or(BadAddress { address })
    }

    pub(crate) fn get(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.read(address, &mut bytes).unwrap();
        bytes
    }
}

impl GuestMemory for Memory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), BadAddress> {
        let place = Self::place(address, into.len())?;
        into.copy_from_slice(&self.0.borrow()[place..place + into.len()]);
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), BadAddress> {
        let place = Self::place(address, from.len())?;
        self.0.borrow_mut()[place..place + from.len()].copy_from_slice(from);
        Ok(())
    }

    fn load_acquire(&self, address: u64) -> Result<u16, BadAddress> {
        let mut bytes = [0; 2];
        self.read(address, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    fn store_release(&self, address: u64, value: u16) -> Result<(), BadAddress> {
        self.write(address, &value.to_le_bytes())
    }
}

/// Descriptors of a queue.
pub(crate) const SIZE: u16 = 64;

/// The parts of a queue.
const fn place(queue: u32, part: u64) -> u64 {
    BASE + 0x1_0000 * queue as u64 + 0x4000 * part
}

/// Where a queue's buffers are.
pub(crate) const fn buffers(queue: u32) -> u64 {
    BASE + 0x8_0000 + 0x4_0000 * queue as u64
}

/// What a driver has made available of a queue, and seen used.
#[derive(Clone, Copy, Default)]
struct Ring {
    available: u16,
    used: u16,
}

pub(crate) struct Guest {
    pub(crate) memory: Memory,
    pub(crate) card: Mmio<Net>,
    rings: [Ring; 3],
}

impl Guest {
    /// One whose driver has taken these features.
    pub(crate) fn new(mac: u8, features: u64) -> Self {
        let card = Mmio::new(Net::new([2, 0, 0, 0, 0, mac]));
        let memory = Memory(RefCell::new(vec![0; BYTES]));
        let mut guest = Self { memory, card, rings: [Ring::default(); 3] };
        guest.begin(features);
        guest
    }

    /// The same guest, with another card.
    pub(crate) fn with_card(&self, card: Mmio<Net>) -> Self {
        let memory = Memory(self.memory.0.clone());
        Self { memory, card, rings: self.rings }
    }

    pub(crate) fn set(&mut self, offset: u64, value: u32) -> bool {
        self.card.write(offset, &value.to_le_bytes())
    }

    pub(crate) fn get(&self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.card.read(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// Whether the card takes the features.
    pub(crate) fn agree(&mut self, features: u64) -> bool {
        for status in [0, 1, 3] {
            self.set(0x70, status);
        }
        for word in 0..2_u32 {
            self.set(0x24, word);
            self.set(0x20, (features >> (32 * word)) as u32);
        }
        self.set(0x70, 0xb);
        self.get(0x70) & 8 != 0
    }

    /// The driver begins anew.
    pub(crate) fn begin(&mut self, features: u64) {
        assert!(self.agree(features));
        (0..3).for_each(|queue| self.begin_queue(queue));
        self.set(0x70, 0xf);
    }

    /// The driver turns a queue on, or off and on again: its rings begin anew.
    pub(crate) fn begin_queue(&mut self, queue: u32) {
        self.rings[queue as usize] = Ring::default();
        self.memory.write(place(queue, 1), &[0; 4]).unwrap();
        self.memory.write(place(queue, 2), &[0; 4]).unwrap();
        self.set(0x30, queue);
        self.set(0x44, 0);
        self.set(0x38, SIZE.into());
        for (offset, part) in [(0x80, 0), (0x90, 1), (0xa0, 2)] {
            let address = place(queue, part);
            self.set(offset, address as u32);
            self.set(offset + 4, (address >> 32) as u32);
        }
        self.set(0x44, 1);
        assert_eq!(self.get(0x44), 1);
    }

    /// Makes a chain available: from descriptor `head` on, of these pieces, which the device writes or not.
    pub(crate) fn offer(&mut self, queue: u32, head: u16, pieces: &[(u64, u32)], writes: bool) {
        for (index, (address, len)) in (0_u16..).zip(pieces) {
            let flags = u16::from(usize::from(index) + 1 < pieces.len()) | u16::from(writes) << 1;
            let next = head + index + 1;
            let bytes = [
                &address.to_le_bytes()[..],
                &len.to_le_bytes(),
                &flags.to_le_bytes(),
                &next.to_le_bytes(),
            ];
            let at = place(queue, 0) + 16 * u64::from(head + index);
            self.memory.write(at, &bytes.concat()).unwrap();
        }
        let ring = &mut self.rings[queue as usize];
        let at = place(queue, 1) + 4 + 2 * u64::from(ring.available % SIZE);
        self.memory.write(at, &head.to_le_bytes()).unwrap();
        ring.available = ring.available.wrapping_add(1);
        let available = ring.available;
        self.claims_available(queue, available);
    }

    /// The driver says that it has made so many chains available, whatever it has.
    pub(crate) fn claims_available(&self, queue: u32, chains: u16) {
        self.memory.store_release(place(queue, 1) + 2, chains).unwrap();
    }

    /// The driver wants to be told of nothing of the queue (`VIRTQ_AVAIL_F_NO_INTERRUPT`).
    pub(crate) fn suppress(&self, queue: u32) {
        self.memory.store_release(place(queue, 1), 1).unwrap();
    }

    /// With the event index: the driver wants to be told of what is used behind so many chains.
    pub(crate) fn wants_to_be_told_behind(&self, queue: u32, chains: u16) {
        self.memory.store_release(place(queue, 1) + 4 + 2 * u64::from(SIZE), chains).unwrap();
    }

    /// The next chain that was used: its head, and how many bytes were written.
    pub(crate) fn used(&mut self, queue: u32) -> Option<(u16, u32)> {
        let ring = &mut self.rings[queue as usize];
        if self.memory.load_acquire(place(queue, 2) + 2).unwrap() == ring.used {
            return None;
        }
        let at = place(queue, 2) + 4 + 8 * u64::from(ring.used % SIZE);
        ring.used = ring.used.wrapping_add(1);
        let used = ring.used;
        self.wants_to_be_told_behind(queue, used);
        let bytes = self.memory.get(at, 8);
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        Some((number(0) as u16, number(4)))
    }

    /// Gives the card buffers to receive into, each of so many bytes: descriptor `n` of the `n`th.
    pub(crate) fn make_room(&mut self, lengths: &[u32]) {
        for (index, len) in (0_u16..).zip(lengths) {
            self.offer(
                RECEIVE,
                index,
                &[(buffers(RECEIVE) + 0x1000 * u64::from(index), *len)],
                true,
            );
        }
    }

    /// Sends a frame behind a header, in pieces that are cut after these numbers of bytes.
    pub(crate) fn send(&mut self, header: [u8; HEADER], frame: &[u8], cuts: &[usize]) {
        let all = [&header[..], frame].concat();
        self.memory.write(buffers(TRANSMIT), &all).unwrap();
        let mut pieces = Vec::new();
        let mut at = 0;
        for cut in cuts.iter().copied().chain([usize::MAX]) {
            let now = cut.min(all.len() - at);
            if now > 0 {
                pieces.push((buffers(TRANSMIT) + at as u64, now as u32));
            }
            at += now;
        }
        self.offer(TRANSMIT, 0, &pieces, false);
    }

    /// Asks for something by the control queue; the answer.
    pub(crate) fn ask(&mut self, command: &[u8]) -> u8 {
        let at = buffers(CONTROL);
        self.memory.write(at, command).unwrap();
        self.memory.write(at + 0x100, &[0xee]).unwrap();
        self.offer(CONTROL, 0, &[(at, command.len() as u32), (at + 0x100, 1)], false);
        // The answer is what the device writes.
        let flags = place(CONTROL, 0) + 16 + 12;
        self.memory.write(flags, &[2]).unwrap();
        assert_eq!(self.card.serve(&self.memory), Served::One);
        assert_eq!(self.used(CONTROL), Some((0, 1)));
        self.memory.get(at + 0x100, 1)[0]
    }

    /// The next frame that was received, and its header; its buffers are those that `make_room` has given.
    pub(crate) fn received(&mut self) -> Option<([u8; HEADER], Vec<u8>)> {
        let mut all = Vec::new();
        let (mut count, mut buffers_left) = (0, 1);
        while buffers_left > 0 {
            let used = self.used(RECEIVE);
            assert!(used.is_some() || count == 0, "a frame comes at once");
            let (head, written) = used?;
            let at = buffers(RECEIVE) + 0x1000 * u64::from(head);
            all.extend(self.memory.get(at, written as usize));
            if count == 0 {
                buffers_left = u16::from_le_bytes([all[10], all[11]]);
            }
            (count, buffers_left) = (count + 1, buffers_left - 1);
        }
        let header = all[..HEADER].try_into().unwrap();
        Some((header, all.split_off(HEADER)))
    }
}

/// Carries the next frame that `from` sends to `to`, as it is; what became of it, if there was one.
pub(crate) fn carry(from: &mut Guest, to: &mut Guest) -> Option<Result<(), Lost>> {
    let mut packet = Packet::new();
    if !from.card.take(&mut packet, &from.memory) {
        return None;
    }
    let offload = packet.offload().expect("a frame that makes sense");
    let frame = Frame { head: &[], rest: 0..packet.len(), offload };
    let received = to.card.receive(0, &frame, &packet.in_memory(&from.memory), &to.memory);
    from.card.give_back(&packet, &from.memory);
    Some(received)
}

/// A header that leaves nothing to be done.
pub(crate) const PLAIN: [u8; HEADER] = [0; HEADER];

/// A header that leaves a checksum to be computed, and a segment to be cut: its kind, and the size of its parts.
pub(crate) fn header(start: u16, offset: u16, cut: Option<(u8, u16)>) -> [u8; HEADER] {
    let mut header = PLAIN;
    header[0] = 1;
    header[6..8].copy_from_slice(&start.to_le_bytes());
    header[8..10].copy_from_slice(&offset.to_le_bytes());
    if let Some((kind, size)) = cut {
        header[1] = kind;
        header[4..6].copy_from_slice(&size.to_le_bytes());
    }
    header
}

/// Takes the next frame, and what is left to be done of it.
pub(crate) fn offload(guest: &mut Guest) -> Result<Offload, ()> {
    let mut packet = Packet::new();
    assert!(guest.card.take(&mut packet, &guest.memory));
    let offload = packet.offload().map_err(|_| ());
    guest.card.give_back(&packet, &guest.memory);
    offload
}
