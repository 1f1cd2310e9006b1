//! The numbers: which are free, which are claimed, and which were kept through a roll-over.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::{null_mut, slice_from_raw_parts_mut};

use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use mayfly_platform::tlb::Vmid;

use super::tag::Tag;

/// How many numbers are made at a time.
const PIECE: usize = 256;
const PIECES: usize = (1 << 16) / PIECE;

/// Numbers from 1 on, as many as are wanted; number `n` is the `n - 1`th.
pub(super) struct Numbers {
    /// Each of [`PIECE`] numbers, but the last, which is as long as there are numbers; from the first on, those that
    /// are not null stay.
    pieces: [AtomicPtr<Number>; PIECES],
    /// How many there are: what the pieces before have.
    count: AtomicUsize,
    /// How many there can be.
    limit: usize,
    /// Where a free number is likely: after the one claimed last, or where one was freed since.
    hint: AtomicUsize,
}

struct Number {
    /// A [`Held`].
    held: AtomicU64,
    /// For a number that is kept: in which generation its tenant claimed it. Written by roll-overs.
    since: AtomicU64,
}

/// The last generation that a number is held in, and whether it was kept from the one before or claimed in it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Held(u64);

impl Held {
    /// Free in every generation.
    const NEVER: Self = Self(0);

    fn claimed(generation: u64) -> Self {
        Self(generation << 1)
    }

    fn kept(generation: u64) -> Self {
        Self(generation << 1 | 1)
    }

    fn generation(self) -> u64 {
        self.0 >> 1
    }

    fn is_kept(self) -> bool {
        self.0 & 1 == 1
    }
}

impl Numbers {
    /// Of `bits` bits, none of which are there yet.
    pub(super) fn new(bits: u32) -> Self {
        Self {
            pieces: [(); PIECES].map(|()| AtomicPtr::new(null_mut())),
            count: AtomicUsize::new(0),
            limit: (1 << bits) - 1,
            hint: AtomicUsize::new(0),
        }
    }

