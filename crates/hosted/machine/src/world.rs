//! What the machine's VMs are made of.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, RwLock};

use mayfly_memslot::{Hva, PAGE_SIZE};
use mayfly_platform::address::Pfn;
use mayfly_platform::frames::Frames;
use mayfly_platform::sync::AtomicU64;
use mayfly_stage2::{Announcement, Format, Owed, Permissions};
use mayfly_vm::{HostFault, HostMemory, Protection, Resolved, Vm, World};

use crate::address_space::{self, Change, Fault, Notifier, PageChange};
use crate::{AnyDevice, HostSpace};

/// The kinds of the machine's VMs, whose CPUs translate in format `F`.
#[derive(Clone, Copy, Debug)]
pub struct MachineWorld<F>(PhantomData<F>);

impl<F: Format> World for MachineWorld<F> {
    type Device = AnyDevice;
    type Backing = Hva;
    type Format = F;
    type Memory = HostSpace;
}

// SAFETY: frames of the arena, of which the space keeps those that it has mapped, and tells of it before it gives them
// back; they are reached through atomics alone.
unsafe impl HostMemory<Hva> for HostSpace {
    fn resolve(&self, backing: Hva, wanted: Permissions) -> Result<Resolved, HostFault> {
        match HostSpace::resolve(self, backing, wanted.contains(Permissions::WRITE)) {
            Ok(address_space::Resolved { pfn, level, writable }) => {
                Ok(Resolved::memory(pfn, level, writable))
            }
            Err(Fault::NotMapped) => Err(HostFault::NotMapped),
            Err(Fault::ReadOnly) => Err(HostFault::ReadOnly),
            Err(Fault::OutOfMemory(_)) => Err(HostFault::OutOfMemory),
        }
    }

    fn linear_map(&self) -> *const AtomicU64 {
        self.arena().linear_map()
    }
}

/// Tells a VM what happens to the address space that its memory is in.
/// [`Machine::create_vm`](crate::Machine::create_vm) registers one.
#[derive(Debug)]
pub struct Telling<F: Format> {
    /// The VM.
    pub vm: Vm<MachineWorld<F>>,
    /// Whether the device that pages are swapped out to reads through the caches.
    pub coherent_swap: bool,
    brackets: Brackets,
}

/// Changes that a VM has been told of the start of, and not of the end.
///
/// A thread that holds the lock for reading waits for TLBs at most.
#[derive(Debug, Default)]
pub struct Brackets {
    open: RwLock<Vec<(Change, Announcement)>>,
}

impl Brackets {
    /// `change` has begun, and is announced.
    ///
    /// # Panics
    ///
    /// If another thread has panicked in here.
    pub fn open(&self, change: &Change, announcement: Announcement) {
        self.open.write().unwrap().push((change.clone(), announcement));
    }

    /// Shows `then` what announces a change of which `range` is part, and which does not end before it returns.
    ///
    /// # Panics
    ///
    /// If there is none; or as [`Brackets::open`].
    pub fn within<T>(&self, range: &Range<Hva>, then: impl FnOnce(&Announcement) -> T) -> T {
        let open = self.open.read().unwrap();
        let is_part =
            |change: &Change| change.range.start <= range.start && range.end <= change.range.end;
        let found = open.iter().find(|(begun, _)| is_part(begun));
        then(&found.expect("what changes is part of a change that has begun").1)
    }

    /// What announces `change`, which is at its end.
    ///
    /// # Panics
    ///
    /// If it has not begun; or as [`Brackets::open`].
    pub fn close(&self, change: &Change) -> Announcement {
        let mut open = self.open.write().unwrap();
        let index = open.iter().position(|(begun, _)| begun == change);
        open.swap_remove(index.expect("a change ends that has begun")).1
    }
}

impl<F: Format> Telling<F> {
    /// For `vm`, whose memory may be swapped out to a device that reads through the caches, or past them.
    pub fn new(vm: Vm<MachineWorld<F>>, coherent_swap: bool) -> Self {
        Self { vm, coherent_swap, brackets: Brackets::default() }
    }

