//! A VM, from its creation to its end.

use std::collections::btree_map::Entry;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use kvm_bindings::{KVM_MEM_LOG_DIRTY_PAGES, KVM_MEM_READONLY, kvm_userspace_memory_region};
use kvm_ioctls::VmFd;
use rustix::io::Errno;

use crate::shared::{Lent, SET_REGION, Shared};
use crate::together::together;
use crate::{Error, GuestMemory, IoEvent, IrqFd, Kvm, Payload, Statistics, Vcpu};

/// A virtual machine. Its methods may be called from several threads; KVM serialises what must be.
///
/// Dropping it leaves the VM to those of its vCPUs that still exist; [`Vm::destroy`] ends it.
#[derive(Debug)]
pub struct Vm {
    shared: Arc<Shared>,
}

/// How a guest may use a memslot, and whether KVM logs its writes. By default: read and write, not
/// logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryFlags {
    /// `KVM_MEM_READONLY`: a guest's write is an MMIO exit.
    pub read_only: bool,
    /// `KVM_MEM_LOG_DIRTY_PAGES`.
    pub log_dirty: bool,
}

impl MemoryFlags {
    fn bits(self) -> u32 {
        let read_only = if self.read_only { KVM_MEM_READONLY } else { 0 };
        let log_dirty = if self.log_dirty { KVM_MEM_LOG_DIRTY_PAGES } else { 0 };
        read_only | log_dirty
    }
}

#[cfg(not(target_arch = "aarch64"))]
fn create(kvm: &kvm_ioctls::Kvm) -> Result<VmFd, kvm_ioctls::Error> {
    kvm.create_vm()
}

#[cfg(target_arch = "aarch64")]
fn create(kvm: &kvm_ioctls::Kvm) -> Result<VmFd, kvm_ioctls::Error> {
    const BITS: u32 = 40;
    // A kernel that does not know its limit has one type of VM, 0.
    let limit = u32::try_from(kvm.get_host_ipa_limit()).unwrap_or(0);
    kvm.create_vm_with_ipa_size(limit.min(BITS))
}

impl Vm {
    /// Creates a VM without memory, devices or vCPUs: `KVM_CREATE_VM` (and
    /// `KVM_GET_VCPU_MMAP_SIZE`, well under a microsecond).
    ///
    /// On arm64, its guest physical addresses have 40 bits, as by KVM's default, or as many as the host has, if those
    /// are fewer. With more bits KVM's tables may have a level more, and from Linux 6.19 on the close of a VM takes time
    /// for each GiB of the address space.
    ///
    /// # Errors
    /// [`Error::Call`] with `KVM_CREATE_VM`.
    pub fn create(kvm: &Kvm) -> Result<Self, Error> {
        let fd = create(kvm.fd()).map_err(Error::ioctl("KVM_CREATE_VM"))?;
        let processor = kvm.processor().clone();
        Ok(Self {
            shared: Arc::new(Shared {
                #[cfg(target_arch = "aarch64")]
                vgic: std::sync::OnceLock::new(),
                fd,
                processor,
                slots: Mutex::default(),
                lent: Mutex::default(),
            }),
        })
    }

