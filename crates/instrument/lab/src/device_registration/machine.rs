//! The software machine, under each of the designs that are compared.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use mayfly_iobus::{IoRange, Ioeventfd, LastHit, Refused, Replaced, WriteHit};
use mayfly_machine::{
    AnyDevice, Cpu, CpuThread, FRAMES, HostMemory, Instruction, Machine, MachineVcpu, MachineVm,
    MachineWorker, Processors, Register, Rigour, Running, VmOptions,
};
use mayfly_memslot::{Gpa, PAGE_SIZE, Region, SlotId, USER_SLOTS};
use mayfly_platform::Host;
use mayfly_platform::memory::OutOfMemory;
use mayfly_record::ResultRow;
use mayfly_srcu::Pace;
use mayfly_vm::{Bus, Exit};

use crate::affinity::{self, Pinned};
use crate::params::Order;
use crate::populate::touch;
use crate::start::Start;
use crate::work::{Interrupts, Meter, Spent, ThreadRole, Threads};

use super::backend::Subject;
use super::counted::Counted;
use super::disposal::Disposal;
use super::doorbell::Doorbell;
use super::layout::{APIC_ACCESS_PAGE, DOORBELL, EXTRA, MEMORY, eventfd_address};
use super::shape::Shape;

/// The ranges of x86's interrupt controllers, as KVM puts them on its buses.
const IRQCHIP: [(Bus, IoRange); 4] = [
    (Bus::Pio, IoRange { start: 0x20, len: 2 }),
    (Bus::Pio, IoRange { start: 0xa0, len: 2 }),
    (Bus::Pio, IoRange { start: 0x4d0, len: 2 }),
    (Bus::Mmio, IoRange { start: 0xfec0_0000, len: 0x100 }),
];

/// Loops of a guest's own work between two writes to a device.
const WORK: u32 = 100;

/// Threads that do what Linux's SRCU has its work queue do: `process_srcu()`, and `srcu_invoke_callbacks()`
/// (kernel/rcu/srcutree.c).
const OF_LINUX: NonZeroUsize = NonZeroUsize::new(2).unwrap();

/// How long the tables of a small VM take to be reclaimed, but for waiting.
const RECLAIM: Duration = Duration::from_micros(100);

/// VMs on the software machine.
pub(super) struct MachineSubject {
    disposal: Disposal,
    hz: u32,
    /// Where the worker is, and whoever measures.
    processor: usize,
    pinned: Option<Pinned>,
    machine: Machine,
    memory: Vec<HostMemory>,
    irqchip: Vec<AnyDevice>,
    eventfds: Vec<AnyDevice>,
    doorbell: Arc<Doorbell>,
    threads: Vec<CpuThread>,
    /// Processors that no vCPU has.
    cpus: Vec<Cpu>,
    internal_slot: bool,
    vm: Option<MachineVm>,
    vcpus: Vec<(MachineVcpu, Cpu)>,
    running: Vec<Running>,
    meter: Option<(Meter, Interrupts)>,
    counted: Counted,
}

impl MachineSubject {
    pub(super) fn new(disposal: Disposal, hz: u32, shape: Shape) -> anyhow::Result<Self> {
        let device = || Arc::new(Register::default()) as AnyDevice;
        let threads = (0..shape.vcpus)
            .map(|_| CpuThread::spawn())
            .collect::<Result<_, _>>()
            .context("starting a vCPU's thread")?;
        // Linux runs grace periods on a work queue of the caller's own processor, and callbacks in another work item, so
        // that no callback holds a grace period up. So the worker stays on the processor of the thread that measures, and
        // Linux's has a second thread there.
        let processor = affinity::here();
        let pinned = Pinned::to(processor);
        // Linux's SRCU has its readers execute a fence; a heavy barrier is none of its costs.
        let fenced = disposal != Disposal::Mayfly;
        let host = if fenced { Host::fenced() } else { Host::new() };
        let threads_of_worker = if fenced { OF_LINUX } else { NonZeroUsize::MIN };
        let worker = MachineWorker::spawn_several(Arc::new(host), threads_of_worker)
            .context("starting the machine's worker")?;
        drop(pinned);
        let processors = Processors { fenced, ..Processors::default() };
        let machine =
            Machine::with_worker(FRAMES, processors, worker).context("starting the machine")?;
        machine.hardware().set_rigour(Rigour::empty());
        touch_frames(&machine).context("touching the frames of tables")?;
        Ok(Self {
            disposal,
            hz,
            processor,
            pinned: None,
            memory: MEMORY
                .iter()
                .map(|&(_, size)| populated(&machine, size as u64))
                .collect::<Result<_, _>>()
                .context("mapping the guest's memory")?,
            cpus: (0..=shape.vcpus).map(|_| machine.cpu(Vec::new())).collect(),
            machine,
            irqchip: IRQCHIP.iter().map(|_| device()).collect(),
            eventfds: (0..shape.devices + EXTRA).map(|_| device()).collect(),
            doorbell: Arc::new(Doorbell::new(shape.vcpus)),
            threads,
            internal_slot: false,
            vm: None,
            vcpus: Vec::new(),
            running: Vec::new(),
            meter: None,
            counted: Counted::default(),
        })
    }

