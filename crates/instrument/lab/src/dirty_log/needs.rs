//! What is run where nothing is set, and what a run takes of the host.

use std::time::Duration;

use mayfly_record::Backend;

use crate::experiment::Request;
use crate::needs::{Needs, space_of};
use crate::params::Size;
use crate::populate::frames_for;

pub(super) const VCPUS: [u32; 1] = [1];
pub(super) const WRITTEN: [u32; 1] = [10];
pub(super) const ROUNDS: u32 = 10;
/// 256 MiB.
pub(super) const MEMORY: Size = Size::blocks(128);

/// What a VM takes, and each page that is written.
const VM: Duration = Duration::from_millis(15);
const PAGE: Duration = Duration::from_micros(12);

/// Bytes beside what is written and what tables take.
const BESIDE: u64 = 64 << 20;

pub(super) fn of(request: &Request<'_>) -> Needs {
    let params = request.params;
    let (vcpus, sizes) = (params.vcpus_or(&VCPUS), params.memory_or(&[MEMORY]));
    let written = params.written_or(&WRITTEN);
    let share = |size: &Size, written: &u32| size.bytes() / 100 * u64::from(*written);
    let pages =
        |size: &Size| -> u64 { written.iter().map(|written| share(size, written) / 4096).sum() };
    let once: Duration =
        sizes.iter().map(|size| VM * written.len() as u32 + PAGE.mul_f64(pages(size) as f64)).sum();
    let times = request.variants.len() * vcpus.len();
    let largest = sizes.iter().copied().max().unwrap_or(MEMORY);
    let most = written.iter().copied().max().unwrap_or(100);
    let on_machine = u64::from(request.count_on(Backend::Machine).min(1));
    Needs {
        // Of what is written all, and an entry of 8 bytes and a place of 4 for each page.
        memory: BESIDE + share(&largest, &most) + largest.bytes() / 4096 * 16,
        space: on_machine * frames_for(largest).map_or(u64::MAX, space_of),
        what_for: format!("a VM of {largest}, {most} % of it written"),
        time: once * params.rounds.unwrap_or(ROUNDS) * u32::try_from(times).unwrap_or(u32::MAX),
        changes: Vec::new(),
    }
}
