//! Values that are made when they are first used. Their memory is set aside before that, so a first use cannot fail for
//! want of memory.

use alloc::boxed::Box;
use core::mem::{MaybeUninit, replace};

/// A `T`, which is made of an `S` when it is first used.
#[derive(Debug)]
pub struct Late<T, S> {
    state: State<T, S>,
    make: fn(S) -> T,
}

#[derive(Debug)]
enum State<T, S> {
    Waits(Box<MaybeUninit<T>>, S),
    /// It is being made.
    Begun,
    Made(Box<T>),
}

impl<T, S> Late<T, S> {
    /// Sets the memory aside for what `make` makes of `from`.
    pub fn new(from: S, make: fn(S) -> T) -> Self {
        Self { state: State::Waits(Box::new_uninit(), from), make }
    }

    /// One that is made.
    pub fn made_already(value: Box<T>, make: fn(S) -> T) -> Self {
        Self { state: State::Made(value), make }
    }

    /// The value.
    ///
    /// # Panics
    ///
    /// If `make` has panicked before.
    pub fn get(&mut self) -> &mut T {
        if let State::Waits(..) = self.state {
            self.make();
        }
        match &mut self.state {
            State::Made(value) => value,
            _ => unreachable!("it could not be made"),
        }
    }

    /// Makes it. Not inlined: it may have some KiB, which are on the stack while it is made, and on no other caller's.
    #[cold]
    #[inline(never)]
    fn make(&mut self) {
        if let State::Waits(memory, from) = replace(&mut self.state, State::Begun) {
            self.state = State::Made(Box::write(memory, (self.make)(from)));
        }
    }

    /// The value, if it was made.
    pub fn made(&mut self) -> Option<&mut T> {
        match &mut self.state {
            State::Made(value) => Some(value),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;
    use core::ptr;

    use super::*;

    #[test]
    fn it_is_made_once_at_the_first_use() {
        let made = Cell::new(0);
        let mut late = Late::new(&made, |made: &Cell<u32>| {
            made.set(made.get() + 1);
            made.get() * 10
        });
        assert!(late.made().is_none());
        assert_eq!(made.get(), 0);
        *late.get() += 1;
        assert_eq!((*late.get(), made.get()), (11, 1));
        assert_eq!(late.made(), Some(&mut 11));
    }

    #[test]
    fn it_is_made_in_the_memory_that_was_set_aside() {
        let mut late = Late::new(7, |from: u8| [from; 5000]);
        let State::Waits(memory, _) = &late.state else { panic!("it was made") };
        let at = memory.as_ptr();
        assert!(ptr::eq(at, late.get()));
        assert_eq!(late.get()[4999], 7);
    }

    #[test]
    fn what_it_would_have_been_made_of_is_dropped_with_it() {
        let from = std::sync::Arc::new(());
        drop(Late::new(from.clone(), |_| [0; 100]));
        assert_eq!(std::sync::Arc::strong_count(&from), 1);
    }
}
