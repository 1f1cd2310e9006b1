//! Ending VMs in the background.

use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use crate::{Vcpu, Vm};

/// A thread that closes VMs and frees their memory, while the caller that gave them to it goes on.
///
/// When it is dropped, the thread still ends what it has, and then itself; no caller waits for it. What a process
/// leaves, the kernel ends as the process ends.
pub struct Reclaimer {
    queue: Option<SyncSender<Remains>>,
}

/// A VM that is to end, and the caller that waits for that: dropping `done` tells.
struct Remains {
    vm: Vm,
    vcpus: Vec<Vcpu>,
    done: SyncSender<()>,
}

impl Remains {
    fn end(self) {
        let Self { vm, vcpus, done } = self;
        drop(vm.destroy(vcpus));
        drop(done);
    }
}

/// The end of a VM, under way or over.
#[derive(Debug)]
pub struct Ending {
    over: Receiver<()>,
    in_background: bool,
}

impl Reclaimer {
    /// A thread that has `most` VMs before it at the most, beside the one that it is at, so that the memory of dead VMs is
    /// bounded; 0 is allowed. Where there are more, or no thread can be had, the caller ends its VM itself.
    pub fn new(most: usize) -> Self {
        let (queue, remains) = sync_channel::<Remains>(most);
        let worker = thread::Builder::new().name("kvm-reclaimer".into());
        let spawned = worker.spawn(move || remains.into_iter().for_each(Remains::end));
        Self { queue: spawned.is_ok().then_some(queue) }
    }

    /// Has `vm` end with its `vcpus`. A vCPU that is not among them keeps the VM until it is dropped.
    pub fn end(&self, vm: Vm, vcpus: Vec<Vcpu>) -> Ending {
        let (done, over) = sync_channel(0);
        let remains = Remains { vm, vcpus, done };
        let refused = match &self.queue {
            None => Some(remains),
            Some(queue) => queue.try_send(remains).err().map(|refused| match refused {
                TrySendError::Full(remains) | TrySendError::Disconnected(remains) => remains,
            }),
        };
        let in_background = refused.is_none();
        if let Some(remains) = refused {
            remains.end();
        }
        Ending { over, in_background }
    }
}

impl fmt::Debug for Reclaimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reclaimer").finish_non_exhaustive()
    }
}

impl Ending {
    /// Waits until the VM is closed and its memory is freed. A caller that does not want to wait drops this.
    pub fn wait(self) {
        // Nothing is ever sent: the other end goes when the VM is gone.
        let _ = self.over.recv();
    }

    /// Whether that is so already.
    pub fn is_over(&self) -> bool {
        matches!(self.over.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected))
    }

    /// Whether it was left to the thread. If not, it is over: there was too much before it.
    pub fn is_in_background(&self) -> bool {
        self.in_background
    }
}
