//! Faults: vCPUs that touch pages for the first time.
//!
//! Each fault is a whole exit: out of the guest, to the memslot, to the host's frame, into the tables, and into the
//! guest again. The guest does nothing else, and all its pages are one frame, so that Mayfly's work is timed,
//! and not the zeroing of frames.

use std::cell::Cell;
use std::sync::Arc;

use mayfly_machine::address_space::Backing;
use mayfly_machine::{HostMemory, Machine, MachineVcpu, MachineVm};
use mayfly_memslot::{Gfn, Gpa, PAGE_SIZE, Region, SlotId};
use mayfly_stage2::{Ept, Format, Level};
use mayfly_vm::{Access, Event, Exit, Guest, Requests, Translation};

use crate::tables::{GIB, PAGES};

/// vCPUs of a VM, each with a GiB of its own.
pub const VCPUS: u16 = 2;

/// Where the VMs live, and the memory behind all of them.
#[derive(Debug)]
pub struct Host {
    memory: [HostMemory; VCPUS as usize],
    machine: Machine<Ept>,
}

impl Host {
    /// A machine with frames for the tables of a few VMs.
    ///
    /// # Panics
    ///
    /// If the system has no thread or address space for it.
    pub fn new() -> Arc<Self> {
        let machine = Machine::with_frames(1 << 15).expect("the system has some address space");
        let backing = Backing::Shared(Level::PAGE);
        let memory = [(); VCPUS as usize]
            .map(|()| machine.map_backed(GIB, backing).expect("that is one frame"));
        Arc::new(Self { memory, machine })
    }
}

/// VMs whose vCPUs fault, as many pages each.
#[derive(Debug)]
pub struct Vms {
    all: Vec<MachineVm<Ept>>,
    host: Arc<Host>,
    /// Faults of each vCPU since there was all the room.
    done: Cell<u32>,
}

impl Vms {
    /// So many VMs, with memory for [`VCPUS`].
    ///
    /// # Panics
    ///
    /// If there is no memory for them.
    pub fn new(host: &Arc<Host>, count: usize) -> Self {
        let vm = || host.machine.create_vm().expect("a VM takes little memory");
        let all = (0..count).map(|_| vm()).collect();
        let this = Self { all, host: Arc::clone(host), done: Cell::new(0) };
        this.set_slots(GIB);
        this
    }

    /// vCPU `number` of one of the VMs.
    ///
    /// # Panics
    ///
    /// If there is no such VM, or the vCPU is there already.
    pub fn vcpu(&self, vm: usize, number: u16) -> Toucher {
        let vcpu = self.all[vm].create_vcpu(u32::from(number)).expect("a vCPU takes little memory");
        let guest = FirstTouches { first: u64::from(number) * GIB, offset: 0, left: 0 };
        Toucher { vcpu, guest }
    }

    /// To be called before each vCPU faults `count` times more, which is at most once through its GiB: zaps everything
    /// if that would lead to pages that are mapped.
    pub fn make_room(&self, count: u32) {
        if self.done.get() + count > PAGES {
            self.set_slots(0);
            self.set_slots(GIB);
            self.done.set(0);
        }
        self.done.set(self.done.get() + count);
    }

    /// How many frames the VMs' tables take.
    pub fn frames(&self) -> usize {
        self.all.iter().map(|vm| vm.stage2().frames()).sum()
    }

    fn set_slots(&self, size: u64) {
        for vm in &self.all {
            for number in 0..VCPUS {
                let memory = &self.host.memory[usize::from(number)];
                let region = memory.region(SlotId::main(number), Gpa::new(u64::from(number) * GIB));
                let region = Region { size, ..region };
                vm.set_memory_region(&region).expect("no two slots overlap");
            }
        }
    }
}

/// A vCPU whose guest touches one page after the other, round and round its GiB.
#[derive(Debug)]
pub struct Toucher {
    vcpu: MachineVcpu<Ept>,
    guest: FirstTouches,
}

impl Toucher {
    /// Runs it until it has touched `count` pages more.
    ///
    /// # Panics
    ///
    /// If a fault is not answered from memory.
    pub fn run(&mut self, count: u32) {
        self.guest.left = count;
        assert_eq!(self.vcpu.run(&mut self.guest), Exit::Halt);
    }
}

#[derive(Debug)]
struct FirstTouches {
    /// Where the GiB begins.
    first: u64,
    /// Bytes from there to the next page.
    offset: u64,
    left: u32,
}

impl<F: Format> Guest<F> for FirstTouches {
    /// Takes the access that it came out with for done.
    fn enter(&mut self, _: Translation<F>, _: &Requests) -> Event {
        if self.left == 0 {
            return Event::Halt;
        }
        self.left -= 1;
        let gpa = Gpa::new(self.first + self.offset);
        self.offset = (self.offset + PAGE_SIZE) % GIB;
        Event::Access(Access::data(gpa, 8, true))
    }

    fn forget(&mut self, _: Gfn) {}

    fn data(&mut self) -> &mut [u8] {
        &mut []
    }

    fn answered(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_touch_is_a_fault_in_a_page_of_its_own() {
        let count = PAGES / 8;
        let vms = Vms::new(&Host::new(), 1);
        let mut touchers = [vms.vcpu(0, 0), vms.vcpu(0, 1)];
        let before = vms.frames();
        for round in 0..20 {
            vms.make_room(count);
            for toucher in &mut touchers {
                toucher.run(count);
            }
            let tables = (round % 8 + 1) * count as usize / 512;
            // Beside those of the pages, one above them for each GiB, and one above both.
            assert_eq!(vms.frames() - before, 2 * (tables + 1) + 1, "round {round}");
        }
    }
}
