//! The heap of the model machine: the allocator of the real one, in memory of the host's.
//!
//! A VM allocates pieces of random sizes, and at most a part of what it is guaranteed. Their sizes and their order are
//! those of no adversary: what is allocated when is the program's choice, and not a guest's.

use std::alloc::Layout;
use std::ptr::NonNull;

use mayfly_hypervisor::needs::HEAP_PIECES;
use mayfly_hypervisor::pieces;
use mayfly_hypervisor::promises::{OWN, Promises, taken};

/// Bytes of the heap.
pub(crate) const BYTES: usize = 1 << 20;

/// What one VM has of it, or the hypervisor itself.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// What its pieces take at most, and what it is guaranteed for that.
    most: usize,
    guaranteed: usize,
    bytes: usize,
    given: Vec<(NonNull<u8>, Layout)>,
}

impl Pieces {
    /// The hypervisor's own.
    pub(crate) fn own() -> Self {
        Self { most: BYTES / OWN / HEAP_PIECES as usize, ..Self::default() }
    }
}

pub(crate) struct Heap {
    pieces: pieces::Pieces,
    promises: Promises,
    /// All of it, as words; the allocator has it.
    memory: *mut [u128],
}

impl Heap {
    pub(crate) fn new() -> Self {
        let memory = Box::into_raw(vec![0_u128; BYTES / size_of::<u128>()].into_boxed_slice());
        let mut pieces = pieces::Pieces::new();
        // SAFETY: nothing else uses it, until it is freed with this.
        let is_claimed = unsafe { pieces.claim(memory.cast(), BYTES) };
        assert!(is_claimed);
        Self { pieces, promises: Promises::new(), memory }
    }

    /// Has a VM guaranteed what it needs for pieces that take `most` bytes, if that can be kept.
    pub(crate) fn admit(&self, most: usize) -> Option<Pieces> {
        let guaranteed = most * HEAP_PIECES as usize;
        let all = self.pieces.talc().counters().claimed_bytes;
        let left = all - all / OWN - self.promises.bytes();
        match self.promises.guarantee(all, guaranteed) {
            Ok(()) => assert!(guaranteed <= left),
            Err(said) => {
                assert!(guaranteed > left && said == left);
                return None;
            }
        }
        Some(Pieces { most, guaranteed, ..Pieces::default() })
    }

    /// Allocates a piece, unless its pieces would take more than they do at most.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub(crate) fn take(&mut self, pieces: &mut Pieces, bytes: usize) {
        if pieces.bytes + taken(bytes) > pieces.most {
            return;
        }
        let layout = Layout::from_size_align(bytes, 16).unwrap();
        let mut given = None;
        while given.is_none() {
            let (kept, free) = (self.pieces.kept(), self.pieces.talc().counters().available_bytes);
            // SAFETY: it has a size.
            given = unsafe { self.pieces.take(layout) };
            let cut = free - self.pieces.talc().counters().available_bytes;
            let was_kept = self.pieces.kept() < kept;
            let expected = if was_kept { 0 } else { taken(bytes) };
            assert!(given.is_none() || cut == expected, "of {bytes} bytes");
            if given.is_none() && !self.pieces.clear(16) {
                break;
            }
        }
        let given = given.expect("a VM within its guarantee got no heap");
        // SAFETY: it is this VM's.
        unsafe { given.as_ptr().write_bytes(0xa5, bytes) };
        pieces.given.push((given, layout));
        pieces.bytes += taken(bytes);
    }

    fn free(&mut self, piece: NonNull<u8>, layout: Layout) {
        // SAFETY: it was given for that layout.
        unsafe { self.pieces.give_back(piece, layout) };
    }

    /// Gives the piece with that number back.
    pub(crate) fn give_back(&mut self, pieces: &mut Pieces, number: usize) {
        let (given, layout) = pieces.given.swap_remove(number);
        pieces.bytes -= taken(layout.size());
        self.free(given, layout);
    }

    /// Has it allocate pieces of that size until it has all that it allocates.
    pub(crate) fn fill(&mut self, pieces: &mut Pieces, bytes: usize) {
        while pieces.bytes + taken(bytes) <= pieces.most {
            self.take(pieces, bytes);
        }
    }

    /// Gives every other piece back, in the order in which they were allocated.
    pub(crate) fn thin(&mut self, pieces: &mut Pieces) {
        for number in (0..pieces.given.len() / 2).rev() {
            let (given, layout) = pieces.given.remove(2 * number);
            pieces.bytes -= taken(layout.size());
            self.free(given, layout);
        }
    }

    /// How many pieces it has.
    pub(crate) fn count(pieces: &Pieces) -> usize {
        pieces.given.len()
    }

    /// A VM is gone, with all that it had.
    pub(crate) fn leave(&mut self, pieces: &mut Pieces) {
        while let Some(last) = pieces.given.len().checked_sub(1) {
            self.give_back(pieces, last);
        }
        self.promises.release(pieces.guaranteed);
        (pieces.most, pieces.guaranteed) = (0, 0);
    }

    /// Bytes that are allocated, when nothing is kept.
    pub(crate) fn allocated(&mut self) -> usize {
        self.pieces.clear(usize::MAX);
        self.pieces.talc().counters().allocated_bytes
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: it was made of a box, and nothing of it is used any more.
        drop(unsafe { Box::from_raw(self.memory) });
    }
}

/// All VMs that there is heap for, in turns, cut it into small pieces, give every other one back, and allocate large ones.
#[test]
fn a_heap_in_small_pieces_has_all_that_vms_are_guaranteed() {
    for small in [1, 24, 25, 56, 64, 96, 160, 256, 1000] {
        let mut heap = Heap::new();
        let mut own = Pieces::own();
        let mut vms: Vec<Pieces> = core::iter::from_fn(|| heap.admit(32 << 10)).collect();
        let mut all: Vec<&mut Pieces> = vms.iter_mut().chain([&mut own]).collect();
        for _ in 0..BYTES / OWN / taken(small) {
            for pieces in &mut all {
                heap.take(pieces, small);
            }
        }
        for pieces in &mut all {
            heap.thin(pieces);
        }
        for pieces in &mut all {
            heap.fill(pieces, 4096);
        }
        for pieces in &mut all {
            heap.fill(pieces, small);
        }
    }
}
