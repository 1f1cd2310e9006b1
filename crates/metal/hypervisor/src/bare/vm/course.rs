//! The course of a run: what is made for it, and what is freed when it ends.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use mayfly_vm::iobus::IoRange;
use mayfly_vm::memslot::{Flags, Gpa, Hva, Region, SlotId};
use mayfly_vm::platform::Platform;
use mayfly_vm::platform::memory::OutOfMemory;
use mayfly_vm::{Bus, Device, Vm};

use super::arch::load;
use super::format::{Kinds, TableFormat};
use super::host::Host;
use super::machine::Machine;
use super::run::{End, Run};
use super::vcpu;
use crate::bare::devices::arch::{MEMORY, UART, UART_BYTES};
use crate::bare::threads::{self, Name};
use crate::bare::world::memory::GuestMemory;

impl<F: TableFormat> Host<F> {
    fn make(
        &self,
        machine: &Machine,
        run: &Run,
        memory: &Arc<GuestMemory>,
    ) -> Result<Vm<Kinds<F>>, &'static str> {
        let vm = Vm::create(self.config(
            &run.world,
            memory,
            Self::needs(&machine.plan).table_frames as usize,
        ))
        .map_err(|_| "there is no memory for a VM")?;
        let region = Region {
            slot: SlotId::main(0),
            flags: Flags::empty(),
            gpa: Gpa::new(MEMORY),
            size: machine.plan.memory,
            backing: Hva::new(0),
        };
        vm.set_memory_region(&region).map_err(|_| "its memory cannot be set")?;
        let range = IoRange { start: UART, len: UART_BYTES };
        let uart: Arc<dyn Device> = machine.uart.clone();
        vm.register_device(Bus::Mmio, range, uart)
            .map_err(|_| "its console cannot be registered")?;
        for (range, device) in run.devices.all() {
            vm.register_device(Bus::Mmio, range, device)
                .map_err(|_| "its devices cannot be registered")?;
        }
        Ok(vm)
    }

    /// Runs a VM until the run has ended and everything that the run had is freed.
    ///
    /// # Errors
    ///
    /// Why the run cannot begin.
    pub(crate) fn run(&self, machine: &Machine) -> Result<End, &'static str> {
        let no_memory = |_: OutOfMemory| "there is no memory for a VM";
        let worlds = machine.worlds().ok_or("it was guaranteed no memory")?;
        let share = worlds.run.share_id();
        let memory = GuestMemory::try_new(worlds.memory.clone(), machine.plan.memory);
        let memory = memory.map_err(no_memory)?;
        // Of a VM that is guaranteed less than all of its memory, each page that is touched counts, and no other.
        let is_whole = machine.plan.reserved() == machine.plan.memory;
        let memory = Arc::new(if is_whole { memory } else { memory.by_frames() });
        let (entry, tree) = load(machine, &memory)?;
        let run =
            Run::try_new(&worlds, &machine.plan, &machine.uart, &machine.counts, machine.disk());
        let run = Arc::new(run.map_err(no_memory)?);
        threads::preemption_point();
        let vm = self.make(machine, &run, &memory)?;
        threads::preemption_point();
        machine.uart.reset(Some(Arc::clone(&run.chipset.controller)));
        machine.has_begun(&run, &memory);
        run.alive.fetch_add(1, Ordering::Relaxed);
        let (its, its_memory) = (Arc::clone(&run), Arc::clone(&memory));
        let work = move || {
            if its.devices.serve(&its_memory, its.uart.name(), || its.ending().is_some()).is_err() {
                its.end(End::OutOfMemory);
            }
            // Before the run is over: then everything that it had is to be free.
            drop(its_memory);
            its.gone();
        };
        if threads::spawn_in(Name::new("the devices"), share, work).is_err() {
            run.gone();
            run.end(End::Failed);
        }
        for number in 0..machine.plan.vcpus {
            run.alive.fetch_add(1, Ordering::Relaxed);
            let begun = vm.create_vcpu(number).ok().and_then(|vcpu| {
                let its = Arc::clone(&run);
                let work = move || {
                    vcpu::main(&its, vcpu);
                    its.gone();
                };
                threads::spawn_in(Name::numbered("vCPU", number), share, work).ok()
            });
            if begun.is_none() {
                run.gone();
                run.end(End::Failed);
            }
            threads::preemption_point();
        }
        run.turn_on(0, entry, tree);
        loop {
            let alive = run.alive.load(Ordering::Acquire);
            if alive == 0 {
                break;
            }
            self.world.wait(&run.alive, alive);
        }
        machine.uart.reset(None);
        machine.has_ended();
        threads::preemption_point();
        let ended = vm.clone();
        vm.destroy();
        threads::preemption_point();
        ended.wait_reclaimed();
        Ok(run.ending().unwrap_or(End::Failed))
    }
}
