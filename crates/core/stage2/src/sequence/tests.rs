//! What takes too long to be begun by a test.

use mayfly_platform::memory::Kept;

use super::*;

#[test]
fn more_than_32_bits_of_invalidations_may_be_under_way() {
    let ended = Kept::try_new(AtomicU32::new(0)).unwrap();
    let sequence = Sequence::new(ended.handle());
    let many = u32::MAX;
    let mut marks = [many.into(); WORDS];
    sequence.active.store(many.into(), Ordering::Relaxed);

    let page = Gfn::new(0)..Gfn::new(1);
    let announced = sequence.announce(&mut marks, |place| place(page.clone()));
    assert_ne!(sequence.active.load(Ordering::Relaxed), 0, "memslots could change meanwhile");
    // As at the end of another one of the same word.
    sequence.number(&mut marks, announced.words, 1);
    assert!(sequence.is_active_in(&page), "a fault would map what was taken away");
}
