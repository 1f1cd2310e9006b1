//! A VM, from its creation to its end: the handle, what its vCPUs share, devices, and memory slots.

use alloc::sync::Arc;
use core::ptr::NonNull;

use mayfly_iobus::{IoBus, IoRange, Ioeventfd, Refused, Relocation};
use mayfly_memslot::{MemSlots, Region, Slot};
use mayfly_platform::lock::Lock;
use mayfly_platform::memory::Shared;
use mayfly_platform::sync::{AtomicBool, Ordering};
use mayfly_platform::{Platform, write_fields};
use mayfly_srcu::Srcu;
use mayfly_stage2::{self as stage2, Format, Root, Slice, Stage2};

use crate::caches::Upkeep;
use crate::kicker::Kicker;
use crate::requests::Left;
use crate::vcpus::Vcpus;
use crate::{Cache, Caches, Error, HostMemory, Slots, World};

/// One of a VM's I/O buses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bus {
    /// Guest physical addresses that no memslot answers.
    Mmio,
    /// x86's I/O ports.
    Pio,
}

/// How a VM is built.
pub struct Config<W: World> {
    /// The domain that the VM's vCPUs read under.
    pub srcu: mayfly_srcu::Config,
    /// Its world: frames, TLBs, waiting; VMIDs; the reclaimer of its tables.
    pub stage2: stage2::Config<W::Format>,
    /// The host's memory.
    pub memory: Arc<W::Memory>,
    /// The host's caches.
    pub cache: Arc<dyn Cache>,
    /// How they are maintained for guests that go past them.
    pub caches: Caches,
    /// What deleting or moving a slot does to the tables.
    pub slot_zap: SlotZap,
    /// How long a piece of work on tables may be.
    pub slice: Slice,
}

impl<W: World> Clone for Config<W> {
    fn clone(&self) -> Self {
        Self {
            srcu: self.srcu.clone(),
            stage2: self.stage2.clone(),
            memory: Arc::clone(&self.memory),
            cache: Arc::clone(&self.cache),
            caches: self.caches,
            slot_zap: self.slot_zap,
            slice: self.slice,
        }
    }
}

/// What is zapped when a slot is deleted or moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SlotZap {
    /// What the slot had mapped.
    #[default]
    Range,
    /// Everything: every root is replaced by an empty one, as KVM does on x86 unless told otherwise
    /// (`KVM_X86_QUIRK_SLOT_ZAP_ALL`).
    AllRoots,
}

/// A virtual machine: a handle. Clones are the same VM.
///
/// Several threads may call it. Calls that change the same thing take turns.
pub struct Vm<W: World> {
    pub(crate) inner: Shared<Inner<W>>,
}

pub(crate) struct Inner<W: World> {
    pub(crate) platform: Arc<dyn Platform>,
    pub(crate) slots: MemSlots<W::Backing>,
    pub(crate) mmio: IoBus<W::Device>,
    pub(crate) pio: IoBus<W::Device>,
    pub(crate) stage2: Stage2<W::Format>,
    pub(crate) memory: Arc<W::Memory>,
    pub(crate) cache: Arc<dyn Cache>,
    pub(crate) upkeep: Upkeep,
    pub(crate) slot_zap: SlotZap,
    pub(crate) slice: Slice,
    /// Held while memslots, and what is mapped through them, are changed.
    pub(crate) memory_writer: Lock<()>,
    /// A slot that is published no more, and that something may still be mapped through.
    pub(crate) leaving: Lock<Option<Slot<W::Backing>>>,
    pub(crate) vcpus: Lock<Vcpus>,
    destroyed: AtomicBool,
    pub(crate) srcu: Srcu,
}

