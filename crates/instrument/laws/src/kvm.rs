//! The KVM of this host.
//!
//! A sample is taken on a *stage*: the VM that the call is made of, with all that it needs, and as many of what grows as the
//! point says. The stage is made for one sample. Then it is left alone for [`KvmKernel::SETTLED`], so that the call waits for
//! nothing that the making has started. Against [`Dimension::Age`], a device is registered then, and the call comes as long
//! after that as the point says.
//!
//! Against [`Dimension::Threads`], each thread has a stage of its own ([`at_once`]).
//!
//! A sample is taken again, some times at most, if others had the processor in it, or if its call came late: what it took is
//! then the load's.

mod at_once;
mod mappings;
mod room;
mod stage;

use std::ops::RangeInclusive;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mayfly_kvm::{Exit, IrqFd, Kvm, MemoryFlags, Vm};
use mayfly_record::{here, nanoseconds};

use crate::kernel::{Failed, Kernel, Taken};
use crate::pair::{Call, Dimension, Pair};
use crate::series::median;
use room::Room;
use stage::{EXTRA_SLOT, Stage};

/// How many exits a sample of them is the median of: one takes no longer than reading the clocks.
const EXITS: usize = 21;

/// How often a sample is taken at most.
const TRIES: u32 = 4;
/// How much later than it is to come a call may come, in parts of its age.
const LATE: f64 = 0.1;
/// The last part of an age is not slept: sleeping may last longer than that.
const AWAKE: Duration = Duration::from_millis(1);

/// How often nothing is timed, to see what the clocks take.
const NOTHINGS: usize = 101;

/// This host's KVM.
pub struct KvmKernel {
    kvm: Kvm,
    room: Room,
    /// What is timed where nothing is called.
    clocks: Taken,
}

impl From<mayfly_kvm::Error> for Failed {
    fn from(error: mayfly_kvm::Error) -> Self {
        Self(error.to_string())
    }
}

impl KvmKernel {
    /// How long a stage is left alone where its age is not what grows. After that, no call waits for what was done before
    /// it: it is some ticks of the slowest kernel.
    pub const SETTLED: Duration = Duration::from_millis(40);

    /// Allows this process as many files as it may have at most.
    pub fn new(kvm: Kvm) -> Self {
        let room = Room::make(&kvm);
        Self { kvm, room, clocks: clocks() }
    }
}

/// The least that reading the clocks takes, so that no more than that is taken off a call.
fn clocks() -> Taken {
    let nothings = (0..NOTHINGS).filter_map(|_| timed(|| Ok(())).ok());
    let all: Vec<Taken> = nothings.map(|((), taken)| taken).collect();
    let least = |of: fn(&Taken) -> u64| all.iter().map(of).min().unwrap_or(0);
    Taken { wall: least(|taken| taken.wall), cpu: least(|taken| taken.cpu), queued: 0 }
}

/// Makes a call. What it gives is dropped after it was timed.
fn timed<T>(call: impl FnOnce() -> Result<T, mayfly_kvm::Error>) -> Result<(T, Taken), Failed> {
    let queued = here::queued();
    let (cpu, wall) = (here::cpu(), Instant::now());
    let made = call();
    let (wall, cpu) = (nanoseconds(wall.elapsed()), here::cpu().saturating_sub(cpu));
    let queued = here::queued().saturating_sub(queued);
    Ok((made?, Taken { wall, cpu, queued }))
}

impl Kernel for KvmKernel {
    fn range(&self, dimension: Dimension) -> Result<RangeInclusive<u64>, Failed> {
        self.room.range(dimension)
    }

    fn take(&mut self, pair: Pair, n: u64) -> Result<Taken, Failed> {
        // Others have the processors in most of these, whenever it is done again.
        if pair.dimension == Dimension::Threads {
            let make = || Stage::make(&self.kvm, pair, n);
            let taken =
                at_once::take(n, Self::SETTLED, make, |mut stage| self.call(pair, &mut stage))?;
            return Ok(taken.without(self.clocks));
        }
        let mut best: Option<(bool, Taken)> = None;
        for _ in 0..TRIES {
            let (is_late, taken) = self.take_once(pair, n)?;
            let is_better = |(was_late, other): &(bool, Taken)| {
                (is_late, taken.queued) < (*was_late, other.queued)
            };
            if best.as_ref().is_none_or(is_better) {
                best = Some((is_late, taken));
            }
            if !is_late && taken.queued == 0 {
                break;
            }
        }
        best.map(|(_, taken)| taken).ok_or_else(|| Failed("no sample was taken".to_owned()))
    }
}

