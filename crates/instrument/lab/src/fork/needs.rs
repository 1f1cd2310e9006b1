//! What a run takes of the host.

use std::time::Duration;

use mayfly_record::{Backend, Limits, units};

use super::design::Design;
use super::ground::{FIRST, PAGE};
use super::machine::frames;
use super::names::{MEMORY, MOST_UNSHARED, REQUESTS, forks, largest, most_forks, rounds};
use crate::experiment::Request;
use crate::mapping::Mapping;
use crate::needs::{Needs, space_of};
use crate::params::Size;
use crate::room::Room;

/// A round of a design: four forks, each of which answers twice, and is reset; and a parent.
const ROUND: Duration = Duration::from_millis(90);
/// What of it grows with a GiB of memory.
const GIB: Duration = Duration::from_millis(1800);
/// A fork, in turn and beside others.
const FORK: Duration = Duration::from_millis(4);

/// The template, its snapshot, and two forks; a parent, and its snapshot.
const COPIES: u64 = 6;
/// What the kernel has for a VM beside its memory.
const VM: u64 = 256 << 10;
/// What a fork has that shares what it has not written.
const OWN: u64 = VM + REQUESTS[0].count as u64 * PAGE as u64;

/// The memory of a fork.
pub(super) fn memory(request: &Request<'_>) -> Vec<Size> {
    request.params.memory_or(&[MEMORY])
}

/// Why forks of that size are not run anywhere, if they are not.
fn too_small(size: Size) -> Option<String> {
    let largest = largest();
    let least = (FIRST + largest * PAGE) as u64;
    (size.bytes() < least)
        .then(|| format!("a guest of {size} has no {largest} pages for a request"))
}

/// Why forks of that size are not run on a backend, if they are not.
pub(super) fn why_not(backend: Backend, size: Size) -> Option<String> {
    too_small(size).or_else(|| match backend {
        Backend::Kvm => Room::gather().why_not(size, Mapping::Pages, mayfly_kvm::Payload::REACH),
        Backend::Machine | Backend::Metal => None,
    })
}

/// Of so many forks of a size, how many there are at once, one at least; and why not all. Those that share nothing have
/// [`MOST_UNSHARED`] together, and all have half of the memory that is available.
pub(super) fn at_once(
    design: Design,
    forks: u32,
    size: Size,
    available: Option<u64>,
) -> (u32, Option<String>) {
    let fit = |room: u64, each: u64| u32::try_from((room / each).max(1)).unwrap_or(u32::MAX);
    let each = if design.shares() { OWN } else { OWN + size.bytes() };
    let half = available.map(|available| available / 2);
    let (mut count, mut why) = (forks, None);
    if let Some(half) = half.filter(|&half| fit(half, each) < count) {
        count = fit(half, each);
        why = Some(format!("{} are half of the memory that is available", units::bytes(half)));
    }
    let unshared = MOST_UNSHARED as u64;
    if !design.shares() && fit(unshared, size.bytes()) < count {
        count = fit(unshared, size.bytes());
        why = Some(format!("forks that share nothing have {} together", units::bytes(unshared)));
    }
    (count, why.map(|why| format!("{count} of {forks}: {why}")))
}

pub(super) fn of(request: &Request<'_>) -> Needs {
    let sizes = memory(request);
    let designs = u32::try_from(request.variants.len()).unwrap_or(u32::MAX);
    let (rounds, forks, most) = (rounds(request), forks(request), most_forks(request));
    let largest = sizes.iter().copied().max().unwrap_or(MEMORY);
    let available = Limits::gather().available();
    let of_size = |size: &Size| {
        let gib = size.bytes() as f64 / (1_u64 << 30) as f64;
        (ROUND + GIB.mul_f64(gib)) * rounds + FORK * forks.iter().sum()
    };
    let together =
        |design: Design, each: u64| u64::from(at_once(design, most, largest, available).0) * each;
    let shared = together(Design::MapPrivate, OWN);
    let at_once = shared.max(together(Design::Copy, OWN + largest.bytes()));
    let machine = request.count_on(Backend::Machine) > 0;
    let space = if machine { space_of(frames(largest.bytes(), most)) } else { 0 };
    Needs {
        memory: COPIES * largest.bytes() + at_once,
        space: space.max(u64::from(most.max(2)) * (largest.bytes() + VM)),
        what_for: format!("forks of a guest of {largest}"),
        time: sizes.iter().map(of_size).sum::<Duration>() * designs,
        changes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(design: Design, forks: u32, available: Option<u64>) -> (u32, Option<String>) {
        at_once(design, forks, "64MiB".parse().unwrap(), available)
    }

    #[test]
    fn forks_at_once_have_half_of_the_memory_and_those_that_share_nothing_a_gib() {
        assert_eq!(count(Design::Mayfly, 1000, Some(8 << 30)), (1000, None));
        assert_eq!(count(Design::Mayfly, 1000, None), (1000, None));
        assert_eq!(count(Design::Copy, 16, Some(8 << 30)), (16, None));
        let (copies, why) = count(Design::Copy, 1000, Some(8 << 30));
        assert_eq!(copies, 16);
        assert_eq!(why.unwrap(), "16 of 1000: forks that share nothing have 1 GiB together");
        let (few, why) = count(Design::MapPrivate, 1000, Some(100 * OWN));
        assert_eq!(few, 50);
        assert!(why.unwrap().ends_with("are half of the memory that is available"));
        assert_eq!(count(Design::Copy, 1000, Some(300 << 20)).0, 2);
        assert_eq!(count(Design::Copy, 1000, Some(0)).0, 1);
    }
}