impl<W: World> Vm<W> {
    /// A VM without memory, devices or vCPUs.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] and [`Error::Srcu`]; [`Error::InstructionCaches`]; [`Error::OtherMachine`], if the memory
    /// is of another machine than the [`Mmu`](mayfly_platform::Mmu).
    ///
    /// # Panics
    ///
    /// As [`Stage2::try_new`].
    pub fn create(config: Config<W>) -> Result<Self, Error> {
        if !core::ptr::eq(config.memory.linear_map(), config.stage2.mmu.linear_map()) {
            return Err(Error::OtherMachine);
        }
        let platform: Arc<dyn Platform> = config.stage2.mmu.clone();
        let srcu = Srcu::try_new(Arc::clone(&platform), config.srcu)?;
        let slots = MemSlots::try_new(Arc::clone(&platform), &srcu)?;
        let mmio = IoBus::try_new(&srcu, Arc::clone(&platform))?;
        let pio = IoBus::try_new(&srcu, Arc::clone(&platform))?;
        let stage2 = Stage2::try_new(config.stage2, &srcu)?;
        let (caches, coherent) = (config.caches, W::Format::COHERENT);
        let upkeep = Upkeep::try_new(caches, coherent, &*config.cache, &platform)?;
        let write = |place: NonNull<Inner<W>>| {
            // SAFETY: the place is one to put a VM, as `try_new_with` says.
            unsafe {
                write_fields!(place => Inner {
                    slots: slots.below(Root::<W::Format>::LIMIT),
                    mmio,
                    pio,
                    stage2,
                    upkeep,
                    platform,
                    memory: config.memory,
                    cache: config.cache,
                    slot_zap: config.slot_zap,
                    slice: config.slice,
                    memory_writer: Lock::new(()),
                    leaving: Lock::new(None),
                    vcpus: Lock::new(Vcpus::new()),
                    destroyed: AtomicBool::new(false),
                    srcu,
                });
            }
        };
        // SAFETY: all fields are written.
        let inner = unsafe { Shared::try_new_with(write) }?;
        Ok(Self { inner })
    }

    /// Creates, deletes, moves or changes a memslot, as `KVM_SET_USER_MEMORY_REGION` does.
    ///
    /// Creating waits for invalidations alone. Deleting, moving and changing flags return when no vCPU uses the slot as
    /// it was, and no CPU uses what was mapped through it: the memory behind a deleted slot may then be unmapped.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] says what is wrong with the region; no slot is changed then.
    ///
    /// # Panics
    ///
    /// In debug builds, inside an [invalidation](Vm::invalidate_start) of the caller's own, for whose end it would
    /// wait: as [`Stage2::change_slots`].
    pub fn set_memory_region(&self, region: &Region<W::Backing>) -> Result<(), Error> {
        self.inner.change_memory(|slots| slots.prepare(region)).map(drop)
    }

    /// As [`Vm::set_memory_region`], for the slots above the user's that a hypervisor keeps for itself (the APIC access
    /// page of VMX and AVIC, for one).
    ///
    /// # Errors
    ///
    /// As [`Vm::set_memory_region`].
    pub fn set_private_memory_region(&self, region: &Region<W::Backing>) -> Result<(), Error> {
        self.inner.change_memory(|slots| slots.prepare_private(region)).map(drop)
    }

    /// Puts `device` on `range` of a bus. Does not wait.
    ///
    /// A vCPU is certain to find the device at every access that it makes after this returned, where *after* is any
    /// happens-before: a message to its thread, a kick, or a flag in guest memory that the guest has read. An access
    /// that is being handled at this moment may miss it; [`IoBus::settle`] waits for those.
    ///
    /// # Errors
    ///
    /// [`Refused`] says what is wrong with the range and gives the device back; the bus is as it was.
    pub fn register_device(
        &self,
        bus: Bus,
        range: IoRange,
        device: W::Device,
    ) -> Result<(), Refused<W::Device>> {
        self.inner.bus(bus).register(range, device)
    }

