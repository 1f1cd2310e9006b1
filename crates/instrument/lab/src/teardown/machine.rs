//! VMs on the software machine, built to be torn down.

use std::ops::AddAssign;
use std::thread::yield_now;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use mayfly_machine::address_space::Backing;
use mayfly_machine::{
    Cpu, HostMemory, Instruction, Machine, MachineVcpu, MachineVm, Rigour, VmOptions,
};
use mayfly_memslot::{Gpa, Region, SlotId};
use mayfly_platform::address::{Gfn, PAGE_SHIFT, Pfn};
use mayfly_platform::tlb::{Entries, Scope, Span, Tlb, Vmid};
use mayfly_stage2::Arm;
#[cfg(test)]
use mayfly_stage2::{Role, RootRef};
use mayfly_vm::{Cache, Exit};

use crate::before::teardown::PageCounts;
use crate::before::unmap::Tables;
use crate::mapping::Mapping;
use crate::params::Size;
use crate::patience::Patience;
use crate::populate::{self, frames_for, touch};
use crate::start::Start;
use crate::turns::pause;
use crate::work::{Interrupts, Spent, ThreadRole, Threads, Used};

/// The problem is arm64's.
pub(super) type TableFormat = Arm<48>;

/// The guest touches so much of its memory itself, at the end of it; all of it, if it has no more.
const FAULTED: u64 = 16 << 20;

/// Leaves whose cleaning is timed together: one by one, the clock would take as long.
const TIMED: usize = 512;

/// How a VM is torn down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Design {
    /// Page by page: cleared, invalidated, cleaned.
    PerPage,
    /// Entry by entry, and one invalidation.
    Elided,
    /// A reference given up for each entry, which stays.
    Arm64,
    /// Exchanged for nothing, entry by entry, level by level.
    TdpMmu,
    /// As Mayfly does it.
    Mayfly,
    /// As Mayfly does it, with a reclaimer that preempts others as any thread does.
    Preempting,
}

/// A machine, and memory for VMs on it: one VM at a time.
pub(super) struct Ground {
    pub(super) machine: Machine<TableFormat>,
    /// Frames for what is mapped without a fault: for the largest VM.
    rest: HostMemory,
    /// Memory that the guest faults in, for each mapping.
    faulted: [HostMemory; 2],
    cpu: Option<Cpu<TableFormat>>,
    /// Those that do the machine's deferred work.
    threads: Threads,
    /// Bytes that `per-page` cleans, from the first on.
    sample: u64,
    /// Frames in use when there is no VM.
    at_rest: u64,
}

/// A VM whose memory is all mapped.
pub(super) struct Built {
    vm: MachineVm<TableFormat>,
    vcpu: MachineVcpu<TableFormat>,
    top: Pfn,
    vmid: Vmid,
    pub(super) counts: Counts,
    pub(super) start: Start,
}

/// What a VM has, and what its guest found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) roots: u64,
    pub(super) tables: u64,
    pub(super) leaves: u64,
    pub(super) reads: u64,
    pub(super) mismatches: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.roots += other.roots;
        self.tables += other.tables;
        self.leaves += other.leaves;
        self.reads += other.reads;
        self.mismatches += other.mismatches;
    }
}

/// A VM's end.
#[derive(Clone, Debug, Default)]
pub(super) struct Torn {
    /// Until the call returned.
    pub(super) returned: Duration,
    /// Until the reclaimer's thread was seen to be at work; none where the caller had freed the tables.
    pub(super) woken: Option<Duration>,
    /// Until every frame of a table was back.
    pub(super) reclaimed: Duration,
    /// Of the former, what the caller's own way through the tables took, invalidations in it and cleaning not.
    pub(super) walked: Option<Duration>,
    /// And what cleaning took.
    pub(super) cleaned: Duration,
    pub(super) by_ipa: u64,
    pub(super) by_vmid: u64,
    pub(super) lines: u64,
    /// Of the caller until the call returned, of the others until every frame was back.
    pub(super) spent: Spent,
}

