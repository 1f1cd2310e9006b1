//! A network card: virtio 1.2, 5.1. It takes none of the offloads: what it sends is finished, and so is what it receives.

use alloc::vec::Vec;

use virtio_drivers::transport::Transport;
use virtio_drivers::{BufferDirection, Hal};

use crate::Broken;
use crate::buffer::Buffer;
use crate::ring::{Parts, Ring};
use crate::rooms::Rooms;
use crate::start::{Started, Unusable, begin};

/// The most bytes of a frame, with a VLAN tag and without the frame check sequence.
pub const FRAME_BYTES: usize = 1518;

/// The queues, by number.
const RECEIVE: u16 = 0;
const SEND: u16 = 1;

/// Descriptors of a queue, and buffers: each frame has one.
const SIZE: usize = 128;
/// The bytes of a buffer: a frame, and the header before it.
const BUFFER: usize = 2048;
/// The header: no checksum to be made, nothing to be cut.
const HEADER: usize = 12;

/// How many buffers that were sent are taken back at a time.
const TAKEN_BACK: usize = 16;

/// A frame that has come.
#[derive(Debug)]
pub struct Received {
    buffer: Buffer,
    /// As the device says.
    written: u32,
}

impl Received {
    /// The frame; `None` where the device says that it has written more than the buffer has, or less than a header.
    pub fn frame(&self) -> Option<&[u8]> {
        self.buffer.bytes().get(HEADER..self.written as usize)
    }
}

// SAFETY: the whole of a buffer that it owns.
unsafe impl Parts for Received {
    fn with<R>(
        &mut self,
        then: impl for<'a> FnOnce(&'a [&'a [u8]], &'a mut [&'a mut [u8]]) -> R,
    ) -> R {
        then(&[], &mut [self.buffer.bytes_mut()])
    }
}

/// Room for a frame that is to be sent.
#[derive(Debug)]
pub struct Outgoing {
    buffer: Buffer,
    len: usize,
    sender: u64,
}

impl Outgoing {
    /// The bytes of the frame. Not longer than [`FRAME_BYTES`]: what is beyond that is cut off.
    pub fn frame(&mut self, len: usize) -> &mut [u8] {
        self.len = len.min(FRAME_BYTES);
        &mut self.buffer.bytes_mut()[HEADER..HEADER + self.len]
    }
}

// SAFETY: a part of a buffer that it owns, which does not change while the device has it. It has a header at least.
unsafe impl Parts for Outgoing {
    fn with<R>(
        &mut self,
        then: impl for<'a> FnOnce(&'a [&'a [u8]], &'a mut [&'a mut [u8]]) -> R,
    ) -> R {
        then(&[&self.buffer.bytes()[..HEADER + self.len]], &mut [])
    }
}

/// A network card.
pub struct Card<H: Hal, T: Transport> {
    device: Started<T>,
    receive: Ring<H, Received, SIZE>,
    send: Ring<H, Outgoing, SIZE>,
    /// Buffers that nothing is sent from, and who has the others.
    free: Vec<Buffer>,
    rooms: Rooms,
}

impl<H: Hal, T: Transport> Card<H, T> {
    /// Starts the card. It interrupts when a frame has come.
    ///
    /// # Errors
    ///
    /// [`Unusable`].
    pub fn new(transport: T) -> Result<Self, Unusable> {
        let (mut device, (receive, send, free, rooms)) = Started::new(transport, Self::start)?;
        receive.notify(&mut device.transport);
        Ok(Self { device, receive, send, free, rooms })
    }

    #[expect(clippy::type_complexity, reason = "its one caller takes it apart")]
    fn start(
        transport: &mut T,
    ) -> Result<(Ring<H, Received, SIZE>, Ring<H, Outgoing, SIZE>, Vec<Buffer>, Rooms), Unusable>
    {
        begin(transport, 0)?;
        let mut receive = Ring::new(transport, RECEIVE)?;
        let mut send = Ring::new(transport, SEND)?;
        let mut buffers = Vec::new();
        Buffer::allocate::<H>(&mut buffers, SIZE, BUFFER, BufferDirection::DeviceToDriver)?;
        for buffer in buffers.drain(..) {
            // As many as it has descriptors.
            let _ = receive.add(Received { buffer, written: 0 });
        }
        Buffer::allocate::<H>(&mut buffers, SIZE, BUFFER, BufferDirection::DriverToDevice)?;
        // What was sent is taken back when there is something to send.
        send.ignore();
        Ok((receive, send, buffers, Rooms::try_new(SIZE)?))
    }

    /// Looks whether the card asks for its reset: it may, where it has told of a change of its configuration. If its
    /// interrupt was turned off, it is not heard.
    ///
    /// # Errors
    ///
    /// [`Broken`], from then on.
    pub fn look(&mut self, is_heard: bool) -> Result<(), Broken> {
        self.device.look(is_heard)
    }

    /// The next frame that has come.
    ///
    /// # Errors
    ///
    /// [`Broken`], from then on.
    pub fn receive(&mut self) -> Result<Option<Received>, Broken> {
        self.device.check()?;
        let taken = self.receive.take();
        let taken = self.device.unless_broken(taken)?;
        Ok(taken.map(|(received, written)| Received { written, ..received }))
    }

    /// Gives the buffer of a frame back to the card, for another one.
    pub fn give_back(&mut self, received: Received) {
        if self.device.broken().is_none() {
            // Its descriptor is free.
            let _ = self.receive.add(received);
        }
    }

    /// The card need not interrupt for frames that come, until [`Card::listen`].
    pub fn ignore(&mut self) {
        self.receive.ignore();
    }

    /// The card is to know of the buffers that it was given, and to interrupt when a frame comes. Returns whether one has
    /// come by now.
    pub fn listen(&mut self) -> bool {
        if self.device.broken().is_some() {
            return false;
        }
        self.receive.notify(&mut self.device.transport);
        self.receive.listen()
    }

    /// Room for a frame of one of several senders; `None` where the sender has as much as [its part](Rooms).
    ///
    /// # Errors
    ///
    /// [`Broken`], from then on.
    pub fn room(&mut self, sender: u64) -> Result<Option<Outgoing>, Broken> {
        self.device.check()?;
        for _ in 0..TAKEN_BACK {
            let taken = self.send.take();
            let Some((sent, _)) = self.device.unless_broken(taken)? else { break };
            self.discard(sent);
        }
        if !self.rooms.take(sender) {
            return Ok(None);
        }
        // As many are free as the account says.
        Ok(self.free.pop().map(|buffer| Outgoing { buffer, len: 0, sender }))
    }

    /// Sends a frame.
    pub fn send(&mut self, mut frame: Outgoing) {
        if self.device.broken().is_some() {
            return;
        }
        frame.buffer.bytes_mut()[..HEADER].fill(0);
        // There are as many descriptors as buffers.
        match self.send.add(frame) {
            Ok(()) => self.send.notify(&mut self.device.transport),
            Err(frame) => self.discard(frame),
        }
    }

    /// Takes room back that nothing is sent from.
    pub fn discard(&mut self, frame: Outgoing) {
        self.rooms.give_back(frame.sender);
        self.free.push(frame.buffer);
    }
}
