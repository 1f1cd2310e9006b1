//! The running kernel's KVM.

use std::mem::take;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use anyhow::{Context, bail, ensure};
use mayfly_kvm::{Exit, GuestMemory, IoEvent, Kvm, MemoryFlags, Payload, Vcpu, Vm};
use mayfly_record::ResultRow;
use rustix::thread::{Pid, gettid};

use crate::crew;
use crate::params::Order;
use crate::patience::ended;
use crate::start::Start;
use crate::work::{self, Meter, Spent, ThreadRole, Threads};

use super::backend::Subject;
use super::layout::{DOORBELL, EXTRA, MEMORY, eventfd_address};
use super::shape::Shape;

/// The port that ends the guest's pass.
const PORT: u16 = 0x10;

/// VMs on /dev/kvm.
pub(super) struct KvmSubject {
    kvm: Kvm,
    memory: Vec<GuestMemory>,
    eventfds: Vec<IoEvent>,
    doorbell: IoEvent,
    vm: Option<Vm>,
    /// ioeventfds that the VM has.
    registered: u64,
    vcpus: Vec<Vcpu>,
    /// Created while the others run.
    late: Option<Vcpu>,
    running: Vec<JoinHandle<anyhow::Result<(Vcpu, u64)>>>,
    stop: Arc<AtomicBool>,
    seen: Vec<Arc<Seen>>,
    meter: Option<Meter>,
    /// What KVM has counted of VMs whose end has not been measured yet.
    counted: Spent,
    unmapped: Vec<GuestMemory>,
    missed: u64,
    checked: u64,
}

/// What others see of a vCPU's thread.
#[derive(Default)]
struct Seen {
    passes: AtomicU64,
    thread: OnceLock<Pid>,
}

impl Seen {
    fn passes(&self) -> u64 {
        self.passes.load(Ordering::Relaxed)
    }
}

impl KvmSubject {
    pub(super) fn new(shape: Shape) -> anyhow::Result<Self> {
        let memory: Vec<_> = MEMORY
            .iter()
            .map(|&(_, size)| GuestMemory::map_populated(size))
            .collect::<Result<_, _>>()?;
        Payload::install(&memory[0])?;
        let eventfd = |index| IoEvent::new(eventfd_address(index), 4, None);
        Ok(Self {
            kvm: Kvm::open()?,
            memory,
            eventfds: (0..shape.devices + EXTRA).map(eventfd).collect::<Result<_, _>>()?,
            doorbell: IoEvent::new(DOORBELL, 4, None)?,
            vm: None,
            registered: 0,
            vcpus: Vec::new(),
            late: None,
            running: Vec::new(),
            stop: Arc::default(),
            seen: Vec::new(),
            meter: None,
            counted: Spent::default(),
            unmapped: Vec::new(),
            missed: 0,
            checked: 0,
        })
    }

    fn vm(&self) -> anyhow::Result<&Vm> {
        self.vm.as_ref().context("there is no VM")
    }
}

/// What failed while vCPUs ran leaves none running: they would take the processors of whatever is measured next.
impl Drop for KvmSubject {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.running.drain(..) {
            // Why it was dropped has been said; a panic has been reported by its own message.
            let _ = thread.join();
        }
    }
}

impl Subject for KvmSubject {
    fn warm_up(&mut self, order: Order) -> anyhow::Result<()> {
        self.create(order)?;
        self.create_vcpu(0)?;
        self.destroy()?;
        self.clean_up();
        Ok(())
    }

    fn begin(&mut self) {
        let vcpus = self.seen.iter().filter_map(|seen| seen.thread.get().copied());
        let threads =
            vcpus.fold(Threads::default(), |threads, vcpu| threads.and(ThreadRole::Vcpu, vcpu));
        self.meter = Some(Meter::begin(threads));
    }

    fn end(&mut self) -> Spent {
        let mut spent = take(&mut self.counted);
        self.meter.take().into_iter().for_each(|meter| spent += &meter.end());
        spent
    }

    fn create(&mut self, _: Order) -> anyhow::Result<()> {
        self.vm = Some(Vm::create(&self.kvm)?);
        self.registered = 0;
        Ok(())
    }

    fn create_irqchip(&mut self) -> anyhow::Result<()> {
        Ok(self.vm()?.create_irqchip()?)
    }

    fn register(&mut self, index: u32) -> anyhow::Result<()> {
        self.vm()?.register_ioeventfd(&self.eventfds[index as usize])?;
        self.registered += 1;
        Ok(())
    }

    fn unregister(&mut self, index: u32) -> anyhow::Result<()> {
        self.vm()?.unregister_ioeventfd(&self.eventfds[index as usize])?;
        self.registered -= 1;
        Ok(())
    }

    fn set_memory(&mut self, index: u16) -> anyhow::Result<()> {
        let (gpa, _) = MEMORY[usize::from(index)];
        let memory = &self.memory[usize::from(index)];
        Ok(self.vm()?.set_memory_region(u32::from(index), gpa, memory, MemoryFlags::default())?)
    }

    fn creates_vcpus_late(&self) -> bool {
        Vm::VCPUS_AT_ANY_TIME
    }