impl Ground {
    /// For VMs of `largest` at most, of which `per-page` cleans the first `sample` bytes.
    pub(super) fn new(largest: Size, sample: u64) -> anyhow::Result<Self> {
        let machine = Machine::with_frames(frames_for(largest)?).context("starting the machine")?;
        machine.hardware().set_rigour(Rigour::empty());
        let rest = machine.map_backed(largest.bytes(), Backing::Contiguous)?;
        let faulted = Mapping::ALL.map(|mapping| machine.map_backed(FAULTED, mapping.backing()));
        let [pages, blocks] = faulted;
        let faulted = [pages?, blocks?];
        touch(&rest, sample.min(largest.bytes()));
        for memory in &faulted {
            touch(memory, memory.size());
        }
        let cpu = Some(machine.cpu(Vec::new()));
        let at_rest = machine.hardware().arena().in_use();
        let threads = Threads::default().and_of(&machine);
        Ok(Self { machine, rest, faulted, cpu, threads, sample, at_rest })
    }

    /// A VM of `size`, mapped in leaves of `mapping` throughout. Its guest has run, and touched the end of its memory.
    pub(super) fn build(&mut self, size: Size, mapping: Mapping) -> anyhow::Result<Built> {
        let vm = self.machine.create_vm_with(VmOptions::default())?;
        let faulted = size.bytes().min(FAULTED);
        let by_run = size.bytes() - faulted;
        let slot = |id, gpa, size, memory: &HostMemory| {
            let region = memory.region(SlotId::main(id), Gpa::new(gpa));
            vm.set_memory_region(&Region { size, ..region })
        };
        slot(0, by_run, faulted, &self.faulted[mapping as usize])?;
        if by_run > 0 {
            slot(1, 0, by_run, &self.rest)?;
        }
        let mut vcpu = vm.create_vcpu(0)?;
        let rest = (&self.rest, by_run);
        populate::map(&self.machine, &vm, Gpa::new(0), rest, mapping, |_, _| ())?;

        let cpu = self.cpu.as_mut().context("the processor is lost")?;
        let (gpa, value) = (Gpa::new(by_run), size.bytes() | 1);
        cpu.load(vec![
            Instruction::Touch { gpa, len: faulted, value },
            Instruction::Verify { gpa, len: faulted, value },
        ]);
        let exit = vcpu.run(cpu);
        ensure!(exit == Exit::Halt, "the guest came out with {exit:?}");
        let (top, vmid) = cpu.named().context("the guest was not entered")?;

        let counts = {
            let section = vm.srcu().read_lock();
            Counts {
                roots: vm.stage2().roots(&section).count() as u64,
                tables: vm.stage2().frames() as u64,
                leaves: (size.bytes() >> PAGE_SHIFT) / mapping.level().pages(),
                reads: cpu.reads(),
                mismatches: cpu.mismatches(),
            }
        };
        let start = Start::of(&vm, self.machine.hardware().arena());
        Ok(Built { vm, vcpu, top, vmid, counts, start })
    }

    /// Tears `built` down, and waits until every frame of its tables is back.
    pub(super) fn tear_down(&self, built: Built, design: Design) -> anyhow::Result<Torn> {
        let (tlbs, cache) = (self.machine.hardware().tlbs(), self.machine.cache());
        let (asked, lines) = (tlbs.counts(), cache.lines().cleaned);
        // Leaves the processor to whoever waits for it, so that what is timed next is not where the scheduler makes up
        // for what building the VM took.
        let pages = PageCounts::default();
        match design {
            Design::Arm64 => self.tables(&built).count_entries::<TableFormat>(),
            Design::Preempting => self.reclaim_as(libc::SCHED_OTHER)?,
            _ => {}
        }
        let interrupts = Interrupts::of(&self.machine);
        pause(Duration::from_millis(1));
        let (others, caller) = (self.threads.read(), Used::here());
        let turns = self.machine.reclaimer().turns();
        let start = Instant::now();
        let mut cleaned = Duration::ZERO;
        let mut walked = None;
        match design {
            Design::PerPage => cleaned = self.per_page(&built),
            Design::Elided => self.tables(&built).unmap::<TableFormat>(|_, _, _| ()),
            Design::Arm64 => self.tables(&built).put_entries::<TableFormat>(yield_now),
            Design::TdpMmu => self.tables(&built).zap_all::<TableFormat>(&pages),
            Design::Mayfly | Design::Preempting => {}
        }
        if matches!(design, Design::Mayfly | Design::Preempting) {
            built.destroy();
        } else {
            walked = Some(start.elapsed().saturating_sub(cleaned));
            built.destroy_and_wait();
        }
        let returned = start.elapsed();
        let caller = Used::here() - caller;
        let woken = self.wait_woken(turns)?.then(|| start.elapsed());
        self.wait_at_rest()?;
        let reclaimed = start.elapsed();
        let mut spent = self.threads.since(&others);
        spent.add(ThreadRole::Caller, caller);
        Interrupts::of(&self.machine).since(interrupts, &mut spent);
        if design == Design::Preempting {
            self.reclaim_as(libc::SCHED_BATCH)?;
        }
        let after = tlbs.counts();
        Ok(Torn {
            returned,
            woken,
            reclaimed,
            walked,
            cleaned,
            by_ipa: after.ranges - asked.ranges,
            by_vmid: after.vmids + after.everything - asked.vmids - asked.everything,
            lines: cache.lines().cleaned - lines,
            spent,
        })
    }

