//! Scenarios in which two vCPUs do something at the same time: in the middle of maintenance, where it hurts.
//!
//! The thread that maintains caches pauses there until the other vCPU has done its part. If the rule makes that vCPU wait,
//! the two do not meet, and the pause ends by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use mayfly_platform::address::Pfn;
use rustix::time::{ClockId, clock_gettime};

use super::play::{Play, Scenario};
use super::played::Failure;
use super::stage::{OFF, ON, Stage, look, read, write};
use super::suite::{FGT, NONE};
use crate::cache::{Interlude, Moment};
use crate::{GuestBarrier, Instruction};

/// The most CPU time that a pausing thread uses, while it yields to others: many times what a vCPU needs for a few
/// accesses. On a busy host that lasts as much longer as the vCPU waits for its turn.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) const SCENARIOS: [Scenario; 4] = [
    Scenario {
        name: "two-at-once",
        relies_on: "two vCPUs that turn their caches on at once both find what either wrote",
        machine: NONE,
        play: Play::Usual(two_at_once),
    },
    Scenario {
        name: "write-beside-flush",
        relies_on: "what a vCPU writes with its caches off while another turns its on is not lost",
        machine: NONE,
        play: Play::Usual(write_beside_flush),
    },
    Scenario {
        name: "read-beside-clean",
        relies_on: "a vCPU with its caches off that comes upon a page just as it is mapped finds what is in it",
        machine: NONE,
        play: Play::Usual(read_beside_clean),
    },
    Scenario {
        name: "off-beside-fault",
        relies_on: "with its caches off again, a vCPU finds what it wrote just as another came upon the page",
        machine: FGT,
        play: Play::Usual(off_beside_fault),
    },
];

fn two_at_once(stage: &Stage<'_>) -> Result<(), Failure> {
    let (mut first, mut second) = (stage.vcpu(0)?, stage.vcpu(1)?);
    first.does([write(0, 120)])?;
    second.does([write(1, 121)])?;
    let (begun, begins) = channel();
    let done = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&done);
    stage.oracle()?.at_maintenance(once(Moment::BeforeFlush, stage.frame(1)?, move || {
        let _ = begun.send(());
        pause_until(|| seen.load(Ordering::Acquire));
    }));
    thread::scope(|scope| {
        let second = scope.spawn(move || {
            // Under a rule that flushes nothing here, it only comes a little later.
            pause_until(|| begins.try_recv().is_ok());
            let result = second.does([ON, read(1, 121), read(0, 120)]);
            done.store(true, Ordering::Release);
            result
        });
        first.does([ON, read(0, 120), read(1, 121)])?;
        second.join().map_err(|_| "the second vCPU's thread has panicked")?
    })
}

fn write_beside_flush(stage: &Stage<'_>) -> Result<(), Failure> {
    let (mut first, mut second) = (stage.vcpu(0)?, stage.vcpu(1)?);
    second.does([write(1, 130)])?;
    let meeting = Meeting::new();
    meeting.hold_at(stage, Moment::AfterFlush, 1)?;
    thread::scope(|scope| {
        let program = meeting.around([read(1, 130)], [write(1, 131)]);
        let beside = scope.spawn(move || {
            // So that its TLB has the page before.
            second.does(program)?;
            Ok::<_, Failure>(second)
        });
        meeting.wait_for_guest();
        let flushed = first.does([ON]);
        meeting.leave();
        flushed?;
        let mut second = beside.join().map_err(|_| "the second vCPU's thread has panicked")??;
        second.does([read(1, 131), ON, read(1, 131)])?;
        first.does([read(1, 131)])
    })
}

fn read_beside_clean(stage: &Stage<'_>) -> Result<(), Failure> {
    // Otherwise no CPU finds the entry before the writer goes into its guest, which is after the clean in any case.
    stage.walks_early();
    let (mut first, mut second) = (stage.vcpu(0)?, stage.vcpu(1)?);
    // The tables above are there.
    first.does([read(0, 0)])?;
    stage.host_writes(1, 140);
    let meeting = Meeting::new();
    meeting.hold_at(stage, Moment::BeforeClean, 1)?;
    thread::scope(|scope| {
        let program = meeting.around([read(0, 0)], [read(1, 140)]);
        let beside = scope.spawn(move || second.does(program));
        meeting.wait_for_guest();
        let cleaned = first.does([read(1, 140)]);
        meeting.leave();
        cleaned?;
        beside.join().map_err(|_| "the second vCPU's thread has panicked")?
    })
}

