//! What happens between two moments, in retired instructions and time: those of processor 0, in any process.

use std::fmt::Write;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mayfly_lifecycle_steps::{Line, Spent, course, times};

use super::perf::{EXCLUDE_HOST, EXCLUDE_HV, EXCLUDE_KERNEL, EXCLUDE_USER, Group};
use crate::kernel_at::KernelAt;

/// A moment: what the counters show, and the time before and after they were read. An interrupt may come between.
#[derive(Clone, Copy)]
pub(in crate::kvm) struct Moment {
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
pub(in crate::kvm) struct Counter {
    /// EL0, EL1, and EL1 and EL2.
    group: Group<3>,
    samples: Vec<Line>,
}

impl Counter {
    /// Begins to count. Perf does not say at which level the kernel runs, and its flags depend on it. With the kernel
    /// at EL1, "hypervisor" means EL2. With the kernel at EL2, EL1 belongs to guests alone.
    ///
    /// A counter of EL2 alone cannot be had in both cases: KVM changes the filter of EL0 of a counter that excludes
    /// guests (`kvm_vcpu_pmu_restore_host`). So one counter counts EL1 and EL2, and the count of EL1 is subtracted.
    pub(in crate::kvm) fn begin(kernel_at: KernelAt) -> anyhow::Result<Self> {
        let not_el2 = match kernel_at {
            KernelAt::El1 => EXCLUDE_HV,
            KernelAt::El2 => EXCLUDE_HOST,
        };
        let filters = [EXCLUDE_KERNEL | EXCLUDE_HV, EXCLUDE_USER | not_el2, EXCLUDE_USER];
        Ok(Self { group: Group::open(filters)?, samples: Vec::with_capacity(1 << 14) })
    }

    /// All lines.
    pub(in crate::kvm) fn lines(self) -> String {
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
        let [user, el1, el1_and_2] = self.group.read()?;
        Ok(Moment { before, after: Instant::now(), user, el1, el1_and_2 })
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
