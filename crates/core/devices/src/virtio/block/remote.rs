//! A disk whose requests are carried out elsewhere, while its driver goes on.

use mayfly_state::{Error, SectionReader, SectionWriter};

use super::request::{self, Order, Shape};
use super::{DiskError, HEADER, ID_BYTES, Status, feature};
use crate::memory::{BadAddress, GuestMemory};
use crate::virtio::backend::{Backend, sealed};
use crate::virtio::chain::{Chain, Malformed};
use crate::virtio::mmio::Mmio;
use crate::virtio::queue::Used;

const QUEUE: usize = 0;

/// How a disk may be cleared, beside that it is written: by how many sectors of 512 bytes at a time at most. Where that is
/// 0, it is not offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clearing {
    /// Of sectors that are discarded. What is read of them from then on is anything.
    pub discards: u32,
    /// Of sectors that are to be zero.
    pub zeroes: u32,
    /// Sectors that are to be zero may be given up, too, if the driver asks for it.
    pub unmaps: bool,
}

/// A block device that hands its requests to its embedder ([`Mmio::take_request`]), which answers them
/// ([`Mmio::answer`]): several may be under way, and they may end in any order.
#[derive(Debug)]
pub struct Remote {
    sectors: u64,
    is_read_only: bool,
    clearing: Clearing,
    id: [u8; ID_BYTES],
}

impl Remote {
    /// A device of so many sectors, which its guest knows by the first 20 bytes of `id`.
    pub fn new(sectors: u64, is_read_only: bool, id: &str) -> Self {
        Self { sectors, is_read_only, clearing: Clearing::default(), id: super::id_bytes(id) }
    }

    /// The same, which may be cleared so. One that is read-only may not.
    #[must_use]
    pub fn with_clearing(mut self, clearing: Clearing) -> Self {
        if !self.is_read_only {
            self.clearing = clearing;
        }
        self
    }
}

impl sealed::Device for Remote {}

impl Backend for Remote {
    const ID: u32 = 2;
    /// Requests are taken, and not served.
    const SERVED: Option<usize> = None;

    fn features(&self) -> u64 {
        super::features(self.is_read_only, self.clearing)
    }

    fn config(&self, offset: u64) -> u8 {
        super::config(self.sectors, self.clearing, offset)
    }

    /// The name that the guest knows the disk by.
    type Saved = [u8; ID_BYTES];

    fn state(&self) -> Self::Saved {
        self.id
    }

    fn save(&self, to: &mut SectionWriter<'_, '_>) {
        super::save(self.sectors, self.is_read_only, &self.id, to);
        to.u32(self.clearing.discards);
        to.u32(self.clearing.zeroes);
        to.flag(self.clearing.unmaps);
    }

    fn saved(&self, from: &mut SectionReader<'_>) -> Result<Self::Saved, Error> {
        let id = super::saved(self.sectors, self.is_read_only, from)?;
        let Clearing { discards, zeroes, unmaps } = self.clearing;
        from.expect_u32("discards", discards)?;
        from.expect_u32("zeroes", zeroes)?;
        from.expect_flag("unmaps", unmaps)?;
        Ok(id)
    }

    fn adopt(&mut self, id: Self::Saved) {
        self.id = id;
    }
}

/// What the embedder is to do, in bytes of the disk. It is all there, in whole sectors, and a disk that is read-only is
/// not to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// To read so many bytes from the first number on, for [`Request::put`].
    Read(u64, u64),
    /// To write so many bytes, of [`Request::get`], to the first number on.
    Write(u64, u64),
    /// The same, and to have it be kept before it is answered: the driver does not flush.
    WriteThrough(u64, u64),
    /// To have all that it has answered as written be kept from now on.
    Flush,
    /// To give up bytes: what is read there from then on is anything.
    Discard {
        /// The first byte.
        start: u64,
        /// How many.
        len: u64,
        /// That is to be kept before it is answered.
        is_through: bool,
    },
    /// To have bytes be zero.
    Zero {
        /// The first byte.
        start: u64,
        /// How many.
        len: u64,
        /// They may be given up, too: they stay zero.
        unmaps: bool,
        /// That is to be kept before it is answered.
        is_through: bool,
    },
}

/// What was found when a request was to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// None; the driver tells when there is one.
    Nothing,
    /// One that the device has answered itself.
    Answered,
    /// One that the embedder is to carry out, and to answer.
    Work(Work),
}

/// A request under way. Its bytes lie in the guest's memory, and may change at any time.
#[derive(Debug)]
pub struct Request {
    chain: Chain,
    head: u16,
    epoch: u32,
    reads: u64,
}

impl Request {
    /// Room for one.
    pub const fn new() -> Self {
        Self { chain: Chain::new(), head: 0, epoch: 0, reads: 0 }
    }

