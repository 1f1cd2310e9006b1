//! Plays a script in a VM of its own, with a guest of a few instructions.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use kvm_bindings::{KVM_IRQ_ROUTING_MSI, KvmIrqRouting, kvm_irq_routing_entry};
use mayfly_kvm::kvm_ioctls::{self, IoEventAddress};
use mayfly_kvm::{Error, GuestMemory, IoEvent, IrqFd, Kvm, MemoryFlags, Payload, Vcpu, Vm};
use mayfly_record::here::queued;

use super::memory::Memory;
use super::script::{Act, Change, IoEvent as Event, Part, Step};

/// Threads that create vCPUs together; more of them wait for each other.
const THREADS: usize = 8;

/// How long calls took, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pass {
    pub(super) start: u64,
    pub(super) meanwhile: u64,
    pub(super) close: u64,
    /// Each step's, by the recorded call that it stands for.
    pub(super) each: Vec<(usize, u64)>,
}

impl Pass {
    pub(super) fn whole(&self) -> u64 {
        self.start + self.meanwhile + self.close
    }

    fn add(&mut self, part: Part, took: Duration) -> u64 {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        *match part {
            Part::Start => &mut self.start,
            Part::Meanwhile => &mut self.meanwhile,
            Part::Close => &mut self.close,
        } += took;
        took
    }
}

/// Lives the steps, and closes the VM.
///
/// # Errors
/// A clause that names the call that failed.
pub(super) fn play(
    kvm: &Kvm,
    memory: &Memory,
    steps: &[Step],
    before_close: u64,
) -> Result<Pass, String> {
    let mut stage = Stage::new(kvm, memory);
    let mut pass = Pass::default();
    for (number, Step { act, pause, part, call }) in steps.iter().enumerate() {
        let failed = |error: Error| {
            let (number, all) = (number + 1, steps.len());
            format!("in the replay, call {number} of {all} ({}) failed: {error}", act.name())
        };
        stage.prepare(act).map_err(failed)?;
        wait(*pause);
        let clock = Clock::start();
        stage.make(act).map_err(failed)?;
        let took = pass.add(*part, clock.stop());
        pass.each.push((*call, took));
    }
    wait(before_close);
    let clock = Clock::start();
    stage.close();
    pass.add(Part::Close, clock.stop());
    Ok(pass)
}

/// Lets time pass: asleep for most of it, and awake at the end, so that it is no longer.
fn wait(nanoseconds: u64) {
    const AWAKE: Duration = Duration::from_micros(150);
    let until = Instant::now() + Duration::from_nanos(nanoseconds);
    let asleep = Duration::from_nanos(nanoseconds).saturating_sub(AWAKE);
    if !asleep.is_zero() {
        thread::sleep(asleep);
    }
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Times a call, without what other threads had the processor for: that is theirs, and would be taken for a wait.
struct Clock {
    queued: u64,
    begun: Instant,
}

impl Clock {
    fn start() -> Self {
        Self { queued: queued(), begun: Instant::now() }
    }

    fn stop(self) -> Duration {
        let took = self.begun.elapsed();
        took.saturating_sub(Duration::from_nanos(queued().saturating_sub(self.queued)))
    }
}

/// A VM while it is played.
struct Stage<'a> {
    kvm: &'a Kvm,
    memory: &'a Memory,
    vm: Option<Vm>,
    vcpus: BTreeMap<u32, Vcpu>,
    /// Where the guest's code can be: what begins at address 0.
    low: Option<&'a GuestMemory>,
    events: BTreeMap<Event, IoEvent>,
    lines: BTreeMap<(u64, u32), IrqFd>,
    routes: Option<KvmIrqRouting>,
}

impl<'a> Stage<'a> {
    fn new(kvm: &'a Kvm, memory: &'a Memory) -> Self {
        Self {
            kvm,
            memory,
            vm: None,
            vcpus: BTreeMap::new(),
            low: None,
            events: BTreeMap::new(),
            lines: BTreeMap::new(),
            routes: None,
        }
    }

    fn vm(&self) -> Result<&Vm, Error> {
        // The first step of each script makes it.
        self.vm.as_ref().ok_or(Error::Call { call: "KVM_CREATE_VM", errno: libc::EBADF })
    }

