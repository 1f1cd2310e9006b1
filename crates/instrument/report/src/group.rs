//! Which rows stand in one table.

use std::collections::{BTreeMap, BTreeSet};

use mayfly_record::{BASELINE, Backend, ResultRow, Summary, units};
use serde_json::Value;

/// The rows of one experiment, split by the parameters that vary.
///
/// A parameter varies if rows of *one backend* differ in it. One in which only the backends differ (the
/// machine's `hz` was set, KVM's is the host's) does not keep their rows apart: they were run to be compared.
pub(crate) struct Grouping<'a> {
    /// One for each combination of varying parameters, in order of appearance.
    pub(crate) groups: Vec<Group<'a>>,
    shared: BTreeMap<Backend, BTreeMap<&'a str, &'a Value>>,
}

/// Rows that differ in nothing but backend and variant.
pub(crate) struct Group<'a> {
    /// The varying parameters, such as `order devices-first`; empty if there are none.
    pub(crate) title: String,
    /// The machine's rows, then KVM's.
    pub(crate) rows: Vec<&'a ResultRow>,
}

impl<'a> Grouping<'a> {
    pub(crate) fn of(rows: Vec<&'a ResultRow>) -> Self {
        let varying: BTreeSet<&str> =
            Backend::ALL.into_iter().flat_map(|backend| varying(&rows, backend)).collect();
        let mut shared: BTreeMap<Backend, BTreeMap<&str, &Value>> = BTreeMap::new();
        let mut groups: Vec<Group<'_>> = Vec::new();
        for row in rows {
            let (own, common): (BTreeMap<_, _>, BTreeMap<_, _>) =
                params(row).partition(|(name, _)| varying.contains(name));
            shared.insert(row.backend, common);
            let title = listed(&own);
            match groups.iter_mut().find(|group| group.title == title) {
                Some(group) => group.rows.push(row),
                None => groups.push(Group { title, rows: vec![row] }),
            }
        }
        for group in &mut groups {
            group.rows.sort_by_key(|row| row.backend);
        }
        Self { groups, shared }
    }

    /// The combination that an answer is of whose rows ran with `answered_by`; where none did or nothing is said, the first
    /// that has a metric: of some rows there are checks alone.
    pub(crate) fn that_answers(
        &self,
        answered_by: Option<&BTreeMap<String, Value>>,
    ) -> &[Group<'a>] {
        let is_it = |row: &&ResultRow| {
            let mut params = answered_by.into_iter().flatten();
            params.all(|(name, value)| row.params.get(name) == Some(value))
        };
        let has_any = |row: &&ResultRow| !row.metrics.is_empty();
        let first = |is: &dyn Fn(&&ResultRow) -> bool| {
            self.groups.iter().position(|group| group.rows.iter().any(is))
        };
        let at = first(&is_it).or_else(|| first(&has_any)).unwrap_or(0);
        self.groups.get(at..=at).unwrap_or_default()
    }

    /// The names of those that do not vary.
    pub(crate) fn shared_names(&self) -> Vec<&'a str> {
        self.shared.values().flat_map(|params| params.keys().copied()).collect()
    }

    /// The parameters that do not vary, in lines: one if the backends agree, else one for each.
    pub(crate) fn shared_params(&self) -> Vec<String> {
        let lines: Vec<(Backend, String)> =
            self.shared.iter().map(|(backend, params)| (*backend, listed(params))).collect();
        match &lines[..] {
            [] => Vec::new(),
            [(_, first), rest @ ..] if rest.iter().all(|(_, line)| line == first) => {
                [first].into_iter().filter(|line| !line.is_empty()).cloned().collect()
            }
            _ => lines.iter().map(|(backend, line)| format!("{backend}: {line}")).collect(),
        }
    }
}

impl Group<'_> {
    /// What rows of a backend are compared with, for one metric. Those of another cross other boundaries: a system call
    /// divided by a function call says nothing.
    pub(crate) fn baseline(&self, metric: &str, backend: Backend) -> Option<&Summary> {
        let is_it = |row: &&&ResultRow| row.variant == BASELINE && row.backend == backend;
        self.rows.iter().find(is_it)?.metrics.get(metric)
    }
}