fn off_beside_fault(stage: &Stage<'_>) -> Result<(), Failure> {
    let (mut first, mut second) = (stage.vcpu(0)?, stage.vcpu(1)?);
    first.does([read(0, 0)])?;
    second.does([ON, OFF, ON, write(1, 150)])?;
    let meeting = Meeting::new();
    meeting.hold_at(stage, Moment::AfterClean, 1)?;
    thread::scope(|scope| {
        let program = meeting.around([read(1, 150)], [write(1, 151), OFF]);
        let beside = scope.spawn(move || {
            second.does(program)?;
            Ok::<_, Failure>(second)
        });
        meeting.wait_for_guest();
        let cleaned = first.does([look(1)]);
        meeting.leave();
        cleaned?;
        let mut second = beside.join().map_err(|_| "the second vCPU's thread has panicked")??;
        second.does([read(1, 151), write(1, 152), ON, read(1, 152)])
    })
}

/// A guest that does something in the middle of maintenance.
struct Meeting {
    ready: Arc<GuestBarrier>,
    begin: Arc<GuestBarrier>,
    end: Arc<GuestBarrier>,
    /// Whether it has been let go.
    is_over: Arc<AtomicBool>,
}

impl Meeting {
    fn new() -> Self {
        let barrier = || Arc::new(GuestBarrier::new(2));
        let is_over = Arc::default();
        Self { ready: barrier(), begin: barrier(), end: barrier(), is_over }
    }

    /// The program of a guest that is `prepared`, and does `inside` when maintenance has come there.
    fn around<const P: usize, const I: usize>(
        &self,
        prepared: [Instruction; P],
        inside: [Instruction; I],
    ) -> Vec<Instruction> {
        let wait = |barrier: &Arc<GuestBarrier>| Instruction::Barrier(Arc::clone(barrier));
        let begin = [wait(&self.ready), wait(&self.begin)];
        prepared.into_iter().chain(begin).chain(inside).chain([wait(&self.end)]).collect()
    }

    /// Holds the maintenance of `page`'s frame at `moment`, once, until the guest has done its part.
    fn hold_at(&self, stage: &Stage<'_>, moment: Moment, page: u64) -> Result<(), Failure> {
        let Self { begin, end, is_over, .. } = self;
        let (begin, end, is_over) = (Arc::clone(begin), Arc::clone(end), Arc::clone(is_over));
        stage.oracle()?.at_maintenance(once(moment, stage.frame(page)?, move || {
            if !is_over.swap(true, Ordering::AcqRel) {
                begin.arrive();
                let all = end.arrive();
                pause_until(|| end.is_over(all));
            }
        }));
        Ok(())
    }

    /// Returns when the guest is prepared, or has long had time for it.
    fn wait_for_guest(&self) {
        let all = self.ready.arrive();
        pause(100 * PAUSE, || self.ready.is_over(all));
    }

    /// Lets the guest go, if maintenance has not come there.
    fn leave(&self) {
        if !self.is_over.swap(true, Ordering::AcqRel) {
            self.begin.arrive();
            self.end.arrive();
        }
    }
}

/// Does `then` at `moment` in the maintenance of `frame`, the first time.
fn once(moment: Moment, frame: Pfn, then: impl Fn() + Send + Sync + 'static) -> Interlude {
    let is_done = AtomicBool::new(false);
    Box::new(move |at, first, count| {
        let frames = first.get()..first.get() + count;
        if at == moment && frames.contains(&frame.get()) && !is_done.swap(true, Ordering::AcqRel) {
            then();
        }
    })
}

fn pause_until(is_over: impl Fn() -> bool) {
    pause(PAUSE, is_over);
}

fn pause(at_most: Duration, is_over: impl Fn() -> bool) {
    let end = processor_time() + at_most;
    while !is_over() && processor_time() < end {
        thread::yield_now();
    }
}

/// What this thread has had of the processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a thread's processor time counts up from zero")
}
