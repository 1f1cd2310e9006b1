//! What KVM counts of a VM, and which of it are reasons to leave the guest.

use std::collections::BTreeMap;

/// Numbers that only grow, by KVM's names.
pub(crate) type Counters = BTreeMap<String, u64>;

/// The count of all exits.
const EXITS: &str = "exits";

/// Reasons, by KVM's names on the architectures that there are, and how they are shown. What is none of them is `other`.
const REASONS: [(&str, &str); 15] = [
    ("io_exits", "io"),
    ("mmio_exits", "mmio"),
    ("halt_exits", "halt"),
    ("irq_exits", "irq"),
    ("irq_window_exits", "irq-window"),
    ("nmi_window_exits", "nmi-window"),
    ("hypercalls", "hypercall"),
    ("signal_exits", "signal"),
    ("notify_window_exits", "notify-window"),
    ("hvc_exit_stat", "hvc"),
    ("wfi_exit_stat", "wfi"),
    ("wfe_exit_stat", "wfe"),
    ("mmio_exit_user", "mmio-user"),
    ("mmio_exit_kernel", "mmio-kernel"),
    ("ecall_exit_stat", "ecall"),
];

/// Whether a counter of this name is told of: a VM has four times as many, each of which is a file.
pub(crate) fn is_told(name: &str) -> bool {
    name == EXITS || REASONS.iter().any(|(known, _)| *known == name)
}

/// Reasons that tracepoints alone know.
const TRACED: [&str; 3] = ["msr", "cpuid", "page-fault"];

/// All reasons that there are, as they are shown.
pub(crate) fn reasons() -> impl Iterator<Item = &'static str> {
    REASONS.iter().map(|(_, shown)| *shown).chain(TRACED)
}

/// How often a VM's vCPUs have left their guests, in all and by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exits {
    /// In all.
    pub all: u64,
    /// By reason, where the kernel counts it.
    pub by_reason: BTreeMap<&'static str, u64>,
}

impl Exits {
    /// Of what KVM has counted; none where it counts no exits.
    pub(crate) fn of(counters: &Counters) -> Option<Self> {
        let all = *counters.get(EXITS)?;
        let by_reason = REASONS
            .iter()
            .filter_map(|(name, shown)| Some((*shown, *counters.get(*name)?)))
            .collect();
        Some(Self { all, by_reason })
    }

    /// What has come since. A VM that was made meanwhile with the same descriptor begins anew.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let more = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        let by_reason = self.by_reason.iter().map(|(reason, now)| {
            (*reason, more(*now, before.by_reason.get(reason).copied().unwrap_or(0)))
        });
        Self { all: more(self.all, before.all), by_reason: by_reason.collect() }
    }

    /// Those of no reason that is counted.
    pub fn other(&self) -> u64 {
        self.all.saturating_sub(self.by_reason.values().sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(all: &[(&str, u64)]) -> Counters {
        all.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn what_is_no_reason_is_left_out_and_what_has_none_is_other() {
        let exits =
            Exits::of(&counters(&[("exits", 10), ("io_exits", 6), ("pf_taken", 3)])).unwrap();
        assert_eq!((exits.all, exits.by_reason["io"], exits.other()), (10, 6, 4));
        assert_eq!(exits.by_reason.len(), 1);
        assert_eq!(Exits::of(&counters(&[("io_exits", 6)])), None);
        // Counters are read one after the other, while they grow.
        let torn = Exits::of(&counters(&[("exits", 10), ("io_exits", 11)])).unwrap();
        assert_eq!(torn.other(), 0);
    }

    #[test]
    fn what_has_come_since_is_told_and_a_number_that_fell_begins_anew() {
        let before = Exits::of(&counters(&[("exits", 10), ("io_exits", 6)])).unwrap();
        let after = Exits::of(&counters(&[("exits", 15), ("io_exits", 2)])).unwrap();
        let since = after.since(&before);
        assert_eq!((since.all, since.by_reason["io"]), (5, 2));
    }
}
