//! The thread that frees the tables of VMs that are gone.

use std::io;
use std::sync::Arc;

use mayfly_stage2::{Format, Reclaimer, Slice};
use rustix::thread::Pid;

use crate::joined::Joined;

/// A thread that serves a [`Reclaimer`] until this is dropped.
#[derive(Debug)]
pub(crate) struct ReclaimThread<F: Format> {
    thread: Joined,
    reclaimer: Arc<Reclaimer<F>>,
}

impl<F: Format> ReclaimThread<F> {
    pub(crate) fn spawn(reclaimer: Arc<Reclaimer<F>>) -> io::Result<Self> {
        let served = Arc::clone(&reclaimer);
        let thread = Joined::spawn("reclaimer", move || {
            preempt_nobody();
            served.serve(Slice::default());
        })?;
        Ok(Self { thread, reclaimer })
    }

    /// What the kernel calls the thread.
    pub(crate) fn thread(&self) -> Pid {
        self.thread.thread()
    }

    pub(crate) fn reclaimer(&self) -> &Arc<Reclaimer<F>> {
        &self.reclaimer
    }
}

/// Has this thread preempt no other when it is woken (`SCHED_BATCH`, sched(7)). It is woken by whoever retires a root,
/// and on a busy processor would otherwise often run at once and in that one's place: the call that leaves the work to
/// others would last as long as the work. Its weight stays as it is, so that it comes to its turn.
fn preempt_nobody() {
    // SAFETY: a struct of integers, of which C libraries have the priority and more; each may be 0.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: reads a parameter that outlives the call, and changes nothing but how this thread is scheduled.
    // Where it is refused, the work is done all the same.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
}

impl<F: Format> Drop for ReclaimThread<F> {
    fn drop(&mut self) {
        self.reclaimer.stop();
    }
}