impl KvmKernel {
    /// One sample, and whether its call came late.
    fn take_once(&self, pair: Pair, n: u64) -> Result<(bool, Taken), Failed> {
        let mut stage = Stage::make(&self.kvm, pair, n)?;
        sleep(Self::SETTLED);
        let age = Duration::from_micros(n);
        let mut is_late = false;
        if pair.dimension == Dimension::Age {
            let began = stage.register_last()?;
            sleep(age.saturating_sub(AWAKE));
            while began.elapsed() < age {
                std::hint::spin_loop();
            }
            is_late = began.elapsed() > age.mul_f64(1.0 + LATE);
        }
        Ok((is_late, self.call(pair, &mut stage)?.without(self.clocks)))
    }

    /// The call.
    fn call(&self, pair: Pair, stage: &mut Stage) -> Result<Taken, Failed> {
        let taken = match pair.call {
            Call::CreateVm => timed(|| Vm::create(&self.kvm))?.1,
            Call::CloseVm => {
                let (vm, vcpus) = stage.take_vm()?;
                timed(|| Ok(vm.destroy(vcpus)))?.1
            }
            Call::CreateVcpu => {
                let vm = stage.vm()?;
                timed(|| vm.create_vcpu(stage.next_vcpu()))?.1
            }
            Call::AddSlot => {
                let memory = stage.extra_memory()?;
                let flags = MemoryFlags::default();
                let vm = stage.vm()?;
                timed(|| vm.set_memory_region(EXTRA_SLOT, stage.extra_gpa(), &memory, flags))?.1
            }
            Call::DeleteSlot => {
                let vm = stage.vm()?;
                timed(|| vm.delete_memory_region(EXTRA_SLOT))?.1
            }
            Call::StartDirtyLog => {
                let memory = stage.extra_memory()?;
                let flags = MemoryFlags { log_dirty: true, ..MemoryFlags::default() };
                let vm = stage.vm()?;
                timed(|| vm.set_memory_region(EXTRA_SLOT, stage.extra_gpa(), &memory, flags))?.1
            }
            Call::ReadDirtyLog => {
                let mut words = vec![0; stage.extra_pages().div_ceil(64) as usize];
                let vm = stage.vm()?;
                timed(|| vm.dirty_log(EXTRA_SLOT, &mut words))?.1
            }
            Call::AddIoeventfd => {
                let event = Stage::extra_event()?;
                let vm = stage.vm()?;
                timed(|| vm.register_ioeventfd(&event))?.1
            }
            Call::RemoveIoeventfd => {
                let (vm, event) = (stage.vm()?, stage.event()?);
                timed(|| vm.unregister_ioeventfd(event))?.1
            }
            Call::AddIrqfd => {
                let irqfd = IrqFd::new(stage::GSI)?;
                let vm = stage.vm()?;
                timed(|| vm.register_irqfd(&irqfd))?.1
            }
            Call::RemoveIrqfd => {
                let (vm, irqfd) = (stage.vm()?, stage.irqfd()?);
                timed(|| vm.unregister_irqfd(irqfd))?.1
            }
            Call::Exit => exits(stage)?,
        };
        Ok(taken)
    }
}

/// The median of some exits of the guest for a write to memory that nobody has, after two that map what it touches.
fn exits(stage: &mut Stage) -> Result<Taken, Failed> {
    let vcpu = stage.running()?;
    let mut exit = || -> Result<Taken, Failed> {
        // There is a write to a port between two of them.
        for _ in 0..2 {
            let (exit, taken) = timed(|| vcpu.run_to_exit())?;
            match exit {
                Exit::MmioWrite { .. } => return Ok(taken),
                Exit::PortWrite { .. } => {}
                Exit::DirtyRingFull => break,
            }
        }
        Err(Failed("the guest does not write to its doorbell".to_owned()))
    };
    for _ in 0..2 {
        exit()?;
    }
    let all = (0..EXITS).map(|_| exit()).collect::<Result<Vec<_>, _>>()?;
    let of = |part: fn(&Taken) -> u64| median(all.iter().map(part).collect());
    Ok(Taken {
        wall: of(|taken| taken.wall),
        cpu: of(|taken| taken.cpu),
        queued: of(|taken| taken.queued),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The processor's clock is read by a system call, which is longer than some calls of KVM.
    #[test]
    fn a_call_of_nothing_has_next_to_nothing_of_the_clocks_in_it() {
        let clocks = clocks();
        assert!(clocks.cpu > 0 && clocks.wall > 0, "{clocks:?}");
        let mut left: Vec<u64> =
            (0..NOTHINGS).map(|_| timed(|| Ok(())).unwrap().1.without(clocks).cpu).collect();
        left.sort_unstable();
        assert!(left[NOTHINGS / 4] < clocks.cpu, "{left:?} beside {clocks:?}");
    }
}
