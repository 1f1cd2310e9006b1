//! A VM, which may run several times.

use alloc::sync::Arc;

use mayfly_hypervisor::plan::Plan;
use mayfly_vm::platform::memory::OutOfMemory;

use super::counts::Counts;
use super::run::{End, Run};
use crate::bare::devices::disk::Frames;
use crate::bare::devices::uart::Uart;
use crate::bare::processor::spin::SpinLock;
use crate::bare::world::World;
use crate::bare::world::memory::GuestMemory;

/// A VM.
pub(crate) struct Machine {
    pub(crate) plan: Plan,
    pub(crate) uart: Arc<Uart>,
    pub(crate) counts: Arc<Counts>,
    /// What its disk keeps from one run to the next, once it has run.
    disk: SpinLock<Option<Arc<GuestMemory>>>,
    present: SpinLock<Present>,
}

/// The state of a VM.
enum Present {
    /// It was never started, or has ended.
    Stopped,
    /// It is about to run. If an end is there, it ends at once.
    Starting(Option<End>),
    Running(Arc<Run>, Arc<GuestMemory>),
}

impl Machine {
    pub(crate) fn new(plan: Plan) -> Self {
        let uart = Arc::new(Uart::new(&plan.name));
        let (disk, present) = (SpinLock::new(None), SpinLock::new(Present::Stopped));
        Self { plan, uart, counts: Arc::default(), disk, present }
    }

    /// Its disk, if it is to have one.
    pub(super) fn disk(&self, world: &Arc<World>) -> Result<Option<Frames>, OutOfMemory> {
        let Plan { name, disk: bytes, .. } = &self.plan;
        if *bytes == 0 {
            return Ok(None);
        }
        let kept = self.disk.lock().clone();
        let memory = match kept {
            Some(memory) => memory,
            // No other caller makes one: a VM has one run at a time.
            None => Arc::new(GuestMemory::try_new(Arc::clone(world), *bytes)?),
        };
        *self.disk.lock() = Some(Arc::clone(&memory));
        Ok(Some(Frames::new(name, *bytes, memory)))
    }

    /// How many frames its disk has.
    pub(crate) fn disk_frames(&self) -> u64 {
        self.disk.lock().as_ref().map_or(0, |disk| disk.frames())
    }

    /// Marks it as about to run. Returns whether it was stopped.
    pub(crate) fn begin(&self) -> bool {
        let mut present = self.present.lock();
        let is_stopped = matches!(*present, Present::Stopped);
        if is_stopped {
            *present = Present::Starting(None);
            // Now: a caller that waits for its output waits from now on.
            self.uart.begin();
        }
        is_stopped
    }

    /// Ends its run, if it runs.
    pub(crate) fn end(&self, end: End) {
        let run = match &mut *self.present.lock() {
            Present::Stopped => return,
            Present::Starting(asked) => {
                *asked = Some(end);
                return;
            }
            Present::Running(run, _) => Arc::clone(run),
        };
        run.end(end);
    }

    /// A run begins.
    pub(super) fn has_begun(&self, run: &Arc<Run>, memory: &Arc<GuestMemory>) {
        let running = Present::Running(Arc::clone(run), Arc::clone(memory));
        let before = core::mem::replace(&mut *self.present.lock(), running);
        if let Present::Starting(Some(end)) = before {
            run.end(end);
        }
    }

    /// A run is over; another may follow.
    pub(super) fn has_ended(&self) {
        let before = core::mem::replace(&mut *self.present.lock(), Present::Starting(None));
        drop(before);
    }

    /// It is stopped.
    pub(crate) fn over(&self) {
        *self.present.lock() = Present::Stopped;
    }

    /// Whether it runs, or is about to, or some of its memory is still to be freed.
    pub(crate) fn is_running(&self) -> bool {
        !matches!(*self.present.lock(), Present::Stopped)
    }

    /// Its state, in a word.
    pub(crate) fn state(&self) -> &'static str {
        match *self.present.lock() {
            Present::Stopped => "stopped",
            Present::Starting(_) => "starting",
            Present::Running(..) => "running",
        }
    }

    /// How many frames it was given.
    pub(crate) fn frames(&self) -> u64 {
        match &*self.present.lock() {
            Present::Running(_, memory) => memory.frames(),
            _ => 0,
        }
    }
}
