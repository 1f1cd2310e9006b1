//! The start of a VM on KVM and its end, and nothing between: in an order of calls, or by the builder.
//!
//! A start that saves what the end pays is no gain, so the two stand side by side, with their sum. What registrations have
//! armed is over after a few ticks, and a VM that is closed before that waits for it: one VM is closed then, and another as
//! soon as it is ready.

use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mayfly_kvm::{GuestMemory, IoEvent, Irqchip, Kvm, MemoryFlags, Vcpu, Vm, VmBuilder, Waits};

use crate::params::Order;
use crate::start::Start;

use super::layout::{MEMORY, eventfd_address};
use super::shape::Shape;
use super::timed::{Timed, Timings};

/// What waits for what: measured once, since it stays the same as long as the host is up.
static WAITS: OnceLock<Waits> = OnceLock::new();

/// Makes VMs that start and end.
pub(super) struct Short {
    kvm: Kvm,
    memory: GuestMemory,
    /// What the builder goes by, if VMs are the builder's.
    builder: Option<&'static Waits>,
}

impl Short {
    /// VMs made in the order of calls that is asked for.
    pub(super) fn ordered() -> anyhow::Result<Self> {
        Ok(Self {
            kvm: Kvm::open()?,
            memory: GuestMemory::map_populated(MEMORY[0].1)?,
            builder: None,
        })
    }

    /// VMs made by the builder, in the order that waits least here. What that is has to be found out first, which takes a
    /// second or two.
    pub(super) fn built() -> anyhow::Result<Self> {
        let short = Self::ordered()?;
        let waits = WAITS.get_or_init(|| Waits::measured(&short.kvm));
        Ok(Self { builder: Some(waits), ..short })
    }

    /// The builder's order, and what waits in it.
    pub(super) fn plan(&self, shape: Shape) -> anyhow::Result<Option<String>> {
        let plan = |waits| Ok(self.builder(waits, shape)?.plan().to_string());
        self.builder.map(plan).transpose()
    }

    /// Starts a VM and ends it, after a while of this length; and another, which it ends at once. `phase` takes a time less
    /// than a tick.
    pub(super) fn live(
        &self,
        order: Order,
        shape: Shape,
        timings: &mut Timings,
        age: Duration,
        phase: &mut dyn FnMut(),
    ) -> anyhow::Result<()> {
        phase();
        let [ready, after_create, close] = self.one(order, shape, age, timings)?;
        timings.took(Timed::Ready, ready);
        timings.took(Timed::ReadyAfterCreate, after_create);
        timings.took(Timed::Close, close);
        timings.took(Timed::ReadyAndClose, ready + close);
        phase();
        let [ready, _, close] = self.one(order, shape, Duration::ZERO, timings)?;
        timings.took(Timed::CloseAtOnce, close);
        timings.took(Timed::ReadyAndCloseAtOnce, ready + close);
        Ok(())
    }

    /// One VM: until all vCPUs are there, the same from when it was created, and its end. It is warmed up with one that is
    /// not timed.
    fn one(
        &self,
        order: Order,
        shape: Shape,
        age: Duration,
        timings: &mut Timings,
    ) -> anyhow::Result<[Duration; 3]> {
        let warm = Vm::create(&self.kvm)?;
        warm.create_irqchip()?;
        let vcpu = warm.create_vcpu(0)?;
        warm.destroy(vec![vcpu]);

        let (vm, vcpus, ready, after_create) = match self.builder {
            Some(waits) => {
                let builder = self.builder(waits, shape)?;
                let start = Instant::now();
                let built = builder.start()?;
                let ready = start.elapsed();
                (built.vm, built.vcpus, ready, built.timeline.after_creation())
            }
            None => self.start(order, shape)?,
        };
        let (slots, count) = (vm.memory_regions() as u64, vcpus.len() as u64);
        timings.starts.note("close", Start { slots, vcpus: count, ..Start::default() });
        sleep(age);
        let end = Instant::now();
        let memory = vm.destroy(vcpus);
        let close = end.elapsed();
        drop(memory);
        Ok([ready, after_create, close])
    }

    fn builder<'a>(&'a self, waits: &'a Waits, shape: Shape) -> anyhow::Result<VmBuilder<'a>> {
        let builder = VmBuilder::new(&self.kvm, waits).irqchip(Irqchip::Full).vcpus(shape.vcpus);
        let builder = builder.region(MEMORY[0].0, &self.memory);
        Ok(events(shape)?.into_iter().fold(builder, VmBuilder::ioeventfd))
    }

    fn start(
        &self,
        order: Order,
        shape: Shape,
    ) -> anyhow::Result<(Vm, Vec<Vcpu>, Duration, Duration)> {
        let events = events(shape)?;
        let (gpa, _) = MEMORY[0];
        let irqchip = |vm: &Vm| vm.create_irqchip();
        let register = |vm: &Vm| events.iter().try_for_each(|event| vm.register_ioeventfd(event));
        let memory = |vm: &Vm| vm.set_memory_region(0, gpa, &self.memory, MemoryFlags::default());
        let vcpus = |vm: &Vm| (0..shape.vcpus).map(|id| vm.create_vcpu(id)).collect();
        let start = Instant::now();
        let vm = Vm::create(&self.kvm)?;
        let created = Instant::now();
        let all: Result<Vec<Vcpu>, _> = match order {
            Order::DevicesFirst => {
                irqchip(&vm)?;
                register(&vm)?;
                memory(&vm)?;
                vcpus(&vm)
            }
            Order::VcpusFirst => {
                irqchip(&vm)?;
                let all = vcpus(&vm);
                register(&vm)?;
                memory(&vm)?;
                all
            }
            Order::MemoryFirst => {
                memory(&vm)?;
                irqchip(&vm)?;
                register(&vm)?;
                vcpus(&vm)
            }
        };
        let all = all?;
        vm.finish_irqchip()?;
        Ok((vm, all, start.elapsed(), created.elapsed()))
    }
}

fn events(shape: Shape) -> anyhow::Result<Vec<IoEvent>> {
    let event = |index| Ok(IoEvent::new(eventfd_address(index), 4, None)?);
    (0..shape.devices).map(event).collect()
}
