//! The course of a run: what is made for it, and what is freed when it ends.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use mayfly_hypervisor::ending::End;
use mayfly_vm::iobus::IoRange;
use mayfly_vm::memslot::{Flags, Gpa, Hva, Region, SlotId};
use mayfly_vm::platform::Platform;
use mayfly_vm::platform::address::PAGE_SIZE;
use mayfly_vm::platform::memory::OutOfMemory;
use mayfly_vm::{Bus, Change, Device, PageChange, Protection, Reason, Vm};

use super::arch::{NotResumed, Start, Stopped, Vcpus, generation, load};
use super::format::{Kinds, TableFormat};
use super::host::Host;
use super::machine::Machine;
use super::run::Run;
use super::{freeze, vcpu};
use crate::bare::devices::arch::{MEMORY, SerialPort, UART, UART_BYTES};
use crate::bare::threads::console::say;
use crate::bare::threads::{self, Name};
use crate::bare::world::Worlds;
use crate::bare::world::memory::{GuestMemory, Hears};

/// The VM of a memory that begins as an image.
struct Hearing<F: TableFormat>(Vm<Kinds<F>>);

impl<F: TableFormat> Hears for Hearing<F> {
    unsafe fn replace(
        &self,
        page: Hva,
        change: &PageChange,
        copy: &mut dyn FnMut(),
        found: &mut dyn FnMut(),
    ) {
        let takes_nothing = Change {
            reason: Reason::CopyOnWrite,
            old: Protection::ReadOnly,
            new: Protection::ReadOnly,
        };
        let announced = self.0.invalidate_start(page, PAGE_SIZE, takes_nothing);
        copy();
        let closed = PageChange { protection: Protection::ReadOnly, ..*change };
        // SAFETY: as the caller promises.
        unsafe { self.0.change_pte(&announced, page, &closed) };
        // Now no vCPU has the old frame, and none has written to the new one.
        found();
        let opened = PageChange { old: change.new, ..*change };
        // SAFETY: as the caller promises.
        unsafe { self.0.change_pte(&announced, page, &opened) };
    }
}

const NO_ROOM: &str = "there is no memory for the number of its generation";

/// What a run begins with.
struct Begun {
    run: Arc<Run>,
    memory: Arc<GuestMemory>,
    /// The vCPUs that are turned on.
    first: Vec<(usize, Start)>,
    /// What its vCPUs go on as, by number, if it is a fork.
    vcpus: Vcpus,
    console: SerialPort,
}

