//! The machine's physical memory.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_machine::Arena;
use mayfly_machine::arena::MAX_ORDER;
use mayfly_platform::address::Pfn;
use mayfly_platform::frames::{Frames, WORDS};
use mayfly_platform::memory::OutOfMemory;

fn holds(arena: &Arena, frame: Pfn, value: u64) -> bool {
    arena.words(frame).all(|word| word.load(Ordering::Relaxed) == value)
}

fn free(arena: &Arena, blocks: impl IntoIterator<Item = Pfn>, order: u32) {
    for block in blocks {
        arena.free(block, order);
    }
}

fn fill(arena: &Arena, first: Pfn, order: u32, value: u64) {
    for frame in first.get()..first.get() + (1 << order) {
        arena.words(Pfn::new(frame)).for_each(|word| word.store(value, Ordering::Relaxed));
    }
}

#[test]
fn a_block_begins_at_a_multiple_of_its_size_and_overlaps_no_other() {
    let arena = Arena::new(4 << MAX_ORDER).unwrap();
    let mut given = Vec::new();
    for order in (0..=MAX_ORDER).chain((0..MAX_ORDER).rev()) {
        let first = arena.allocate(order).unwrap().get();
        assert!(first > 0 && first.trailing_zeros() >= order);
        let overlaps =
            |&(other, count): &(u64, u64)| first < other + count && other < first + (1 << order);
        assert!(
            !given.iter().any(overlaps),
            "order {order} at {first:#x} overlaps one of {given:x?}"
        );
        given.push((first, 1 << order));
    }
    let frames: u64 = given.iter().map(|&(_, count)| count).sum();
    assert_eq!(arena.in_use(), frames);
    for (first, count) in given {
        Arena::free(&arena, Pfn::new(first), count.ilog2());
    }
    assert_eq!(arena.in_use(), 0);
}

#[test]
fn every_frame_is_given_out_before_an_allocation_fails_and_all_of_them_again_when_they_are_back() {
    let arena = Arena::new(1000).unwrap();
    for _ in 0..2 {
        let frames: Vec<_> = std::iter::from_fn(|| arena.allocate(0).ok()).collect();
        assert_eq!(frames.iter().collect::<HashSet<_>>().len(), 1000);
        assert_eq!(
            (arena.in_use(), arena.allocate(0), arena.allocate(3)),
            (1000, Err(OutOfMemory), Err(OutOfMemory))
        );
        free(&arena, frames, 0);
        assert_eq!(arena.in_use(), 0);
    }
}

#[test]
fn frames_that_came_back_one_by_one_are_a_block_again() {
    let arena = Arena::new(512).unwrap();
    let frames: Vec<_> = (0..512).map(|_| arena.allocate(0).unwrap()).collect();
    free(&arena, frames.into_iter().rev(), 0);
    let block = arena.allocate(9).unwrap();
    assert_eq!((arena.in_use(), arena.allocate(0)), (512, Err(OutOfMemory)));
    arena.free(block, 9);
}

#[test]
fn what_is_given_out_is_zero_whatever_it_held_and_however_it_came_back() {
    let arena = Arena::new(1024).unwrap();
    for taken in [0, 3, 9] {
        let block = arena.allocate(taken).unwrap();
        fill(&arena, block, taken, 7);
        arena.free(block, taken);
        for order in [0, 4, 9] {
            let again: Vec<_> = std::iter::from_fn(|| arena.allocate(order).ok()).collect();
            assert_eq!(again.len(), 1024 >> order);
            for first in &again {
                for frame in first.get()..first.get() + (1 << order) {
                    assert!(holds(&arena, Pfn::new(frame), 0), "{taken} then {order}");
                }
                fill(&arena, *first, order, 9);
            }
            free(&arena, again, order);
        }
    }
}

#[test]
fn an_arena_larger_than_the_host_takes_memory_only_where_it_is_touched() {
    let arena = Arena::new(80 << MAX_ORDER).unwrap();
    let blocks: Vec<_> = (0..64).map(|_| arena.allocate(MAX_ORDER).unwrap()).collect();
    assert_eq!(arena.resident().unwrap(), 0);
    arena.word(blocks[63].hpa().unwrap()).store(1, Ordering::Relaxed);
    let touched = arena.resident().unwrap();
    assert!((1..=2 << 20).contains(&touched), "{touched} bytes");
    free(&arena, blocks, MAX_ORDER);
    assert_eq!((arena.resident().unwrap(), arena.in_use()), (0, 0));
}

