//! A fair lock for one writer or many readers.
//!
//! It works as Linux's (`kernel/locking/qrwlock.c`). A thread that cannot have the lock at once queues; readers and writers
//! are in one queue. A thread that comes while another queues, queues too, also a reader behind a waiting writer. The lock
//! goes to the head of the queue, and with a reader to all readers next to it. Linux's waiters spin, each on a processor of
//! its own. These waiters spin if there are as many processors ([`Waiting::Spinning`]). Otherwise they sleep, in the
//! platform.

use std::collections::VecDeque;
use std::hint::spin_loop;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mayfly_platform::Platform;
use mayfly_platform::sync::{AtomicBool, AtomicU32, Ordering};

use crate::slot_delete::watch::{self, Watch};

/// What who waits does meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Keeps its processor, and looks again and again.
    Spinning,
    /// Leaves its processor to others.
    Asleep,
}

/// The lock, without what it protects.
pub(crate) struct FairLock {
    platform: Arc<dyn Platform>,
    waiting: Waiting,
    /// Held for a few instructions at a time.
    state: Mutex<State>,
    /// Whether somebody queues.
    contended: AtomicBool,
}

#[derive(Default)]
struct State {
    readers: u64,
    writer: bool,
    queue: VecDeque<Waiter>,
}

struct Waiter {
    access: Access,
    granted: Arc<AtomicU32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// The lock, held until dropped.
#[must_use]
pub(crate) struct Held<'a> {
    lock: &'a FairLock,
    access: Access,
}

impl FairLock {
    pub(crate) fn new(platform: Arc<dyn Platform>, waiting: Waiting) -> Self {
        Self { platform, waiting, state: Mutex::default(), contended: AtomicBool::new(false) }
    }

