//! The course of a run: what is made for it, and what is freed when it ends.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use mayfly_hypervisor::ending::End;
use mayfly_vm::memslot::{Flags, Gpa, Hva, Region, SlotId};
use mayfly_vm::platform::memory::OutOfMemory;
use mayfly_vm::{Reason, Vm};

use super::arch::{Start, generation, load};
use super::buses;
use super::format::{Kinds, TableFormat};
use super::hearing::Hearing;
use super::host::Host;
use super::kept::NotResumed;
use super::live::Room;
use super::machine::Machine;
use super::origin::Origin;
use super::run::Run;
use super::template::Template;
use super::{freeze, live, vcpu};
use crate::bare::devices::arch::{MEMORY, SerialPort, VIRTIO, VIRTIO_PAGE_BYTES, registers};
use crate::bare::devices::disk::Medium;
use crate::bare::threads;
use crate::bare::threads::console::say;
use crate::bare::world::memory::GuestMemory;
use crate::bare::world::{Worlds, merger};

const NO_MEMORY: &str = "there is no memory for a VM";
const NOT_SET: &str = "its memory cannot be set";
const NO_ROOM: &str =
    "there is no memory for the number of its generation, and what its guest reads of its devices";

/// What a run begins with.
struct Begun {
    run: Arc<Run>,
    memory: Arc<GuestMemory>,
    /// The vCPUs that are turned on.
    first: Vec<(usize, Start)>,
    console: SerialPort,
}

/// A run that goes on as the frozen VM of `machine` was, with its memory and disk as they are, and devices of that origin:
/// and what its console goes on as. Its guest is told.
fn resume(
    machine: &Machine,
    template: &Template,
    worlds: &Worlds,
    memory: &GuestMemory,
    origin: Origin<'_>,
) -> Result<(Run, SerialPort), &'static str> {
    let Machine { plan, uart, counts, .. } = machine;
    let resumed = Run::try_resume(worlds, plan, uart, counts, origin, template);
    let (run, console) = resumed.map_err(|why| match why {
        NotResumed::OutOfMemory => NO_MEMORY,
        NotResumed::NotAtRest => "it cannot go on as its frozen VM was",
    })?;
    generation::change(plan, memory, &run.chipset).map_err(|_| NO_ROOM)?;
    Ok((run, console))
}

/// Loads what a VM begins with, or has it begin as its frozen VM was.
#[inline(never)]
fn begin(machine: &Machine, worlds: &Worlds, memory: GuestMemory) -> Result<Begun, &'static str> {
    if let Some(template) = machine.origin() {
        let memory = Arc::new(memory.over(Arc::clone(&template.memory)));
        let disk = machine.disk().and_then(Medium::frames);
        let origin = Origin::Made(&worlds.run, disk, machine.take_seat());
        let (run, console) = resume(machine, template, worlds, &memory, origin)?;
        let first = run.starts();
        return Ok(Begun { run: Arc::new(run), memory, first, console });
    }
    let Machine { plan, uart, counts, .. } = machine;
    let first = load(machine, &memory)?;
    generation::begin(plan, &memory).map_err(|_| NO_ROOM)?;
    let memory = Arc::new(memory);
    let run = Run::try_new(worlds, plan, &memory, uart, counts, machine.disk());
    let run = run.map_err(|_| NO_MEMORY)?;
    let console = SerialPort::new();
    threads::preemption_point();
    run.devices.show(&memory, registers(plan.memory) - MEMORY).map_err(|_| NO_ROOM)?;
    Ok(Begun { run: Arc::new(run), memory, first, console })
}

/// Works for the devices of a run until it ends: the thread of the VM has nothing else to do meanwhile. Returns what the run is
/// given, if it is to be forked, and goes on: then its devices are held. Not inlined, as what else is
/// done once: a stack has room for the most of them, and not for all.
#[inline(never)]
fn serve_devices(machine: &Machine, run: &Run, memory: &Arc<GuestMemory>) -> Option<Room> {
    if run.devices.serve(memory, &run.uart, || run.ending().is_some()).is_err() {
        run.end(End::OutOfMemory);
    }
    let room = machine.asked().take();
    match room {
        Some(_) => run.devices.hold(),
        None => run.devices.leave(&machine.plan.name),
    }
    room
}

