//! What the experiment is called, and what it takes where nothing is set.

use crate::experiment::Request;
use crate::params::Size;

pub(super) const NAME: &str = "teardown";

const ROUNDS: u32 = 10;

pub(super) const GIB: u64 = 512;
pub(super) const SIZES: [Size; 2] = [Size::blocks(GIB), Size::blocks(16 * GIB)];

/// VMs of each variant and size.
pub(super) fn rounds(request: &Request<'_>) -> u32 {
    request.params.rounds.unwrap_or(ROUNDS)
}
