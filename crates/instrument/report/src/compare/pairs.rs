//! Which rows of two records belong together.

use std::collections::BTreeMap;

use mayfly_record::{MACHINE, Record, ResultRow, units};
use serde_json::Value;

use crate::group::{IN_BYTES, label};

/// Parameters that are chance, and not what was asked for.
const BY_CHANCE: [&str; 1] = ["seed"];

/// Two rows of the same variant with the same parameters.
pub(super) struct Pair<'a> {
    pub(super) base: &'a ResultRow,
    pub(super) new: &'a ResultRow,
}

/// Two records that cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The same variant ran with other parameters.
    #[error("{experiment}, {variant}: {parameters}")]
    Parameters {
        /// Of which experiment.
        experiment: String,
        /// Which variant, and where.
        variant: String,
        /// What differs: each parameter with its values.
        parameters: String,
    },
    /// The same variant ran on another machine ([`MACHINE`]).
    #[error("{experiment}, {variant}: {difference}")]
    Machine {
        /// Of which experiment.
        experiment: String,
        /// Which variant, and where.
        variant: String,
        /// What differs, with both values.
        difference: String,
    },
    /// They have no row in common.
    #[error("the two records have no experiment, backend and variant in common")]
    Nothing,
}

/// An experiment, and what a row of it is called.
type Kind<'a> = (&'a str, String);

/// The rows of both that belong together, and what only one of them has.
pub(super) fn pairs<'a>(
    base: &'a Record,
    new: &'a Record,
) -> Result<(Vec<Pair<'a>>, Vec<String>), Mismatch> {
    let (of_base, of_new) = (by_kind(base), by_kind(new));
    let mut pairs = Vec::new();
    let mut alone: Vec<String> = Vec::new();
    for row in measured(base) {
        let kind = kind(row);
        let rows = &of_base[&kind];
        let Some(others) = of_new.get(&kind) else {
            let said = format!("only in BASE: {}, {}", kind.0, kind.1);
            if !alone.contains(&said) {
                alone.push(said);
            }
            continue;
        };
        let mut same = others.iter().filter(|other| asked(other) == asked(row));
        match same.next() {
            Some(other) if rows.len() == others.len() => {
                if let Some(difference) = on_another_machine(row, other) {
                    let (experiment, variant) = (kind.0.to_owned(), kind.1);
                    return Err(Mismatch::Machine { experiment, variant, difference });
                }
                pairs.push(Pair { base: row, new: other });
            }
            _ => return Err(differing(&kind, rows, others)),
        }
    }
    let missing = of_new.keys().filter(|kind| !of_base.contains_key(kind));
    alone.extend(missing.map(|kind| format!("only in NEW: {}, {}", kind.0, kind.1)));
    if pairs.is_empty() { Err(Mismatch::Nothing) } else { Ok((pairs, alone)) }
}

fn measured(record: &Record) -> impl Iterator<Item = &ResultRow> {
    record.results.iter().filter(|row| row.skipped.is_none())
}

fn kind(row: &ResultRow) -> Kind<'_> {
    (&row.experiment, label(row))
}

fn by_kind(record: &Record) -> BTreeMap<Kind<'_>, Vec<&ResultRow>> {
    let mut kinds: BTreeMap<Kind<'_>, Vec<&ResultRow>> = BTreeMap::new();
    for row in measured(record) {
        kinds.entry(kind(row)).or_default().push(row);
    }
    kinds
}

/// What was asked of a row: its parameters, but for those that are chance.
pub(super) fn asked(row: &ResultRow) -> BTreeMap<&str, &Value> {
    let params = row.params.iter().map(|(name, value)| (name.as_str(), value));
    params.filter(|(name, _)| !BY_CHANCE.contains(name)).collect()
}

/// What differs between the machines on which two rows were measured.
fn on_another_machine(base: &ResultRow, new: &ResultRow) -> Option<String> {
    MACHINE.into_iter().find_map(|name| {
        let of = |row: &ResultRow| row.findings.iter().find(|found| found.name == name).cloned();
        let (base, new) = (of(base).map(|found| found.detail), of(new).map(|found| found.detail));
        if base == new {
            return None;
        }
        let (base, new) = (base.unwrap_or_default(), new.unwrap_or_default());
        // Of words that are alike, those that differ.
        let words = |of: &str, other: &str| {
            let differs = |word: &&str| !other.split_whitespace().any(|other| other == *word);
            let words: Vec<_> = of.split_whitespace().filter(differs).collect();
            if words.is_empty() { "-".to_owned() } else { words.join(" ") }
        };
        let (of_base, of_new) = (words(&base, &new), words(&new, &base));
        Some(format!("{name} is {of_base} in BASE and {of_new} in NEW"))
    })
}

/// Says which parameters differ, and how.
fn differing(kind: &Kind<'_>, base: &[&ResultRow], new: &[&ResultRow]) -> Mismatch {
    let values = |rows: &[&ResultRow], name: &str| {
        let mut values: Vec<String> = rows
            .iter()
            .map(|row| asked(row).get(name).map_or("-".to_owned(), |value| shown(name, value)))
            .collect();
        values.sort();
        values.dedup();
        values.join(", ")
    };
    let mut names: Vec<&str> =
        base.iter().chain(new).flat_map(|row| asked(row).into_keys()).collect();
    names.sort_unstable();
    names.dedup();
    let differ: Vec<String> = names
        .into_iter()
        .map(|name| (name, values(base, name), values(new, name)))
        .filter(|(_, base, new)| base != new)
        .map(|(name, base, new)| format!("{name} is {base} in BASE and {new} in NEW"))
        .collect();
    let parameters = if differ.is_empty() {
        "they have different combinations of the same parameters".to_owned()
    } else {
        differ.join("; ")
    };
    Mismatch::Parameters { experiment: kind.0.to_owned(), variant: kind.1.clone(), parameters }
}

fn shown(name: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(bytes) if IN_BYTES.contains(&name) => {
            bytes.as_u64().map_or_else(|| bytes.to_string(), units::bytes)
        }
        other => other.to_string(),
    }
}