    /// Takes the device off exactly `range` and gives it back, when no vCPU can be using it any more. Waits for the
    /// accesses that are being handled at this moment, and for no delay that another caller's grace period was given.
    ///
    /// # Errors
    ///
    /// [`Error::Bus`]; the bus is as it was.
    pub fn unregister_device(&self, bus: Bus, range: IoRange) -> Result<W::Device, Error> {
        Ok(self.inner.bus(bus).unregister(range)?)
    }

    /// Has the guest's writes that `on` describes signal `device`, as an ioeventfd does. Otherwise as
    /// [`Vm::register_device`].
    ///
    /// # Errors
    ///
    /// As [`Vm::register_device`].
    pub fn register_eventfd(
        &self,
        bus: Bus,
        on: Ioeventfd,
        device: W::Device,
    ) -> Result<(), Refused<W::Device>> {
        self.inner.bus(bus).register_eventfd(on, device)
    }

    /// Takes an ioeventfd off. Otherwise as [`Vm::unregister_device`].
    ///
    /// # Errors
    ///
    /// As [`Vm::unregister_device`].
    pub fn unregister_eventfd(&self, bus: Bus, on: Ioeventfd) -> Result<W::Device, Error> {
        Ok(self.inner.bus(bus).unregister_eventfd(on)?)
    }

    /// Moves devices and ioeventfds of a bus: one relocation after the other, and all become visible together. A guest
    /// that moves a BAR asks for this. The devices stay as they are, and are not called.
    ///
    /// Waits only for other callers that are just changing the bus, so a [`Device`](crate::Device) may call it while it
    /// handles an access. It then runs in the vCPU's section, under no lock except the bus's own and those of the
    /// device. The access that the device handles goes on where it is. That vCPU's next access, and any access that
    /// comes after this returned, finds the new places. An access that another vCPU is handling may have found the old
    /// ones.
    ///
    /// # Errors
    ///
    /// [`Error::Bus`]; the bus is as it was. [`AtBound`](mayfly_iobus::Error::AtBound), `EAGAIN`: too much waits for
    /// the end of sections that are open now. A device then leaves the move to a thread that handles no access, which
    /// calls this again after [`Srcu::synchronize`]; or to the guest's next attempt.
    pub fn relocate(&self, bus: Bus, relocations: &[Relocation]) -> Result<(), Error> {
        Ok(self.inner.bus(bus).try_relocate(relocations)?)
    }

    /// How many vCPUs the VM has.
    pub fn vcpu_count(&self) -> usize {
        self.inner.vcpus.lock(&*self.inner.platform).len()
    }

    /// Makes vCPU `id` come out of the guest and its [`Vcpu::run`](crate::Vcpu::run) return
    /// [`Exit::Kicked`](crate::Exit::Kicked); if it is not running, its next run. Returns whether there is such a vCPU.
    ///
    /// Takes a lock; [`Vcpu::kicker`](crate::Vcpu::kicker) gives what does not.
    pub fn kick(&self, id: u32) -> bool {
        let vcpus = self.inner.vcpus.lock(&*self.inner.platform);
        vcpus.get(id).map(|asked| asked.ask_exit()).is_some()
    }

    /// Ends the VM: every vCPU comes out of the guest, and none enters it again. Returns at once: the tables are left
    /// to the [reclaimer](stage2::Reclaimer), which frees them in the background when the vCPUs have come out.
    /// Everything else that the VM holds is freed with the last of its vCPUs and handles.
    ///
    /// In two cases this call does some of the reclaimer's work. If the tables that await reclaim, of all VMs together,
    /// have reached the reclaimer's bound, it does a part of the work first. If they are so few that the reclaimer is
    /// told to have them [freed at once](stage2::Reclaimer::freeing_at_once), and nothing has to be waited for, it does
    /// all of it.
    pub fn destroy(self) {
        self.inner.close();
    }

