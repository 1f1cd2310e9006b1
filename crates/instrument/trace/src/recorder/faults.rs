//! Page faults of a vCPU's thread that are its own.
//!
//! The kernel counts a guest's page faults as faults of the thread that runs its vCPU, and `/proc` does not tell these from
//! those of the VMM's own code. A counter of `perf_event_open(2)` does: what KVM asks the kernel for on a guest's behalf is no
//! instruction's fault (`mm_account_fault` of `mm/memory.c`, which has no registers then).

use std::collections::HashMap;

use perf_event::events::Software;
use perf_event::{Builder, Counter};

/// The counters of threads that run vCPUs.
pub(super) struct OwnFaults {
    of: HashMap<i32, Option<Counter>>,
    /// For the host's first counter that follows a thread, the kernel changes its scheduler's code, and waits for a grace period
    /// (`account_event` of `kernel/events/core.c`). In these 10 to 20 ms nothing could be looked at. So this one is there
    /// before the program is.
    _first: Option<Counter>,
}

impl OwnFaults {
    /// Counters that take no time when they are asked for. This may take some.
    pub(super) fn ready() -> Self {
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        Self { of: HashMap::new(), _first: counter(me) }
    }

    /// The page faults of a thread's own code that waited for no device, since this was first asked. Where this user may not
    /// count them, there are none: nothing is made of what may be a guest's.
    pub(super) fn of(&mut self, tid: i32) -> u64 {
        let counter = self.of.entry(tid).or_insert_with(|| counter(tid));
        counter.as_mut().and_then(|counter| counter.read().ok()).unwrap_or(0)
    }

    /// Another thread may get a number when its thread is gone.
    pub(super) fn keep(&mut self, lives: impl Fn(i32) -> bool) {
        self.of.retain(|tid, _| lives(*tid));
    }
}

fn counter(tid: i32) -> Option<Counter> {
    let mut builder = Builder::new(Software::PAGE_FAULTS_MIN);
    builder.observe_pid(tid).any_cpu();
    let mut counter = builder.build().ok()?;
    counter.enable().ok()?;
    Some(counter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::usage::{counts, own};

    #[test]
    fn what_a_thread_touches_is_counted_and_what_the_kernel_touches_for_it_is_not() {
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        let mut faults = OwnFaults::ready();
        // The counter itself may cost its thread some.
        let first = faults.of(me);
        let length = 64 * rustix::param::page_size();
        let map = |flags| {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: a mapping of its own, wherever there is room.
            unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) }
        };
        let all = counts(me).unwrap();
        let before = all.read(own).unwrap().faults;
        let _filled = map(libc::MAP_POPULATE);
        let after = faults.of(me) - first;
        let touched = map(0).cast::<u8>();
        for page in (0..length).step_by(rustix::param::page_size()) {
            // SAFETY: within the mapping, which is ours.
            unsafe { touched.add(page).write_volatile(1) };
        }
        let counted = faults.of(me) - first - after;
        let all = all.read(own).unwrap().faults - before;
        if counter(me).is_none() {
            return assert_eq!(counted, 0);
        }
        assert!(counted >= 1 && after < 32, "{counted} of {all}, {after} before");
        assert_eq!(faults.of(i32::MAX), 0);
        faults.keep(|tid| tid != me);
        assert!(faults.of(me) < 32, "it counts anew");
    }
}
