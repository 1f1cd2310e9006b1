//! Frames that processors use without a lock, each for a moment; and how the owner of a frame waits for these moments before
//! it frees the frame.
//!
//! A processor *begins*, finds a frame where it is written down, uses it, and *ends*. In between it waits for nothing, and
//! runs no other thread. The owner first takes down what is written, and then waits until each processor that has begun has
//! ended. It does not wait for those that begin meanwhile: they do not find the frame. So no number of them holds it up.
//!
//! \[begin\], the barrier behind the number of a processor, comes before it looks for a frame. \[taken\], the barrier of the
//! owner, comes between what it has taken down and its look at the numbers. So one of them sees the other. \[end\], a release,
//! pairs with the owner's acquire: what a processor did with the frame, it did before the frame is freed.

use core::sync::atomic::{AtomicU64, Ordering, fence};

/// What a processor says of itself, in a cache line of its own: odd while it uses a frame.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Moments(AtomicU64);

/// A processor uses frames until this is dropped.
#[derive(Debug)]
pub struct Moment<'a>(&'a AtomicU64);

impl Moments {
    /// Of a processor that uses none.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The processor begins. One at a time.
    #[inline]
    pub fn begin(&self) -> Moment<'_> {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        // [begin]
        fence(Ordering::SeqCst);
        Moment(&self.0)
    }
}

impl Drop for Moment<'_> {
    #[inline]
    fn drop(&mut self) {
        // [end]
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }
}

/// Waits until none of these processors uses what was taken down before. Calls `pause` as long as one does.
pub fn wait_for_all(processors: &[Moments], mut pause: impl FnMut()) {
    // [taken]
    fence(Ordering::SeqCst);
    for Moments(number) in processors {
        let seen = number.load(Ordering::Acquire);
        while seen % 2 == 1 && number.load(Ordering::Acquire) == seen {
            pause();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    #[test]
    fn a_moment_that_has_begun_is_waited_for_and_none_that_begins_meanwhile() {
        let processors = [const { Moments::new() }; 3];
        wait_for_all(&processors, || panic!("nobody uses anything"));
        let (mut first, mut pauses) = (Some(processors[1].begin()), 0);
        let mut next = None;
        wait_for_all(&processors, || {
            pauses += 1;
            if pauses == 5 {
                // It ends, and another one begins at once.
                first = None;
                next = Some(processors[1].begin());
            }
        });
        assert_eq!(pauses, 5);
        drop((first, next));
        wait_for_all(&processors, || panic!("nobody uses anything"));
    }

    /// Two readers find a slot by its number, and the owner gives a slot back only after it has written down another.
    #[test]
    fn what_is_found_is_not_given_back_while_it_is_used() {
        const ROUNDS: usize = 2000;
        let processors = [const { Moments::new() }; 2];
        let found = AtomicUsize::new(1);
        let slots = [const { AtomicUsize::new(0) }; ROUNDS + 2];
        slots[1].store(1, Ordering::Relaxed);
        thread::scope(|scope| {
            for processor in &processors {
                scope.spawn(|| {
                    loop {
                        let moment = processor.begin();
                        let at = found.load(Ordering::Relaxed);
                        if at == 0 {
                            break;
                        }
                        assert_eq!(
                            slots[at].load(Ordering::Relaxed),
                            1,
                            "slot {at} was given back"
                        );
                        drop(moment);
                    }
                });
            }
            for at in 1..=ROUNDS {
                slots[at + 1].store(1, Ordering::Relaxed);
                found.store(if at == ROUNDS { 0 } else { at + 1 }, Ordering::Release);
                wait_for_all(&processors, std::hint::spin_loop);
                slots[at].store(0, Ordering::Relaxed);
            }
        });
    }
}
