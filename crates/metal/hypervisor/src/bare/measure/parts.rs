//! The parts that the lifecycles make their VMs of.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use mayfly_hypervisor::card::Card;
use mayfly_hypervisor::plan::Plan;
use mayfly_hypervisor::turns::Share;
use mayfly_lifecycle_steps::guest::{DOORBELL_BYTES, MEMORY};
use mayfly_lifecycle_steps::large::Mapping;
use mayfly_vm::iobus::IoRange;
use mayfly_vm::memslot::{Flags, Gpa, Hva, Region, SlotId};
use mayfly_vm::{Bus, Device, Vcpu, Vm};

use super::arch;
use crate::bare::devices::uart::Uart;
use crate::bare::threads;
use crate::bare::vm::{Host, Kinds, Run, TableFormat};
use crate::bare::world::Worlds;
use crate::bare::world::memory::GuestMemory;

pub(super) type Outcome<T> = Result<T, &'static str>;

pub(super) const NO_MEMORY: &str = "there is too little memory for a guest";
pub(super) const NO_VM: &str = "there is no memory for a VM";

/// A doorbell: it wakes the threads that sleep for it.
#[derive(Default)]
struct Doorbell(AtomicU32);

impl Device for Doorbell {
    fn read(&self, _vcpu: u32, _offset: u64, data: &mut [u8]) {
        data.fill(0);
    }

    fn write(&self, _vcpu: u32, _offset: u64, _data: &[u8]) {
        self.0.fetch_add(1, Ordering::Release);
        threads::wake(&self.0);
    }
}

/// The memory of a VM, all of it with frames.
pub(super) fn make<F: TableFormat>(
    host: &Host<F>,
    bytes: u64,
    mapping: Mapping,
) -> Outcome<GuestMemory> {
    let memory = GuestMemory::try_new(host.world.clone(), bytes).map_err(|_| NO_MEMORY)?;
    let memory = match mapping {
        Mapping::Pages => memory.by_frames(),
        Mapping::Blocks => memory,
    };
    for touched in mapping.touches(bytes) {
        memory.write(touched, &[0]).map_err(|_| NO_MEMORY)?;
    }
    Ok(memory)
}

/// The same, with the guest's code in it.
pub(super) fn memory<F: TableFormat>(
    host: &Host<F>,
    bytes: u64,
    mapping: Mapping,
) -> Outcome<Arc<GuestMemory>> {
    let memory = make(host, bytes, mapping)?;
    arch::install(|at, bytes| memory.write(at, bytes)).map_err(|_| NO_MEMORY)?;
    Ok(Arc::new(memory))
}

/// The plan of such a VM.
pub(super) fn plan(bytes: u64, vcpus: u32) -> Plan {
    Plan {
        name: "measured".to_string(),
        vcpus,
        memory: bytes,
        overcommit: false,
        reserve: None,
        disk: 0,
        partition: None,
        card: Card::default(),
        its: false,
        x2apic: true,
        hvc: false,
        balloon: false,
        merge: None,
        weight: Share::WEIGHT,
        cap: None,
        starts: false,
        kernel: 0..0,
        ramdisks: Vec::new(),
        arguments: String::new(),
    }
}

/// What VMs here take their memory from: all of the machine's.
pub(super) fn worlds<F: TableFormat>(host: &Host<F>) -> Worlds {
    Worlds { run: host.world.clone(), memory: host.world.clone() }
}

/// The machine of a VM with that memory, without the core's part.
pub(super) fn machine<F: TableFormat>(
    host: &Host<F>,
    memory: &Arc<GuestMemory>,
    vcpus: u32,
) -> Outcome<Run> {
    let plan = plan(memory.bytes(), vcpus);
    let uart = Arc::new(Uart::new(&plan.name));
    Run::try_new(&worlds(host), &plan, memory, &uart, &Arc::default(), None).map_err(|_| NO_VM)
}

pub(super) fn create<F: TableFormat>(
    host: &Host<F>,
    memory: &Arc<GuestMemory>,
) -> Outcome<Vm<Kinds<F>>> {
    Vm::create(host.config(&host.world, memory, usize::MAX)).map_err(|_| NO_VM)
}

pub(super) fn vcpu<F: TableFormat>(vm: &Vm<Kinds<F>>, number: u32) -> Outcome<Vcpu<Kinds<F>>> {
    vm.create_vcpu(number).map_err(|_| "there is no memory for a vCPU")
}

pub(super) fn slot<F: TableFormat>(
    vm: &Vm<Kinds<F>>,
    number: u32,
    gpa: u64,
    size: u64,
) -> Outcome<()> {
    vm.set_memory_region(&region(number, gpa, size)).map_err(|_| "a slot cannot be set")
}

/// A slot, which is not logged.
pub(super) fn region(number: u32, gpa: u64, size: u64) -> Region<Hva> {
    Region {
        slot: SlotId::main(number as u16),
        flags: Flags::empty(),
        gpa: Gpa::new(gpa),
        size,
        backing: Hva::new(gpa.saturating_sub(MEMORY)),
    }
}

/// Where a doorbell is.
pub(super) fn doorbell_range(at: u64) -> IoRange {
    IoRange { start: at, len: DOORBELL_BYTES }
}

pub(super) fn doorbell<F: TableFormat>(vm: &Vm<Kinds<F>>, at: u64) -> Outcome<()> {
    let range = doorbell_range(at);
    let device: Arc<dyn Device> = Arc::<Doorbell>::default();
    vm.register_device(Bus::Mmio, range, device).map_err(|_| "a device cannot be registered")
}
