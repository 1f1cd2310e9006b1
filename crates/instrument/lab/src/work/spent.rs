//! What a measured part took, and of whom.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use mayfly_record::{ResultRow, Samples, Unit};

use super::role::{TOTAL, ThreadRole};
use super::used::Used;

/// What a measured part took: of each role's threads together, and what was counted beside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    roles: [Option<Used>; ThreadRole::ALL.len()],
    counted: BTreeMap<String, u64>,
}

impl Spent {
    /// Adds what a thread has had.
    pub(crate) fn add(&mut self, role: ThreadRole, used: Used) {
        match &mut self.roles[role as usize] {
            Some(sum) => *sum += used,
            none => *none = Some(used),
        }
    }

    /// Adds so many of what is counted by that name.
    pub(crate) fn count(&mut self, name: &str, count: u64) {
        *self.counted.entry(name.to_owned()).or_default() += count;
    }

    /// What a role's threads have had; nothing where it has none.
    pub(crate) fn of(&self, role: ThreadRole) -> Option<Used> {
        self.roles[role as usize]
    }

    /// Nanoseconds of CPU time, of all roles.
    pub(crate) fn cpu(&self) -> Option<u64> {
        let all = self.roles.iter().flatten().map(|used| used.cpu);
        all.reduce(|one, two| one + two)
    }
}

impl AddAssign<&Self> for Spent {
    fn add_assign(&mut self, other: &Self) {
        for role in ThreadRole::ALL {
            if let Some(used) = other.of(role) {
                self.add(role, used);
            }
        }
        for (name, count) in &other.counted {
            self.count(name, *count);
        }
    }
}

/// Adds what was spent in each of `rounds` to `row`: the CPU times as metrics, a sample a round, and the rest, over all
/// rounds, as counters.
pub(crate) fn report<'a>(row: ResultRow, rounds: impl IntoIterator<Item = &'a Spent>) -> ResultRow {
    let rounds: Vec<&Spent> = rounds.into_iter().collect();
    let samples = |of: &dyn Fn(&Spent) -> Option<u64>| {
        let mut samples = Samples::of(Unit::Nanoseconds, []);
        for spent in rounds.iter().filter_map(|spent| of(spent)) {
            samples.record_ns(spent);
            samples.end_round();
        }
        samples
    };
    let cpu = |row: ResultRow, role: ThreadRole| {
        row.metric(role.cpu(), &samples(&|spent| spent.of(role).map(|used| used.cpu)))
    };
    let row = ThreadRole::ALL.into_iter().fold(row, cpu).metric(TOTAL, &samples(&Spent::cpu));
    let mut all = Spent::default();
    for spent in &rounds {
        all += *spent;
    }
    let switched = |row: ResultRow, role: ThreadRole| {
        let Some(switches) = all.of(role).and_then(|used| used.switches) else { return row };
        row.counter(&format!("{}_voluntary_switches", role.name()), switches.voluntary)
            .counter(&format!("{}_involuntary_switches", role.name()), switches.involuntary)
    };
    let row = ThreadRole::ALL.into_iter().fold(row, switched);
    all.counted.iter().fold(row, |row, (name, count)| row.counter(name, *count))
}

#[cfg(test)]
mod tests {
    use mayfly_record::Backend;

    use super::super::used::Switches;
    use super::*;

    fn used(cpu: u64, voluntary: u64) -> Used {
        Used { cpu, switches: Some(Switches { voluntary, involuntary: 1 }) }
    }

    fn row(rounds: &[Spent]) -> ResultRow {
        report(ResultRow::new("e", Backend::Machine, "mayfly"), rounds)
    }

    #[test]
    fn a_row_has_a_sample_a_round_of_each_role_that_is_there_and_all_switches() {
        let mut one = Spent::default();
        one.add(ThreadRole::Caller, used(10, 2));
        one.add(ThreadRole::Vcpu, used(30, 0));
        one.add(ThreadRole::Vcpu, used(5, 0));
        one.count("membarriers", 3);
        let mut two = Spent::default();
        two.add(ThreadRole::Caller, used(20, 5));
        two.add(ThreadRole::Vcpu, used(1, 0));
        two.count("membarriers", 1);
        let row = row(&[one, two]);
        assert_eq!(row.samples["cpu_caller"], [[10], [20]]);
        assert_eq!(row.samples["cpu_vcpus"], [[35], [1]]);
        assert_eq!(row.samples["cpu_all"], [[45], [21]]);
        assert!(!row.metrics.contains_key("cpu_worker"), "there was none");
        assert_eq!(row.counters["caller_voluntary_switches"], 7);
        assert_eq!(row.counters["vcpus_involuntary_switches"], 3);
        assert_eq!(row.counters["membarriers"], 4);
    }

    #[test]
    fn what_the_host_does_not_tell_is_not_there() {
        let mut spent = Spent::default();
        spent.add(ThreadRole::Caller, used(10, 2));
        spent.add(ThreadRole::Caller, Used { cpu: 1, switches: None });
        let row = row(&[spent]);
        assert_eq!(row.metrics["cpu_caller"].p50, 11);
        assert!(row.counters.is_empty(), "{:?}", row.counters);
        assert!(self::row(&[Spent::default()]).metrics.is_empty());
    }
}
