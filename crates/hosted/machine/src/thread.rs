//! A thread that runs vCPUs.

use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use mayfly_stage2::{Ept, Format};
use mayfly_vm::Exit;
use rustix::thread::Pid;

use crate::joined::Joined;
use crate::{Cpu, MachineVcpu};

/// A vCPU that has come out, with its processor and why.
#[derive(Debug)]
pub struct Stopped<F: Format = Ept> {
    /// The vCPU.
    pub vcpu: MachineVcpu<F>,
    /// Its processor.
    pub cpu: Cpu<F>,
    /// Why it came out.
    pub exit: Exit,
}

/// A thread that runs one vCPU after another, so that starting a vCPU costs a message and not a thread.
#[derive(Debug)]
pub struct CpuThread<F: Format = Ept> {
    /// Dropped first, which ends the thread.
    jobs: Sender<Job<F>>,
    thread: Joined,
}

struct Job<F: Format> {
    vcpu: MachineVcpu<F>,
    cpu: Cpu<F>,
    done: Sender<Stopped<F>>,
}

impl<F: Format> CpuThread<F> {
    /// Starts a thread named `vcpu`.
    ///
    /// # Errors
    ///
    /// Where the host has no thread to give.
    pub fn spawn() -> io::Result<Self> {
        let (jobs, received) = channel::<Job<F>>();
        let thread = Joined::spawn("vcpu", move || {
            for Job { mut vcpu, mut cpu, done } in received {
                let exit = vcpu.run(&mut cpu);
                // Nobody may be interested any more; the vCPU is dropped then.
                let _ = done.send(Stopped { vcpu, cpu, exit });
            }
        })?;
        Ok(Self { jobs, thread })
    }

    /// What the kernel calls the thread: gettid(2).
    pub fn thread(&self) -> Pid {
        self.thread.thread()
    }

    /// Runs `vcpu` until it comes out; after what the thread is running already.
    pub fn run(&self, vcpu: MachineVcpu<F>, cpu: Cpu<F>) -> Running<F> {
        let (done, stopped) = channel();
        // The thread receives until `self` is dropped.
        let _ = self.jobs.send(Job { vcpu, cpu, done });
        Running { stopped, came_out: None }
    }
}

const PANICKED: &str = "the vCPU's thread has panicked";

/// A vCPU on its way on a [`CpuThread`].
#[derive(Debug)]
pub struct Running<F: Format = Ept> {
    stopped: Receiver<Stopped<F>>,
    came_out: Option<Stopped<F>>,
}

impl<F: Format> Running<F> {
    /// Whether the vCPU has come out. Waits for nothing.
    ///
    /// # Panics
    ///
    /// If its thread has panicked: a caller that looks again and again would do so for ever.
    pub fn has_come_out(&mut self) -> bool {
        if self.came_out.is_none() {
            self.came_out = match self.stopped.try_recv() {
                Ok(stopped) => Some(stopped),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => panic!("{PANICKED}"),
            };
        }
        self.came_out.is_some()
    }

    /// Waits until the vCPU has come out.
    ///
    /// # Panics
    ///
    /// If its thread has panicked.
    pub fn wait(self) -> Stopped<F> {
        let Self { stopped, came_out } = self;
        came_out.unwrap_or_else(|| stopped.recv().expect(PANICKED))
    }
}
