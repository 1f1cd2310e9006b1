//! What is left of a VM that was frozen, from which others begin.
//!
//! A run is frozen as it is ended: all vCPUs leave their guest for good. Each leaves its registers before its thread
//! ends. When all threads of the run have ended, its memory is written no more, what was written past the caches is
//! flushed, and the tables of stage 2 are freed. So an entry of a fork names a frame that nothing writes.

use alloc::sync::Arc;
use alloc::vec::Vec;

use mayfly_vm::GuestCaches;

use super::arch::{NotKept, save};
use super::machine::Machine;
use super::run::Run;
use crate::bare::devices::arch::SerialPort;
use crate::bare::world::memory::GuestMemory;

/// What a VM was when it was frozen.
pub(crate) struct Template {
    /// Its memory, which no caller writes any more.
    pub(crate) memory: Arc<GuestMemory>,
    /// What its disk held, if it had one.
    pub(crate) disk: Option<Arc<GuestMemory>>,
    /// All else, as bytes.
    pub(super) state: Vec<u8>,
    /// The caches of its vCPUs, by number.
    pub(super) caches: Vec<GuestCaches>,
}

impl Template {
    /// What a run of `machine` leaves whose threads have ended, with the memory of its guest and its console.
    pub(super) fn try_of(
        machine: &Machine,
        run: &Run,
        memory: Arc<GuestMemory>,
        console: &SerialPort,
    ) -> Result<Self, NotKept> {
        let stopped = core::mem::take(&mut *run.stopped.lock());
        let mut vcpus = Vec::new();
        for vcpu in stopped {
            vcpus.push(vcpu.ok_or(NotKept::NotStopped)?);
        }
        let state = save(&machine.plan, run, &vcpus, console)?;
        let caches = vcpus.iter().map(|vcpu| vcpu.caches).collect();
        Ok(Self { memory, disk: machine.disk_memory(), state, caches })
    }
}
