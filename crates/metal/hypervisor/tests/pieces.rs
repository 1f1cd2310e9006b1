//! Pieces of the heap that are kept: whatever is taken and freed in whatever order, nobody is given what another has, and
//! all of it can be had again as one piece.

use std::alloc::Layout;
use std::ptr::NonNull;

use mayfly_hypervisor::pieces::{MOST_KEPT as MOST, Pieces};
use proptest::prelude::*;

/// Bytes of the heap.
const BYTES: usize = 1 << 18;

struct Heap {
    pieces: Pieces,
    memory: *mut [u128],
}

impl Heap {
    fn new() -> Self {
        let memory = Box::into_raw(vec![0_u128; BYTES / size_of::<u128>()].into_boxed_slice());
        let mut pieces = Pieces::new();
        // SAFETY: nothing else uses it, until it is freed with this.
        assert!(unsafe { pieces.claim(memory.cast(), BYTES) });
        Self { pieces, memory }
    }

    /// As the real one: from what is kept, from talc, and from talc when that has all that was kept.
    fn take(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let mut given = None;
        while given.is_none() {
            // SAFETY: no layout of these tests is empty.
            given = unsafe { self.pieces.take(layout) };
            if given.is_none() && self.clear(16) == 0 {
                return None;
            }
        }
        given.inspect(|given| assert!(given.as_ptr().addr().is_multiple_of(layout.align())))
    }

    fn give_back(&mut self, piece: NonNull<u8>, layout: Layout) {
        // SAFETY: it was given for that layout, and is not used any more.
        unsafe { self.pieces.give_back(piece, layout) };
    }

    /// Gives talc what is kept, `most` pieces at most. Returns how many.
    fn clear(&mut self, most: usize) -> usize {
        let before = self.pieces.kept();
        let any = self.pieces.clear(most);
        let count = before - self.pieces.kept();
        assert!(count <= most && any == (count > 0));
        count
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: it was made of a box, and nothing of it is used any more.
        drop(unsafe { Box::from_raw(self.memory) });
    }
}

/// A piece that is in use, and the byte that it is filled with.
struct Used(NonNull<u8>, Layout, u8);

impl Used {
    fn new(piece: NonNull<u8>, layout: Layout, byte: u8) -> Self {
        // SAFETY: it is its own, and so long.
        unsafe { piece.as_ptr().write_bytes(byte, layout.size()) };
        Self(piece, layout, byte)
    }

    fn check(&self) {
        let Self(piece, layout, byte) = self;
        // SAFETY: it was written when it was taken.
        let bytes = unsafe { std::slice::from_raw_parts(piece.as_ptr(), layout.size()) };
        assert!(bytes.iter().all(|found| found == byte));
    }
}

fn layouts() -> impl Strategy<Value = Layout> {
    let sizes =
        prop_oneof![1..200_usize, 1..5000_usize, Just(24), Just(25), Just(4088), Just(4089)];
    (sizes, 0..8_u32).prop_map(|(size, align)| Layout::from_size_align(size, 1 << align).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 128 }))]

    #[test]
    fn what_is_taken_is_nobody_elses_and_all_comes_back(
        steps in prop::collection::vec((layouts(), any::<prop::sample::Index>(), 0..100_u8), 1..400),
        frees in 30..70_u8,
    ) {
        let (mut heap, mut used) = (Heap::new(), Vec::<Used>::new());
        let free = heap.pieces.talc().counters().available_bytes;
        for (number, (layout, which, luck)) in steps.into_iter().enumerate() {
            if luck < frees && !used.is_empty() {
                let piece = used.swap_remove(which.index(used.len()));
                piece.check();
                heap.give_back(piece.0, piece.1);
            } else if let Some(piece) = heap.take(layout) {
                used.push(Used::new(piece, layout, number as u8));
            }
        }
        for piece in used {
            piece.check();
            heap.give_back(piece.0, piece.1);
        }
        prop_assert!(heap.clear(usize::MAX) <= MOST);
        prop_assert_eq!(heap.pieces.talc().counters().available_bytes, free);
        prop_assert_eq!(heap.clear(usize::MAX), 0);
    }
}

#[test]
fn a_piece_that_was_freed_is_taken_by_the_next_of_its_size_and_by_no_other() {
    let mut heap = Heap::new();
    let layout = |size| Layout::from_size_align(size, 8).unwrap();
    let piece = heap.take(layout(56)).unwrap();
    heap.give_back(piece, layout(56));
    // Talc takes 64 bytes for 56, and 32 and 96 for these.
    for other in [24, 57] {
        let other = heap.take(layout(other)).unwrap();
        assert_ne!(other, piece);
    }
    assert_eq!(heap.take(layout(25)), Some(piece));
}

#[test]
fn a_piece_of_all_there_is_can_be_had_though_pieces_are_kept() {
    let mut heap = Heap::new();
    let small = Layout::from_size_align(100, 8).unwrap();
    let pieces: Vec<_> = (0..2 * MOST).map(|_| heap.take(small).unwrap()).collect();
    for piece in pieces {
        heap.give_back(piece, small);
    }
    let free = heap.pieces.talc().counters().available_bytes;
    assert!(free < BYTES - MOST * 100, "{MOST} of them are kept");
    let large = Layout::from_size_align(BYTES - BYTES / 8, 8).unwrap();
    assert!(heap.take(large).is_some());
}
