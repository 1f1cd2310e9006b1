//! The VM that a call is made of, and what is there beside.

use std::time::Instant;

use mayfly_kvm::{GuestMemory, IoEvent, IrqFd, Kvm, MemoryFlags, Payload, Vcpu, Vm};

use super::mappings::Mappings;
use crate::kernel::Failed;
use crate::pair::{Call, Dimension, Pair};

/// The slot that is added, deleted or logged, and where its guest memory begins, unless that is what grows: beyond all others.
pub(super) const EXTRA_SLOT: u32 = 1;
const EXTRA_GPA: u64 = 48 << 30;
const GIB: u64 = 1 << 30;
/// The first of many slots, and where their guest memory begins. There is a page between two of them.
const MANY_SLOTS: u32 = 2;
const MANY_GPA: u64 = 32 << 30;
/// Where ioeventfds are, and the one that is added.
const EVENTS: u64 = 0xd000_0000;
const EXTRA_EVENT: u64 = 0xd800_0000;
/// The one from whose registration an age is counted.
const LAST_EVENT: u64 = 0xd900_0000;
/// The line of all irqfds. KVM routes it by itself.
pub(super) const GSI: u32 = 5;

const PAGE: u64 = 4096;
/// The memory of a guest that runs.
const GUEST: usize = 2 << 20;
const PORT: u16 = 0x10;
/// What the guest writes to, and nobody has.
const DOORBELL: u64 = 0xdf00_0000;

/// All that is there when a call is made.
pub(super) struct Stage {
    /// Pages of the extra slot, and where it begins.
    extra_pages: u64,
    extra_gpa: u64,
    vm: Option<Vm>,
    created: Vec<Vcpu>,
    events: Vec<IoEvent>,
    irqfds: Vec<IrqFd>,
    last: Option<IoEvent>,
    extra: Option<GuestMemory>,
    _vms: Vec<Vm>,
    _mappings: Mappings,
}

/// An error of this program: a call was asked for of a stage that has not what it needs.
fn missing(what: &str) -> Failed {
    Failed(format!("there is no {what}"))
}

impl Stage {
    /// What `pair` needs where there are `n`.
    pub(super) fn make(kvm: &Kvm, pair: Pair, n: u64) -> Result<Self, Failed> {
        let of =
            |dimension: Dimension, other: u64| if pair.dimension == dimension { n } else { other };
        let mappings = Mappings::new(of(Dimension::Mappings, 0))
            .map_err(|errno| Failed(format!("mmap: {errno}")))?;
        let vms = (0..of(Dimension::Vms, 0)).map(|_| Vm::create(kvm)).collect::<Result<_, _>>()?;
        let mut stage = Self {
            extra_pages: of(Dimension::SlotPages, 1),
            extra_gpa: of(Dimension::Gpa, EXTRA_GPA / GIB) * GIB,
            vm: None,
            created: Vec::new(),
            events: Vec::new(),
            irqfds: Vec::new(),
            last: None,
            extra: None,
            _vms: vms,
            _mappings: mappings,
        };
        if pair.call != Call::CreateVm {
            stage.make_vm(kvm, pair, &of)?;
        }
        Ok(stage)
    }

    fn make_vm(
        &mut self,
        kvm: &Kvm,
        pair: Pair,
        of: &dyn Fn(Dimension, u64) -> u64,
    ) -> Result<(), Failed> {
        let has_irqfds = matches!(pair.call, Call::AddIrqfd | Call::RemoveIrqfd)
            || pair.dimension == Dimension::Irqfds;
        let vm = Vm::create(kvm)?;
        if has_irqfds {
            vm.create_irqchip()?;
        }
        let many = of(Dimension::Slots, 0) + of(Dimension::LoggedSlots, 0);
        self.make_slots(&vm, pair, many)?;
        let runs = pair.call == Call::Exit;
        let vcpus = of(Dimension::Vcpus, u64::from(runs)) as u32;
        self.created = (0..vcpus).map(|id| vm.create_vcpu(id)).collect::<Result<_, _>>()?;
        if has_irqfds {
            vm.finish_irqchip()?;
        }
        let removed = |call| u64::from(pair.call == call);
        // What is removed is one of them.
        let events = of(Dimension::Ioeventfds, removed(Call::RemoveIoeventfd));
        for index in 0..events {
            let event = IoEvent::new(EVENTS + 8 * index, 4, None)?;
            vm.register_ioeventfd(&event)?;
            self.events.push(event);
        }
        for _ in 0..of(Dimension::Irqfds, removed(Call::RemoveIrqfd)) {
            let irqfd = IrqFd::new(GSI)?;
            vm.register_irqfd(&irqfd)?;
            self.irqfds.push(irqfd);
        }
        if let Some(vcpu) = self.created.first_mut().filter(|_| runs) {
            let touch = Payload::FREE..Payload::FREE + PAGE;
            vcpu.load(&Payload { touch, doorbell: Some(DOORBELL), port: PORT })?;
        }
        self.vm = Some(vm);
        Ok(())
    }