    /// Has so many be there, or as many as there can be. Takes no lock: a caller that is second with a piece drops its
    /// own.
    pub(super) fn reserve(&self, wanted: usize) -> Result<(), OutOfMemory> {
        loop {
            // Acquire, pairing with the release below.
            let count = self.count.load(Ordering::Acquire);
            if count >= wanted.min(self.limit) {
                return Ok(());
            }
            let (index, len) = (count / PIECE, self.piece_len(count / PIECE));
            if self.pieces[index].load(Ordering::Acquire).is_null() {
                let mut piece = Vec::new();
                piece.try_reserve_exact(len)?;
                piece.resize_with(len, Number::free);
                let first = Box::into_raw(piece.into_boxed_slice()).cast::<Number>();
                // Release: a CPU that finds the piece finds what is in it.
                let put = self.pieces[index].compare_exchange(
                    null_mut(),
                    first,
                    Ordering::Release,
                    Ordering::Relaxed,
                );
                if put.is_err() {
                    // SAFETY: it was made above, and no other CPU has found it.
                    unsafe { free(first, len) };
                }
            }
            // Release, after the piece is there.
            let _ = self.count.compare_exchange(
                count,
                count + len,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
    }

    fn piece_len(&self, index: usize) -> usize {
        PIECE.min(self.limit - index * PIECE)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        // Acquire, pairing with the release in `reserve`.
        self.count.load(Ordering::Acquire)
    }

    /// Claims a number that is free in `generation`. `None`: there was none at the moment each was looked at, or the
    /// generation is over.
    pub(super) fn claim(&self, generation: u64) -> Option<Vmid> {
        let count = self.count();
        let hint = self.hint.load(Ordering::Relaxed) % count;
        let index = (hint..count).chain(0..hint).find(|&index| {
            let number = self.at(index);
            let held = number.held();
            held.generation() < generation && number.replace(held, Held::claimed(generation))
        })?;
        self.hint.store(index + 1, Ordering::Relaxed);
        Some(Vmid(index as u16 + 1))
    }

    /// Keeps `number`, which a line shows when `generation` ends, through the next one. Returns whether that is news:
    /// it is not where several CPUs name one root, nor where the number was retired, which its line shows no more by
    /// now.
    ///
    /// Called by one roll-over at a time.
    pub(super) fn keep(&self, number: Vmid, generation: u64) -> bool {
        let number = self.number(number);
        let held = number.held();
        if held.generation() != generation {
            return false;
        }
        if !held.is_kept() {
            // Release, pairing with the acquire in `is_held_by`.
            number.since.store(generation, Ordering::Release);
        }
        number.replace(held, Held::kept(generation + 1))
    }

    /// Whether the number of `tag` was kept into `generation` or a later one for the root that `tag` is of.
    pub(super) fn is_kept(&self, tag: Tag, generation: u64) -> bool {
        tag.number().is_some_and(|number| {
            let number = self.number(number);
            let held = number.held();
            held.is_kept() && held.generation() >= generation && number.is_held_by(held, tag)
        })
    }

    /// Whether the number of `tag` is the root's that `tag` is of, in whatever generation it was held last.
    pub(super) fn is_of(&self, tag: Tag) -> bool {
        tag.number().is_some_and(|number| {
            let number = self.number(number);
            number.is_held_by(number.held(), tag)
        })
    }

    /// Frees the number of `tag`, if the root that it was of has it still. Returns it then.
    pub(super) fn release(&self, tag: Tag) -> Option<Vmid> {
        let vmid = tag.number()?;
        let number = self.number(vmid);
        loop {
            let held = number.held();
            if !number.is_held_by(held, tag) {
                return None;
            }
            if number.replace(held, Held::NEVER) {
                self.hint.store(usize::from(vmid.0) - 1, Ordering::Relaxed);
                return Some(vmid);
            }
        }
    }

    fn number(&self, number: Vmid) -> &Number {
        self.at(usize::from(number.0) - 1)
    }

    /// The one at `index`, which is below a count that was read.
    fn at(&self, index: usize) -> &Number {
        // Acquire, pairing with the release in `reserve`.
        let first = self.pieces[index / PIECE].load(Ordering::Acquire);
        assert!(!first.is_null(), "no such number has been made");
        assert!(index < self.limit, "no number is as large");
        // SAFETY: a piece that is there stays as long as this does. Its length is `PIECE`, or ends at the limit, which
        // the index is below.
        unsafe { &*first.add(index % PIECE) }
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        for index in 0..PIECES {
            let first = self.pieces[index].load(Ordering::Relaxed);
            if !first.is_null() {
                // SAFETY: no other CPU has it, and it is of so many numbers.
                unsafe { free(first, self.piece_len(index)) };
            }
        }
    }
}

/// Frees a piece.
///
/// # Safety
///
/// It is of `len` numbers, was made by [`Numbers::reserve`], and nothing refers to it any more.
unsafe fn free(first: *mut Number, len: usize) {
    // SAFETY: as the caller promises.
    drop(unsafe { Box::from_raw(slice_from_raw_parts_mut(first, len)) });
}

impl Number {
    fn free() -> Self {
        Self { held: AtomicU64::new(Held::NEVER.0), since: AtomicU64::new(0) }
    }

    /// Acquire, pairing with the release in `replace`.
    fn held(&self) -> Held {
        Held(self.held.load(Ordering::Acquire))
    }

    /// Release: what made the number free, or was written down of it, happened before. Acquire, for the next in line.
    fn replace(&self, held: Held, new: Held) -> bool {
        self.held.compare_exchange(held.0, new.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether `held`, which this number was, is the tenancy of the root that `tag` is of.
    fn is_held_by(&self, held: Held, tag: Tag) -> bool {
        if held.is_kept() {
            // Acquire, pairing with the release in `keep`: a later tenant's claim, and the invalidation before it,
            // happened before.
            self.since.load(Ordering::Acquire) <= tag.generation()
        } else {
            held.generation() == tag.generation()
        }
    }
}
