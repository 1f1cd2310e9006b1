//! A thread that runs vCPUs.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use mayfly_vm::Exit;

use crate::{Cpu, MachineVcpu};

/// A vCPU that has come out, with its processor and why.
#[derive(Debug)]
pub struct Stopped {
    /// The vCPU.
    pub vcpu: MachineVcpu,
    /// Its processor.
    pub cpu: Cpu,
    /// Why it came out.
    pub exit: Exit,
}

/// A thread that runs one vCPU after another, so that starting a vCPU costs a message and not a thread.
#[derive(Debug)]
pub struct CpuThread {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

struct Job {
    vcpu: MachineVcpu,
    cpu: Cpu,
    done: Sender<Stopped>,
}

impl CpuThread {
    /// Starts a thread named `vcpu`.
    ///
    /// # Errors
    ///
    /// Where the host has no thread to give.
    pub fn spawn() -> io::Result<Self> {
        let (jobs, received) = channel::<Job>();
        let thread = Builder::new().name("vcpu".into()).spawn(move || {
            for Job { mut vcpu, mut cpu, done } in received {
                let exit = vcpu.run(&mut cpu);
                // Nobody may be interested any more; the vCPU is dropped then.
                let _ = done.send(Stopped { vcpu, cpu, exit });
            }
        })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Runs `vcpu` until it comes out; after what the thread is running already.
    pub fn run(&self, vcpu: MachineVcpu, cpu: Cpu) -> Running {
        let (done, stopped) = channel();
        if let Some(jobs) = &self.jobs {
            // The thread receives until `self` is dropped.
            let _ = jobs.send(Job { vcpu, cpu, done });
        }
        Running { stopped }
    }
}

impl Drop for CpuThread {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the guest's has been reported by its own message.
            let _ = thread.join();
        }
    }
}

/// A vCPU on its way on a [`CpuThread`].
#[derive(Debug)]
pub struct Running {
    stopped: Receiver<Stopped>,
}

impl Running {
    /// Waits until the vCPU has come out.
    ///
    /// # Panics
    ///
    /// If its thread has panicked.
    pub fn wait(self) -> Stopped {
        self.stopped.recv().expect("the vCPU's thread has panicked")
    }
}
