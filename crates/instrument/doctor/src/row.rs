//! How the rows and the metrics of an examination are called.

use mayfly_kvm::Call;
use mayfly_record::{Backend, ResultRow, Samples, Unit};

/// The name that rows of an examination have as their experiment's.
pub const NAME: &str = "doctor";

/// A row of an examination.
pub(crate) fn row(variant: &str) -> ResultRow {
    ResultRow::new(NAME, Backend::Kvm, variant)
}

/// The metrics of a call: right after another, and a while after.
pub(crate) fn names_of(call: Call) -> [String; 2] {
    let name = call.name().replace('-', "_");
    [name.clone(), name + "_later"]
}

/// Samples in nanoseconds.
pub(crate) fn samples(nanoseconds: &[u64]) -> Samples {
    Samples::of(Unit::Nanoseconds, nanoseconds.iter().copied())
}