    fn make_slots(&mut self, vm: &Vm, pair: Pair, many: u64) -> Result<(), Failed> {
        let log_dirty = pair.dimension == Dimension::LoggedSlots;
        let flags = MemoryFlags { log_dirty, ..MemoryFlags::default() };
        if pair.call == Call::Exit {
            let memory = GuestMemory::map(GUEST)?;
            Payload::install(&memory)?;
            vm.set_memory_region(0, 0, &memory, flags)?;
        }
        let page = GuestMemory::map(PAGE as usize)?;
        for index in 0..many {
            let gpa = MANY_GPA + 2 * PAGE * index;
            vm.set_memory_region(MANY_SLOTS + index as u32, gpa, &page, flags)?;
        }
        let is_there =
            matches!(pair.call, Call::DeleteSlot | Call::StartDirtyLog | Call::ReadDirtyLog)
                || (pair.call == Call::CloseVm
                    && matches!(pair.dimension, Dimension::SlotPages | Dimension::Gpa));
        if is_there || pair.call == Call::AddSlot {
            let memory = GuestMemory::map((self.extra_pages * PAGE) as usize)?;
            if is_there {
                let log_dirty = pair.call == Call::ReadDirtyLog;
                let flags = MemoryFlags { log_dirty, ..MemoryFlags::default() };
                vm.set_memory_region(EXTRA_SLOT, self.extra_gpa, &memory, flags)?;
            }
            self.extra = Some(memory);
        }
        Ok(())
    }

    /// Registers one more device. Its age begins at the moment that is returned.
    pub(super) fn register_last(&mut self) -> Result<Instant, Failed> {
        let event = IoEvent::new(LAST_EVENT, 4, None)?;
        self.vm()?.register_ioeventfd(&event)?;
        self.last = Some(event);
        Ok(Instant::now())
    }

    pub(super) fn vm(&self) -> Result<&Vm, Failed> {
        self.vm.as_ref().ok_or_else(|| missing("VM"))
    }

    /// The VM with its vCPUs, to be closed.
    pub(super) fn take_vm(&mut self) -> Result<(Vm, Vec<Vcpu>), Failed> {
        let vm = self.vm.take().ok_or_else(|| missing("VM"))?;
        Ok((vm, std::mem::take(&mut self.created)))
    }

    /// The number of a vCPU that the VM does not have.
    pub(super) fn next_vcpu(&self) -> u32 {
        self.created.len() as u32
    }

    /// The vCPU whose guest runs.
    pub(super) fn running(&mut self) -> Result<&mut Vcpu, Failed> {
        self.created.first_mut().ok_or_else(|| missing("vCPU"))
    }

    /// The memory of the extra slot.
    pub(super) fn extra_memory(&self) -> Result<GuestMemory, Failed> {
        self.extra.clone().ok_or_else(|| missing("memory"))
    }

    pub(super) fn extra_pages(&self) -> u64 {
        self.extra_pages
    }

    pub(super) fn extra_gpa(&self) -> u64 {
        self.extra_gpa
    }

    /// An ioeventfd that the VM has.
    pub(super) fn event(&self) -> Result<&IoEvent, Failed> {
        self.events.last().ok_or_else(|| missing("ioeventfd"))
    }

    /// One that the VM does not have.
    pub(super) fn extra_event() -> Result<IoEvent, Failed> {
        Ok(IoEvent::new(EXTRA_EVENT, 4, None)?)
    }

    /// An irqfd that the VM has.
    pub(super) fn irqfd(&self) -> Result<&IrqFd, Failed> {
        self.irqfds.last().ok_or_else(|| missing("irqfd"))
    }
}
