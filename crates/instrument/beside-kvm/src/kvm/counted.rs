//! What happens between two moments, in retired instructions and time: those of processor 0, in any process.

use std::fmt::Write;
use std::fs::File;
use std::io::{Error, Read};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;
use mayfly_lifecycle_steps::{Line, Spent, course, times};

use super::kernel_at::KernelAt;

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
    let (all_processes, processor, no_flags) = (-1, 0, 0_u64);
    // SAFETY: reads one `perf_event_attr`, of the size that is said in it, and writes nothing.
    let opened = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            all_processes,
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
    // SAFETY: a new descriptor, which nothing else owns.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// A moment: what the counters show, and the time before and after they were read. An interrupt may come between.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    before: Instant,
    after: Instant,
    user: u64,
    el1: u64,
    el1_and_2: u64,
}

impl Moment {
    fn since(self, earlier: Self) -> Spent {
        let el1 = self.el1 - earlier.el1;
        let el2 = (self.el1_and_2 - earlier.el1_and_2).saturating_sub(el1);
        let nanoseconds = self.after.duration_since(earlier.before).as_nanos();
        Spent {
            levels: [self.user - earlier.user, el1, el2],
            nanoseconds: u64::try_from(nanoseconds).unwrap_or(u64::MAX),
        }
    }
}

/// Counts, and keeps the lines until the end: a console that is written to causes interrupts.
pub(super) struct Counter {
    leader: File,
    /// They count as long as they are open.
    _others: [File; 2],
    samples: Vec<Line>,
}

impl Counter {
    /// Begins to count. Perf does not say at which level the kernel runs, and its flags depend on it. With the kernel
    /// at EL1, "hypervisor" means EL2. With the kernel at EL2, EL1 belongs to guests alone.
    ///
    /// A counter of EL2 alone cannot be had in both cases: KVM changes the filter of EL0 of a counter that excludes
    /// guests (`kvm_vcpu_pmu_restore_host`). So one counter counts EL1 and EL2, and the count of EL1 is subtracted.
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

    /// All lines.
    pub(super) fn lines(self) -> String {
        let mut lines = format!("{}\n", Line::BEGIN);
        for line in &self.samples {
            let _ = writeln!(lines, "{line}");
        }
        let _ = writeln!(lines, "{}", Line::end(self.samples.len() as u32));
        lines
    }
}

impl course::Counter for Counter {
    type Moment = Moment;
    type Error = anyhow::Error;

    fn now(&self) -> anyhow::Result<Moment> {
        let before = Instant::now();
        let mut bytes = [0; 32];
        let read = (&self.leader).read(&mut bytes).context("cannot read the counters")?;
        anyhow::ensure!(
            read == bytes.len(),
            "the counters do not run: perf could not pin them to the PMU"
        );
        let number = |index: usize| {
            let bytes = bytes[8 * index..].first_chunk();
            bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        };
        Ok(Moment {
            before,
            after: Instant::now(),
            user: number(1),
            el1: number(2),
            el1_and_2: number(3),
        })
    }

    fn between(earlier: &Moment, later: &Moment) -> Spent {
        later.since(*earlier)
    }

    fn settle(&self) {
        sleep(Duration::from_millis(times::SETTLE_MILLISECONDS));
    }

    fn keep(&mut self, line: Line) {
        self.samples.push(line);
    }
}