    /// The reason as the core knows it.
    fn reason(&self, reason: address_space::Reason) -> mayfly_vm::Reason {
        use address_space::Reason as Host;
        use mayfly_vm::Reason;
        match reason {
            Host::Unmap => Reason::Unmap,
            Host::Exit => Reason::Exit,
            Host::Migrate => Reason::Migrate,
            // No device gets it.
            Host::Discard => Reason::Reclaim { coherent: true },
            Host::Reclaim => Reason::Reclaim { coherent: self.coherent_swap },
            Host::Protect => Reason::Protect,
            Host::Merge => Reason::Merge,
            Host::CopyOnWrite => Reason::CopyOnWrite,
        }
    }
}

impl<F: Format> Notifier for Telling<F> {
    fn invalidate_start(&self, change: &Change) {
        let bytes = change.range.end.get() - change.range.start.get();
        let reason = self.reason(change.reason);
        let told = mayfly_vm::Change { reason, old: change.old, new: change.new };
        let invalidation = self.vm.invalidate_start(change.range.start, bytes, told);
        self.brackets.open(change, invalidation.leave());
    }

    fn discard_start(&self, change: &Change, next: &dyn Fn(u64) -> Range<u64>) {
        let bytes = change.range.end.get() - change.range.start.get();
        let invalidation = self.vm.invalidate_picked(change.range.start, bytes, next);
        self.brackets.open(change, invalidation.leave());
    }

    fn change_pte(&self, page: Hva, change: &PageChange) {
        self.change_ptes(page, &[Some(*change)]);
    }

    fn change_ptes(&self, first: Hva, changes: &[Option<PageChange>]) {
        let changes: Vec<_> = changes.iter().map(|change| change.map(closed)).collect();
        self.brackets.within(&pages(first, changes.len()), |announcement| {
            // SAFETY: the space, which knows the frames, says what it has done: see `Notifier`.
            unsafe { self.vm.change_ptes(announcement, first, &changes) };
        });
    }

    fn change_ptes_owing(&self, first: Hva, changes: &[Option<PageChange>]) -> Option<Owed> {
        let changes: Vec<_> = changes.iter().map(|change| change.map(closed)).collect();
        Some(self.brackets.within(&pages(first, changes.len()), |announcement| {
            // SAFETY: as above. The space keeps the old frames as long as this is not paid.
            unsafe { self.vm.change_ptes_owing(announcement, first, &changes) }
        }))
    }

    fn allow_writes(&self, page: Hva, frame: Pfn) {
        let protection = Protection::ReadWrite;
        let change = PageChange { old: frame, new: frame, protection, same_contents: true };
        self.brackets.within(&pages(page, 1), |announcement| {
            // SAFETY: as above.
            unsafe { self.vm.change_pte(announcement, page, &change) };
        });
    }

    fn invalidate_end(&self, change: &Change) {
        let ended = self.vm.invalidate_end(self.brackets.close(change));
        ended.expect("this VM has announced it");
    }
}

/// `count` pages from `first` on.
fn pages(first: Hva, count: usize) -> Range<Hva> {
    first..Hva::new(first.get() + count as u64 * PAGE_SIZE)
}

/// `change`, without the right to write, which comes when every VM has heard of the change.
fn closed(change: PageChange) -> PageChange {
    PageChange { protection: change.protection.min(Protection::ReadOnly), ..change }
}

/// A registered [`Telling`]; dropped, the VM is told no more.
#[derive(Debug)]
pub(crate) struct Told {
    space: Arc<HostSpace>,
    id: address_space::NotifierId,
}

impl Told {
    pub(crate) fn new<F: Format>(space: &Arc<HostSpace>, telling: Telling<F>) -> Self {
        Self { space: Arc::clone(space), id: space.register(Arc::new(telling)) }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.space.unregister(self.id);
    }
}