#[test]
fn each_allocation_can_be_made_to_fail() {
    let arena = Arena::new(64).unwrap();
    for number in 0..10 {
        arena.fail_allocations(number..number + 1);
        let frames: Vec<_> = (0..10).map(|_| arena.allocate(0)).collect();
        for (at, frame) in (0..).zip(frames) {
            assert_eq!(frame.is_err(), at == number);
            free(&arena, frame, 0);
        }
    }
    arena.fail_allocations(0..0);
    assert!(arena.allocate(0).is_ok());
}

#[test]
fn a_frame_is_free_when_its_last_reference_is_gone() {
    let arena = Arena::new(16).unwrap();
    let frame = arena.allocate(0).unwrap();
    arena.get(frame);
    assert_eq!(arena.references(frame), 2);
    assert!(!arena.put(frame));
    assert_eq!(arena.in_use(), 1);
    assert!(arena.put(frame));
    assert_eq!(arena.in_use(), 0);
}

#[test]
fn of_a_run_the_frames_stay_that_somebody_else_refers_to() {
    let arena = Arena::new(2048).unwrap();
    let block = arena.allocate(10).unwrap();
    let kept = block.checked_add(700).unwrap();
    arena.get(kept);
    arena.put_run(block.checked_add(3).unwrap(), 1000);
    assert_eq!(arena.in_use(), 1024 - 1000 + 1);
    assert!(arena.put(kept));
    arena.put_run(block, 3);
    arena.put_run(block.checked_add(1003).unwrap(), 21);
    assert_eq!(arena.in_use(), 0);
}

#[test]
#[should_panic(expected = "not given out")]
fn freeing_a_frame_twice_is_noticed() {
    let arena = Arena::new(16).unwrap();
    let frame = arena.allocate(0).unwrap();
    arena.free(frame, 0);
    arena.free(frame, 0);
}

#[test]
fn the_linear_map_shows_the_words_of_every_frame() {
    let arena = Arena::new(16).unwrap();
    let frame = arena.allocate(0).unwrap();
    arena.words(frame).nth(5).unwrap().store(42, Ordering::Relaxed);
    // SAFETY: word 5 of a frame that is given out.
    let word = unsafe { &*arena.linear_map().wrapping_add(frame.get() as usize * WORDS + 5) };
    assert_eq!(word.load(Ordering::Relaxed), 42);
    assert_eq!(
        arena
            .byte(mayfly_platform::address::Hpa::new((frame.get() << 12) + 40))
            .load(Ordering::Relaxed),
        42
    );
}

#[test]
fn threads_that_run_out_of_frames_together_never_hold_the_same_one() {
    let arena = Arena::new(600).unwrap();
    std::thread::scope(|scope| {
        for thread in 1..=4_u64 {
            let arena = &arena;
            scope.spawn(move || {
                for round in 0..30_u32 {
                    // Together they want more than there is, now and then.
                    let order = round % 4;
                    let blocks: Vec<_> = std::iter::from_fn(|| arena.allocate(order).ok())
                        .take(200 >> order)
                        .collect();
                    for block in &blocks {
                        assert!(holds(arena, *block, 0));
                        fill(arena, *block, order, thread);
                    }
                    for block in blocks {
                        assert!(holds(arena, block, thread));
                        arena.free(block, order);
                    }
                }
            });
        }
    });
    assert_eq!(arena.in_use(), 0);
    let all: Vec<_> = std::iter::from_fn(|| arena.allocate(0).ok()).collect();
    assert_eq!(all.len(), 600);
}

#[test]
fn nobody_is_refused_a_frame_while_some_are_free() {
    const THREADS: usize = 3;
    let arena = Arena::new(2 * THREADS).unwrap();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads = [(); THREADS].map(|()| {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    let frame = arena.allocate(0).expect("each has one at a time");
                    arena.free(frame, 0);
                }
            })
        });
        // Meanwhile the frames in stock are made blocks of.
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                assert_eq!(arena.allocate(9), Err(OutOfMemory));
            }
        });
        let refused = threads.map(|thread| thread.join().is_err());
        ends.store(true, Ordering::Relaxed);
        assert_eq!(refused, [false; THREADS]);
    });
}