    fn vm(&self) -> anyhow::Result<&MachineVm> {
        self.vm.as_ref().context("there is no VM")
    }

    /// Disposes of what a registration replaced.
    fn dispose(
        &self,
        replaced: Result<Replaced<AnyDevice>, Refused<AnyDevice>>,
    ) -> anyhow::Result<()> {
        // Those that run are with their threads.
        let has_vcpus = !self.vcpus.is_empty() || !self.running.is_empty();
        self.disposal.dispose(replaced, has_vcpus)
    }

    /// Devices and ioeventfds that are found where there may be some, but for the doorbell.
    fn found(&self) -> anyhow::Result<usize> {
        let vm = self.vm()?;
        let section = vm.srcu().read_lock();
        let irqchip = IRQCHIP.iter().filter(|(bus, range)| {
            let found =
                vm.bus(*bus).find(&section, &mut LastHit::default(), range.start, range.len);
            found.is_some()
        });
        let indexes = 0..u32::try_from(self.eventfds.len())?;
        let eventfds = indexes.map(Self::eventfd).filter(|on| {
            let (mmio, last) = (vm.bus(Bus::Mmio), &mut LastHit::default());
            let found = mmio.find_write(&section, last, on.address, on.len.into(), 0);
            matches!(found, Some(WriteHit::Eventfd(_)))
        });
        Ok(irqchip.count() + eventfds.count())
    }

    fn eventfd(index: u32) -> Ioeventfd {
        Ioeventfd { address: eventfd_address(index), len: 4, datamatch: None }
    }
}

