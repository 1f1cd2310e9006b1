//! What the experiment is called, what it takes where nothing is set, and what a row says it ran with.

use mayfly_record::{Backend, ResultRow};

use super::bring_up::Shape;
use crate::mapping::Mapping;
use crate::params::{Bound, Size};

pub(super) const NAME: &str = "cache-enable";

pub(super) const VCPUS: [u32; 1] = [64];
pub(super) const ROUNDS: u32 = 12;

/// With the lines of the host's processor: 256 MiB, which leaves time for the rounds.
pub(super) const REAL: Size = Size::blocks(128);
/// With lines that are counted: 128 GiB.
pub(super) const MODELLED: Size = Size::blocks(128 * 512);

/// The parameter that says what becomes of a line, in records.
pub(super) const LINES: &str = "lines";

/// A row that says what it ran with.
pub(super) fn row(backend: Backend, variant: &str, shape: Shape, rounds: u32) -> ResultRow {
    ResultRow::new(NAME, backend, variant)
        .param(Bound::VCPUS.name, shape.vcpus)
        .param(Size::PARAM, shape.memory.bytes())
        .param(Mapping::PARAM, shape.mapping.name())
        .param(Bound::ROUNDS.name, rounds)
}