/// Has the pages of a VM be merged, if it is to be. It runs all the same if they cannot be.
fn join(machine: &Machine, memory: &Arc<GuestMemory>) -> Option<merger::Member> {
    merger::join(&machine.plan, memory).unwrap_or_else(|why| {
        say!("mayfly: {} is not merged: {why}", machine.plan.name);
        None
    })
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
        vm.set_memory_region(&region).map_err(|_| NOT_SET)?;
        // A fork finds them by exits: its frozen VM's page is not what its own devices are.
        if !machine.is_fork() {
            threads::preemption_point();
            let region = Region {
                slot: SlotId::main(1),
                flags: Flags::READONLY,
                gpa: Gpa::new(VIRTIO),
                size: VIRTIO_PAGE_BYTES,
                backing: Hva::new(registers(machine.plan.memory) - MEMORY),
            };
            vm.set_memory_region(&region).map_err(|_| NOT_SET)?;
        }
        buses::fill(&vm, &run.devices, &machine.uart)?;
        Ok(vm)
    }

    /// Starts the threads of a run's vCPUs. `first` are those that are turned on.
    fn start_threads(vm: &Vm<Kinds<F>>, run: &Arc<Run>, first: Vec<(usize, Start)>) {
        let share = run.world.share_id();
        for number in 0..run.power.len() as u32 {
            run.alive.fetch_add(1, Ordering::Relaxed);
            let begun = vm.create_vcpu(number).ok().and_then(|mut vcpu| {
                let mut its = Arc::clone(run);
                let work = move || {
                    loop {
                        vcpu::main(&its, &mut vcpu);
                        let Some(next) = its.next() else { break };
                        its = next;
                    }
                    drop(vcpu);
                    its.gone();
                };
                threads::spawn_vcpu(number, share, work).ok()
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
    }

    /// Has a fork whose threads wait go on as its frozen VM was: with the same VM, threads, devices and memory. Of its memory
    /// and its disk, what was written is gone.
    ///
    /// # Errors
    ///
    /// Why it cannot go on.
    fn go_back(
        machine: &Machine,
        worlds: &Worlds,
        run: &Arc<Run>,
        memory: &Arc<GuestMemory>,
    ) -> Result<Arc<Run>, &'static str> {
        let template = machine.origin().ok_or("it is no fork")?;
        // What is typed from now on waits for the next run.
        machine.uart.stop();
        // SAFETY: the threads of the run wait, which use it for its guest. Others ask for its size alone.
        let mut freed = unsafe { memory.go_back() };
        if let Some(disk) = machine.disk_memory() {
            // SAFETY: as above.
            freed += unsafe { disk.go_back() };
        }
        machine.counts.gave_back(freed);
        let origin = Origin::Kept(&run.devices);
        let (next, console) = resume(machine, template, worlds, memory, origin)?;
        threads::preemption_point();
        let next = Arc::new(next);
        machine.uart.reset(Some(next.devices.plug()), console);
        let first = next.starts();
        machine.has_gone_back(run, &next, memory);
        run.pass_on(&next);
        for (vcpu, Start { entry, context }) in first {
            next.turn_on(vcpu, entry, context);
        }
        Ok(next)
    }

    /// Answers the monitor, which forks a run whose threads have ended, and has the run go on. One that ends for another reason
    /// by now has no threads any more.
    #[inline(never)]
    fn fork(
        vm: &Vm<Kinds<F>>,
        machine: &Machine,
        run: &Arc<Run>,
        memory: &Arc<GuestMemory>,
        room: Room,
        virtual_count: u64,
    ) {
        let answer = match run.ending() {
            Some(End::Frozen) => live::keep(vm, machine, run, memory, room, virtual_count),
            _ => Err(live::HAS_ENDED.into()),
        };
        let (answer, going_over) = match answer {
            Ok((template, going_over)) => (Ok(template), Some(going_over)),
            Err(why) => (Err(why), None),
        };
        machine.asked().answer(answer);
        drop(going_over);
        if live::go_on(run) {
            Self::start_threads(vm, run, Vec::new());
        }
    }

    /// Runs a VM until the run has ended and everything that the run had is freed.
    ///
    /// # Errors
    ///
    /// Why the run cannot begin.
    pub(crate) fn run(&self, machine: &Machine) -> Result<End, &'static str> {
        let no_memory = |_: OutOfMemory| NO_MEMORY;
        let mut worlds = machine.worlds().ok_or("it was guaranteed no memory")?;
        let memory = GuestMemory::try_new(worlds.memory.clone(), machine.plan.memory);
        let memory = memory.map_err(no_memory)?;
        // Of a VM that is guaranteed less than all of its memory, each page that is touched counts, and no other.
        let is_whole = machine.plan.reserved() == machine.plan.memory;
        let memory = if is_whole { memory } else { memory.by_frames() };
        let Begun { mut run, memory, first, console } = begin(machine, &worlds, memory)?;
        threads::preemption_point();
        let vm = self.make(machine, &run, &memory)?;
        memory.heard_by(Some(Arc::new(Hearing(vm.clone()))));
        threads::preemption_point();
        machine.uart.reset(Some(run.devices.plug()), console);
        machine.has_begun(&run, &memory);
        Self::start_threads(&vm, &run, first);
        let member = join(machine, &memory);
        let mut held = None;
        let template = loop {
            drop(held.take());
            let room = serve_devices(machine, &run, &memory);
            run.wait_for_threads();
            // Nobody but this thread uses the memory: the merger neither.
            held = member.as_ref().map(merger::Member::hold);
            let virtual_count = run.chipset.virtual_count();
            if let Some(room) = room {
                Self::fork(&vm, machine, &run, &memory, room, virtual_count);
                worlds.memory = Arc::clone(memory.world());
                continue;
            }
            match run.ending() {
                Some(End::Frozen) => {}
                Some(End::Back) => match Self::go_back(machine, &worlds, &run, &memory) {
                    Ok(next) => {
                        run = next;
                        continue;
                    }
                    Err(why) => {
                        say!("mayfly: {} cannot go back, and ends: {why}", machine.plan.name);
                        run.end(End::Failed);
                        continue;
                    }
                },
                _ => {
                    run.dismiss();
                    break None;
                }
            }
            // Nothing runs any more. What was written past the caches is in memory when this is over, and no entry is left.
            drop(vm.invalidate_start(Hva::new(0), machine.plan.memory, Reason::Unmap));
            match freeze::keep(machine, &run, &memory, virtual_count) {
                Ok(template) => break Some(template),
                Err(why) => {
                    if !freeze::go_on(&run) {
                        break None;
                    }
                    say!("mayfly: {} is not frozen, and goes on: {why}", machine.plan.name);
                    Self::start_threads(&vm, &run, Vec::new());
                }
            }
        };
        // What was frozen is not packed before it has left.
        core::mem::forget(held);
        drop(member);
        memory.heard_by(None);
        run.devices.hide();
        // One that was kept is frozen, however it was to end meanwhile.
        let end = template.as_ref().map_or(run.ending(), |_| Some(End::Frozen));
        machine.uart.reset(None, SerialPort::new());
        machine.has_ended();
        threads::preemption_point();
        let ended = vm.clone();
        vm.destroy();
        threads::preemption_point();
        ended.wait_reclaimed();
        // Much to free, of many vCPUs. The rest of the run is as much.
        run.forget_vcpus();
        threads::preemption_point();
        // Now no TLB has a translation to its memory.
        if let Some(template) = template {
            machine.freeze(template);
        }
        Ok(end.unwrap_or(End::Failed))
    }
}
