//! The threads of a round, and who watches that they get on.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// A thread that does nothing for so long is stuck, on whatever machine.
const STUCK: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(500);

/// Where a thread says what it is about to do.
#[derive(Default)]
pub(crate) struct Seat {
    doing: Mutex<&'static str>,
    steps: AtomicU64,
}

impl Seat {
    pub(crate) fn at(&self, doing: &'static str) {
        *self.doing.lock().unwrap() = doing;
        self.steps.fetch_add(1, Ordering::Relaxed);
    }
}

struct Member {
    name: String,
    seat: Arc<Seat>,
    thread: JoinHandle<()>,
    /// Nothing is ever sent: the other end is dropped when the thread ends.
    end: Receiver<()>,
    /// Steps that it had made when it was last found to have made any, and when that was.
    seen: (u64, Instant),
}

#[derive(Default)]
pub(crate) struct Crew(Vec<Member>);

impl Crew {
    pub(crate) fn start(&mut self, name: String, work: impl FnOnce(&Seat) + Send + 'static) {
        let seat = Arc::new(Seat::default());
        let (ended, end): (Sender<()>, _) = channel();
        let theirs = Arc::clone(&seat);
        let body = move || {
            let _ended = ended;
            work(&theirs);
        };
        let thread = Builder::new().name(name.clone()).spawn(body).unwrap();
        self.0.push(Member { name, seat, thread, end, seen: (0, Instant::now()) });
    }

    /// Waits for all; panics as the first one that panicked did, or when one is stuck.
    pub(crate) fn join(mut self) {
        for waited in 0..self.0.len() {
            while self.0[waited].end.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                self.look();
            }
        }
        for member in self.0 {
            member.thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    }

    fn look(&mut self) {
        let mut is_stuck = false;
        for member in &mut self.0 {
            let steps = member.seat.steps.load(Ordering::Relaxed);
            if steps != member.seen.0 || member.thread.is_finished() {
                member.seen = (steps, Instant::now());
            }
            is_stuck |= member.seen.1.elapsed() > STUCK;
        }
        assert!(!is_stuck, "somebody is stuck:\n{}", self.report());
    }

    fn report(&self) -> String {
        let line = |member: &Member| {
            let Member { name, seat, thread, seen: (steps, since), .. } = member;
            let (doing, still) = (seat.doing.lock().unwrap(), since.elapsed().as_secs());
            let ended = if thread.is_finished() { ", ended" } else { "" };
            format!("{name}: {doing}, step {steps}, for {still} s{ended}\n")
        };
        self.0.iter().map(line).collect()
    }
}
