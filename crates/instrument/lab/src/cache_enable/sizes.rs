//! Which sizes of memory are run, how they are mapped, and whether their lines are the processor's.

use mayfly_machine::cache::Lines;
use mayfly_record::Limits;

use super::names::{MODELLED, REAL};
use crate::experiment::Request;
use crate::mapping::Mapping;
use crate::params::Size;

/// What to go through, and what becomes of its lines.
///
/// Where nothing is set, the large VM is mapped in blocks alone, as the one was that took 33 s: its 33 million pages
/// would leave no time for the rounds.
pub(super) fn sizes(request: &Request<'_>) -> Vec<(Size, &'static [Mapping], Lines)> {
    if request.params.memory.is_empty() {
        return vec![
            (REAL, &Mapping::ALL, fitting(REAL)),
            (MODELLED, &[Mapping::Blocks], Lines::Counted),
        ];
    }
    let sizes = request.params.memory_or(&[]).into_iter();
    sizes.map(|size| (size, &Mapping::ALL[..], fitting(size))).collect()
}

/// Lines are real where the host has twice the memory, if it says how much it has.
fn fitting(size: Size) -> Lines {
    match Limits::gather().available() {
        Some(available) if size.bytes() > available / 2 => Lines::Counted,
        _ => Lines::Real,
    }
}
