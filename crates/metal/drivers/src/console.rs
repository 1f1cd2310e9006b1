//! A console of several ports: virtio 1.2, 5.3. One port is used: port 1, if it has the name that is wanted. The device says
//! whether a program on the other side has opened it.
//!
//! Port 0 is for a user, and a device may drop what is written there when nobody reads it. What is written to another port
//! waits in its buffers: so the driver sees that the other side does not read. And what the other side writes waits there as
//! long as the driver has given the device no buffer.
//!
//! **Order.** What happens to ports and what comes by a port are in two queues. So an embedder that has found bytes cannot
//! tell by them alone whether they are of before a change.

use alloc::vec::Vec;

use virtio_drivers::transport::Transport;
use virtio_drivers::{BufferDirection, Hal};

use crate::Broken;
use crate::buffer::Buffer;
use crate::ring::{Parts, Ring};
use crate::start::{Started, Unusable, begin, word};

/// The most bytes that are written at a time.
pub const WRITE_BYTES: usize = BUFFER;

/// `VIRTIO_CONSOLE_F_MULTIPORT`.
const MULTIPORT: u64 = 1 << 1;
/// Where the configuration has the number of ports.
const MOST_PORTS: usize = 4;

/// The port that is used, and its queues.
const PORT: u32 = 1;
const RECEIVE: u16 = 4;
const SEND: u16 = 5;
/// The queues of messages about ports.
const TELL: u16 = 2;
const ANSWER: u16 = 3;

/// Descriptors of a queue of the port, and buffers.
const SIZE: usize = 8;
const BUFFER: usize = 2048;
/// The same of messages. A device drops those that find no buffer, and tells of all its ports at once. QEMU has 31, and
/// queues of 32.
const TOLD: usize = 32;
const TOLD_BUFFER: usize = 128;
const ANSWERS: usize = 4;

/// A message: the number of a port, what it is about, and a value.
const MESSAGE: usize = 8;

mod event {
    pub(super) const DEVICE_READY: u16 = 0;
    pub(super) const PORT_ADD: u16 = 1;
    pub(super) const PORT_REMOVE: u16 = 2;
    pub(super) const PORT_READY: u16 = 3;
    pub(super) const PORT_OPEN: u16 = 6;
    pub(super) const PORT_NAME: u16 = 7;
}

/// What is said to the device, each once, in this order.
const SAID: [u16; 3] = [event::DEVICE_READY, event::PORT_READY, event::PORT_OPEN];

/// The port of a message, what it is about, and its value.
const fn unpack(head: [u8; MESSAGE]) -> (u32, u16, u16) {
    let [p0, p1, p2, p3, e0, e1, v0, v1] = head;
    let port = u32::from_le_bytes([p0, p1, p2, p3]);
    (port, u16::from_le_bytes([e0, e1]), u16::from_le_bytes([v0, v1]))
}

fn pack(port: u32, event: u16, value: u16) -> [u8; MESSAGE] {
    let ([p0, p1, p2, p3], [e0, e1]) = (port.to_le_bytes(), event.to_le_bytes());
    let [v0, v1] = value.to_le_bytes();
    [p0, p1, p2, p3, e0, e1, v0, v1]
}

/// What has become of the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A program on the other side has opened it: another one than before, if there was one.
    Opened,
    /// The program on the other side has closed it.
    Closed,
    /// Something else.
    Other,
}

/// A buffer that the device writes.
#[derive(Debug)]
struct Arriving {
    buffer: Buffer,
}