    /// Creates the in-kernel interrupt controllers.
    ///
    /// On x86-64, `KVM_CREATE_IRQCHIP`, which must come before the first vCPU. The PIC (three ranges on the PIO bus) and
    /// the IOAPIC (one on the MMIO bus) are devices like any other: each is a registration on an I/O bus.
    ///
    /// On arm64, `KVM_CREATE_DEVICE` of a vGIC, of version 3 where the host can, else 2; and where its frames are. Each
    /// vCPU's redistributor joins the bus as that is created, the distributor when the first vCPU runs.
    ///
    /// # Errors
    /// [`Error::Call`] with `KVM_CREATE_IRQCHIP`: EEXIST, EINVAL once there is a vCPU. With `KVM_CREATE_DEVICE`: EEXIST,
    /// ENODEV. [`Error::UnsupportedArch`].
    pub fn create_irqchip(&self) -> Result<(), Error> {
        #[cfg(target_arch = "x86_64")]
        return self.shared.fd.create_irq_chip().map_err(Error::ioctl("KVM_CREATE_IRQCHIP"));
        #[cfg(target_arch = "aarch64")]
        {
            // A second one KVM refuses itself.
            let vgic = crate::vgic::Vgic::create(&self.shared.fd)?;
            self.shared.vgic.get_or_init(|| vgic);
            Ok(())
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        Err(Error::UnsupportedArch("x86-64 and arm64"))
    }

    /// Says that all vCPUs are there, after which they may run: `KVM_DEV_ARM_VGIC_CTRL_INIT`, where there is a vGIC. From
    /// then on the VM gets no more of them. Elsewhere nothing has to be said, and more may be created at any time:
    /// [`Vm::VCPUS_AT_ANY_TIME`].
    ///
    /// # Errors
    /// [`Error::Call`] with `KVM_SET_DEVICE_ATTR`.
    pub fn finish_irqchip(&self) -> Result<(), Error> {
        #[cfg(target_arch = "aarch64")]
        if let Some(vgic) = self.shared.vgic.get() {
            return vgic.finish();
        }
        Ok(())
    }

    /// Has the local APICs alone in the kernel, and PIC and IOAPIC left to the VMM: `KVM_ENABLE_CAP` of
    /// `KVM_CAP_SPLIT_IRQCHIP`, with 24 routes kept for an IOAPIC. In place of [`Vm::create_irqchip`], and as that before
    /// the first vCPU. No device joins a bus.
    ///
    /// # Errors
    /// [`Error::Call`] with `KVM_ENABLE_CAP`: EEXIST, EINVAL once there is a vCPU. [`Error::UnsupportedArch`].
    pub fn split_irqchip(&self) -> Result<(), Error> {
        #[cfg(target_arch = "x86_64")]
        {
            let mut split = kvm_bindings::kvm_enable_cap {
                cap: kvm_bindings::KVM_CAP_SPLIT_IRQCHIP,
                ..Default::default()
            };
            split.args[0] = 24;
            self.shared.fd.enable_cap(&split).map_err(Error::ioctl("KVM_ENABLE_CAP"))
        }
        #[cfg(not(target_arch = "x86_64"))]
        Err(Error::UnsupportedArch("x86-64"))
    }

    /// Creates the timer of a PC: `KVM_CREATE_PIT2`. It is a device on the PIO bus, and needs [`Vm::create_irqchip`].
    ///
    /// # Errors
    /// [`Error::Call`] with `KVM_CREATE_PIT2`: EEXIST, ENOENT without an interrupt controller. [`Error::UnsupportedArch`].
    pub fn create_pit(&self) -> Result<(), Error> {
        #[cfg(target_arch = "x86_64")]
        return self
            .shared
            .fd
            .create_pit2(kvm_bindings::kvm_pit_config::default())
            .map_err(Error::ioctl("KVM_CREATE_PIT2"));
        #[cfg(not(target_arch = "x86_64"))]
        Err(Error::UnsupportedArch("x86-64"))
    }

    /// Has `irqfd`'s signals raise its interrupt: `KVM_IRQFD`. Needs an interrupt controller.
    ///
    /// # Errors
    /// [`Error::Call`] with `KVM_IRQFD`: EBUSY if the eventfd is one already, EINVAL for a line that there is not, EAGAIN
    /// without an interrupt controller.
    pub fn register_irqfd(&self, irqfd: &IrqFd) -> Result<(), Error> {
        irqfd.apply(self.shared.borrow_fd(), true)
    }

    /// Takes `irqfd` back: `KVM_IRQFD` with the deassign flag. That it was not registered is no error.
    ///
    /// # Errors
    /// [`Error::Call`] with `KVM_IRQFD`.
    pub fn unregister_irqfd(&self, irqfd: &IrqFd) -> Result<(), Error> {
        irqfd.apply(self.shared.borrow_fd(), false)
    }

    /// The VM, for calls that this crate does not make.
    pub fn fd(&self) -> &VmFd {
        self.shared.fd()
    }

    /// Makes `region` a new memslot, and keeps `lent`, which has its memory, until the VM is gone.
    ///
    /// # Errors
    /// As [`Vm::set_memory_region`].
    ///
    /// # Safety
    /// As long as `lent` exists, all of these bytes are mapped, nobody has a Rust reference into them, and nothing is lost
    /// where a guest writes there.
    pub(crate) unsafe fn lend(
        &self,
        region: kvm_userspace_memory_region,
        lent: Lent,
    ) -> Result<(), Error> {
        let mut all = self.shared.lent.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(lent);
        // SAFETY: the caller's promise holds as long as `lent` exists, and that is kept from before the call to when no
        // fd of the VM is left: `Shared` drops its fd first.
        unsafe { self.shared.fd.set_user_memory_region(region) }.map_err(Error::ioctl(SET_REGION))
    }

    /// Where [`Vm::create_irqchip`] puts the distributor of a vGIC, on arm64. No guest's memory reaches so far.
    pub const DISTRIBUTOR: u64 = Payload::REACH;

    /// Where it puts the redistributors, 128 KiB each; or the CPU interface, of version 2.
    pub const REDISTRIBUTORS: u64 = Self::DISTRIBUTOR + (1 << 20);

    /// Whether a VM with an interrupt controller gets vCPUs while others run. On arm64 KVM refuses that: EBUSY.
    pub const VCPUS_AT_ANY_TIME: bool = cfg!(not(target_arch = "aarch64"));

    /// Whether deleting or moving a memslot zaps all that the VM has mapped, unless it is told otherwise. On arm64 KVM
    /// zaps what the slot had mapped, always.
    pub const ZAPS_ALL_ROOTS: bool = cfg!(target_arch = "x86_64");

    /// Lets the guest's matching writes signal `event`: `KVM_IOEVENTFD`.
    ///
    /// # Errors
    /// [`Error::Call`] with `KVM_IOEVENTFD`: EEXIST if a registered one would match the same
    /// writes; EINVAL for a length that is not 0, 1, 2, 4 or 8, for a length of 0 with a datamatch,
    /// or for a range that wraps around.
    pub fn register_ioeventfd(&self, event: &IoEvent) -> Result<(), Error> {
        event.apply(self.shared.borrow_fd(), true)
    }

    /// Takes `event` back: `KVM_IOEVENTFD` with the deassign flag.
    ///
    /// # Errors
    /// [`Error::Call`] with `KVM_IOEVENTFD`: ENOENT if it is not registered.
    pub fn unregister_ioeventfd(&self, event: &IoEvent) -> Result<(), Error> {
        event.apply(self.shared.borrow_fd(), false)
    }

    /// Gives the guest all of `memory` at the guest physical address `gpa`, as the memslot `slot`;
    /// or moves an existing slot of the same memory, or changes its flags:
    /// `KVM_SET_USER_MEMORY_REGION`.
    ///
    /// # Errors
    /// [`Error::Call`] with `KVM_SET_USER_MEMORY_REGION`: EEXIST if it overlaps another slot,
    /// EINVAL if `gpa` or the size is not a multiple of 4096, if the range wraps around, if there
    /// is no slot of that number or if it holds other memory.
    pub fn set_memory_region(
        &self,
        slot: u32,
        gpa: u64,
        memory: &GuestMemory,
        flags: MemoryFlags,
    ) -> Result<(), Error> {
        // Held over the ioctl: what is kept alive is what the kernel was last told.
        let mut slots = self.shared.slots();
        self.shared.set_region(kvm_userspace_memory_region {
            slot,
            flags: flags.bits(),
            guest_phys_addr: gpa,
            memory_size: memory.size() as u64,
            userspace_addr: memory.hva(),
        })?;
        // An existing slot was accepted because it has the same address and size: its clone keeps
        // the same mapping.
        slots.entry(slot).or_insert_with(|| memory.clone());
        Ok(())
    }

    /// Takes the memslot `slot` from the guest: `KVM_SET_USER_MEMORY_REGION` with a size of 0.
    /// Gives its memory back, so that unmapping it is the caller's.
    ///
    /// # Errors
    /// [`Error::Call`] with `KVM_SET_USER_MEMORY_REGION`: EINVAL if there is no such slot.
    pub fn delete_memory_region(&self, slot: u32) -> Result<GuestMemory, Error> {
        let mut slots = self.shared.slots();
        // The list is what KVM was told, so a slot that is not in it is one that KVM would refuse
        // to delete.
        let Entry::Occupied(entry) = slots.entry(slot) else {
            return Err(Error::call(SET_REGION)(Errno::INVAL));
        };
        self.shared.set_region(kvm_userspace_memory_region { slot, ..Default::default() })?;
        Ok(entry.remove())
    }

    /// Memslots that the VM has of this process's own memory.
    pub fn memory_regions(&self) -> usize {
        self.shared.slots().len()
    }

    /// Has deleting or moving a memslot zap what that slot had mapped, and not all that the VM has:
    /// `KVM_ENABLE_CAP` of `KVM_CAP_DISABLE_QUIRKS2` with `KVM_X86_QUIRK_SLOT_ZAP_ALL` (Linux
    /// v6.12). On other architectures there is nothing to ask for: see [`Vm::ZAPS_ALL_ROOTS`].
    ///
    /// # Errors
    /// [`Error::Call`] with `KVM_ENABLE_CAP`: EINVAL on older kernels.
    pub fn zap_deleted_slots_alone(&self) -> Result<(), Error> {
        #[cfg(target_arch = "x86_64")]
        {
            use kvm_bindings::{KVM_CAP_DISABLE_QUIRKS2, KVM_X86_QUIRK_SLOT_ZAP_ALL};
            let mut quirk =
                kvm_bindings::kvm_enable_cap { cap: KVM_CAP_DISABLE_QUIRKS2, ..Default::default() };
            quirk.args[0] = KVM_X86_QUIRK_SLOT_ZAP_ALL.into();
            self.shared.fd.enable_cap(&quirk).map_err(Error::ioctl("KVM_ENABLE_CAP"))
        }
        #[cfg(not(target_arch = "x86_64"))]
        Ok(())
    }

    /// How many pages a memslot has.
    pub(crate) fn slot_pages(&self, slot: u32) -> Option<u64> {
        let slots = self.shared.slots();
        slots.get(&slot).map(|memory| memory.size() as u64 / 4096)
    }

    pub(crate) fn borrow_fd(&self) -> BorrowedFd<'_> {
        self.shared.borrow_fd()
    }

