//! The machine's frames, given to shares of it ([`account`](crate::account)) in chunks of 64 KiB.
//!
//! What a share is guaranteed, it can be given, whatever its neighbours do. Frames alone do not ensure this: a root of stage 2
//! is of two frames side by side, and where VMs have single frames in turn, the end of one leaves no two free frames
//! side by side. So a share is given *chunks* of frames. A chunk belongs to one share, and is cut into pieces of one
//! size (a *class*): single frames, pairs, and so on. A share that asks for a piece gets one of a chunk that it has,
//! and a new chunk only when all its chunks of that class are full. A chunk whose pieces were all given back goes back
//! as a whole.
//!
//! - So any free chunk serves any share, and the account of chunks is all that decides whether a piece is given.
//! - So a share has at most [`chunks`] chunks of a class, if it never has more pieces of that class than it says: when
//!   the last of them was taken, all before it were full.
//!
//! Pieces of a chunk and more are blocks of chunks ([`FramePool`]). A block may be missing although enough
//! chunks are free.
//!
//! Nothing here allocates, and each step is bounded.

use core::ops::Range;

use crate::account::{Account, Refused, ShareId, ShareInfo};
use mayfly_frames::{FrameInfo, FramePool, Spans};

/// A chunk is of `1 << CHUNK_ORDER` frames.
pub const CHUNK_ORDER: usize = 4;
/// Frames of a chunk.
pub const CHUNK: u64 = 1 << CHUNK_ORDER;

const NONE: u32 = u32::MAX;

/// How many chunks hold `pieces` pieces of `1 << order` frames, less than a chunk each.
pub const fn chunks(pieces: u64, order: u32) -> u64 {
    pieces.div_ceil(CHUNK >> order)
}

/// The information on one chunk.
#[derive(Clone, Copy, Debug)]
pub struct ChunkInfo {
    /// The next of the same share and class that has room.
    next: u32,
    previous: u32,
    /// Its pieces that were given, as bits.
    given: u16,
    share: ShareId,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Free, or inside of a block.
    Whole,
    /// Cut into pieces of that order.
    Cut(u8),
    /// The first of a block.
    Block,
}

impl ChunkInfo {
    /// Of a chunk that was not given.
    pub const ABSENT: Self =
        Self { next: NONE, previous: NONE, given: 0, share: ShareId::SYSTEM, kind: Kind::Whole };

    /// The bits of a chunk all of whose pieces were given.
    const fn full(order: usize) -> u16 {
        u16::MAX >> (CHUNK - (CHUNK >> order))
    }
}

/// The first chunk that has room, for each class of a share.
pub type Rooms = [u32; CHUNK_ORDER];
/// Those of no share.
pub const NO_ROOM: Rooms = [NONE; CHUNK_ORDER];

/// Where the information on a machine's memory is.
#[derive(Debug)]
pub struct Books<'a> {
    /// The chunks that there may be.
    pub spans: Spans<'a>,
    /// For each chunk.
    pub blocks: &'a mut [FrameInfo],
    /// For each chunk, too.
    pub chunks: &'a mut [ChunkInfo],
    /// For each share; at most 2^16.
    pub shares: &'a mut [ShareInfo],
    /// For each share, too.
    pub rooms: &'a mut [Rooms],
}

/// The frames of a machine.
#[derive(Debug)]
pub struct Chunks<'a> {
    /// Of chunks in place of frames.
    pool: FramePool<'a>,
    spans: Spans<'a>,
    infos: &'a mut [ChunkInfo],
    rooms: &'a mut [Rooms],
    account: Account<'a>,
    /// Frames that were not given.
    free: u64,
}

impl<'a> Chunks<'a> {
    /// No frames yet, of those that there are books of.
    pub fn new(books: Books<'a>) -> Self {
        let Books { spans, blocks, chunks, shares, rooms } = books;
        chunks.fill(ChunkInfo::ABSENT);
        rooms.fill(NO_ROOM);
        let pool = FramePool::new(spans, blocks);
        Self { pool, spans, infos: chunks, rooms, account: Account::new(shares), free: 0 }
    }

    /// Adds the whole chunks of these frames. None is there, or was given.
    pub fn add(&mut self, frames: Range<u64>) {
        let before = self.pool.free_frames();
        self.pool.add(frames.start.div_ceil(CHUNK)..frames.end / CHUNK);
        let added = self.pool.free_frames() - before;
        self.account.add(added);
        self.free += added * CHUNK;
    }

    /// Frames that were not given. Some may be of chunks that belong to a share.
    pub fn free_frames(&self) -> u64 {
        self.free
    }