    /// Every leaf is cleared, forgotten by the TLBs, and what it mapped is cleaned: of the first `sample` bytes. Returns
    /// how long cleaning took, which is done, and timed, for [`TIMED`] leaves at a time.
    fn per_page(&self, built: &Built) -> Duration {
        let (hardware, cache) = (self.machine.hardware(), self.machine.cache());
        let limit = Gpa::new(self.sample).gfn();
        let mut time = Duration::ZERO;
        let mut gone = Vec::with_capacity(TIMED);
        let mut clean = |gone: &mut Vec<(Pfn, u64)>| {
            let start = Instant::now();
            gone.drain(..).for_each(|(first, pages)| cache.clean(first, pages));
            time += start.elapsed();
        };
        self.tables(built).unmap::<TableFormat>(|gfn, level, leaf| {
            let gfns = gfn..Gfn::new(gfn.get() + level.pages());
            let span = Span { gfns, stride: level.pages(), entries: Entries::Leaves };
            hardware.complete(hardware.issue(built.vmid, Scope::Range(span)));
            if gfn < limit {
                gone.push((leaf.pfn, level.pages()));
                if gone.len() == TIMED {
                    clean(&mut gone);
                }
            }
        });
        clean(&mut gone);
        time
    }

    /// Has the reclaimer's thread scheduled by this policy: sched(7).
    fn reclaim_as(&self, policy: libc::c_int) -> anyhow::Result<()> {
        let thread = self.machine.reclaimer_thread().as_raw_nonzero().get();
        // SAFETY: a struct of integers, of which C libraries have the priority and more; each may be 0.
        let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
        // SAFETY: reads a parameter that outlives the call, and changes nothing but how that thread is scheduled.
        let changed = unsafe { libc::sched_setscheduler(thread, policy, &raw const parameters) };
        let error = std::io::Error::last_os_error();
        ensure!(changed == 0, "the reclaimer's scheduling policy cannot be changed: {error}");
        Ok(())
    }

    pub(super) fn tables(&self, built: &Built) -> Tables<'_> {
        Tables { arena: self.machine.hardware().arena(), top: built.top }
    }

    /// Waits until the reclaimer's thread has had more than so many turns. Returns whether it had, or nothing was left to
    /// free before it came.
    fn wait_woken(&self, turns: u64) -> anyhow::Result<bool> {
        let mut patience = Patience::new();
        while self.machine.reclaimer().frames() > 0 {
            if self.machine.reclaimer().turns() > turns {
                return Ok(true);
            }
            ensure!(patience.lasts(turns), "the reclaimer's thread does not come");
            yield_now();
        }
        Ok(false)
    }

    /// Waits until no frame is a table's. Looks at what the reclaimer writes once a root, so as not to take the lines
    /// from it that it writes for each frame.
    pub(super) fn wait_at_rest(&self) -> anyhow::Result<()> {
        let mut patience = Patience::new();
        let arena = self.machine.hardware().arena();
        while self.machine.reclaimer().frames() > 0 || arena.in_use() != self.at_rest {
            let missing = arena.in_use().wrapping_sub(self.at_rest);
            ensure!(patience.lasts(missing), "{missing} frames of tables do not come back");
            yield_now();
        }
        Ok(())
    }
}

impl Built {
    /// A reference to its root, which keeps the tables.
    #[cfg(test)]
    pub(super) fn root(&self, role: Role) -> anyhow::Result<RootRef<TableFormat>> {
        Ok(self.vm.stage2().root(role, &self.vm.srcu().read_lock())?)
    }

    /// Ends the VM, and drops all handles on it.
    pub(super) fn destroy(self) {
        drop(self.vcpu);
        self.vm.destroy();
    }

    /// As [`Built::destroy`], and returns when the tables are freed, for which it does not leave the processor to
    /// others.
    fn destroy_and_wait(self) {
        let vm = (*self.vm).clone();
        self.destroy();
        vm.wait_reclaimed();
    }
}
