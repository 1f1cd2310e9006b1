//! Columns, lines and names that several tables share.

use mayfly_record::Backend;
use serde_json::Value;

use crate::statistic::Statistic;
use crate::table::{Column, Line};

/// The document that has the tables of all experiments.
pub(crate) const RESULTS: &str = "docs/results.md";

/// Measures a VM's start, in every order.
pub(crate) const REGISTRATION: &str = "device-registration";

/// Measures a memslot's deletion.
pub(crate) const DELETION: &str = "slot-delete";

pub(crate) fn machine(title: &'static str, variant: &'static str) -> Column {
    Column { title, backend: Backend::Machine, variant }
}

pub(crate) fn kvm(title: &'static str) -> Column {
    Column { title, backend: Backend::Kvm, variant: "kernel" }
}

pub(crate) fn median(title: impl Into<String>, names: &[&'static str]) -> Line {
    Line {
        title: title.into(),
        names: names.to_vec(),
        statistic: Statistic::Median,
        params: None::<Vec<(&str, Value)>>,
    }
}
