//! The other thread as a vCPU's thread: in its guest and outside of all sections, except for an exit now and then.
//!
//! The guest writes the round's number to each page of its memory, round after round, and exits once a round. So the measuring
//! thread can see that the guest runs, and can tell its thread to end. No thread waits for the guest for longer than
//! [`PATIENCE`], because `KVM_RUN` may fail or not return.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mayfly_kvm::{Error, GuestMemory, HugePages, Kvm, MemoryFlags, Payload, Vcpu, Vm};
use mayfly_srcu::Reader;

use crate::liburcu::Registered;
use crate::processors::Processors;

/// What the guest writes to: a round takes it a fraction of a millisecond, and its exit microseconds of that.
const MEMORY: usize = 64 << 20;

/// So far apart in that memory are the words by which it is seen to run: a few microseconds of a guest's.
const APART: usize = 1 << 20;

/// It is looked for so long at a time.
const GLANCE: Duration = Duration::from_micros(100);

/// Where the guest comes out.
const PORT: u16 = 0x10;

/// After so long without a round the vCPU is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// A vCPU that runs until this is ended.
#[derive(Debug)]
pub struct Guest {
    shared: Arc<Shared>,
    memory: GuestMemory,
    patience: Duration,
    thread: JoinHandle<Result<(), Error>>,
}

#[derive(Debug, Default)]
struct Shared {
    ends: AtomicBool,
    /// Nobody waits for it any more.
    is_lost: AtomicBool,
}

impl Guest {
    /// A vCPU whose thread is registered with Mayfly as `reader` and with liburcu, on the other processor.
    ///
    /// # Errors
    ///
    /// Where `/dev/kvm` is not there, may not be used or runs no such guest.
    pub fn start(processors: Processors, reader: Reader) -> Result<Self, Error> {
        let vm = Vm::create(&Kvm::open()?)?;
        let memory = GuestMemory::map(MEMORY)?;
        // The host may have none, and then does without.
        let _ = memory.advise(HugePages::Wanted);
        Payload::install(&memory)?;
        vm.create_irqchip()?;
        vm.set_memory_region(0, 0, &memory, MemoryFlags::default())?;
        let mut vcpu = vm.create_vcpu(0)?;
        let touch = Payload::FREE..MEMORY as u64;
        vcpu.load(&Payload { touch, doorbell: None, port: PORT })?;
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            processors.keep_there();
            let _liburcu = Registered::new();
            let ran = theirs.run(&mut vcpu);
            drop(reader);
            vm.destroy(vec![vcpu]);
            ran
        });
        Ok(Self { shared, memory, patience: PATIENCE, thread })
    }

    /// Returns when the vCPU is seen to be in its guest; at once where it has ended, or was given up.
    pub fn see_it_run(&self) {
        self.wait_until(Self::runs_now);
    }

    /// Whether the guest writes while this looks. (A look that was interrupted tells of what was.)
    fn runs_now(&self) -> bool {
        let (started, written) = (Instant::now(), self.written());
        while started.elapsed() < GLANCE {
            if self.written() != written {
                return started.elapsed() < GLANCE;
            }
            spin_loop();
        }
        false
    }

    /// Grows by one whenever the guest has written to another part of its memory.
    fn written(&self) -> u64 {
        let words = (APART..MEMORY).step_by(APART);
        words.map(|word| self.memory.read_u64(word).expect("the word is in the memory")).sum()
    }

    /// Ends the vCPU and its thread. Returns whether it ran until now.
    ///
    /// # Errors
    ///
    /// In words, why it did not.
    pub fn end(self) -> Result<(), String> {
        self.shared.ends.store(true, Ordering::Relaxed);
        self.wait_until(|_| false);
        if self.shared.is_lost.load(Ordering::Relaxed) {
            // Its thread is left to the end of the process: joining it might never return.
            return Err("the vCPU does not come out of its guest".into());
        }
        let ran = self.thread.join().map_err(|_| "the vCPU's thread has panicked")?;
        ran.map_err(|error| error.to_string())
    }

    /// Waits until `is_so`, or the vCPU has ended, or is given up.
    fn wait_until(&self, is_so: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while !self.thread.is_finished()
            && !self.shared.is_lost.load(Ordering::Relaxed)
            && !is_so(self)
        {
            if started.elapsed() > self.patience {
                self.shared.is_lost.store(true, Ordering::Relaxed);
            }
            thread::yield_now();
        }
    }
}

impl Shared {
    fn run(&self, vcpu: &mut Vcpu) -> Result<(), Error> {
        while !self.ends.load(Ordering::Relaxed) {
            // It comes out at its port, and nowhere else.
            vcpu.run_to_exit()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(thread: JoinHandle<Result<(), Error>>) -> Guest {
        let memory = GuestMemory::map(MEMORY).expect("memory that nobody touches is to be had");
        Guest { shared: Arc::default(), memory, patience: Duration::from_millis(20), thread }
    }

    #[test]
    fn a_vcpu_that_fails_keeps_nobody_and_says_why() {
        let guest = guest(thread::spawn(|| Err(Error::Exit("shutdown".into()))));
        guest.see_it_run();
        assert!(guest.end().is_err_and(|error| error.contains("shutdown")));
    }

    #[test]
    fn a_vcpu_that_stays_in_its_guest_is_given_up() {
        let guest = guest(thread::spawn(|| {
            loop {
                thread::park();
            }
        }));
        guest.see_it_run();
        assert!(guest.end().is_err_and(|error| error.contains("does not come out")));
    }
}