    /// Waits until the tables are freed, after [`Vm::destroy`]; helps to free them. They are freed when every vCPU that
    /// was in its guest has come out, and the accesses that were being handled are done. This does not wait for a vCPU
    /// that is not running. Must not be called from a [`Device`](crate::Device).
    pub fn wait_reclaimed(&self) {
        self.inner.stage2.wait_reclaimed();
    }

    /// The stage-2 tables.
    pub fn stage2(&self) -> &Stage2<W::Format> {
        &self.inner.stage2
    }

    pub(crate) fn inner(&self) -> &Inner<W> {
        &self.inner
    }

    /// The memslots, to be read.
    pub fn slots(&self) -> Slots<'_, W::Backing> {
        Slots(&self.inner.slots)
    }

    /// The memslots themselves, for embedders that choose how long a change may take.
    ///
    /// # Safety
    ///
    /// The caller does what [`Vm::set_memory_region`] does beside publishing. It publishes new slots inside
    /// [`Stage2::change_slots`] of the slot's frames: otherwise a host that is taking memory away just then misses a
    /// place where it comes to be mapped. It publishes a slot that goes, or moves, inside
    /// [`Stage2::change_slots_and_invalidate`], and has its frames [zapped](Stage2::zap) before that invalidation ends:
    /// otherwise the guest goes on with memory that is given to another user. Two callers do this one after the other.
    /// (Where no guest has run on the VM, and none of its host's memory changes, there is nothing to be missed.)
    ///
    /// ```compile_fail,E0133
    /// #![forbid(unsafe_code)]
    ///
    /// fn count<W: mayfly_vm::World>(vm: &mayfly_vm::Vm<W>) {
    ///     vm.raw_slots();
    /// }
    /// ```
    pub unsafe fn raw_slots(&self) -> &MemSlots<W::Backing> {
        &self.inner.slots
    }

    /// An I/O bus, for embedders that choose how long a change may take.
    pub fn bus(&self, bus: Bus) -> &IoBus<W::Device> {
        self.inner.bus(bus)
    }

    /// The domain that the VM's vCPUs read under.
    pub fn srcu(&self) -> &Srcu {
        &self.inner.srcu
    }
}

impl<W: World> Inner<W> {
    pub(crate) fn bus(&self, bus: Bus) -> &IoBus<W::Device> {
        match bus {
            Bus::Mmio => &self.mmio,
            Bus::Pio => &self.pio,
        }
    }

    /// Has every vCPU leave the guest for good, and the roots reclaimed when they have.
    pub(crate) fn close(&self) {
        self.destroyed.store(true, Ordering::Release);
        for asked in self.vcpus.lock(&*self.platform).all() {
            asked.ask_exit();
        }
        self.stage2.retire();
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Acquire)
    }

    /// A vCPU has come out of its guest.
    #[inline]
    pub(crate) fn came_out(&self, left: Left) {
        if left.tells {
            self.stage2.came_out();
        }
    }

    /// Has every vCPU load its root anew before it is in the guest again, and come out if it is there.
    pub(crate) fn reload_roots(&self) {
        for asked in self.vcpus.lock(&*self.platform).all() {
            asked.ask_reload();
        }
        // Each without the lock, which callers that kick, create, and drop vCPUs take too. A vCPU that is created by
        // now finds the present roots.
        let mut next = 0;
        while let Some((id, kicker)) = self.vcpu_from(next) {
            kicker.wait_outside();
            next = id + 1;
        }
    }

    fn vcpu_from(&self, id: u32) -> Option<(u32, Kicker)> {
        self.vcpus.lock(&*self.platform).from(id)
    }

    pub(crate) fn remove_vcpu(&self, id: u32) {
        let removed = self.vcpus.lock(&*self.platform).remove(id);
        if let Some(asked) = removed {
            self.stage2.leave(asked);
        }
    }
}

impl<W: World> Clone for Vm<W> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<W: World> core::fmt::Debug for Vm<W> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Vm").field("srcu", &self.inner.srcu).finish_non_exhaustive()
    }
}
