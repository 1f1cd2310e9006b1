//! How a CPU has others name no root ([`Tlb::vacate_all`](crate::tlb::Tlb::vacate_all)), on a machine whose CPUs look for what
//! others ask of them: when an interrupt has come, and while they wait for others.
//!
//! # The protocol
//!
//! Each CPU has a word: the VMID under which it is to name no root, plus one, or 0. A CPU that wants something of others
//! *asks* them all before it waits for the first. It puts the VMID into the word of each, by compare-exchange from 0, and
//! interrupts that CPU. A CPU that looks, and finds a VMID in its word, vacates, and then stores 0: **\[heeded\]**,
//! releasing. The CPU that has asked waits until no word shows that VMID any more: **\[wait\]**, acquiring.
//!
//! **Why all of them have vacated then.** A word that has got the VMID shows it until its CPU has vacated and stored 0. The
//! CPU that waits has read this 0, or what another CPU has put in its place since, by a compare-exchange; so what it has
//! read is of the release sequence that **\[heeded\]** heads. The words of all CPUs are looked at, and not those alone that
//! were asked, so nothing has to be kept about which these are. A CPU that was not asked shows the VMID only if yet another
//! CPU has asked it: then the wait is for that, too, and changes nothing.
//!
//! Asking needs no order. The VMID is all that is said, and what a CPU vacates is its own register.
//!
//! **Why the wait ends, and when.** A CPU looks at its word when it is interrupted, and again and again while it asks or
//! waits. So two CPUs that ask each other both go on, and a word that another CPU has taken is free when its CPU has looked.
//! That takes as long as a CPU has interrupts masked, at most. All that are asked look at the same time: the wait for all of
//! them is as long as for the slowest, however many they are. Another CPU that asks at the same time makes it one such time
//! longer, since each word holds one VMID.

use crate::sync::{AtomicU32, Ordering};
use crate::tlb::Vmid;

/// What others ask of one CPU.
#[derive(Debug, Default)]
pub struct Asked(AtomicU32);

impl Asked {
    /// Nothing.
    #[cfg(not(any(mayfly_loom, mayfly_shuttle)))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// For the CPU itself: does what is asked of it, if something is. `vacate` has it name no root under that VMID.
    pub fn heed(&self, vacate: impl FnOnce(Vmid)) {
        let asked = self.0.load(Ordering::Relaxed);
        if let Some(vmid) = asked.checked_sub(1) {
            vacate(Vmid(vmid as u16));
            // [heeded]
            self.0.store(0, Ordering::Release);
        }
    }
}

/// Has each of `cpus` name no root under `vmid`, and returns when that is so. `words` are those of all CPUs, by number; a
/// CPU that has none is not asked.
///
/// `interrupt` has a CPU look soon. `meanwhile` is called again and again until all is done; it [heeds](Asked::heed) what is
/// asked of the caller's CPU.
pub fn ask_all(
    words: &[Asked],
    cpus: &mut dyn Iterator<Item = u32>,
    vmid: Vmid,
    interrupt: impl Fn(u32),
    meanwhile: impl Fn(),
) {
    let wanted = u32::from(vmid.0) + 1;
    for cpu in cpus {
        let Some(Asked(word)) = words.get(cpu as usize) else { continue };
        while word.compare_exchange(0, wanted, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            meanwhile();
        }
        interrupt(cpu);
    }
    for Asked(word) in words {
        // [wait]
        while word.load(Ordering::Acquire) == wanted {
            meanwhile();
        }
    }
}

#[cfg(all(test, not(any(mayfly_loom, mayfly_shuttle))))]
mod tests {
    use std::cell::RefCell;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn all_are_asked_before_the_first_is_waited_for_and_nobody_else_is() {
        let words = [const { Asked::new() }; 4];
        let (asked, vacated) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let interrupt = |cpu| asked.borrow_mut().push(cpu);
        let meanwhile = || {
            assert_eq!(*asked.borrow(), [1, 3], "the first is waited for before the last is asked");
            for (cpu, word) in words.iter().enumerate() {
                word.heed(|vmid| vacated.borrow_mut().push((cpu, vmid)));
            }
        };
        ask_all(&words, &mut [1, 9, 3].into_iter(), Vmid(u16::MAX), interrupt, meanwhile);
        assert_eq!(*vacated.borrow(), [(1, Vmid(u16::MAX)), (3, Vmid(u16::MAX))]);
    }

    #[test]
    fn who_asks_heeds_what_is_asked_of_its_own_cpu_and_may_ask_that_too() {
        let words = [const { Asked::new() }; 2];
        let vacated = RefCell::new(Vec::new());
        // Another CPU has asked both: each word is taken.
        for word in &words {
            word.0.store(8, Ordering::Relaxed);
        }
        let meanwhile = || {
            for (cpu, word) in words.iter().enumerate().rev() {
                word.heed(|vmid| vacated.borrow_mut().push((cpu, vmid)));
            }
        };
        ask_all(&words, &mut [0, 1].into_iter(), Vmid(3), |_| {}, meanwhile);
        let (old, new) = (Vmid(7), Vmid(3));
        assert_eq!(*vacated.borrow(), [(1, old), (0, old), (1, new), (0, new)]);
    }
}