/// What a row is called beside others of its group.
pub(crate) fn label(row: &ResultRow) -> String {
    match row.backend {
        Backend::Machine => row.variant.clone(),
        Backend::Kvm => format!("kvm {}", row.variant),
        Backend::Metal => format!("metal {}", row.variant),
    }
}

fn params(row: &ResultRow) -> impl Iterator<Item = (&str, &Value)> {
    row.params.iter().map(|(name, value)| (name.as_str(), value))
}

/// The parameters in which the rows of a backend differ.
fn varying<'a>(rows: &[&'a ResultRow], backend: Backend) -> BTreeSet<&'a str> {
    let rows = || rows.iter().copied().filter(|row| row.backend == backend);
    let names: BTreeSet<&str> = rows().flat_map(params).map(|(name, _)| name).collect();
    let differs = |name: &&str| {
        let mut values = rows().map(|row| row.params.get(*name));
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    // Chance keeps no rows apart.
    names.into_iter().filter(|name| *name != "seed").filter(differs).collect()
}

/// Parameters that are numbers of bytes.
pub(crate) const IN_BYTES: [&str; 2] = ["memory", "sample"];

/// Parameters as a person reads them: `devices 8, order devices-first`.
pub(crate) fn listed(params: &BTreeMap<&str, &Value>) -> String {
    let item = |(name, value): (&&str, &&Value)| match value {
        Value::String(text) => format!("{name} {text}"),
        Value::Number(bytes) if IN_BYTES.contains(name) && bytes.is_u64() => {
            format!("{name} {}", units::bytes(bytes.as_u64().unwrap_or_default()))
        }
        other => format!("{name} {other}"),
    };
    params.iter().map(item).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(backend: Backend, variant: &str, order: &str, hz: u32) -> ResultRow {
        ResultRow::new("e", backend, variant).param("order", order).param("hz", hz).param("vms", 2)
    }

    #[test]
    fn rows_are_grouped_by_what_varies_within_a_backend() {
        let rows = [
            row(Backend::Kvm, "kernel", "a", 250),
            row(Backend::Machine, "mayfly", "a", 100),
            row(Backend::Machine, "mayfly", "b", 100),
            row(Backend::Kvm, "kernel", "b", 250),
        ];
        let grouping = Grouping::of(rows.iter().collect());
        let titles: Vec<&str> = grouping.groups.iter().map(|group| group.title.as_str()).collect();
        assert_eq!(titles, ["order a", "order b"]);
        for group in &grouping.groups {
            let backends: Vec<Backend> = group.rows.iter().map(|row| row.backend).collect();
            assert_eq!(backends, [Backend::Machine, Backend::Kvm]);
        }
        assert_eq!(grouping.shared_params(), ["machine: hz 100, vms 2", "kvm: hz 250, vms 2"]);
    }

    #[test]
    fn one_combination_is_one_group_without_a_title() {
        let rows = [row(Backend::Machine, "x", "a", 250), row(Backend::Kvm, "y", "a", 250)];
        let grouping = Grouping::of(rows.iter().collect());
        assert_eq!(grouping.groups.len(), 1);
        assert_eq!(grouping.groups[0].title, "");
        assert_eq!(grouping.shared_params(), ["hz 250, order a, vms 2"]);
    }

    #[test]
    fn sizes_are_numbers_in_a_record_and_have_units_for_a_person() {
        let sized = |bytes: u64| row(Backend::Machine, "x", "a", 250).param("memory", bytes);
        let rows = [sized(1 << 30), sized(96 << 20)];
        let grouping = Grouping::of(rows.iter().collect());
        let titles: Vec<&str> = grouping.groups.iter().map(|group| group.title.as_str()).collect();
        assert_eq!(titles, ["memory 1 GiB", "memory 96 MiB"]);
    }

    #[test]
    fn no_rows_make_no_groups() {
        let grouping = Grouping::of(Vec::new());
        assert!(grouping.groups.is_empty() && grouping.shared_params().is_empty());
    }
}
