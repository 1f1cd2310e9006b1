//! What a run takes of the host.

use std::collections::BTreeMap;
use std::time::Duration;

use mayfly_machine::cache::Lines;
use mayfly_record::Backend;

use super::courses::{Course, courses};
use super::design::Design;
use super::kvm;
use super::names::{ROUNDS, VCPUS};
use super::sizes::sizes;
use crate::experiment::Request;
use crate::needs::{Needs, space_of};
use crate::params::Size;
use crate::populate::frames_for;

/// What the judgement of scenarios takes.
const JUDGEMENT: Duration = Duration::from_secs(3);

/// What it takes to clean and invalidate a GiB, line by line.
const FLUSH: Duration = Duration::from_millis(30);

/// What it takes to have a GiB there and to fault it in.
const SET_UP: Duration = Duration::from_millis(500);

/// What it takes to have a GiB's entries made, and walked for each flush: in pages, and in blocks.
const ENTRIES: [Duration; 2] = [Duration::from_millis(40), Duration::from_millis(1)];

const GIB: f64 = (1_u64 << 30) as f64;

/// Bytes beside what guests have.
const MEMORY: u64 = 64 << 20;

pub(super) fn of(request: &Request<'_>) -> Needs {
    let designs: Vec<_> = request.variants_on(Backend::Machine).filter_map(Design::of).collect();
    let rounds = request.params.rounds.unwrap_or(ROUNDS);
    let (mut needs, gib) = (Needs::default(), |size: Size| size.bytes() as f64 / GIB);
    needs.memory = MEMORY;
    let mut on_kvm = BTreeMap::new();
    for Course { shape, machine, kvm: is_on_kvm } in courses(request) {
        if is_on_kvm && kvm::why_not(shape).is_none() {
            on_kvm.insert(shape.memory, machine);
        }
    }
    for (size, with_machine) in &on_kvm {
        if !with_machine && size.bytes() + MEMORY > needs.memory {
            needs.memory = size.bytes() + MEMORY;
            needs.what_for = format!("a VM of {size} on KVM");
        }
    }
    if designs.is_empty() {
        return needs;
    }
    needs.time = JUDGEMENT;
    for (size, mappings, lines) in sizes(request) {
        for vcpus in request.params.vcpus_or(&VCPUS) {
            // What is flushed by each vCPU, and by one.
            let flushes = if designs.contains(&Design::EveryVcpu) { vcpus } else { 1 };
            for mapping in mappings {
                let of_a_gib = match lines {
                    Lines::Real => SET_UP * designs.len() as u32 + FLUSH * flushes,
                    Lines::Counted | Lines::Modelled => {
                        ENTRIES[*mapping as usize] * designs.len() as u32
                    }
                };
                needs.time += of_a_gib.mul_f64(gib(size)) * rounds;
            }
        }
        // Where lines are but counted, there is nothing behind the entries.
        let touched = if lines == Lines::Real { size.bytes() } else { size.bytes() >> 9 };
        let also = if on_kvm.get(&size) == Some(&true) { size.bytes() } else { 0 };
        let touched = touched + also;
        let space = frames_for(size).map_or(u64::MAX, space_of);
        if touched + MEMORY > needs.memory {
            needs.memory = touched + MEMORY;
            needs.what_for = format!("a VM of {size}");
        }
        needs.space = needs.space.max(space);
    }
    needs
}
