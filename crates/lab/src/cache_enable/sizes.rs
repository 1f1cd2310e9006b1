//! Which sizes of memory are run, and whether their lines are the processor's.

use mayfly_machine::cache::Lines;

use super::names::{MODELLED, REAL};
use crate::experiment::Request;
use crate::limits::Limits;
use crate::params::Size;

/// What to go through, and what becomes of its lines.
pub(super) fn sizes(request: &Request<'_>) -> Vec<(Size, Lines)> {
    if request.params.memory.is_empty() {
        return vec![(REAL, fitting(REAL)), (MODELLED, Lines::Counted)];
    }
    request.params.memory_or(&[]).into_iter().map(|size| (size, fitting(size))).collect()
}

/// Lines are real where the host has twice the memory, if it says how much it has.
fn fitting(size: Size) -> Lines {
    match Limits::gather().available() {
        Some(available) if size.bytes() > available / 2 => Lines::Counted,
        _ => Lines::Real,
    }
}
