//! A VM, from its creation to its end.

use alloc::sync::Arc;

use mayfly_iobus::{IoBus, IoRange, Ioeventfd, Refused};
use mayfly_memslot::{Backing, MemSlots, Region};
use mayfly_platform::Platform;
use mayfly_platform::lock::Lock;
use mayfly_platform::memory::Shared;
use mayfly_platform::sync::{AtomicBool, Ordering};
use mayfly_srcu::Srcu;

use crate::vcpus::Vcpus;
use crate::{Device, Error, Requests, Vcpu};

/// One of a VM's I/O buses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bus {
    /// Guest physical addresses that no memslot answers.
    Mmio,
    /// x86's I/O ports.
    Pio,
}

/// How a VM is built.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The domain that the VM's vCPUs read under.
    pub srcu: mayfly_srcu::Config,
}

/// A virtual machine: a handle; clones are the same VM.
///
/// `D` is the kind of its devices, `B` what backs its memory. Calls may come from several threads; those that change
/// the same thing take turns.
pub struct Vm<D: Device + 'static, B: Backing> {
    inner: Shared<Inner<D, B>>,
}

pub(crate) struct Inner<D: Device + 'static, B: Backing> {
    platform: Arc<dyn Platform>,
    pub(crate) slots: MemSlots<B>,
    pub(crate) mmio: IoBus<D>,
    pub(crate) pio: IoBus<D>,
    vcpus: Lock<Vcpus>,
    destroyed: AtomicBool,
    srcu: Srcu,
}

