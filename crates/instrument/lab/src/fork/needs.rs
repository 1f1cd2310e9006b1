//! What a run takes of the host.

use std::time::Duration;

use super::names::{MEMORY, MOST_UNSHARED, REQUESTS, forks, rounds};
use crate::experiment::Request;
use crate::mapping::Mapping;
use crate::needs::Needs;
use crate::params::Size;
use crate::room::Room;

/// A round of a design: four forks, each of which answers twice, and is reset.
const ROUND: Duration = Duration::from_millis(90);
/// What of it grows with a GiB of memory.
const GIB: Duration = Duration::from_millis(900);
/// A fork beside others.
const FORK: Duration = Duration::from_millis(2);

/// The template, its snapshot, and two forks.
const COPIES: u64 = 4;
/// What the kernel has for a VM beside its memory.
const VM: u64 = 256 << 10;

/// The memory of a fork.
pub(super) fn memory(request: &Request<'_>) -> Vec<Size> {
    request.params.memory_or(&[MEMORY])
}

/// Why forks of that size are not run, if they are not.
pub(super) fn why_not(size: Size) -> Option<String> {
    let largest = REQUESTS.iter().map(|pages| pages.count as u64).max().unwrap_or(0);
    let least = super::template::FIRST as u64 + largest * super::template::PAGE as u64;
    if size.bytes() < least {
        return Some(format!("a guest of {size} has no {largest} pages for a request"));
    }
    Room::gather().why_not(size, Mapping::Pages, mayfly_kvm::Payload::REACH)
}

pub(super) fn of(request: &Request<'_>) -> Needs {
    let sizes = memory(request);
    let designs = u32::try_from(request.variants.len()).unwrap_or(u32::MAX);
    let (rounds, forks) = (rounds(request), forks(request));
    let largest = sizes.iter().copied().max().unwrap_or(MEMORY);
    let of_size = |size: &Size| {
        let gib = size.bytes() as f64 / (1_u64 << 30) as f64;
        (ROUND + GIB.mul_f64(gib)) * rounds + FORK * forks
    };
    let own = u64::from(forks) * (VM + REQUESTS[0].count as u64 * 4096);
    let at_once = (MOST_UNSHARED as u64)
        .max(largest.bytes())
        .min(u64::from(forks) * largest.bytes())
        .max(own);
    Needs {
        memory: COPIES * largest.bytes() + at_once,
        space: u64::from(forks.max(2)) * (largest.bytes() + VM),
        what_for: format!("forks of a guest of {largest}"),
        time: sizes.iter().map(of_size).sum::<Duration>() * designs,
        changes: Vec::new(),
    }
}