    /// A number that is the same for requests between which the driver has not begun anew. What it has asked for before is
    /// to be over before what it asks for then begins.
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Copies from `offset` of what is to be written.
    ///
    /// # Errors
    ///
    /// [`BadAddress`], where the driver has given memory that is not there.
    pub fn get(
        &self,
        offset: u64,
        into: &mut [u8],
        memory: &impl GuestMemory,
    ) -> Result<(), BadAddress> {
        let at = offset.checked_add(HEADER).ok_or(BadAddress { address: offset })?;
        self.chain.read(at, into, memory)
    }

    /// Copies to `offset` of what is read.
    ///
    /// # Errors
    ///
    /// [`BadAddress`], where the driver has given memory that is not there, or not so much.
    pub fn put(
        &self,
        offset: u64,
        from: &[u8],
        memory: &impl GuestMemory,
    ) -> Result<(), BadAddress> {
        let end = offset.checked_add(from.len() as u64);
        if end.is_none_or(|end| end > self.reads) {
            return Err(BadAddress { address: offset });
        }
        self.chain.write(offset, from, memory)
    }
}

impl Default for Request {
    fn default() -> Self {
        Self::new()
    }
}

impl Mmio<Remote> {
    /// Takes the next request. The driver may be told of one that was answered.
    pub fn take_request(&mut self, request: &mut Request, memory: &impl GuestMemory) -> Taken {
        if !self.is_live(QUEUE) {
            return Taken::Nothing;
        }
        let taken = self.take_next_request(request, memory);
        let taken = self.unless_malformed(taken, Taken::Nothing);
        if matches!(taken, Taken::Work(_)) {
            self.took();
        }
        taken
    }

    fn take_next_request(
        &mut self,
        request: &mut Request,
        memory: &impl GuestMemory,
    ) -> Result<Taken, Malformed> {
        let (rules, epoch) = (self.rules(), self.epoch());
        let agreed = self.agreed();
        let is_through = super::is_through(agreed);
        let queue = self.queue(QUEUE);
        let head = loop {
            if let Some(head) = queue.next(rules, &mut request.chain, memory)? {
                break head;
            }
            if !queue.rest(rules, memory)? {
                return Ok(Taken::Nothing);
            }
        };
        (request.head, request.epoch, request.reads) = (head, epoch, 0);
        let Remote { sectors, is_read_only, clearing, id } = *self.device();
        let taken = |feature: u64, most: u32| if agreed & feature == 0 { 0 } else { most };
        let clearing = Clearing {
            discards: taken(feature::DISCARD, clearing.discards),
            zeroes: taken(feature::WRITE_ZEROES, clearing.zeroes),
            unmaps: clearing.unmaps,
        };
        let chain = &request.chain;
        let shape = Shape { sectors, is_read_only, clearing };
        let (status, written) = match Order::parse(chain, shape, memory)? {
            Order::Read(start) => {
                request.reads = chain.writable() - 1;
                return Ok(Taken::Work(Work::Read(start, request.reads)));
            }
            Order::Write(start) => {
                let len = chain.readable() - HEADER;
                return Ok(Taken::Work(if is_through {
                    Work::WriteThrough(start, len)
                } else {
                    Work::Write(start, len)
                }));
            }
            // Nothing was written that would be to be kept.
            Order::Flush if is_read_only => (Status::Ok, 0),
            Order::Flush => return Ok(Taken::Work(Work::Flush)),
            Order::Discard(start, len) => {
                return Ok(Taken::Work(Work::Discard { start, len, is_through }));
            }
            Order::Zero(start, len, unmaps) => {
                return Ok(Taken::Work(Work::Zero { start, len, unmaps, is_through }));
            }
            Order::Id => request::identify(chain, &id, memory),
            Order::Wrong(status) => (status, 0),
        };
        self.end(request, status, written, memory)?;
        Ok(Taken::Answered)
    }

    /// Whether a request that was taken is still to be carried out: its driver has not begun anew since. Asked where its
    /// bytes are copied, with the device in hand meanwhile, so that the driver's memory is left alone once it has.
    pub fn is_wanted(&self, request: &Request) -> bool {
        request.epoch == self.epoch() && self.is_live(QUEUE)
    }

    /// Answers a request that was [taken](Mmio::take_request), once; the driver may be told. Nothing happens if the driver
    /// has begun anew since.
    pub fn answer(
        &mut self,
        request: &Request,
        result: Result<(), DiskError>,
        memory: &impl GuestMemory,
    ) {
        if request.epoch != self.epoch() || !self.is_live(QUEUE) {
            return;
        }
        self.gave_back();
        let (status, written) =
            if result.is_ok() { (Status::Ok, request.reads) } else { (Status::Error, 0) };
        let ended = self.end(request, status, written, memory);
        self.unless_malformed(ended, ());
    }

    fn end(
        &mut self,
        request: &Request,
        status: Status,
        written: u64,
        memory: &impl GuestMemory,
    ) -> Result<(), Malformed> {
        let written = request::end(&request.chain, status, written, memory)?;
        let rules = self.rules();
        let used = Used { head: request.head, written };
        if self.queue(QUEUE).complete(rules, used, memory)? {
            self.tell();
        }
        Ok(())
    }
}
