//! From one moment to another, in retired instructions and time: those of processor 0, whoever executes them.

use std::fmt::Write;
use std::fs::File;
use std::io::{Error, Read};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;
use mayfly_lifecycle_steps::{Line, Row, Spent, Until, times};

use super::KernelAt;

/// `struct perf_event_attr` as it was first (`PERF_ATTR_SIZE_VER0`), which kernels take for good: `perf_event_open(2)`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

/// `PERF_TYPE_RAW`, and the PMU's `INST_RETIRED`.
const RAW: u32 = 4;
const RETIRED: u64 = 0x08;
/// `PERF_FORMAT_GROUP`: one read shows all counters, the leader's first.
const GROUP: u64 = 1 << 3;
/// Bits of the attributes' flags.
const PINNED: u64 = 1 << 2;
const EXCLUDE_USER: u64 = 1 << 4;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const EXCLUDE_HOST: u64 = 1 << 19;

/// Opens a counter of processor 0, in the group of `leader` if it has one.
fn counter(flags: u64, leader: Option<&File>) -> anyhow::Result<File> {
    let attributes = Attributes {
        kind: RAW,
        size: size_of::<Attributes>() as u32,
        config: RETIRED,
        read_format: GROUP,
        // Of a group the leader is pinned: it counts all of the time, or is an error.
        flags: flags | if leader.is_none() { PINNED } else { 0 },
        ..Attributes::default()
    };
    let group: RawFd = leader.map_or(-1, AsRawFd::as_raw_fd);
    let (everybody, processor, no_flags) = (-1, 0, 0_u64);
    // SAFETY: reads one `perf_event_attr`, of the size that is said in it, and writes nothing.
    let opened = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            everybody,
            processor,
            group,
            no_flags,
        )
    };
    let fd = RawFd::try_from(opened)?;
    if fd < 0 {
        let what = "perf_event_open of retired instructions (the PMU of QEMU has them with -icount shift=0)";
        return Err(Error::last_os_error()).context(what);
    }
    // SAFETY: a new descriptor, which is nobody else's.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// A moment: what the counters show, and the time before they were read and behind: an interrupt may come between.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    before: Instant,
    behind: Instant,
    user: u64,
    el1: u64,
    el1_and_2: u64,
}

impl Moment {
    fn since(self, earlier: Self) -> Spent {
        let el1 = self.el1 - earlier.el1;
        let el2 = (self.el1_and_2 - earlier.el1_and_2).saturating_sub(el1);
        let nanoseconds = self.behind.duration_since(earlier.before).as_nanos();
        Spent {
            levels: [self.user - earlier.user, el1, el2],
            nanoseconds: u64::try_from(nanoseconds).unwrap_or(u64::MAX),
        }
    }
}

/// Counts, and keeps what there is to be printed: a console that is being written to interrupts.
pub(super) struct Counter {
    leader: File,
    /// They count as long as they are open.
    _others: [File; 2],
    samples: Vec<Line>,
}

impl Counter {
    /// Begins to count. At which level the kernel runs, perf does not say, and means by its words: with the kernel at EL1,
    /// what is beyond it is the hypervisor's; with the kernel at EL2, EL1 is the guests', and theirs alone.
    ///
    /// What counts at EL2 alone cannot be asked for in both cases: a counter that leaves out guests has its filter of EL0
    /// changed by KVM (`kvm_vcpu_pmu_restore_host`). So one counts EL1 and EL2, and EL1's is taken off.
    pub(super) fn begin(kernel_at: KernelAt) -> anyhow::Result<Self> {
        let leader = counter(EXCLUDE_KERNEL | EXCLUDE_HV, None)?;
        let not_el2 = match kernel_at {
            KernelAt::El1 => EXCLUDE_HV,
            KernelAt::El2 => EXCLUDE_HOST,
        };
        let others = [
            counter(EXCLUDE_USER | not_el2, Some(&leader))?,
            counter(EXCLUDE_USER, Some(&leader))?,
        ];
        Ok(Self { leader, _others: others, samples: Vec::with_capacity(1 << 14) })
    }

    /// Something begins.
    pub(super) fn now(&self) -> anyhow::Result<Moment> {
        let before = Instant::now();
        let mut bytes = [0; 32];
        let read = (&self.leader).read(&mut bytes).context("cannot read the counters")?;
        anyhow::ensure!(read == bytes.len(), "the counters are not running: they were not pinned");
        let number = |index: usize| {
            let bytes = bytes[8 * index..].first_chunk();
            bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        };
        Ok(Moment {
            before,
            behind: Instant::now(),
            user: number(1),
            el1: number(2),
            el1_and_2: number(3),
        })
    }

    /// It is done, and the caller has control back; then all is waited for that was left to others.
    pub(super) fn done(&mut self, row: Row, times: u32, begun: Moment) -> anyhow::Result<()> {
        let caller = self.now()?;
        settle();
        let all = self.now()?;
        for (until, moment) in [(Until::Caller, caller), (Until::All, all)] {
            self.samples.push(Line { row, until, times, spent: moment.since(begun) });
        }
        Ok(())
    }

    /// All that is to be printed.
    pub(super) fn told(self) -> String {
        let mut told = format!("{}\n", Line::BEGIN);
        for line in &self.samples {
            let _ = writeln!(told, "{line}");
        }
        let _ = writeln!(told, "{}", Line::end(self.samples.len() as u32));
        told
    }
}

/// Sleeps, so that the processor is others'.
pub(super) fn settle() {
    sleep(Duration::from_millis(times::SETTLE_MILLISECONDS));
}
