//! A builder that creates a VM in the order of calls that waits least on this kernel.
//!
//! KVM accepts memory, interrupt controller, vCPUs and eventfds in many orders. On some kernels all but a few orders make
//! a call wait for a tick or two. [`Waits`](crate::Waits) measures which do, and a [`Plan`] is the order in which the
//! fewest calls wait. Registrations come one after the other, so the delay that one of them arms is paid once at most.
//!
//! ```no_run
//! use mayfly_kvm::{Backing, HugePages, Irqchip, Kvm, Reclaimer, VmBuilder, Waits};
//!
//! let kvm = Kvm::open()?;
//! let waits = Waits::of_host(&kvm);
//! let memory = Backing::Anonymous.map(&[(0, 256 << 20)], Some(HugePages::Wanted))?;
//! let built = VmBuilder::new(&kvm, &waits).memory(&memory)?.irqchip(Irqchip::Full).vcpus(2).start()?;
//! println!("{}: {}", built.plan, built.timeline);
//!
//! let reclaimer = Reclaimer::new(8);
//! let ending = built.teardown(&reclaimer); // returns at once
//! ending.wait(); // until all of it is free
//! # Ok::<(), mayfly_kvm::Error>(())
//! ```

mod backing;
mod plan;
mod reclaimer;
mod timeline;

use std::mem::take;
use std::sync::Arc;
use std::time::Instant;

use kvm_bindings::kvm_userspace_memory_region;
use vm_memory::{
    Address, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, MemoryRegionAddress,
};

pub use backing::Backing;
pub use plan::{Irqchip, Plan, Step};
pub use reclaimer::{Ending, Reclaimer};
pub use timeline::Timeline;

use crate::shared::Lent;
use crate::waits::vcpu_threads;
use crate::{Error, GuestMemory, IoEvent, IrqFd, Kvm, MemoryFlags, Vcpu, Vm, Waits};

/// vCPUs from which on threads may pay.
const MANY: u32 = 4;

/// What a VM is to have.
#[derive(Debug)]
#[must_use]
pub struct VmBuilder<'a> {
    kvm: &'a Kvm,
    waits: &'a Waits,
    irqchip: Irqchip,
    pit: bool,
    vcpus: u32,
    regions: Vec<Region>,
    ioeventfds: Vec<IoEvent>,
    irqfds: Vec<IrqFd>,
}

/// Memory that becomes a memslot.
enum Region {
    Own(u64, GuestMemory),
    Lent(kvm_userspace_memory_region, Lent),
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (gpa, size) = match self {
            Self::Own(gpa, memory) => (*gpa, memory.size() as u64),
            Self::Lent(region, _) => (region.guest_phys_addr, region.memory_size),
        };
        write!(f, "{size:#x} bytes at {gpa:#x}")
    }
}

/// A VM whose vCPUs are there.
#[derive(Debug)]
pub struct Built {
    /// The VM. Its memslots are numbered in the order in which their memory was given.
    pub vm: Vm,
    /// Its vCPUs, in order of their numbers. A caller that runs them on threads takes them out, and puts them back
    /// before the end.
    pub vcpus: Vec<Vcpu>,
    /// What was registered.
    pub ioeventfds: Vec<IoEvent>,
    /// What was registered.
    pub irqfds: Vec<IrqFd>,
    /// The order that was taken, and what waits in it.
    pub plan: Plan,
    /// What each step took.
    pub timeline: Timeline,
}

impl<'a> VmBuilder<'a> {
    /// A VM without anything, to be made in the order that suits `waits`.
    pub fn new(kvm: &'a Kvm, waits: &'a Waits) -> Self {
        Self {
            kvm,
            waits,
            irqchip: Irqchip::None,
            pit: false,
            vcpus: 0,
            regions: Vec::new(),
            ioeventfds: Vec::new(),
            irqfds: Vec::new(),
        }
    }

    /// Gives the guest every region of `memory`, each as a memslot.
    ///
    /// # Errors
    /// [`Error::NoHostAddress`] for a region that is not mapped.
    pub fn memory(mut self, memory: &GuestMemoryMmap) -> Result<Self, Error> {
        for region in memory.iter() {
            let slot = slot_of(region)?;
            self.regions.push(Region::Lent(slot, Box::new(region.get_mmap())));
        }
        Ok(self)
    }

    /// The same for memory of any kind.
    ///
    /// # Errors
    /// As [`VmBuilder::memory`].
    ///
    /// # Safety
    /// As long as `memory` exists, what its regions give as their host addresses is mapped for as many bytes as they have,
    /// nobody has a Rust reference into these, and a guest may write there.
    pub unsafe fn memory_of<M>(mut self, memory: M) -> Result<Self, Error>
    where
        M: GuestMemoryBackend + Send + Sync + 'static,
    {
        let memory = Arc::new(memory);
        for region in memory.iter() {
            self.regions.push(Region::Lent(slot_of(region)?, Box::new(Arc::clone(&memory))));
        }
        Ok(self)
    }

