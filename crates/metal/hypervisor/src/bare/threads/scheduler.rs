//! Which thread runs next: the threads that can run, and those that sleep.

use core::sync::atomic::{AtomicU32, Ordering};

use mayfly_hypervisor::processors::Processors;
use mayfly_hypervisor::sleepers::{Sleeper, Sleepers};
use mayfly_hypervisor::turns::{Share, Turns};

use super::local::{Local, running};
use super::thread::Thread;
use crate::bare::processor::spin::SpinLock;
use crate::bare::processor::{cpu, kick, timer};

/// How many threads are woken before interrupts are looked for.
pub(crate) const AT_ONCE: usize = 8;
/// How many words may have more sleepers that are to be woken.
const WORDS: usize = 16;

pub(crate) struct Scheduler {
    pub(crate) turns: Turns,
    pub(crate) asleep: Sleepers,
    /// The addresses of words whose sleepers are to be woken, and were so in part; the first `unfinished`.
    words: [usize; WORDS],
    unfinished: usize,
    /// A bit for each processor that waits for a thread.
    pub(crate) idle: u128,
    /// The last number.
    numbers: u64,
    /// Those that take threads from it.
    processors: Processors,
}

// SAFETY: threads are reached through the scheduler alone, under its lock, or by themselves.
unsafe impl Send for Scheduler {}

pub(crate) static SCHEDULER: SpinLock<Scheduler> = SpinLock::new(Scheduler {
    turns: Turns::new(),
    asleep: Sleepers::new(),
    words: [0; WORDS],
    unfinished: 0,
    idle: 0,
    numbers: 0,
    processors: Processors::NONE,
});

/// Threads that sleep, or are about to.
pub(crate) static SLEEPERS: AtomicU32 = AtomicU32::new(0);

impl Scheduler {
    /// This processor takes threads.
    pub(crate) fn add_processor(&mut self) {
        self.processors.add(cpu::number());
        self.turns.patience().set_processors(self.processors.count());
    }

    /// A number that no thread has had.
    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Takes the thread whose turn it is.
    pub(crate) fn take(&mut self, now: u64) -> Option<*mut Thread> {
        let turn = self.turns.take(now)?;
        Some(turn.cast())
    }

    /// Wakes one of those that sleep for the word at that address. Returns whether there was one.
    pub(crate) fn wake_one(&mut self, word: usize, now: u64) -> bool {
        let sleeper = self.asleep.take_for(word);
        sleeper.inspect(|sleeper| self.end_sleep(*sleeper, now)).is_some()
    }

    /// Those that sleep for the word at that address are woken with those whose time has come. Returns whether there is
    /// room to remember that.
    pub(crate) fn wake_later(&mut self, word: usize) -> bool {
        if !self.words[..self.unfinished].contains(&word) {
            let Some(place) = self.words.get_mut(self.unfinished) else { return false };
            *place = word;
            self.unfinished += 1;
        }
        self.turns.remind(0);
        true
    }

    /// Takes one that is to be woken at `now`.
    fn take_due(&mut self, now: u64) -> Option<*mut Sleeper> {
        while let Some(last) = self.unfinished.checked_sub(1) {
            let sleeper = self.asleep.take_for(self.words[last]);
            if sleeper.is_some() {
                return sleeper;
            }
            self.unfinished = last;
        }
        self.asleep.take_due(now)
    }

    /// Ends the sleep of a thread that was taken from those that sleep.
    pub(crate) fn end_sleep(&mut self, sleeper: *mut Sleeper, now: u64) {
        SLEEPERS.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: all that sleep are threads.
        self.make_ready(unsafe { Thread::of(sleeper) }, now);
    }