    /// What a call needs, and is not to be counted.
    fn prepare(&mut self, act: &Act) -> Result<(), Error> {
        match act {
            Act::IoEvent(event, Change::Comes) => {
                let made = if event.is_port { IoEvent::at_port } else { IoEvent::new };
                let made = made(event.address, event.length, event.value)?;
                self.events.insert(*event, made);
            }
            Act::IrqFd { eventfd, gsi, change: Change::Comes } => {
                self.lines.insert((*eventfd, *gsi), IrqFd::new(*gsi)?);
            }
            Act::Routing(count) => self.routes = Some(routes(*count)?),
            Act::Run(id) => {
                if let (Some(memory), Some(vcpu)) = (self.low, self.vcpus.get_mut(id)) {
                    Payload::install(memory)?;
                    vcpu.load(&Payload {
                        touch: Payload::FREE..Payload::FREE,
                        doorbell: None,
                        port: 0x10,
                    })?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn make(&mut self, act: &Act) -> Result<(), Error> {
        match act {
            Act::CreateVm => self.vm = Some(Vm::create(self.kvm)?),
            Act::Slot { slot, guest, size, flags } => {
                let flags = MemoryFlags { log_dirty: flags & 1 != 0, read_only: flags & 2 != 0 };
                let mapped = self.memory.of_slot(*slot, *size);
                let memory = mapped.ok_or(Error::NoHostAddress { gpa: *guest })?;
                self.vm()?.set_memory_region(*slot, *guest, memory, flags)?;
                if *guest == 0 && !flags.read_only && memory.size() as u64 >= Payload::FREE {
                    self.low = Some(memory);
                }
            }
            Act::DeleteSlot { slot } => {
                self.vm()?.delete_memory_region(*slot)?;
            }
            Act::TssAddress(address) => tss(self.vm()?, *address)?,
            Act::IdentityMap => identity_map(self.vm()?)?,
            Act::Irqchip => self.vm()?.create_irqchip()?,
            Act::SplitIrqchip => self.vm()?.split_irqchip()?,
            Act::Pit => self.vm()?.create_pit()?,
            Act::Routing(_) => {
                let routes = self.routes.take();
                let call = named("KVM_SET_GSI_ROUTING");
                routes.map_or(Ok(()), |routes| {
                    self.vm()?.fd().set_gsi_routing(&routes).map_err(call)
                })?;
            }
            Act::Coalesced { address, size, is_there } => {
                let (fd, at) = (self.vm()?.fd(), IoEventAddress::Mmio(*address));
                let done = if *is_there {
                    fd.register_coalesced_mmio(at, *size)
                } else {
                    fd.unregister_coalesced_mmio(at, *size)
                };
                done.map_err(named(act.name()))?;
            }
            Act::IoEvent(event, change) => {
                let made = self.events.get(event);
                let made =
                    made.ok_or(Error::Call { call: "KVM_IOEVENTFD", errno: libc::ENOENT })?;
                match change {
                    Change::Comes => self.vm()?.register_ioeventfd(made)?,
                    Change::Goes => self.vm()?.unregister_ioeventfd(made)?,
                }
            }
            Act::IrqFd { eventfd, gsi, change } => {
                let made = self.lines.get(&(*eventfd, *gsi));
                let made = made.ok_or(Error::Call { call: "KVM_IRQFD", errno: libc::ENOENT })?;
                match change {
                    Change::Comes => self.vm()?.register_irqfd(made)?,
                    Change::Goes => self.vm()?.unregister_irqfd(made)?,
                }
            }
            Act::Vcpu(id) => {
                let vcpu = self.vm()?.create_vcpu(*id)?;
                self.vcpus.insert(*id, vcpu);
            }
            Act::Vcpus(ids) => {
                let threads = available_parallelism().map_or(1, NonZero::get).min(THREADS) as u32;
                let made = self.vm()?.create_vcpus(ids, threads)?;
                self.vcpus.extend(ids.iter().copied().zip(made));
            }
            Act::Run(id) => {
                if let (Some(_), Some(vcpu)) = (self.low, self.vcpus.get_mut(id)) {
                    match vcpu.run_to_exit() {
                        // Why it left does not matter: it was entered.
                        Ok(_) | Err(Error::Exit(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(())
    }

    /// Closes vCPUs and VM. Memory and eventfds stay until that has been timed.
    fn close(&mut self) {
        if let Some(vm) = self.vm.take() {
            vm.destroy(std::mem::take(&mut self.vcpus).into_values().collect());
        }
    }
}

fn named(call: &'static str) -> impl FnOnce(kvm_ioctls::Error) -> Error {
    move |error| Error::Call { call, errno: error.errno() }
}

/// A table of so many routes, each to a message of its own.
fn routes(count: u64) -> Result<KvmIrqRouting, Error> {
    let too_many = || Error::Call { call: "KVM_SET_GSI_ROUTING", errno: libc::E2BIG };
    // KVM_MAX_IRQ_ROUTES of linux/kvm_host.h; before anything is put into them.
    let count = u32::try_from(count).ok().filter(|count| *count <= 4096).ok_or_else(too_many)?;
    let route =
        |gsi| kvm_irq_routing_entry { gsi, type_: KVM_IRQ_ROUTING_MSI, ..Default::default() };
    let all: Vec<_> = (0..count).map(route).collect();
    KvmIrqRouting::from_entries(&all).map_err(|_| too_many())
}

#[cfg(target_arch = "x86_64")]
fn tss(vm: &Vm, address: u64) -> Result<(), Error> {
    let address = usize::try_from(address).unwrap_or(usize::MAX);
    vm.fd().set_tss_address(address).map_err(named("KVM_SET_TSS_ADDR"))
}

#[cfg(target_arch = "x86_64")]
fn identity_map(vm: &Vm) -> Result<(), Error> {
    // Below the four pages that the TSS has, as QEMU has it.
    let call = named("KVM_SET_IDENTITY_MAP_ADDR");
    vm.fd().set_identity_map_address(0xfffb_c000).map_err(call)
}

#[cfg(not(target_arch = "x86_64"))]
fn tss(_: &Vm, _: u64) -> Result<(), Error> {
    Err(Error::UnsupportedArch("x86-64"))
}

#[cfg(not(target_arch = "x86_64"))]
fn identity_map(_: &Vm) -> Result<(), Error> {
    Err(Error::UnsupportedArch("x86-64"))
}