impl<D: Device + 'static, B: Backing> Vm<D, B> {
    /// A VM without memory, devices or vCPUs.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] and [`Error::Srcu`].
    pub fn create(platform: Arc<dyn Platform>, config: Config) -> Result<Self, Error> {
        let srcu = Srcu::try_new(Arc::clone(&platform), config.srcu)?;
        let inner = Shared::try_new(Inner {
            slots: MemSlots::try_new(Arc::clone(&platform), &srcu)?,
            mmio: IoBus::try_new(&srcu, Arc::clone(&platform))?,
            pio: IoBus::try_new(&srcu, Arc::clone(&platform))?,
            platform,
            vcpus: Lock::new(Vcpus::new()),
            destroyed: AtomicBool::new(false),
            srcu,
        })?;
        Ok(Self { inner })
    }

    /// Creates, deletes, moves or changes a memslot, as `KVM_SET_USER_MEMORY_REGION` does.
    ///
    /// Creating waits for nobody. Deleting, moving and changing flags return when no vCPU uses the slot as it was: the
    /// memory behind a deleted slot may then be unmapped.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] says what is wrong with the region; no slot is changed then.
    pub fn set_memory_region(&self, region: &Region<B>) -> Result<(), Error> {
        self.inner.slots.set(region)?;
        Ok(())
    }

    /// As [`Vm::set_memory_region`], for the slots above the user's that a hypervisor keeps for itself (the APIC access
    /// page of VMX and AVIC, for one).
    ///
    /// # Errors
    ///
    /// As [`Vm::set_memory_region`].
    pub fn set_private_memory_region(&self, region: &Region<B>) -> Result<(), Error> {
        self.inner.slots.set_private(region)?;
        Ok(())
    }

    /// Puts `device` on `range` of a bus. Waits for nobody.
    ///
    /// A vCPU is certain to find the device at every access that it makes after this returned, where *after* is any
    /// happens-before: a message to its thread, a kick, or a flag in guest memory that the guest has read. An access
    /// that is being handled at this moment may miss it; [`IoBus::settle`] waits for those.
    ///
    /// # Errors
    ///
    /// [`Refused`] says what is wrong with the range and gives the device back; the bus is as it was.
    pub fn register_device(&self, bus: Bus, range: IoRange, device: D) -> Result<(), Refused<D>> {
        self.inner.bus(bus).register(range, device)
    }

    /// Takes the device off exactly `range` and gives it back, when no vCPU can be using it any more. Waits for the
    /// accesses that are being handled at this moment, and for no delay that somebody else's grace period was given.
    ///
    /// # Errors
    ///
    /// [`Error::Bus`]; the bus is as it was.
    pub fn unregister_device(&self, bus: Bus, range: IoRange) -> Result<D, Error> {
        Ok(self.inner.bus(bus).unregister(range)?)
    }

    /// Has the guest's writes that `on` describes signal `device`, as an ioeventfd does. Otherwise as
    /// [`Vm::register_device`].
    ///
    /// # Errors
    ///
    /// As [`Vm::register_device`].
    pub fn register_eventfd(&self, bus: Bus, on: Ioeventfd, device: D) -> Result<(), Refused<D>> {
        self.inner.bus(bus).register_eventfd(on, device)
    }

    /// Takes an ioeventfd off. Otherwise as [`Vm::unregister_device`].
    ///
    /// # Errors
    ///
    /// As [`Vm::unregister_device`].
    pub fn unregister_eventfd(&self, bus: Bus, on: Ioeventfd) -> Result<D, Error> {
        Ok(self.inner.bus(bus).unregister_eventfd(on)?)
    }

    /// A new vCPU, numbered `id` (below 4096), which must not be one of the VM's.
    ///
    /// # Errors
    ///
    /// [`Error::VcpuExists`], [`Error::VcpuOutOfRange`], [`Error::OutOfMemory`]; the VM is as it was then.
    pub fn create_vcpu(&self, id: u32) -> Result<Vcpu<D, B>, Error> {
        let requests = Shared::try_new(Requests::new())?;
        let reader = self.inner.srcu.reader()?;
        self.inner.vcpus.lock(&*self.inner.platform).add(id, requests.clone())?;
        Ok(Vcpu::new(id, self.inner.clone(), requests, reader))
    }

    /// How many vCPUs the VM has.
    pub fn vcpu_count(&self) -> usize {
        self.inner.vcpus.lock(&*self.inner.platform).len()
    }

    /// Makes vCPU `id` come out of the guest and its [`Vcpu::run`] return [`Exit::Kicked`](crate::Exit::Kicked); if it
    /// is not running, its next run. Returns whether there is such a vCPU.
    pub fn kick(&self, id: u32) -> bool {
        let vcpus = self.inner.vcpus.lock(&*self.inner.platform);
        vcpus.get(id).map(|requests| requests.ask_exit(&*self.inner.platform)).is_some()
    }

    /// Ends the VM: every vCPU comes out of the guest, and none enters it again. Returns at once; what the VM holds is
    /// freed with the last of its vCPUs and handles.
    pub fn destroy(self) {
        self.inner.destroyed.store(true, Ordering::Release);
        for requests in self.inner.vcpus.lock(&*self.inner.platform).all() {
            requests.ask_exit(&*self.inner.platform);
        }
    }

    /// The memslots, for embedders that choose how long a change may take.
    pub fn slots(&self) -> &MemSlots<B> {
        &self.inner.slots
    }

    /// An I/O bus, for embedders that choose how long a change may take.
    pub fn bus(&self, bus: Bus) -> &IoBus<D> {
        self.inner.bus(bus)
    }

    /// The domain that the VM's vCPUs read under.
    pub fn srcu(&self) -> &Srcu {
        &self.inner.srcu
    }
}

impl<D: Device + 'static, B: Backing> Inner<D, B> {
    pub(crate) fn bus(&self, bus: Bus) -> &IoBus<D> {
        match bus {
            Bus::Mmio => &self.mmio,
            Bus::Pio => &self.pio,
        }
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Acquire)
    }

    pub(crate) fn remove_vcpu(&self, id: u32) {
        self.vcpus.lock(&*self.platform).remove(id);
    }
}

impl<D: Device + 'static, B: Backing> Drop for Inner<D, B> {
    fn drop(&mut self) {
        // No vCPU is left, so what is deferred can be freed here and now, on the processor that has just freed the
        // rest.
        self.srcu.wind_up();
    }
}

impl<D: Device + 'static, B: Backing> Clone for Vm<D, B> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<D: Device + 'static, B: Backing> core::fmt::Debug for Vm<D, B> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Vm").field("srcu", &self.inner.srcu).finish_non_exhaustive()
    }
}