    /// Creates the vCPU `id`: `KVM_CREATE_VCPU`, and the mapping of the page that it shares with
    /// the kernel.
    ///
    /// # Errors
    /// [`Error::Call`] with `KVM_CREATE_VCPU`: EEXIST, EINVAL past the largest number of vCPUs, EBUSY after
    /// [`Vm::finish_irqchip`] of a vGIC.
    pub fn create_vcpu(&self, id: u32) -> Result<Vcpu, Error> {
        let fd = self.shared.fd.create_vcpu(id.into()).map_err(Error::ioctl("KVM_CREATE_VCPU"))?;
        Ok(Vcpu::new(fd, Arc::clone(&self.shared)))
    }

    /// Creates several, by so many threads, this one among them, and gives them in the order of `ids`. Where that pays,
    /// [`Waits`](crate::Waits) knows.
    ///
    /// # Errors
    /// As [`Vm::create_vcpu`]; those that were made are closed.
    pub fn create_vcpus(&self, ids: &[u32], threads: u32) -> Result<Vec<Vcpu>, Error> {
        together(ids, threads, |id| self.create_vcpu(id))
    }

    /// What KVM has counted of this VM, its vCPUs apart: `KVM_GET_STATS_FD`.
    ///
    /// # Errors
    /// [`Error::Call`] with `KVM_GET_STATS_FD`: ENOTTY before Linux v5.14, EMFILE; EBADMSG where what
    /// it gives cannot be read.
    pub fn statistics(&self) -> Result<Statistics, Error> {
        Statistics::of(self.shared.borrow_fd())
    }

    /// Ends the VM: closes the fds of `vcpus`, then its own. KVM tears the VM down in the last of
    /// these calls, whose duration is therefore that of this one.
    ///
    /// Gives the memory back, so that unmapping it is the caller's. A vCPU that is not among
    /// `vcpus` keeps the VM and its memory until it is dropped, and then nothing is given back.
    pub fn destroy(self, vcpus: Vec<Vcpu>) -> Vec<GuestMemory> {
        drop(vcpus);
        let Some(shared) = Arc::into_inner(self.shared) else {
            return Vec::new();
        };
        #[cfg(target_arch = "aarch64")]
        drop(shared.vgic);
        let Shared { fd, slots, lent, .. } = shared;
        drop(fd);
        drop(lent);
        let slots = slots.into_inner().unwrap_or_else(PoisonError::into_inner);
        slots.into_values().collect()
    }
}
