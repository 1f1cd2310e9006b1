//! One life of a client that has a [`Store`] as its disk, up to the cut.
//!
//! **Order.** A thread receives requests, and notes with each what had been answered by then. They are carried out one at a
//! time, in a random order among those that have been received. So a flush makes durable what had been answered before the
//! flush came, and nothing else: a client that flushes what is still under way loses it.

use std::io::{self, BufReader, Read, Write};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use crate::nbd::{self, Command, Refusal, Request};
use crate::random::Random;
use crate::store::{Moment, NoSuchSectors, Store};

/// Requests that have been received and not carried out.
const MOST_WAITING: usize = 64;
/// How long a request is held back, now and then, so that others come beside it.
const HELD: Duration = Duration::from_millis(1);

/// What became of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// As many changes as were asked for were made; nothing is carried out or answered from now on.
    Cut,
    /// The client has gone before.
    Gone,
    /// The client has asked for nothing for so long as is allowed.
    Idle,
}

/// How many changes were made of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Made {
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Zeroes.
    pub zeroes: u64,
}

impl Made {
    fn count(&mut self, command: &Command) {
        let count = match command {
            Command::Write(..) => &mut self.writes,
            Command::Flush => &mut self.flushes,
            Command::Discard(..) => &mut self.discards,
            Command::Zero(..) => &mut self.zeroes,
            Command::Read(..) | Command::Unknown => return,
        };
        *count += 1;
    }

    /// All of them.
    pub const fn all(&self) -> u64 {
        self.writes + self.flushes + self.discards + self.zeroes
    }
}

/// A disk that is served.
#[derive(Debug)]
pub struct Disk {
    /// What is on it.
    pub store: Store,
    /// By which it is decided in which order requests are carried out.
    pub random: Random,
    /// What it was asked for, in all lives.
    pub made: Made,
}

/// A request, and what had been written when it came.
type Received = (Request, Moment);

/// Serves a client whose handshake is still to come, until it has made `changes` changes: writes, discards, zeroes and
/// flushes. The last of them may be answered or not. Returns early where the client goes, or asks for nothing for as long as
/// `patience`.
///
/// Requests come from `asks`, which is the client's stream, too. `hang_up` has it end, so that nothing more comes.
///
/// # Errors
///
/// The stream's, and [`io::ErrorKind::InvalidData`] where the client does not speak the protocol.
pub fn serve<S: Read + Write + Send>(
    mut stream: S,
    asks: impl Read + Send,
    hang_up: impl FnOnce(),
    disk: &mut Disk,
    changes: u64,
    patience: Duration,
) -> io::Result<Served> {
    if !nbd::greet(&mut stream, disk.store.len() as u64)? {
        return Ok(Served::Gone);
    }
    let written = Mutex::new(disk.store.now());
    let (to, from) = sync_channel(MOST_WAITING);
    thread::scope(|scope| {
        let written = &written;
        let receiver = scope.spawn(move || {
            let mut asks = BufReader::new(asks);
            while let Some(request) = nbd::next_request(&mut asks)? {
                let now = *written.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if to.send((request, now)).is_err() {
                    break;
                }
            }
            Ok(())
        });
        let served = carry_out_all(&mut stream, &from, disk, written, changes, patience);
        drop(from);
        hang_up();
        let heard: io::Result<()> =
            receiver.join().unwrap_or_else(|_| Err(io::Error::other("the receiver has panicked")));
        match served {
            // Why it is gone may be that it has said what makes no sense.
            Ok(Served::Gone) => heard.map(|()| Served::Gone),
            other => other,
        }
    })
}

fn carry_out_all(
    stream: &mut impl Write,
    from: &Receiver<Received>,
    disk: &mut Disk,
    written: &Mutex<Moment>,
    changes: u64,
    patience: Duration,
) -> io::Result<Served> {
    let Disk { store, random, made } = disk;
    let last = made.all() + changes;
    let mut waiting = Vec::new();
    loop {
        while waiting.len() < MOST_WAITING {
            let wait = if waiting.is_empty() {
                patience
            } else if random.is(1, 4) {
                HELD
            } else {
                Duration::ZERO
            };
            match from.recv_timeout(wait) {
                Ok(received) => waiting.push(received),
                Err(RecvTimeoutError::Timeout) if waiting.is_empty() => return Ok(Served::Idle),
                Err(RecvTimeoutError::Disconnected) if waiting.is_empty() => {
                    return Ok(Served::Gone);
                }
                Err(_) => break,
            }
        }
        let next = random.below(waiting.len() as u64) as usize;
        let (Request { cookie, command }, moment) = waiting.swap_remove(next);
        made.count(&command);
        let result = carry_out(command, moment, store, random);
        *written.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = store.now();
        let is_cut = made.all() >= last;
        if !is_cut || random.is(1, 2) {
            nbd::answer(stream, cookie, result.as_deref().map_err(|_| Refusal::Invalid))?;
        }
        if is_cut {
            return Ok(Served::Cut);
        }
    }
}

fn carry_out(
    command: Command,
    moment: Moment,
    store: &mut Store,
    random: &mut Random,
) -> Result<Vec<u8>, NoSuchSectors> {
    match command {
        Command::Read(start, len) => {
            let mut bytes = vec![0; len as usize];
            store.read(start, &mut bytes).map(|()| bytes)
        }
        Command::Write(start, bytes) => store.write(start, &bytes).map(|()| Vec::new()),
        Command::Flush => {
            store.flush(moment);
            Ok(Vec::new())
        }
        // What is read of it from then on is not said.
        Command::Discard(start, len) => fill(store, start, len, random.next() as u8),
        Command::Zero(start, len) => fill(store, start, len, 0),
        Command::Unknown => Err(NoSuchSectors),
    }
}

fn fill(store: &mut Store, start: u64, len: u32, byte: u8) -> Result<Vec<u8>, NoSuchSectors> {
    // No more than there is: a client may ask for 4 GiB.
    if len as usize > store.len() {
        return Err(NoSuchSectors);
    }
    store.write(start, &vec![byte; len as usize]).map(|()| Vec::new())
}