    /// Gives the guest `memory` at `gpa`, as a memslot.
    pub fn region(mut self, gpa: u64, memory: &GuestMemory) -> Self {
        self.regions.push(Region::Own(gpa, memory.clone()));
        self
    }

    /// Which interrupt controllers are in the kernel; none, if nothing is said.
    pub fn irqchip(self, irqchip: Irqchip) -> Self {
        Self { irqchip, ..self }
    }

    /// Whether there is a PC's timer in the kernel, which needs [`Irqchip::Full`]. Not if nothing is said.
    pub fn pit(self, pit: bool) -> Self {
        Self { pit, ..self }
    }

    /// How many vCPUs there are, numbered from 0.
    pub fn vcpus(self, vcpus: u32) -> Self {
        Self { vcpus, ..self }
    }

    /// One ioeventfd more.
    pub fn ioeventfd(mut self, event: IoEvent) -> Self {
        self.ioeventfds.push(event);
        self
    }

    /// One irqfd more, which needs an interrupt controller.
    pub fn irqfd(mut self, irqfd: IrqFd) -> Self {
        self.irqfds.push(irqfd);
        self
    }

    /// The order in which [`VmBuilder::start`] goes, and what waits in it.
    pub fn plan(&self) -> Plan {
        let steps = [
            (Step::Memory, !self.regions.is_empty()),
            (Step::Irqchip, self.irqchip != Irqchip::None),
            (Step::Pit, self.pit),
            (Step::Vcpus, self.vcpus > 0),
            (Step::Ioeventfds, !self.ioeventfds.is_empty()),
            (Step::Irqfds, !self.irqfds.is_empty()),
        ];
        let steps = steps.into_iter().filter(|(_, is_wanted)| *is_wanted).map(|(step, _)| step);
        Plan::new(self.waits, self.irqchip, &steps.collect::<Vec<_>>())
    }

    /// Creates the VM: `KVM_CREATE_VM`, then step by step as planned. vCPUs are created on several threads where that has
    /// been seen to pay and there are at least four.
    ///
    /// # Errors
    /// [`Error::Call`] with the ioctl that failed. What was made until then is gone.
    pub fn start(mut self) -> Result<Built, Error> {
        let plan = self.plan();
        let begun = Instant::now();
        let vm = Vm::create(self.kvm)?;
        let mut timeline = Timeline::begun(begun);
        let mut vcpus = Vec::new();
        for &step in plan.steps() {
            match step {
                Step::Memory => give(&vm, take(&mut self.regions))?,
                Step::Irqchip if self.irqchip == Irqchip::Split => vm.split_irqchip()?,
                Step::Irqchip => vm.create_irqchip()?,
                Step::Pit => vm.create_pit()?,
                Step::Vcpus => {
                    let pays = self.vcpus >= MANY && self.waits.parallel_vcpus();
                    let threads = if pays { vcpu_threads().min(self.vcpus) } else { 1 };
                    let ids: Vec<u32> = (0..self.vcpus).collect();
                    vcpus = vm.create_vcpus(&ids, threads)?;
                    vm.finish_irqchip()?;
                }
                Step::Ioeventfds => {
                    self.ioeventfds.iter().try_for_each(|event| vm.register_ioeventfd(event))?;
                }
                Step::Irqfds => {
                    self.irqfds.iter().try_for_each(|irqfd| vm.register_irqfd(irqfd))?;
                }
            }
            timeline.took(step);
        }
        let Self { ioeventfds, irqfds, .. } = self;
        Ok(Built { vm, vcpus, ioeventfds, irqfds, plan, timeline })
    }
}

/// Each region as a memslot, numbered from 0.
fn give(vm: &Vm, regions: Vec<Region>) -> Result<(), Error> {
    for (slot, region) in (0..).zip(regions) {
        match region {
            Region::Own(gpa, memory) => {
                vm.set_memory_region(slot, gpa, &memory, MemoryFlags::default())?;
            }
            Region::Lent(region, lent) => {
                // SAFETY: `lent` is the mapping that `region` was made from, or the memory for which the caller of
                // `VmBuilder::memory_of` has promised what is asked here.
                unsafe { vm.lend(kvm_userspace_memory_region { slot, ..region }, lent) }?;
            }
        }
    }
    Ok(())
}

fn slot_of(region: &impl GuestMemoryRegion) -> Result<kvm_userspace_memory_region, Error> {
    let gpa = region.start_addr().raw_value();
    let hva = region
        .get_host_address(MemoryRegionAddress(0))
        .map_err(|_| Error::NoHostAddress { gpa })?;
    Ok(kvm_userspace_memory_region {
        guest_phys_addr: gpa,
        memory_size: region.len(),
        userspace_addr: hva as u64,
        ..Default::default()
    })
}

impl Built {
    /// Ends the VM: gives control back at once, and leaves it to `reclaimer` to close what there is and to free the memory,
    /// unless that has too much to do already ([`Reclaimer::new`]).
    pub fn teardown(self, reclaimer: &Reclaimer) -> Ending {
        reclaimer.end(self.vm, self.vcpus)
    }
}
