//! Counts of KVM's tracepoints, of each thread that runs a vCPU.
//!
//! They are counted from when the thread was first seen: an event of `perf_event_open(2)` each, which keeps nothing but
//! its count. Some KVMs leave their guests without the tracepoint for it; then what they trace after it is counted.

use std::collections::HashMap;
use std::fs;
use std::io;

use perf_event::events::Tracepoint;
use perf_event::{Builder, Counter};

use crate::counters::Exits;
use crate::kernelfs::Directory;

const EXIT: &str = "kvm_exit";
const TO_VMM: &str = "kvm_userspace_exit";
/// What an exit was for, how that is shown, and whether it always ends in KVM, and never in the VMM.
const REASONS: [(&str, &str, bool); 7] = [
    ("kvm_pio", "io", false),
    ("kvm_mmio", "mmio", false),
    ("kvm_vcpu_wakeup", "halt", true),
    ("kvm_msr", "msr", true),
    ("kvm_cpuid", "cpuid", true),
    ("kvm_page_fault", "page-fault", true),
    ("kvm_hypercall", "hypercall", true),
];

/// Events of a thread that are open.
type Counters = Vec<(&'static str, Counter)>;

/// KVM's tracepoints.
pub(crate) struct Tracepoints {
    /// Those that this kernel has, by name.
    numbers: Vec<(&'static str, u64)>,
    threads: HashMap<i32, Counters>,
}

impl Tracepoints {
    /// Finds their numbers.
    ///
    /// # Errors
    /// There is no tracefs for this user, or it has nothing of KVM's.
    pub(crate) fn find() -> io::Result<Self> {
        let places = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
        let directory = Directory::find("tracefs", &places, "events/kvm")?;
        let names = [EXIT, TO_VMM].into_iter().chain(REASONS.map(|(name, ..)| name));
        let numbers = names.filter_map(|name| {
            let text = fs::read_to_string(directory.path.join(name).join("id")).ok()?;
            Some((name, text.trim().parse().ok()?))
        });
        Ok(Self { numbers: numbers.collect(), threads: HashMap::new() })
    }

    /// Counts of no other threads any more. A thread that is gone is counted as none, and another may get its number.
    pub(crate) fn retain(&mut self, is_one: &dyn Fn(i32) -> bool) {
        self.threads.retain(|tid, _| is_one(*tid));
    }

    /// Counts of these threads from now on, and of no others that were.
    ///
    /// # Errors
    /// This user may not, or there are too many.
    pub(crate) fn follow(&mut self, threads: &[i32], all: &dyn Fn(i32) -> bool) -> io::Result<()> {
        self.retain(all);
        for tid in threads {
            if !self.threads.contains_key(tid) {
                let counters = self.numbers.iter().map(|(name, number)| {
                    let mut builder = Builder::new(Tracepoint::with_id(*number));
                    builder.observe_pid(*tid).any_cpu().include_kernel().include_hv();
                    let mut counter = builder.build()?;
                    counter.enable()?;
                    Ok((*name, counter))
                });
                let counters = counters.collect::<io::Result<Counters>>()?;
                self.threads.insert(*tid, counters);
            }
        }
        Ok(())
    }

    /// What was counted of these threads; none where none of them is followed. Says, too, whether exits by themselves are
    /// not traced, so that there are more.
    pub(crate) fn exits(&mut self, threads: &[i32]) -> Option<(Exits, bool)> {
        let mut counts = HashMap::new();
        for tid in threads {
            for (name, counter) in self.threads.get_mut(tid).into_iter().flatten() {
                *counts.entry(*name).or_insert(0) += counter.read().unwrap_or(0);
            }
        }
        (!counts.is_empty()).then(|| of(&counts))
    }
}

#[cfg(test)]
impl Tracepoints {
    /// Without a counter.
    pub(crate) fn of_threads(threads: &[i32]) -> Self {
        let threads = threads.iter().map(|tid| (*tid, Counters::new())).collect();
        Self { numbers: vec![], threads }
    }

    pub(crate) fn threads(&self) -> Vec<i32> {
        self.threads.keys().copied().collect()
    }
}

fn of(counts: &HashMap<&'static str, u64>) -> (Exits, bool) {
    let count = |name: &str| counts.get(name).copied().unwrap_or(0);
    let known = REASONS.into_iter().filter(|(name, ..)| counts.contains_key(name));
    let sum = |in_kvm: bool| -> u64 {
        known.clone().filter(|(.., always)| *always == in_kvm).map(|(name, ..)| count(name)).sum()
    };
    // No fewer: accesses may end in KVM as well, and then have not been to the VMM.
    let traced = count(TO_VMM).max(sum(false)) + sum(true);
    let by_reason = known.map(|(name, shown, _)| (shown, count(name))).collect();
    let is_partial = count(EXIT) == 0 && traced > 0;
    let all = if is_partial { traced } else { count(EXIT) };
    (Exits { all, by_reason }, is_partial)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::reasons;

    #[test]
    fn where_exits_have_no_tracepoint_what_is_traced_after_them_stands_for_them() {
        let (exits, is_partial) =
            of(&HashMap::from([(EXIT, 9), (TO_VMM, 4), ("kvm_pio", 4), ("kvm_msr", 0)]));
        assert_eq!((exits.all, exits.by_reason["io"], is_partial), (9, 4, false));
        assert_eq!((exits.by_reason["msr"], exits.by_reason.get("mmio")), (0, None));
        let (exits, is_partial) =
            of(&HashMap::from([(EXIT, 0), (TO_VMM, 4), ("kvm_pio", 3), ("kvm_msr", 2)]));
        assert_eq!((exits.all, exits.other(), is_partial), (6, 1, true));
        let (exits, _) = of(&HashMap::from([(EXIT, 0), (TO_VMM, 1), ("kvm_pio", 3)]));
        assert_eq!((exits.all, exits.other()), (3, 0));
        let shown: Vec<&str> = REASONS.iter().map(|(_, shown, _)| *shown).collect();
        assert!(shown.iter().all(|one| reasons().any(|known| known == *one)), "a column of each");
        let (exits, is_partial) = of(&HashMap::from([(EXIT, 0), (TO_VMM, 0)]));
        assert_eq!((exits.all, is_partial), (0, false));
    }
}