    /// What each share has, in chunks.
    pub fn account(&self) -> &Account<'a> {
        &self.account
    }

    /// As [`Account::admit`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn admit(&mut self, guarantee: u64) -> Result<ShareId, Refused> {
        self.account.admit(guarantee)
    }

    /// As [`Account::activate`].
    pub fn activate(&mut self, id: ShareId) -> bool {
        self.account.activate(id)
    }

    /// As [`Account::keep`].
    pub fn keep(&mut self, id: ShareId) -> bool {
        self.account.keep(id)
    }

    /// As [`Account::allow`].
    pub fn allow(&mut self, id: ShareId, units: u64) -> bool {
        self.account.allow(id, units)
    }

    /// As [`Account::leave`].
    pub fn leave(&mut self, id: ShareId) {
        self.account.leave(id);
    }

    /// As [`Account::choose`], for a share that gets no frame, or is not active.
    pub fn choose(&mut self, share: ShareId) -> Option<ShareId> {
        if self.has_frame_for(share) { None } else { self.account.choose(share, 1) }
    }

    /// Whether a share gets a frame at this moment.
    pub fn has_frame_for(&self, share: ShareId) -> bool {
        self.rooms[share.index()][0] != NONE || self.account.may_take(share, 1)
    }

    /// `1 << order` frames for a share, the first at a multiple of their number. `None` if the share is within its
    /// guarantee happens only for a block, and means that no block of the size is left.
    pub fn allocate(&mut self, share: ShareId, order: usize) -> Option<u64> {
        let first = match order.checked_sub(CHUNK_ORDER) {
            Some(order) => self.block(share, order)?,
            None => self.piece(share, order)?,
        };
        self.free -= 1 << order;
        Some(first)
    }

    /// Fills `frames` with single frames for a share, those of a chunk in one step. Returns whether there are as many: if not, it
    /// is given none.
    #[must_use]
    pub fn allocate_all(&mut self, share: ShareId, frames: &mut [u64]) -> bool {
        let mut count = 0;
        while count < frames.len() {
            let at = match self.rooms[share.index()][0] {
                NONE => self.cut(share, 0),
                at => Some(at as usize),
            };
            let Some(at) = at else {
                let taken = self.free_all(&frames[..count]);
                debug_assert!(taken == count as u64, "they were given just now");
                return false;
            };
            let before = count;
            let first = self.spans.number(at) * CHUNK;
            let info = &mut self.infos[at];
            while count < frames.len() && info.given != ChunkInfo::full(0) {
                let number = info.given.trailing_ones();
                info.given |= 1 << number;
                frames[count] = first + u64::from(number);
                count += 1;
            }
            if info.given == ChunkInfo::full(0) {
                self.remove(at, 0);
            }
            self.free -= (count - before) as u64;
        }
        true
    }

    /// Takes back what [`Chunks::allocate`] gave. Returns whether it had given that: if not, nothing happens.
    #[must_use]
    pub fn free(&mut self, first: u64, order: usize) -> bool {
        let Some(at) = self.spans.place(first / CHUNK) else { return false };
        let Some(&info) = self.infos.get(at) else { return false };
        let is_taken = match order.checked_sub(CHUNK_ORDER) {
            Some(order) => info.kind == Kind::Block && self.free_block(first, at, order),
            None => info.kind == Kind::Cut(order as u8) && self.free_piece(first, at, order),
        };
        if is_taken {
            self.free += 1 << order;
        }
        is_taken
    }

    /// Takes back single frames, each of which [`Chunks::allocate`] gave. Returns how many it had given, and has taken. Of
    /// frames that follow each other in the list, those of one chunk go back in one step.
    #[must_use]
    pub fn free_all(&mut self, frames: &[u64]) -> u64 {
        let of_chunks = frames.chunk_by(|frame, next| frame / CHUNK == next / CHUNK);
        let taken = of_chunks.map(|frames| self.free_of_chunk(frames)).sum();
        self.free += taken;
        taken
    }

    /// Has a block of chunks and more that [`Chunks::allocate`] gave be as many single frames as it has, each of which is taken
    /// back alone. Its share has what it had. Returns whether it had given that: if not, nothing happens.
    #[must_use]
    pub fn part(&mut self, first: u64, order: usize) -> bool {
        let place = self.spans.place(first / CHUNK).filter(|_| first.is_multiple_of(CHUNK));
        let (Some(at), Some(order)) = (place, order.checked_sub(CHUNK_ORDER)) else { return false };
        let info = self.infos.get(at).filter(|info| info.kind == Kind::Block);
        let Some(&ChunkInfo { share, .. }) = info else { return false };
        if !self.pool.part(first / CHUNK, order) {
            return false;
        }
        let given = ChunkInfo::full(0);
        let full = ChunkInfo { share, given, kind: Kind::Cut(0), ..ChunkInfo::ABSENT };
        self.infos[at..at + (1 << order)].fill(full);
        true
    }

    /// How many frames are given of the chunk that a single frame is in, which [`Chunks::allocate`] gave.
    pub fn given_around(&self, frame: u64) -> Option<u32> {
        let info = self.infos.get(self.spans.place(frame / CHUNK)?)?;
        (info.kind == Kind::Cut(0)).then(|| info.given.count_ones())
    }

    fn block(&mut self, share: ShareId, order: usize) -> Option<u64> {
        if !self.account.may_take(share, 1 << order) {
            return None;
        }
        let first = self.pool.allocate(order)?;
        self.account.take(share, 1 << order);
        let at = self.spans.place(first)?;
        self.infos[at] = ChunkInfo { share, kind: Kind::Block, ..ChunkInfo::ABSENT };
        Some(first * CHUNK)
    }

    fn free_block(&mut self, first: u64, at: usize, order: usize) -> bool {
        if !first.is_multiple_of(CHUNK) || !self.pool.free(first / CHUNK, order) {
            return false;
        }
        let share = core::mem::replace(&mut self.infos[at], ChunkInfo::ABSENT).share;
        self.account.give_back(share, 1 << order);
        true
    }

    fn piece(&mut self, share: ShareId, order: usize) -> Option<u64> {
        let at = match self.rooms[share.index()][order] {
            NONE => self.cut(share, order)?,
            at => at as usize,
        };
        let info = &mut self.infos[at];
        let number = info.given.trailing_ones();
        info.given |= 1 << number;
        if info.given == ChunkInfo::full(order) {
            self.remove(at, order);
        }
        Some(self.spans.number(at) * CHUNK + (u64::from(number) << order))
    }

    fn free_piece(&mut self, first: u64, at: usize, order: usize) -> bool {
        let offset = first % CHUNK;
        let bit = 1 << (offset >> order);
        if !offset.is_multiple_of(1 << order) || self.infos[at].given & bit == 0 {
            return false;
        }
        self.free_pieces(at, order, bit);
        true
    }

    /// Takes back single frames of one chunk. Returns how many of them were given.
    fn free_of_chunk(&mut self, frames: &[u64]) -> u64 {
        let place = frames.first().and_then(|first| self.spans.place(first / CHUNK));
        let Some(at) = place else { return 0 };
        let given = match self.infos.get(at) {
            Some(info) if info.kind == Kind::Cut(0) => info.given,
            _ => 0,
        };
        let taken = frames.iter().fold(0, |taken, frame| taken | given & 1 << (frame % CHUNK));
        if taken != 0 {
            self.free_pieces(at, 0, taken);
        }
        taken.count_ones().into()
    }

    /// Takes back pieces of a chunk, all of which were given.
    fn free_pieces(&mut self, at: usize, order: usize, pieces: u16) {
        let info = &mut self.infos[at];
        let share = info.share;
        let was_full = info.given == ChunkInfo::full(order);
        info.given &= !pieces;
        if info.given == 0 {
            if !was_full {
                self.remove(at, order);
            }
            self.infos[at] = ChunkInfo::ABSENT;
            let is_taken = self.pool.free(self.spans.number(at), 0);
            debug_assert!(is_taken, "a chunk that is cut was given");
            self.account.give_back(share, 1);
        } else if was_full {
            self.insert(at, share, order);
        }
    }

    /// A new chunk for pieces of a share.
    fn cut(&mut self, share: ShareId, order: usize) -> Option<usize> {
        if !self.account.may_take(share, 1) {
            return None;
        }
        // There is one: the account counts no more than there are.
        let at = self.spans.place(self.pool.allocate(0)?)?;
        self.account.take(share, 1);
        self.infos[at] = ChunkInfo { share, kind: Kind::Cut(order as u8), ..ChunkInfo::ABSENT };
        self.insert(at, share, order);
        Some(at)
    }

    /// Puts a chunk on the list of those that have room.
    fn insert(&mut self, at: usize, share: ShareId, order: usize) {
        let next = core::mem::replace(&mut self.rooms[share.index()][order], at as u32);
        (self.infos[at].next, self.infos[at].previous) = (next, NONE);
        if next != NONE {
            self.infos[next as usize].previous = at as u32;
        }
    }

    /// Takes it from that list.
    fn remove(&mut self, at: usize, order: usize) {
        let ChunkInfo { next, previous, share, .. } = self.infos[at];
        match previous {
            NONE => self.rooms[share.index()][order] = next,
            previous => self.infos[previous as usize].next = next,
        }
        if next != NONE {
            self.infos[next as usize].previous = previous;
        }
    }
}