    fn create_vcpu(&mut self, id: u32) -> anyhow::Result<()> {
        let vcpu = self.vm()?.create_vcpu(id)?;
        if self.running.is_empty() {
            self.vcpus.push(vcpu);
        } else {
            self.late = Some(vcpu);
        }
        Ok(())
    }

    fn prepare(&mut self) -> anyhow::Result<()> {
        self.memory[0].write(usize::try_from(Payload::FREE)?, &[0; 8])?;
        let touch = Payload::FREE..Payload::FREE + 0x1000;
        let payload = Payload { touch, doorbell: Some(DOORBELL), port: PORT };
        self.vcpus.iter_mut().try_for_each(|vcpu| vcpu.load(&payload))?;
        Ok(self.vm()?.finish_irqchip()?)
    }

    fn run_to_first_exit(&mut self) -> anyhow::Result<()> {
        let exit = self.vcpus.first_mut().context("there is no vCPU")?.run_to_exit()?;
        ensure!(
            matches!(exit, Exit::MmioWrite { gpa: DOORBELL, .. }),
            "the first exit is {exit:?}"
        );
        Ok(())
    }

    fn start(&self) -> anyhow::Result<Start> {
        let (slots, vcpus) = (self.vm()?.memory_regions() as u64, self.vcpus.len() as u64);
        Ok(Start { slots, vcpus, devices: Some(self.registered), ..Start::default() })
    }

    fn start_all(&mut self, shape: Shape) -> anyhow::Result<()> {
        self.vm()?.register_ioeventfd(&self.doorbell)?;
        self.stop.store(false, Ordering::Relaxed);
        self.seen = (0..shape.vcpus).map(|_| Arc::default()).collect();
        for (vcpu, seen) in self.vcpus.drain(..).zip(&self.seen) {
            let (stop, seen) = (self.stop.clone(), seen.clone());
            let work = move || run(vcpu, &stop, &seen);
            self.running.push(crew::vcpu_thread().spawn(work).context(crew::WHAT)?);
        }
        while self.seen.iter().any(|seen| seen.passes() == 0) {
            if self.running.iter().any(JoinHandle::is_finished) {
                // It says why.
                self.stop_all()?;
                bail!("a vCPU has ended before all ran");
            }
            std::thread::yield_now();
        }
        // Deleting a slot that is not in the guest's way synchronises: what registering the doorbell deferred is not
        // what is measured next.
        self.vm()?.delete_memory_region(1)?;
        Ok(())
    }

    fn stop_all(&mut self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.running.drain(..) {
            let (vcpu, missed) = ended(thread.join())?;
            self.vcpus.push(vcpu);
            self.missed += missed;
        }
        self.vcpus.extend(self.late.take());
        self.seen.clear();
        let vm = self.vm.as_ref().context("there is no VM")?;
        work::kvm(vm, &self.vcpus, &mut self.counted);
        self.checked += 1;
        Ok(())
    }

    fn destroy(&mut self) -> anyhow::Result<()> {
        let vm = self.vm.take().context("there is no VM")?;
        self.unmapped = vm.destroy(take(&mut self.vcpus));
        Ok(())
    }

    fn clean_up(&mut self) {
        self.unmapped.clear();
    }

    fn report(&self, row: ResultRow) -> ResultRow {
        row.check(
            "device_found",
            self.missed == 0,
            format!(
                "{} writes missed a registered device; {} VMs checked",
                self.missed, self.checked
            ),
        )
    }
}

/// Runs a vCPU until it is to stop. Returns it, and how often its doorbell had no ioeventfd.
fn run(mut vcpu: Vcpu, stop: &AtomicBool, seen: &Seen) -> anyhow::Result<(Vcpu, u64)> {
    let mut missed = 0;
    seen.thread.get_or_init(gettid);
    while !stop.load(Ordering::Relaxed) {
        match vcpu.run_to_exit()? {
            Exit::PortWrite { .. } => {
                seen.passes.fetch_add(1, Ordering::Relaxed);
            }
            Exit::MmioWrite { .. } => missed += 1,
            Exit::DirtyRingFull => bail!("a VM without rings has a full one"),
        }
    }
    Ok((vcpu, missed))
}

#[cfg(test)]
mod tests {
    use std::io::{Write, stderr};

    use super::*;

    #[test]
    fn one_vcpu_that_does_not_run_is_not_waited_for() {
        if let Err(error) = Kvm::open() {
            let _ = writeln!(stderr(), "not run: {error}");
            return;
        }
        let shape = Shape { devices: 1, vcpus: 2 };
        let mut subject = KvmSubject::new(shape).unwrap();
        subject.create(Order::DevicesFirst).unwrap();
        subject.create_irqchip().unwrap();
        subject.set_memory(0).unwrap();
        (0..shape.vcpus).for_each(|id| subject.create_vcpu(id).unwrap());
        subject.prepare().unwrap();
        // Past what its page tables map.
        let payload =
            Payload { touch: Payload::REACH..Payload::REACH + 1, doorbell: None, port: PORT };
        subject.vcpus[1].load(&payload).unwrap();
        let error = subject.start_all(shape).unwrap_err().to_string();
        assert!(error.contains("unexpected exit"), "{error}");
    }
}
