//! A gate before what many callers use, each for a moment, and which one of them has for itself for a while.

use core::sync::atomic::{AtomicU32, Ordering};

const SHUT: u32 = 1 << 31;

/// Whether it is shut, and how many callers are inside.
#[derive(Debug, Default)]
pub struct Gate(AtomicU32);

/// A caller that is inside, until this is dropped.
#[derive(Debug)]
pub struct Inside<'a>(&'a Gate);

impl Gate {
    /// Goes in, unless it is shut.
    pub fn enter(&self) -> Option<Inside<'_>> {
        // Acquire: what was done while it was shut is over.
        let before = self.0.fetch_add(1, Ordering::Acquire);
        let inside = Inside(self);
        (before & SHUT == 0).then_some(inside)
    }

    /// Lets no caller in any more. Those that are inside stay until they are through.
    pub fn shut(&self) {
        self.0.fetch_or(SHUT, Ordering::Relaxed);
    }

    /// Whether no caller is inside, once it is [shut](Gate::shut). Then none will be until it is [open](Gate::open).
    pub fn is_empty(&self) -> bool {
        // Acquire: what those have done that were inside is over.
        self.0.load(Ordering::Acquire) & !SHUT == 0
    }

    /// Lets callers in again.
    pub fn open(&self) {
        self.0.fetch_and(!SHUT, Ordering::Release);
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::thread::{spawn, yield_now};

    #[test]
    fn nobody_comes_in_while_it_is_shut_and_those_inside_are_waited_for() {
        let gate = Gate::default();
        let first = gate.enter();
        assert!(first.is_some());
        gate.shut();
        assert!(gate.enter().is_none() && !gate.is_empty());
        drop(first);
        assert!(gate.is_empty() && gate.enter().is_none() && gate.is_empty());
        gate.open();
        assert!(gate.enter().is_some());
    }

    #[test]
    fn who_has_shut_it_is_alone() {
        let (gate, value) = (Arc::new(Gate::default()), Arc::new(AtomicU64::new(0)));
        let add = |value: &AtomicU64| {
            let before = value.load(Ordering::Relaxed);
            yield_now();
            value.store(before + 1, Ordering::Relaxed);
        };
        let others = {
            let (gate, value) = (Arc::clone(&gate), Arc::clone(&value));
            // One caller inside at a time, so that what is lost is lost to the one that has shut it.
            spawn(move || {
                let mut done = 0;
                while done < 2000 {
                    if let Some(_inside) = gate.enter() {
                        add(&value);
                        done += 1;
                    }
                }
            })
        };
        for _ in 0..2000 {
            gate.shut();
            while !gate.is_empty() {
                yield_now();
            }
            add(&value);
            gate.open();
        }
        others.join().unwrap();
        assert_eq!(value.load(Ordering::Relaxed), 4000);
    }
}