    /// Together with other readers. A thread that has it already must not ask for it again: a writer may be waiting in
    /// between.
    pub(crate) fn read(&self) -> Held<'_> {
        self.lock(Access::Read)
    }

    /// Alone.
    pub(crate) fn write(&self) -> Held<'_> {
        self.lock(Access::Write)
    }

    /// Whether somebody waits for it.
    pub(crate) fn is_contended(&self) -> bool {
        self.contended.load(Ordering::Relaxed)
    }

    fn lock(&self, access: Access) -> Held<'_> {
        let mut state = self.state();
        if state.queue.is_empty() && state.admits(access) {
            state.admit(access);
        } else {
            watch::queued_behind(
                state.readers + u64::from(state.writer) + state.queue.len() as u64,
            );
            let granted = Arc::new(AtomicU32::new(0));
            state.queue.push_back(Waiter { access, granted: Arc::clone(&granted) });
            self.contended.store(true, Ordering::Relaxed);
            drop(state);
            self.wait_for(&granted);
        }
        Held { lock: self, access }
    }

    fn wait_for(&self, granted: &AtomicU32) {
        // Acquire, pairing with the release in `unlock`: after what those did who had it before.
        let is_granted = || granted.load(Ordering::Acquire) != 0;
        match self.waiting {
            Waiting::Spinning => Watch::waiting(|| {
                while !is_granted() {
                    spin_loop();
                }
            }),
            Waiting::Asleep => {
                while !is_granted() {
                    self.platform.wait(granted, 0);
                }
            }
        }
    }

    fn unlock(&self, access: Access) {
        let mut state = self.state();
        match access {
            Access::Read => state.readers -= 1,
            Access::Write => state.writer = false,
        }
        let mut woken = Vec::new();
        while let Some(head) = state.queue.front()
            && state.admits(head.access)
        {
            let access = head.access;
            state.admit(access);
            woken.extend(state.queue.pop_front());
        }
        self.contended.store(!state.queue.is_empty(), Ordering::Relaxed);
        drop(state);
        for Waiter { granted, .. } in woken {
            granted.store(1, Ordering::Release);
            self.platform.wake(&granted);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether those who have it leave room for one more.
    fn admits(&self, access: Access) -> bool {
        !self.writer && (access == Access::Read || self.readers == 0)
    }

    fn admit(&mut self, access: Access) {
        match access {
            Access::Read => self.readers += 1,
            Access::Write => self.writer = true,
        }
    }
}

impl Held<'_> {
    /// Whether somebody waits for it.
    pub(crate) fn is_contended(&self) -> bool {
        self.lock.is_contended()
    }

    /// Gives it up and takes it again, if somebody waits for it. Returns whether anybody did.
    pub(crate) fn yield_to_waiters(&mut self) -> bool {
        let is_contended = self.lock.is_contended();
        if is_contended {
            // To those who wait, so that there is nothing to do in between.
            self.lock.unlock(self.access);
            // It is dropped by whoever drops `self`.
            std::mem::forget(self.lock.lock(self.access));
        }
        is_contended
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.lock.unlock(self.access);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;
    use std::thread::{scope, yield_now};

    use mayfly_machine::Hardware;
    use mayfly_platform::{Host, Op};

    use super::*;

    fn lock() -> FairLock {
        FairLock::new(Arc::new(Host::new()), Waiting::Asleep)
    }

    fn queued(lock: &FairLock) -> usize {
        lock.state().queue.len()
    }

    /// Waits until `count` wait for the lock.
    fn until_queued(lock: &FairLock, count: usize) {
        while queued(lock) < count {
            yield_now();
        }
    }

    #[test]
    fn readers_share_it_and_a_writer_has_it_alone() {
        struct Value(UnsafeCell<u64>);
        // SAFETY: accessed under the lock alone, which is what is tested.
        unsafe impl Sync for Value {}
        let (lock, value) = (lock(), Value(UnsafeCell::new(0)));
        scope(|scope| {
            for thread in 0..8 {
                let (lock, value) = (&lock, &value);
                scope.spawn(move || {
                    for round in 0..2000 {
                        if (thread + round) % 3 == 0 {
                            let _held = lock.write();
                            // SAFETY: the lock is held for write.
                            unsafe { *value.0.get() += 1 };
                        } else {
                            let _held = lock.read();
                            // SAFETY: the lock is held, so nobody writes.
                            let seen = unsafe { *value.0.get() };
                            // SAFETY: as above.
                            assert_eq!(unsafe { *value.0.get() }, seen);
                        }
                    }
                });
            }
        });
        let writes: u64 =
            (0..8).map(|t| (0..2000).filter(|r| (t + r) % 3 == 0).count() as u64).sum();
        assert_eq!(value.0.into_inner(), writes);
        assert!(!lock.is_contended());
    }

    #[test]
    fn a_reader_that_comes_behind_a_waiting_writer_waits_for_it() {
        let (lock, order) = (lock(), Mutex::new(Vec::new()));
        scope(|scope| {
            let reader = lock.read();
            scope.spawn(|| {
                let _held = lock.write();
                order.lock().unwrap().push("writer");
            });
            until_queued(&lock, 1);
            scope.spawn(|| {
                let _held = lock.read();
                order.lock().unwrap().push("reader");
            });
            until_queued(&lock, 2);
            assert!(order.lock().unwrap().is_empty(), "the first reader still has it");
            drop(reader);
        });
        assert_eq!(*order.lock().unwrap(), ["writer", "reader"]);
    }

    #[test]
    fn it_goes_round_in_the_order_of_arrival() {
        let (lock, order) = (lock(), Mutex::new(Vec::new()));
        scope(|scope| {
            let first = lock.write();
            for number in 0..10 {
                let (lock, order) = (&lock, &order);
                scope.spawn(move || {
                    let _held = lock.write();
                    order.lock().unwrap().push(number);
                });
                until_queued(lock, number + 1);
            }
            drop(first);
        });
        assert_eq!(*order.lock().unwrap(), (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn who_yields_goes_to_the_end_of_the_queue() {
        let (lock, order) = (lock(), Mutex::new(Vec::new()));
        scope(|scope| {
            let mut mine = lock.read();
            assert!(!mine.yield_to_waiters(), "nobody waits");
            for number in 0..3 {
                let (lock, order) = (&lock, &order);
                scope.spawn(move || {
                    let _held = lock.write();
                    order.lock().unwrap().push(number);
                });
                until_queued(lock, number + 1);
            }
            assert!(mine.yield_to_waiters());
            assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
            drop(mine);
        });
    }

    #[test]
    fn a_root_load_knows_who_was_before_it_whether_it_sleeps_or_spins() {
        for waiting in [Waiting::Asleep, Waiting::Spinning] {
            let watch = Arc::new(Watch::new(Arc::new(Hardware::new(64).unwrap()), 1));
            let lock = FairLock::new(watch.clone(), waiting);
            let load = scope(|scope| {
                let readers = [lock.read(), lock.read()];
                scope.spawn(|| drop(lock.write()));
                until_queued(&lock, 1);
                let loading = scope.spawn(|| {
                    watch.charge(Op::RootLoadBegin);
                    drop(lock.read());
                    drop(lock.read());
                    watch.charge(Op::RootLoadEnd);
                    watch::collect().loads[0]
                });
                until_queued(&lock, 2);
                drop(readers);
                loading.join().unwrap()
            });
            assert_eq!(load.ahead, 3, "two that had it and one that queued; then nobody");
            assert!(load.waits >= 1 && load.wait > 0, "{waiting:?}");
        }
    }

    #[test]
    fn who_spins_does_not_sleep_and_who_sleeps_does_not_spin() {
        struct Sleeps(Host, AtomicU32);

        // SAFETY: passes every call on to the host, which keeps the promises.
        unsafe impl mayfly_platform::Layer for Sleeps {
            type Below = Host;

            fn below(&self) -> &Host {
                &self.0
            }

            fn wait(&self, word: &AtomicU32, expected: u32) {
                self.1.fetch_add(1, Ordering::Relaxed);
                Platform::wait(&self.0, word, expected);
            }
        }

        for (waiting, sleeps) in [(Waiting::Spinning, false), (Waiting::Asleep, true)] {
            let platform = Arc::new(Sleeps(Host::new(), AtomicU32::new(0)));
            let lock = FairLock::new(platform.clone(), waiting);
            scope(|scope| {
                let held = lock.write();
                let waiter = scope.spawn(|| drop(lock.read()));
                until_queued(&lock, 1);
                while sleeps && platform.1.load(Ordering::Relaxed) == 0 {
                    yield_now();
                }
                drop(held);
                waiter.join().unwrap();
            });
            assert_eq!(platform.1.load(Ordering::Relaxed) > 0, sleeps, "{waiting:?}");
        }
    }
}