// SAFETY: the whole of a buffer that it owns.
unsafe impl Parts for Arriving {
    fn with<R>(
        &mut self,
        then: impl for<'a> FnOnce(&'a [&'a [u8]], &'a mut [&'a mut [u8]]) -> R,
    ) -> R {
        then(&[], &mut [self.buffer.bytes_mut()])
    }
}

/// A buffer that the device reads.
#[derive(Debug)]
struct Leaving {
    buffer: Buffer,
    len: usize,
}

// SAFETY: a part of a buffer that it owns, which does not change while the device has it. It is not empty: whoever makes one
// has bytes for it.
unsafe impl Parts for Leaving {
    fn with<R>(
        &mut self,
        then: impl for<'a> FnOnce(&'a [&'a [u8]], &'a mut [&'a mut [u8]]) -> R,
    ) -> R {
        then(&[&self.buffer.bytes()[..self.len]], &mut [])
    }
}

/// The queues of a console, and the buffers that nothing is written from.
struct Queues<H: Hal> {
    told: Ring<H, Arriving, TOLD>,
    answers: Ring<H, Leaving, ANSWERS>,
    receive: Ring<H, Arriving, SIZE>,
    send: Ring<H, Leaving, SIZE>,
    answer_room: Vec<Buffer>,
    room: Vec<Buffer>,
}

/// What is known of the port.
#[derive(Clone, Copy, Default)]
struct Port {
    is_there: bool,
    /// It has the name that is wanted.
    is_meant: bool,
    is_open: bool,
}

/// A console, of which one port is used.
pub struct Console<H: Hal, T: Transport> {
    device: Started<T>,
    queues: Queues<H>,
    name: &'static str,
    port: Port,
    /// Which of [`SAID`] are still to be said.
    owed: [bool; SAID.len()],
    /// What has come and is not read to its end: how many bytes, and from where on.
    rest: Option<(Arriving, usize, usize)>,
    /// A caller had something to write, and there was no room.
    wants_room: bool,
}

impl<H: Hal, T: Transport> Console<H, T> {
    /// Starts the console. Its port 1 is used if it has this name.
    ///
    /// # Errors
    ///
    /// [`Unusable`].
    pub fn new(transport: T, name: &'static str) -> Result<Self, Unusable> {
        let (device, queues) = Started::new(transport, Queues::start)?;
        let (port, owed) = (Port::default(), [true, false, false]);
        let mut console = Self { device, queues, name, port, owed, rest: None, wants_room: false };
        console.queues.told.notify(&mut console.device.transport);
        // Nothing was used yet.
        let _ = console.say();
        Ok(console)
    }

    /// Looks whether the console asks for its reset: it may, where it has told of a change of its configuration. If its
    /// interrupt was turned off, it is not heard.
    ///
    /// # Errors
    ///
    /// [`Broken`], from then on.
    pub fn look(&mut self, is_heard: bool) -> Result<(), Broken> {
        self.device.look(is_heard)
    }

    /// Whether a program on the other side has opened the port, as far as the device has told.
    pub const fn is_open(&self) -> bool {
        self.port.is_meant && self.port.is_open
    }

    /// The next that has become of the port.
    ///
    /// # Errors
    ///
    /// [`Broken`], from then on.
    pub fn hear(&mut self) -> Result<Option<Change>, Broken> {
        self.say()?;
        let taken = self.queues.told.take();
        let Some((message, written)) = self.device.unless_broken(taken)? else { return Ok(None) };
        let bytes = message.buffer.bytes();
        let change = self.understand(&bytes[..bytes.len().min(written as usize)]);
        // Its descriptor is free.
        let _ = self.queues.told.add(message);
        self.say()?;
        Ok(Some(change))
    }

    fn understand(&mut self, message: &[u8]) -> Change {
        let Some((head, name)) = message.split_first_chunk::<MESSAGE>() else {
            return Change::Other;
        };
        let (port, event, value) = unpack(*head);
        match (port, event) {
            (PORT, event::PORT_ADD) if !self.port.is_there => {
                self.port.is_there = true;
                self.owed[1] = true;
            }
            // QEMU ends the name by a zero.
            (PORT, event::PORT_NAME)
                if !self.port.is_meant
                    && name.strip_suffix(&[0]).unwrap_or(name) == self.name.as_bytes() =>
            {
                self.port.is_meant = true;
                self.owed[2] = true;
            }
            (PORT, event::PORT_OPEN) => {
                self.port.is_open = value != 0;
                return if value == 0 { Change::Closed } else { Change::Opened };
            }
            (PORT, event::PORT_REMOVE) => {
                (self.port, self.owed[1], self.owed[2]) = (Port::default(), false, false);
                return Change::Closed;
            }
            _ => {}
        }
        Change::Other
    }

    /// Says what is to be said to the device, as far as there is room.
    fn say(&mut self) -> Result<(), Broken> {
        self.device.check()?;
        for (at, event) in SAID.into_iter().enumerate() {
            if !self.owed[at] {
                continue;
            }
            let taken = self.queues.answers.take();
            if let Some((said, _)) = self.device.unless_broken(taken)? {
                self.queues.answer_room.push(said.buffer);
            }
            let Some(mut buffer) = self.queues.answer_room.pop() else { break };
            // The console as a whole has no number.
            let port = if event == event::DEVICE_READY { u32::MAX } else { PORT };
            buffer.bytes_mut()[..MESSAGE].copy_from_slice(&pack(port, event, 1));
            match self.queues.answers.add(Leaving { buffer, len: MESSAGE }) {
                Ok(()) => self.owed[at] = false,
                // There are as many descriptors as buffers.
                Err(said) => self.queues.answer_room.push(said.buffer),
            }
            self.queues.answers.notify(&mut self.device.transport);
        }
        Ok(())
    }

    /// Reads the next bytes that have come: how many there are, 0 for none. The program that has written them may have gone.
    ///
    /// # Errors
    ///
    /// [`Broken`], from then on.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, Broken> {
        self.device.check()?;
        let (arrived, from, len) = if let Some(rest) = self.rest.take() {
            rest
        } else {
            let taken = self.queues.receive.take();
            let Some((arrived, written)) = self.device.unless_broken(taken)? else { return Ok(0) };
            let len = written as usize;
            // A length that the buffer does not have; or of a port that is not meant, which was not opened.
            if len > arrived.buffer.bytes().len() || !self.port.is_meant {
                let _ = self.queues.receive.add(arrived);
                return Ok(0);
            }
            (arrived, 0, len)
        };
        let bytes = &arrived.buffer.bytes()[from..len];
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        if from + count < len {
            self.rest = Some((arrived, from + count, len));
        } else {
            // Its descriptor is free.
            let _ = self.queues.receive.add(arrived);
        }
        Ok(count)
    }

    /// Writes bytes, [`WRITE_BYTES`] at most. Returns whether there was room. If there was none, the device interrupts when
    /// there is.
    ///
    /// # Errors
    ///
    /// [`Broken`], from then on.
    pub fn write(&mut self, bytes: &[u8]) -> Result<bool, Broken> {
        self.device.check()?;
        for _ in 0..SIZE {
            let taken = self.queues.send.take();
            let Some((sent, _)) = self.device.unless_broken(taken)? else { break };
            self.queues.room.push(sent.buffer);
        }
        let len = bytes.len().min(BUFFER);
        if len == 0 {
            return Ok(true);
        }
        let Some(mut buffer) = self.queues.room.pop() else {
            self.wants_room = true;
            return Ok(false);
        };
        buffer.bytes_mut()[..len].copy_from_slice(&bytes[..len]);
        // There are as many descriptors as buffers.
        if let Err(sent) = self.queues.send.add(Leaving { buffer, len }) {
            self.queues.room.push(sent.buffer);
        }
        self.queues.send.notify(&mut self.device.transport);
        Ok(true)
    }

    /// The device need not interrupt, until [`Console::listen`].
    pub fn ignore(&mut self) {
        self.queues.told.ignore();
        self.queues.receive.ignore();
        self.queues.send.ignore();
        self.wants_room = false;
    }

    /// The device is to know of the buffers that it was given, and to interrupt when there is something to hear, or room that a
    /// caller has wanted; and something to read, if the caller `reads` it now. Returns whether there is by now: then the device
    /// may not interrupt for it.
    pub fn listen(&mut self, reads: bool) -> bool {
        if self.device.broken().is_some() {
            return false;
        }
        let Queues { told, receive, send, .. } = &mut self.queues;
        told.notify(&mut self.device.transport);
        receive.notify(&mut self.device.transport);
        let is_told = told.listen();
        let has_come = reads && (self.rest.is_some() | receive.listen());
        is_told | has_come | (self.wants_room && send.listen())
    }
}

impl<H: Hal> Queues<H> {
    fn start(transport: &mut impl Transport) -> Result<Self, Unusable> {
        let offered = begin(transport, MULTIPORT)?;
        if offered & MULTIPORT == 0 || word(transport, MOST_PORTS)? <= PORT {
            return Err(Unusable::Ports);
        }
        let mut told = Ring::new(transport, TELL)?;
        let mut answers = Ring::new(transport, ANSWER)?;
        let mut receive = Ring::new(transport, RECEIVE)?;
        let mut send = Ring::new(transport, SEND)?;
        let mut buffers = Vec::new();
        // As many of each as it has descriptors.
        Buffer::allocate::<H>(&mut buffers, TOLD, TOLD_BUFFER, BufferDirection::DeviceToDriver)?;
        for buffer in buffers.drain(..) {
            let _ = told.add(Arriving { buffer });
        }
        Buffer::allocate::<H>(&mut buffers, SIZE, BUFFER, BufferDirection::DeviceToDriver)?;
        for buffer in buffers.drain(..) {
            let _ = receive.add(Arriving { buffer });
        }
        let (mut answer_room, mut room) = (Vec::new(), buffers);
        Buffer::allocate::<H>(&mut room, SIZE, BUFFER, BufferDirection::DriverToDevice)?;
        let both = BufferDirection::DriverToDevice;
        Buffer::allocate::<H>(&mut answer_room, ANSWERS, MESSAGE, both)?;
        // What was written is taken back when there is something to write.
        answers.ignore();
        send.ignore();
        Ok(Self { told, answers, receive, send, answer_room, room })
    }
}
