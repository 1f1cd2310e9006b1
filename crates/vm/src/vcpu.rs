//! A vCPU: the loop between the guest and what it needs.

use mayfly_iobus::{self as iobus, IoBus, WriteHit};
use mayfly_memslot::{AddressSpace, Backing, Flags, LastHit, PAGE_SIZE};
use mayfly_platform::memory::Shared;
use mayfly_platform::sync::{Ordering, fence};
use mayfly_srcu::{Reader, Section};

use crate::guest::{Access, Event, Guest, MMIO_MAX, PortAccess};
use crate::vm::Inner;
use crate::{Device, Requests};

/// Why [`Vcpu::run`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// An access that neither memory nor a device answers: the caller's to answer. For a write, the bytes are in
    /// [`Guest::data`]; for a read, that is where the caller puts them before it runs the vCPU again.
    Mmio(Access),
    /// An access to a port that no device has; otherwise as [`Exit::Mmio`].
    Port(PortAccess),
    /// The guest has nothing more to do.
    Halt,
    /// [`Vm::kick`](crate::Vm::kick) asked for it, or the VM is being destroyed.
    Kicked,
}

/// A vCPU. One thread at a time runs it; dropping it removes it from its VM.
pub struct Vcpu<D: Device + 'static, B: Backing> {
    id: u32,
    vm: Shared<Inner<D, B>>,
    requests: Shared<Requests>,
    reader: Reader,
    last_slot: LastHit,
    last_mmio: iobus::LastHit,
    last_pio: iobus::LastHit,
}

impl<D: Device + 'static, B: Backing> Vcpu<D, B> {
    pub(crate) fn new(
        id: u32,
        vm: Shared<Inner<D, B>>,
        requests: Shared<Requests>,
        reader: Reader,
    ) -> Self {
        Self {
            id,
            vm,
            requests,
            reader,
            last_slot: LastHit::default(),
            last_mmio: iobus::LastHit::default(),
            last_pio: iobus::LastHit::default(),
        }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// What others ask of it.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Runs the guest until its exit is one that the caller has to see.
    ///
    /// Takes no lock and waits for nobody. A device that was registered before (in the sense of happens-before, through
    /// guest memory included) this guest's access was made is found by it.
    pub fn run(&mut self, guest: &mut impl Guest<B>) -> Exit {
        loop {
            if self.requests.take_exit() || self.vm.is_destroyed() {
                return Exit::Kicked;
            }
            match guest.enter(&self.requests) {
                Event::Request => {}
                Event::Halt => return Exit::Halt,
                Event::Access(access) => {
                    if !self.access(access, guest) {
                        return Exit::Mmio(access);
                    }
                }
                Event::Port(access) => {
                    if !self.port(access, guest) {
                        return Exit::Port(access);
                    }
                }
            }
        }
    }

    /// Answers an access from memory or a device. Returns whether either did.
    fn access(&mut self, access: Access, guest: &mut impl Guest<B>) -> bool {
        order_after_guest();
        let Access { gpa, len, write } = access;
        if len == 0 || len > PAGE_SIZE - gpa.page_offset() {
            return false;
        }
        let section = self.reader.lock();
        let gfn = gpa.gfn();
        let slots = self.vm.slots.load(AddressSpace::Main, &section);
        if let Some(slot) = slots.find_near(gfn, &mut self.last_slot)
            && !(write && slot.flags().contains(Flags::READONLY))
        {
            let page = slot.backing_of(gfn);
            let Some(memory) = page.and_then(|page| page.checked_add(gpa.page_offset())) else {
                return false;
            };
            guest.access(memory);
            if write {
                slot.mark_dirty(gfn);
            }
            return true;
        }
        len <= MMIO_MAX as u64
            && on_bus(&self.vm.mmio, &section, &mut self.last_mmio, gpa.get(), write, guest.data())
    }

    /// Answers an access to a port. Returns whether a device did.
    fn port(&mut self, access: PortAccess, guest: &mut impl Guest<B>) -> bool {
        order_after_guest();
        let section = self.reader.lock();
        let address = u64::from(access.port);
        on_bus(&self.vm.pio, &section, &mut self.last_pio, address, access.write, guest.data())
    }
}

/// What the guest read before its access (that a device is there, say) was read before what the hypervisor loads next.
/// Pairs with the release that published that, through whatever carried the word to the guest.
fn order_after_guest() {
    fence(Ordering::Acquire);
}

/// Takes an access to its device. Returns whether there is one.
fn on_bus<D: Device + 'static>(
    bus: &IoBus<D>,
    section: &impl Section,
    last: &mut iobus::LastHit,
    address: u64,
    write: bool,
    data: &mut [u8],
) -> bool {
    let len = data.len() as u64;
    if !write {
        let hit = bus.find(section, last, address, len);
        return hit.map(|hit| hit.device.read(hit.offset, data)).is_some();
    }
    match bus.find_write(section, last, address, len, little_endian(data)) {
        Some(WriteHit::Eventfd(device)) => device.write(0, data),
        Some(WriteHit::Device(hit)) => hit.device.write(hit.offset, data),
        None => return false,
    }
    true
}

/// The value of at most eight bytes.
fn little_endian(data: &[u8]) -> u64 {
    data.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

impl<D: Device + 'static, B: Backing> Drop for Vcpu<D, B> {
    fn drop(&mut self) {
        self.vm.remove_vcpu(self.id);
    }
}

impl<D: Device + 'static, B: Backing> core::fmt::Debug for Vcpu<D, B> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Vcpu").field("id", &self.id).finish_non_exhaustive()
    }
}
