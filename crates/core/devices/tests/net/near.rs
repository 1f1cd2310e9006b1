//! Frames between memories of one embedder's, which copies from one to the other without a detour.

use std::any::Any;
use std::cell::Cell;

use mayfly_devices::memory::{BadAddress, BadCopy, GuestMemory};
use mayfly_devices::virtio::net::{Frame, Lost, Packet};

use super::cards::*;
use super::frame;

/// The memory of a guest, which copies from that of another, if that says what it is.
struct Near<'a> {
    memory: &'a Memory,
    says: bool,
    /// Bytes that were copied without a detour.
    copied: Cell<usize>,
}

impl<'a> Near<'a> {
    fn new(memory: &'a Memory, says: bool) -> Self {
        Self { memory, says, copied: Cell::new(0) }
    }
}

impl GuestMemory for Near<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), BadAddress> {
        self.memory.read(address, into)
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), BadAddress> {
        self.memory.write(address, from)
    }

    fn load_acquire(&self, address: u64) -> Result<u16, BadAddress> {
        self.memory.load_acquire(address)
    }

    fn store_release(&self, address: u64, value: u16) -> Result<(), BadAddress> {
        self.memory.store_release(address, value)
    }

    fn as_any(&self) -> Option<&dyn Any> {
        self.says.then_some(self.memory)
    }

    fn copy_from(
        &self,
        to: u64,
        (other, from): (&dyn Any, u64),
        bytes: usize,
    ) -> Option<Result<(), BadCopy>> {
        let mut all = vec![0; bytes];
        let read = other.downcast_ref::<Memory>()?.read(from, &mut all).map_err(BadCopy::From);
        self.copied.set(self.copied.get() + bytes);
        Some(read.and_then(|()| self.write(to, &all).map_err(BadCopy::To)))
    }
}

/// Carries the next frame; what became of it, and how many of its bytes took no detour.
fn carry_near(from: &mut Guest, to: &mut Guest, says: bool) -> (Result<(), Lost>, usize) {
    let mut packet = Packet::new();
    assert!(from.card.take(&mut packet, &from.memory));
    let (source, memory) = (Near::new(&from.memory, says), Near::new(&to.memory, says));
    let offload = packet.offload().expect("a frame that makes sense");
    let sent = Frame { head: &[], rest: 0..packet.len(), offload };
    let received = to.card.receive(0, &sent, &packet.in_memory(&source), &memory);
    from.card.give_back(&packet, &from.memory);
    (received, memory.copied.get())
}

/// All but what a frame is judged by, of which the card has a copy.
#[test]
fn a_frame_takes_no_detour_where_the_sender_says_what_its_memory_is() {
    for says in [true, false] {
        let (mut one, mut other) = (Guest::new(1, ALL), Guest::new(2, ALL));
        for (len, cuts, room) in [
            (14, &[5, 20][..], &[2048][..]),
            (1518, &[12, 3, 700], &[100, 700, 2048]),
            (1200, &[13, 1, 12, 1], &[12, 1, 13, 1, 2048]),
        ] {
            other.make_room(room);
            one.send(PLAIN, &frame(len), cuts);
            let direct = if says { len - 14 } else { 0 };
            assert_eq!(carry_near(&mut one, &mut other, says), (Ok(()), direct));
            assert_eq!(other.received().unwrap().1, frame(len));
        }
    }
}

#[test]
fn whose_memory_is_not_there_is_known_without_a_detour_too() {
    let (mut one, mut other) = (Guest::new(1, ALL), Guest::new(2, ALL));
    other.make_room(&[2048]);
    one.memory.write(buffers(TRANSMIT), &PLAIN).unwrap();
    one.offer(TRANSMIT, 0, &[(buffers(TRANSMIT), 40), (0x1000, 500)], false);
    assert_eq!(carry_near(&mut one, &mut other, true).0, Err(Lost::Unreadable));
    assert_eq!(other.used(RECEIVE), None);

    let (mut one, mut other) = (Guest::new(1, ALL), Guest::new(2, ALL));
    other.offer(RECEIVE, 0, &[(buffers(RECEIVE), 40), (0x1000, 500)], true);
    one.send(PLAIN, &frame(60), &[]);
    assert_eq!(carry_near(&mut one, &mut other, true).0, Err(Lost::Unwritable));
    assert_eq!(other.used(RECEIVE), Some((0, 0)));
}