impl Subject for MachineSubject {
    fn warm_up(&mut self, order: Order) -> anyhow::Result<()> {
        self.pinned = Some(Pinned::to(self.processor));
        self.create(order)?;
        self.create_vcpu(0)?;
        self.prepare()?;
        self.run_to_first_exit()?;
        self.destroy()?;
        // Or whichever design is quickest at its first exit would find the reclaimer still at this VM's tables. Where
        // it has to wait for ticks first, so as not to grow cold, this does not.
        let done = Instant::now();
        while self.machine.reclaimer().frames() > 0 && done.elapsed() < RECLAIM {
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn begin(&mut self) {
        let vcpus = self.threads.iter().map(CpuThread::thread);
        let threads = vcpus.fold(Threads::default().and_of(&self.machine), |threads, vcpu| {
            threads.and(ThreadRole::Vcpu, vcpu)
        });
        let interrupts = Interrupts::of(&self.machine);
        self.meter = Some((Meter::begin(threads), interrupts));
    }

    fn end(&mut self) -> Spent {
        let Some((meter, interrupts)) = self.meter.take() else { return Spent::default() };
        let mut spent = meter.end();
        Interrupts::of(&self.machine).since(interrupts, &mut spent);
        spent
    }

    fn create(&mut self, order: Order) -> anyhow::Result<()> {
        self.internal_slot = order == Order::MemoryFirst;
        let pace = match self.disposal {
            Disposal::Mayfly => Pace::Urgent,
            _ => Pace::Linux { hz: self.hz },
        };
        self.vm = Some(self.machine.create_vm_with(VmOptions { pace, ..VmOptions::default() })?);
        Ok(())
    }

    fn create_irqchip(&mut self) -> anyhow::Result<()> {
        let vm = self.vm()?;
        for ((bus, range), device) in IRQCHIP.into_iter().zip(&self.irqchip) {
            if self.disposal == Disposal::Mayfly {
                vm.register_device(bus, range, device.clone()).map_err(|refused| refused.error)?;
            } else {
                self.dispose(vm.bus(bus).insert(range, device.clone()))?;
            }
        }
        Ok(())
    }

    fn register(&mut self, index: u32) -> anyhow::Result<()> {
        let vm = self.vm()?;
        let device = self.eventfds[index as usize].clone();
        let on = Self::eventfd(index);
        if self.disposal == Disposal::Mayfly {
            return Ok(vm
                .register_eventfd(Bus::Mmio, on, device)
                .map_err(|refused| refused.error)?);
        }
        self.dispose(vm.bus(Bus::Mmio).insert_eventfd(on, device))
    }

    fn unregister(&mut self, index: u32) -> anyhow::Result<()> {
        // The designs that are compared do the same here: `unregister` waits for an expedited grace period.
        self.vm()?.unregister_eventfd(Bus::Mmio, Self::eventfd(index))?;
        Ok(())
    }

    fn set_memory(&mut self, index: u16) -> anyhow::Result<()> {
        let memory = &self.memory[usize::from(index)];
        let gpa = Gpa::new(MEMORY[usize::from(index)].0);
        self.disposal.set_slot(self.vm()?, &memory.region(SlotId::main(index), gpa), false)
    }

    fn create_vcpu(&mut self, id: u32) -> anyhow::Result<()> {
        let vcpu = self.vm()?.create_vcpu(id)?;
        if id == 0 && self.internal_slot {
            let (slot, gpa) = (SlotId::main(USER_SLOTS), Gpa::new(APIC_ACCESS_PAGE));
            let region = Region { size: PAGE_SIZE, ..self.memory[0].region(slot, gpa) };
            self.disposal.set_slot(self.vm()?, &region, true)?;
        }
        let cpu = self.cpus.pop().context("there are no more processors")?;
        self.vcpus.push((vcpu, cpu));
        Ok(())
    }

    fn prepare(&mut self) -> anyhow::Result<()> {
        for (vcpu, cpu) in &mut self.vcpus {
            let offset = u64::from(vcpu.id() % 256) * 0x1000;
            self.memory[0].write_u64(offset, 0);
            let mine = Gpa::new(MEMORY[0].0 + offset);
            cpu.load(vec![
                Instruction::Touch { gpa: mine, len: 0x1000, value: u64::from(vcpu.id()) },
                Instruction::WriteMmio {
                    gpa: Gpa::new(DOORBELL),
                    len: 4,
                    value: u64::from(vcpu.id()),
                },
                Instruction::Spin { loops: WORK },
                Instruction::Jump(0),
            ]);
        }
        Ok(())
    }

    fn run_to_first_exit(&mut self) -> anyhow::Result<()> {
        let (vcpu, cpu) = self.vcpus.first_mut().context("there is no vCPU")?;
        let exit = vcpu.run(cpu);
        ensure!(matches!(exit, Exit::Mmio(_)), "the first exit is {exit:?}");
        Ok(())
    }

    fn start(&self) -> anyhow::Result<Start> {
        let devices = Some(self.found()? as u64);
        Ok(Start { devices, ..Start::of(self.vm()?, self.machine.hardware().arena()) })
    }

    fn start_all(&mut self, _: Shape) -> anyhow::Result<()> {
        self.doorbell.reset();
        let on = Ioeventfd { address: DOORBELL, len: 4, datamatch: None };
        let doorbell = self.doorbell.clone() as AnyDevice;
        self.vm()?.register_eventfd(Bus::Mmio, on, doorbell).map_err(|refused| refused.error)?;
        let vcpus = self.vcpus.drain(..).zip(&self.threads);
        self.running = vcpus.map(|((vcpu, cpu), thread)| thread.run(vcpu, cpu)).collect();
        // One that has come out has missed its doorbell; it is counted where all are stopped.
        let has_missed = |running: &mut [Running]| running.iter_mut().any(Running::has_come_out);
        while !self.doorbell.all_rang() && !has_missed(&mut self.running) {
            std::thread::yield_now();
        }
        // What registering the doorbell deferred is not what is measured next.
        self.vm()?.srcu().barrier();
        Ok(())
    }

    fn stop_all(&mut self) -> anyhow::Result<()> {
        let running = std::mem::take(&mut self.running);
        for id in 0..u32::try_from(running.len())? {
            self.vm()?.kick(id);
        }
        for stopped in running.into_iter().map(Running::wait) {
            self.counted.missed += u64::from(stopped.exit != Exit::Kicked);
            self.vcpus.push((stopped.vcpu, stopped.cpu));
        }
        self.counted.doorbells += u64::from(self.doorbell.all_rang());
        self.counted.note(self.vm()?.srcu().stats());
        Ok(())
    }

    fn destroy(&mut self) -> anyhow::Result<()> {
        let vm = self.vm.take().context("there is no VM")?;
        if self.disposal != Disposal::Mayfly {
            // `kvm_destroy_vm` calls `srcu_barrier` since registration defers.
            vm.srcu().barrier();
        }
        vm.destroy();
        self.cpus.extend(self.vcpus.drain(..).map(|(_, cpu)| cpu));
        Ok(())
    }

    fn clean_up(&mut self) {
        self.pinned = None;
    }

    fn report(&self, row: ResultRow) -> ResultRow {
        self.counted.report(row)
    }
}

/// Frames that tables come from: more than are in use and awaiting reclaim at one time.
const TABLE_FRAMES: usize = 128;

/// Has the host find the memory behind frames before what is measured takes them for tables.
fn touch_frames(machine: &Machine) -> Result<(), OutOfMemory> {
    let arena = machine.hardware().arena();
    let frames: Vec<_> = (0..TABLE_FRAMES).map(|_| arena.allocate(0)).collect::<Result<_, _>>()?;
    for frame in frames {
        arena.words(frame).for_each(|word| word.store(0, Ordering::Relaxed));
        arena.free(frame, 0);
    }
    Ok(())
}

/// Memory whose frames are there.
fn populated(
    machine: &Machine,
    size: u64,
) -> Result<HostMemory, mayfly_machine::address_space::Error> {
    let memory = machine.map(size)?;
    touch(&memory, size);
    Ok(memory)
}

#[cfg(test)]
mod tests;
