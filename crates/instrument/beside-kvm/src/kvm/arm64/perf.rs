//! Counters of retired instructions: perf's, of processor 0, in any process.

use std::fs::File;
use std::io::{Error, Read};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use anyhow::Context;

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
pub(in crate::kvm) const EXCLUDE_USER: u64 = 1 << 4;
pub(in crate::kvm) const EXCLUDE_KERNEL: u64 = 1 << 5;
pub(in crate::kvm) const EXCLUDE_HV: u64 = 1 << 6;
pub(in crate::kvm) const EXCLUDE_HOST: u64 = 1 << 19;
pub(in crate::kvm) const EXCLUDE_GUEST: u64 = 1 << 20;

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
    let (all_processes, processor, close_on_exec) = (-1, 0, 1_u64 << 3);
    // SAFETY: reads one `perf_event_attr`, of the size that is said in it, and writes nothing.
    let opened = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            all_processes,
            processor,
            group,
            close_on_exec,
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

/// The most counters of a group.
const MOST: usize = 4;

/// Counters that count the same instructions, each with a filter of its own, and are read at once.
pub(in crate::kvm) struct Group<const N: usize> {
    /// The leader is the first.
    counters: [File; N],
}

impl<const N: usize> Group<N> {
    /// Begins to count.
    pub(in crate::kvm) fn open(filters: [u64; N]) -> anyhow::Result<Self> {
        const { assert!(0 < N && N <= MOST) };
        let mut counters: Vec<File> = Vec::new();
        for flags in filters {
            counters.push(counter(flags, counters.first())?);
        }
        let counters = counters.try_into().map_err(|_| anyhow::anyhow!("there is no counter"))?;
        Ok(Self { counters })
    }

    /// What they show, in the order of the filters.
    pub(in crate::kvm) fn read(&self) -> anyhow::Result<[u64; N]> {
        // The number of counters is before them.
        let mut bytes = [0; 8 * (1 + MOST)];
        let bytes = &mut bytes[..8 * (1 + N)];
        let read = (&self.counters[0]).read(bytes).context("cannot read the counters")?;
        anyhow::ensure!(
            read == bytes.len(),
            "the counters do not run: perf could not pin them to the PMU"
        );
        Ok(std::array::from_fn(|index| {
            let bytes = bytes[8 * (index + 1)..].first_chunk();
            bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        }))
    }
}
