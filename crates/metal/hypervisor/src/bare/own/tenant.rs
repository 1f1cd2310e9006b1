//! A VM that has a partition of the machine's disk, from its start to its end, and the requests that it has under way.
//!
//! A partition is written by one VM, or read by several. It is free when its VM has [left](Tenant::leave), whoever still has
//! the tenant. But it is the VM's as long as a request of it is under way, even if the VM has ended: what is still to be
//! written is written before another VM gets the partition.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use mayfly_drivers::{Broken, DiskInfo, Operation, SECTOR, SLOTS, Slot};

use super::disk::{self, OwnDisk};
use crate::bare::processor::spin::SpinLock;
use crate::bare::threads::{self, Account, Bell};

/// A part of what a run of a VM has asked for.
pub(crate) struct Piece {
    /// Whose it is, until it has ended.
    pub(super) tenant: Option<Arc<Tenant>>,
    /// The run of the VM.
    pub(crate) run: u32,
    /// Which of its requests it is a part of, and from which byte of that on.
    pub(crate) flight: usize,
    pub(crate) offset: u64,
}

/// Room for a request to the disk.
pub(crate) type PieceSlot = Slot<Option<Piece>>;

/// What became of the requests of a VM, since it has the partition.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) read: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) discarded: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) errors: AtomicU64,
}

/// A VM that has a partition.
pub(crate) struct Tenant {
    pub(super) disk: &'static OwnDisk,
    /// Its number, which no other has had.
    pub(super) number: u64,
    pub(super) sectors: Range<u64>,
    is_read_only: bool,
    /// What pays for it.
    pub(super) account: Arc<Account>,
    /// What is rung when one of its requests has ended, or when there is room for one.
    bell: SpinLock<Option<Arc<Bell>>>,
    /// How often a run has begun.
    runs: AtomicU32,
    ended: SpinLock<Vec<PieceSlot>>,
    /// Requests that were started and not given back.
    under_way: AtomicU32,
    pub(crate) done: Done,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [read, written, discarded, flushes, errors] =
            [&self.read, &self.written, &self.discarded, &self.flushes, &self.errors]
                .map(|count| count.load(Ordering::Relaxed));
        let [read, written, discarded] = [read, written, discarded].map(|bytes| bytes >> 10);
        write!(
            f,
            "{read} KiB read, {written} KiB written, {discarded} KiB discarded, {flushes} flushes, {errors} errors"
        )
    }
}

impl Tenant {
    pub(super) fn new(
        disk: &'static OwnDisk,
        number: u64,
        sectors: Range<u64>,
        is_read_only: bool,
        account: &Arc<Account>,
    ) -> Self {
        Self {
            disk,
            number,
            sectors,
            is_read_only,
            account: Arc::clone(account),
            bell: SpinLock::new(None),
            runs: AtomicU32::new(0),
            ended: SpinLock::new(Vec::with_capacity(SLOTS)),
            under_way: AtomicU32::new(0),
            done: Done::default(),
        }
    }

    /// How many sectors it has.
    pub(crate) fn sectors(&self) -> u64 {
        self.sectors.end - self.sectors.start
    }

    /// It does not write.
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// What the disk is.
    pub(crate) fn disk(&self) -> DiskInfo {
        self.disk.info()
    }

    /// A run of the VM begins, whose devices have that bell. Its number.
    pub(crate) fn begin(&self, bell: &Arc<Bell>) -> u32 {
        *self.bell.lock() = Some(Arc::clone(bell));
        self.runs.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The run is over.
    pub(crate) fn end(&self) {
        let bell = self.bell.lock().take();
        drop(bell);
    }

    /// The bell of the present run.
    pub(super) fn bell(&self) -> Option<Arc<Bell>> {
        self.bell.lock().clone()
    }

    /// Room for a piece. Where there is none, its bell rings when there is.
    pub(crate) fn room(
        self: &Arc<Self>,
        run: u32,
        flight: usize,
        offset: u64,
    ) -> Result<Option<PieceSlot>, Broken> {
        let piece = Piece { tenant: Some(Arc::clone(self)), run, flight, offset };
        self.disk.room(self, piece)
    }

    /// Starts a piece, by bytes of the partition.
    ///
    /// # Errors
    ///
    /// The slot, whose request has failed.
    pub(crate) fn start(&self, slot: PieceSlot, operation: Operation) -> Result<(), PieceSlot> {
        let absolute = |start: u64, len: u64| {
            let sector = self.sectors.start.checked_add(start / SECTOR as u64)?;
            let end = sector.checked_add(len.div_ceil(SECTOR as u64))?;
            (end <= self.sectors.end).then_some(sector)
        };
        let written = |start, len| absolute(start, len).filter(|_| !self.is_read_only);
        let operation = match operation {
            Operation::Read(start, len) => {
                absolute(start, len as u64).map(|sector| Operation::Read(sector, len))
            }
            Operation::Write(start, len) => {
                written(start, len as u64).map(|sector| Operation::Write(sector, len))
            }
            Operation::Flush => Some(Operation::Flush),
            Operation::Discard(start, len) => {
                written(start, len).map(|sector| Operation::Discard(sector, len))
            }
            Operation::Zero(start, len, unmaps) => {
                written(start, len).map(|sector| Operation::Zero(sector, len, unmaps))
            }
        };
        let Some(operation) = operation else { return Err(slot) };
        self.under_way.fetch_add(1, Ordering::Relaxed);
        let started = self.disk.start(slot, operation);
        if started.is_err() {
            self.under_way.fetch_sub(1, Ordering::Relaxed);
        }
        started
    }

    /// A piece of it has ended.
    pub(super) fn note(&self, slot: PieceSlot) {
        self.ended.lock().push(slot);
        if let Some(bell) = self.bell() {
            bell.ring();
        }
    }

    /// The next piece of it that has ended.
    pub(crate) fn next_ended(&self) -> Option<PieceSlot> {
        let slot = self.ended.lock().pop()?;
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        Some(slot)
    }

    /// Gives the room back of what has ended, which nobody waits for. Returns whether a piece of it is still under way.
    pub(crate) fn is_busy(&self) -> bool {
        while let Some(slot) = self.next_ended() {
            self.give_back(slot);
            threads::preemption_point();
        }
        self.under_way.load(Ordering::Relaxed) != 0
    }

    /// Its VM has ended, and asks for nothing more: the partition is free, now or as soon as nothing is under way.
    pub(crate) fn leave(&self) {
        if !self.is_busy() {
            disk::release(self);
        }
    }

    /// Gives room back.
    pub(crate) fn give_back(&self, slot: PieceSlot) {
        self.disk.give_back(slot);
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        while let Some(slot) = self.next_ended() {
            self.give_back(slot);
        }
        disk::release(self);
    }
}