/// Loads what a VM begins with, or has it begin as its frozen VM was.
fn begin(machine: &Machine, worlds: &Worlds, memory: GuestMemory) -> Result<Begun, &'static str> {
    let Machine { plan, uart, counts, .. } = machine;
    let no_memory = |_: OutOfMemory| "there is no memory for a VM";
    if let Some(template) = machine.origin() {
        let memory = Arc::new(memory.over(Arc::clone(&template.memory)));
        threads::preemption_point();
        let devices = (machine.disk(), machine.take_seat());
        let resumed = Run::try_resume(worlds, plan, uart, counts, devices, template);
        let (run, vcpus, console) = resumed.map_err(|why| match why {
            NotResumed::OutOfMemory => no_memory(OutOfMemory),
            NotResumed::Bytes(error) => {
                say!("mayfly: {}: {error}", plan.name);
                "it cannot go on as its frozen VM was"
            }
        })?;
        generation::change(plan, &memory, &run.chipset).map_err(|_| NO_ROOM)?;
        threads::preemption_point();
        let start = |(number, vcpu): (usize, &Option<Box<Stopped>>)| {
            vcpu.as_ref().and_then(|vcpu| vcpu.start).map(|start| (number, start))
        };
        let first = vcpus.iter().enumerate().filter_map(start).collect();
        return Ok(Begun { run: Arc::new(run), memory, first, vcpus, console });
    }
    let (entry, context) = load(machine, &memory)?;
    generation::begin(plan, &memory).map_err(|_| NO_ROOM)?;
    let run = Run::try_new(worlds, plan, uart, counts, machine.disk()).map_err(no_memory)?;
    let first = vec![(0, Start { entry, context })];
    let console = SerialPort::new();
    Ok(Begun { run: Arc::new(run), memory: Arc::new(memory), first, vcpus: Vec::new(), console })
}

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
            Self::needs(&machine.plan, machine.disk_bytes()).table_frames as usize,
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
        let uart: Arc<dyn Device> = machine.uart.clone();
        // All at once: the bus is published anew for each change.
        let added = vm.bus(Bus::Mmio).edit(|bus| {
            bus.insert(IoRange { start: UART, len: UART_BYTES }, uart)?;
            run.devices.all().try_for_each(|(range, device)| bus.insert(range, device))
        });
        let ((), replaced) = added.map_err(|_| "its devices cannot be registered")?;
        replaced.defer();
        Ok(vm)
    }

    /// Starts the threads of a run, and waits until they have ended. The vCPUs go on as `vcpus` say, by their numbers, or are
    /// off; `first` are turned on.
    fn work(
        &self,
        vm: &Vm<Kinds<F>>,
        run: &Arc<Run>,
        memory: &Arc<GuestMemory>,
        mut vcpus: Vcpus,
        first: Vec<(usize, Start)>,
    ) {
        let share = run.world.share_id();
        run.alive.fetch_add(1, Ordering::Relaxed);
        let (its, its_memory) = (Arc::clone(run), Arc::clone(memory));
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
        for number in 0..run.power.len() as u32 {
            run.alive.fetch_add(1, Ordering::Relaxed);
            let begun = vm.create_vcpu(number).ok().and_then(|vcpu| {
                let its = Arc::clone(run);
                let before = vcpus.get_mut(number as usize).and_then(Option::take);
                let work = move || {
                    vcpu::main(&its, vcpu, before);
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
        for (vcpu, Start { entry, context }) in first {
            run.turn_on(vcpu, entry, context);
        }
        loop {
            let alive = run.alive.load(Ordering::Acquire);
            if alive == 0 {
                break;
            }
            self.world.wait(&run.alive, alive);
        }
    }

    /// Runs a VM until the run has ended and everything that the run had is freed.
    ///
    /// # Errors
    ///
    /// Why the run cannot begin.
    pub(crate) fn run(&self, machine: &Machine) -> Result<End, &'static str> {
        let no_memory = |_: OutOfMemory| "there is no memory for a VM";
        let worlds = machine.worlds().ok_or("it was guaranteed no memory")?;
        let memory = GuestMemory::try_new(worlds.memory.clone(), machine.plan.memory);
        let memory = memory.map_err(no_memory)?;
        // Of a VM that is guaranteed less than all of its memory, each page that is touched counts, and no other.
        let is_whole = machine.plan.reserved() == machine.plan.memory;
        let memory = if is_whole { memory } else { memory.by_frames() };
        let Begun { run, memory, first, vcpus, console } = begin(machine, &worlds, memory)?;
        threads::preemption_point();
        let vm = self.make(machine, &run, &memory)?;
        memory.heard_by(Some(Arc::new(Hearing(vm.clone()))));
        threads::preemption_point();
        let controller = Arc::clone(&run.chipset.controller);
        machine.uart.reset(Some(controller), console);
        machine.has_begun(&run, &memory);
        self.work(&vm, &run, &memory, vcpus, first);
        let template = loop {
            let virtual_count = run.chipset.virtual_count();
            if run.ending() != Some(End::Frozen) {
                break None;
            }
            // Nothing runs any more. What was written past the caches is in memory when this is over, and no entry is left.
            drop(vm.invalidate_start(Hva::new(0), machine.plan.memory, Reason::Unmap));
            match freeze::keep(machine, &run, &memory, virtual_count) {
                Ok(template) => break Some(template),
                Err(why) => {
                    let Some(vcpus) = freeze::go_on(&run) else { break None };
                    say!("mayfly: {} is not frozen, and goes on: {why}", machine.plan.name);
                    self.work(&vm, &run, &memory, vcpus, Vec::new());
                }
            }
        };
        memory.heard_by(None);
        // One that was kept is frozen, however it was to end meanwhile.
        let end = template.as_ref().map_or(run.ending(), |_| Some(End::Frozen));
        machine.uart.reset(None, SerialPort::new());
        machine.has_ended();
        threads::preemption_point();
        let ended = vm.clone();
        vm.destroy();
        threads::preemption_point();
        ended.wait_reclaimed();
        // Now no TLB has a translation to its memory.
        if let Some(template) = template {
            machine.freeze(template);
        }
        Ok(end.unwrap_or(End::Failed))
    }
}