    /// Makes a thread that has come to be able to run wait for a processor. Has a processor that idles look, or one
    /// whose thread comes after this one.
    pub(crate) fn make_ready(&mut self, thread: *mut Thread, now: u64) {
        // SAFETY: no other processor's: it sleeps no more, or has not begun.
        unsafe { self.turns.wake(&raw mut (*thread).turn, now) };
        if self.idle == 0 {
            return self.preempt(thread, now);
        }
        let idle = self.idle.trailing_zeros() as usize;
        self.idle &= !(1 << idle);
        if idle != cpu::number() {
            kick(idle);
        }
    }

    /// Ends the slice of the thread that comes furthest after `thread`, which waits, if there is one.
    fn preempt(&mut self, thread: *mut Thread, now: u64) {
        let (mut most, mut best) = (0, None);
        for (number, here) in running(self.processors) {
            // A processor without a thread was told of another thread, and one that is to give its thread up takes
            // another by itself.
            if here.idles() || here.is_over_time() {
                continue;
            }
            // SAFETY: the one waits; the other runs, as it does while this lock is held.
            let precedence = unsafe {
                let runs = &raw const (*here.current.load(Ordering::Relaxed)).turn;
                self.turns.precedence(&raw const (*thread).turn, runs, now)
            };
            if precedence > most {
                (most, best) = (precedence, Some((number, here)));
            }
        }
        if let Some((number, here)) = best {
            here.is_over.store(true, Ordering::Relaxed);
            // This processor looks before it enters a guest.
            if number != cpu::number() {
                kick(number);
            }
        }
    }

    /// Puts a thread that runs to sleep, for the word at that address, and until `deadline` at the latest.
    pub(crate) fn put_to_sleep(
        &mut self,
        thread: *mut Thread,
        word: usize,
        deadline: u64,
        now: u64,
    ) {
        // SAFETY: the thread is the one that asks. While it sleeps, it is there, and reaches nothing of this.
        unsafe {
            self.turns.stop(&raw mut (*thread).turn, now);
            self.turns.remind(deadline);
            self.asleep.add(&raw mut (*thread).sleeper, word, deadline);
        }
    }

    /// Wakes those whose time has come, or that are to be woken for their word: [`AT_ONCE`] at most. Gives shares their
    /// quotas. If others are due, too, so is the alarm of this processor, which is `here`: they are woken then.
    pub(crate) fn wake_due(&mut self, here: &Local, now: u64) {
        if !self.turns.is_due(now) {
            return;
        }
        if self.turns.is_wanted() {
            let idle = core::mem::take(&mut self.idle);
            self.processors.numbers().filter(|number| idle >> number & 1 != 0).for_each(kick);
        }
        for _ in 0..AT_ONCE {
            let Some(sleeper) = self.take_due(now) else { break };
            let began = timer::ticks();
            self.end_sleep(sleeper, now);
            if !here.idles() {
                // SAFETY: the one thread runs here, and the other is there; both shares are.
                unsafe {
                    let runs = &raw mut (*here.current.load(Ordering::Relaxed)).turn;
                    let share = (*Thread::of(sleeper)).turn.share();
                    self.turns.bill(runs, share, timer::ticks() - began);
                }
            }
        }
        self.turns.remind(if self.unfinished > 0 { 0 } else { self.asleep.next() });
    }

    /// What the threads of a share that run now have had since they began, in ticks.
    pub(crate) fn running_of(&self, share: *mut Share, now: u64) -> u64 {
        running(self.processors)
            .filter(|(_, here)| !here.idles())
            // SAFETY: it runs, as it does while this lock is held.
            .map(|(_, here)| unsafe { &(*here.current.load(Ordering::Relaxed)).turn })
            .filter(|turn| core::ptr::eq(turn.share(), share))
            .map(|turn| now.saturating_sub(turn.began()))
            .sum()
    }
}

/// The longest that a thread which could run has waited for a processor, in hundredths of what it may
/// ([`Patience`](mayfly_hypervisor::turns::Patience)).
pub(crate) fn longest_wait() -> u64 {
    SCHEDULER.lock().turns.patience().longest()
}
