//! Memory: every allocation may fail and leaves things as they were; deferring and waiting allocate nothing.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mayfly_platform::Host;
use mayfly_platform::memory::OutOfMemory;
use mayfly_srcu::{BuildError, Callback, Config, Pace, Rcu, RcuBox, Srcu, Worker};

thread_local! {
    /// How many allocations of this thread are still to succeed; `None`: all.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    /// The allocations that this thread has asked for.
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which refuses where the thread that asks wants it to.
struct Refusing;

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

// SAFETY: memory comes from `System`, or does not come, which a caller has to expect.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.set(ASKED.get() + 1);
        match LEFT.get() {
            Some(0) => return std::ptr::null_mut(),
            Some(left) => LEFT.set(Some(left - 1)),
            None => {}
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Does `work` with its first `allowed` allocations granted and all others refused.
fn with_allocations<T>(allowed: usize, work: impl FnOnce() -> T) -> T {
    LEFT.set(Some(allowed));
    let result = work();
    LEFT.set(None);
    result
}

/// What `work` returns, and how many allocations it asked for.
fn counted<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = ASKED.get();
    let result = work();
    (result, ASKED.get() - before)
}

/// Fails each allocation of `work` in turn, until it has succeeded. Returns how often it failed, and what it made.
fn fail_in_turn<T, E: PartialEq + std::fmt::Debug>(
    error: &E,
    mut work: impl FnMut() -> Result<T, E>,
) -> (usize, T) {
    for allowed in 0.. {
        match with_allocations(allowed, &mut work) {
            Ok(made) => return (allowed, made),
            Err(failed) => assert_eq!(failed, *error),
        }
    }
    unreachable!("some number of allocations is enough");
}

fn host() -> Arc<Host> {
    Arc::new(Host::new())
}

fn domain() -> Srcu {
    Srcu::try_new(host(), Config::default()).unwrap()
}

/// A callback that counts, made before memory runs out.
fn counting(ran: &Arc<AtomicUsize>) -> Callback {
    let ran = Arc::clone(ran);
    Callback::try_new(move || {
        ran.fetch_add(1, Ordering::SeqCst);
    })
    .unwrap()
}

#[test]
fn a_domain_that_gets_no_memory_is_not_built_and_keeps_nothing() {
    let platform = host();
    let error = BuildError::OutOfMemory(OutOfMemory);
    let (failures, domain) =
        fail_in_turn(&error, || Srcu::try_new(platform.clone(), Config::default()));
    assert_eq!(failures, 1, "one allocation, which failed once");
    assert_eq!(Arc::strong_count(&platform), 2);
    drop(domain);
    assert_eq!(Arc::strong_count(&platform), 1);
}

#[test]
fn a_reader_that_gets_no_memory_leaves_the_domain_as_it_was() {
    let domain = domain();
    let (failures, reader) = fail_in_turn(&OutOfMemory, || domain.reader());
    assert_eq!(failures, 1);
    // None of those that failed is waited for, or holds a record.
    let section = reader.lock();
    let cookie = domain.start_poll();
    assert!(!domain.poll(cookie));
    drop(section);
    assert!(domain.poll(cookie));
}

#[test]
fn a_box_that_gets_no_memory_drops_its_value() {
    let value = Arc::new(());
    let (failures, boxed) = fail_in_turn(&OutOfMemory, || RcuBox::try_new(Arc::clone(&value)));
    assert_eq!((failures, Arc::strong_count(&value)), (1, 2));
    drop(boxed);
    assert_eq!(Arc::strong_count(&value), 1);
}

#[test]
fn a_callback_that_gets_no_memory_drops_its_work_and_does_not_do_it() {
    let ran = Arc::new(AtomicUsize::new(0));
    let (failures, callback) = fail_in_turn(&OutOfMemory, || {
        let ran = Arc::clone(&ran);
        Callback::try_new(move || {
            ran.fetch_add(1, Ordering::SeqCst);
        })
    });
    assert_eq!((failures, Arc::strong_count(&ran)), (1, 2));
    domain().call(callback);
    assert_eq!((ran.load(Ordering::SeqCst), Arc::strong_count(&ran)), (1, 1));
}

#[test]
fn an_update_that_gets_no_memory_changes_nothing() {
    let domain = domain();
    let value = Rcu::new(&domain, RcuBox::try_new(1).unwrap());
    let failed = with_allocations(0, || value.update(|old| RcuBox::try_new(old + 1)));
    assert!(failed.is_err());
    assert_eq!(*value.load(&domain.read_lock()), 1);
    value.update(|old| RcuBox::try_new(old + 1)).unwrap().defer();
    assert_eq!(*value.load(&domain.read_lock()), 2);
}

/// Once there are a domain, a reader, and what is to be deferred, no memory is asked for.
#[test]
fn reading_waiting_and_deferring_ask_for_no_memory() {
    let worker = Arc::new(Worker::new(host()));
    for pace in [Pace::Urgent, Pace::Linux { hz: 1_000_000 }] {
        for worker in [None, Some(Arc::clone(&worker))] {
            if worker.is_none() && pace != Pace::Urgent {
                continue;
            }
            let config = Config { pace, worker: worker.clone(), ..Config::default() };
            let domain = Srcu::try_new(host(), config).unwrap();
            let reader = domain.reader().unwrap();
            let value = Rcu::new(&domain, RcuBox::try_new(0).unwrap());
            let ran = Arc::new(AtomicUsize::new(0));
            let mut callbacks = [(); 3].map(|()| Some(counting(&ran)));
            let mut boxes = [1, 2, 3].map(|number| Some(RcuBox::try_new(number).unwrap()));

            let ((), allocations) = counted(|| {
                with_allocations(0, || {
                    let section = reader.lock();
                    assert_eq!(*value.load(&section), 0);
                    drop((section, domain.read_lock()));
                    domain.call(callbacks[0].take().unwrap());
                    domain.call_expedited(callbacks[1].take().unwrap());
                    domain.try_call(callbacks[2].take().unwrap()).unwrap();
                    value.replace(boxes[0].take().unwrap()).defer();
                    value.replace(boxes[1].take().unwrap()).defer_expedited();
                    let cookie = domain.start_poll();
                    if let (Pace::Linux { .. }, Some(worker)) = (pace, &worker) {
                        while !domain.poll(cookie) || domain.stats().deferred > 0 {
                            worker.turn();
                        }
                        return;
                    }
                    drop(value.replace(boxes[2].take().unwrap()).synchronize_expedited());
                    assert!(domain.poll(cookie));
                    domain.synchronize();
                    domain.cond_synchronize(cookie);
                    domain.tick();
                    if let Some(worker) = &worker {
                        worker.turn();
                    }
                    domain.barrier();
                });
            });
            assert_eq!(allocations, 0);
            assert_eq!(ran.load(Ordering::SeqCst), 3);
            assert_eq!(domain.stats().deferred, 0);
        }
    }
}
