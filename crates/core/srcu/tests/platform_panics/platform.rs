//! A platform that panics in one of its methods, from a moment on.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread::{self, ThreadId};
use std::time;

use mayfly_platform::time::Instant;
use mayfly_platform::{Context, Identity, Op, Platform, ReaderBarrier};

/// Who meets the panic: whoever armed it, or all others.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whose {
    Mine,
    Others,
}

pub(crate) struct Panicking {
    barrier: ReaderBarrier,
    /// The method that panics, and who meets that; once there is somebody.
    method: &'static str,
    armed: Mutex<Option<(Whose, ThreadId)>>,
    began: time::Instant,
    sleepers: Mutex<()>,
    woken: Condvar,
}

impl Panicking {
    pub(crate) fn new(barrier: ReaderBarrier, method: &'static str) -> Self {
        Self {
            barrier,
            method,
            armed: Mutex::new(None),
            began: time::Instant::now(),
            sleepers: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    pub(crate) fn arm(&self, whose: Whose) {
        *self.armed.lock().unwrap() = Some((whose, thread::current().id()));
    }

    pub(crate) fn disarm(&self) {
        *self.armed.lock().unwrap() = None;
    }

    fn enter(&self, method: &str) {
        if method != self.method {
            return;
        }
        let armed = *self.armed.lock().unwrap();
        let panics = armed.is_some_and(|(whose, by)| match whose {
            Whose::Mine => by == thread::current().id(),
            Whose::Others => by != thread::current().id(),
        });
        assert!(!panics, "the platform panics in {method}");
    }

    fn sleep(&self, word: &AtomicU32, expected: u32, until: Option<Instant>) {
        let mut sleeping = self.sleepers.lock().unwrap();
        while word.load(Ordering::Acquire) == expected {
            let Some(until) = until else {
                sleeping = self.woken.wait(sleeping).unwrap();
                continue;
            };
            let left = until - self.time();
            if left.is_zero() {
                return;
            }
            sleeping = self.woken.wait_timeout(sleeping, left).unwrap().0;
        }
    }

    fn time(&self) -> Instant {
        Instant::from_nanos(self.began.elapsed().as_nanos() as u64)
    }
}

// SAFETY: the heavy barrier is none for a reader's plain stores; those who use this have their readers enter before
// they go on, by other means, and leave after they have looked.
unsafe impl Platform for Panicking {
    fn identity(&self) -> Identity {
        self.enter("in_identity");
        Identity::new(0)
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        self.enter("in_wait");
        self.sleep(word, expected, None);
    }

    fn wait_until(&self, word: &AtomicU32, expected: u32, deadline: Instant) {
        self.enter("in_wait_until");
        self.sleep(word, expected, (deadline != Instant::NEVER).then_some(deadline));
    }

    fn wake(&self, _: &AtomicU32) {
        self.enter("in_wake");
        drop(self.sleepers.lock());
        self.woken.notify_all();
    }

    fn now(&self) -> Instant {
        self.enter("in_now");
        self.time()
    }

    fn reader_barrier(&self) -> ReaderBarrier {
        self.enter("in_reader_barrier");
        self.barrier
    }

    fn heavy_barrier(&self) {
        self.enter("in_heavy_barrier");
    }

    fn context(&self) -> Option<Context> {
        self.enter("in_context");
        std::thread_local!(static HERE: u8 = const { 0 });
        NonZeroU64::new(HERE.with(|here| std::ptr::from_ref(here).addr() as u64)).map(Context::new)
    }

    fn charge(&self, _: Op) {
        self.enter("in_charge");
    }
}
