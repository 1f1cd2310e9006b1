//! How a guest's kernel is loaded on arm64: an `Image`, ramdisks and a device tree.

use alloc::vec;
use alloc::vec::Vec;
use core::ptr::with_exposed_provenance;
use core::slice;

use mayfly_arm64::common;
use mayfly_hypervisor::arm64::image::NoKernel;
use mayfly_hypervisor::arm64::layout::{self, Guest, Placement};
use mayfly_hypervisor::arm64::state::Start;
use mayfly_hypervisor::board::Region;
use mayfly_hypervisor::contents::Contents;
use mayfly_vgic::affinity;

use crate::bare::threads;
use crate::bare::threads::console::say;
use crate::bare::vm::machine::Machine;
use crate::bare::world::entropy;
use crate::bare::world::memory::GuestMemory;

/// Bytes of the seed that a guest's kernel finds.
const SEED: usize = 64;

/// The bytes of a module.
fn module(region: &Region) -> &'static [u8] {
    let start = with_exposed_provenance((region.start) as usize);
    // SAFETY: the device tree says that it was loaded there; its memory is kept, mapped, and never written.
    unsafe { slice::from_raw_parts(start, (region.end - region.start) as usize) }
}

/// Loads what the guest begins with. Returns the vCPUs that are on then, and where each begins.
pub(crate) fn load(
    machine: &Machine,
    memory: &GuestMemory,
) -> Result<Vec<(usize, Start)>, &'static str> {
    let plan = &machine.plan;
    let no_kernel = |error: NoKernel| {
        say!("mayfly: {}: {error}", plan.name);
        "it has no kernel"
    };
    let opened = Contents::open(module(&plan.kernel), threads::preemption_point);
    let (kernel, mut contents) = opened.map_err(no_kernel)?;
    let sizes: Vec<u64> = plan.ramdisks.iter().map(|ramdisk| ramdisk.end - ramdisk.start).collect();
    let placement = Placement::new(kernel, &sizes, plan.memory)
        .ok_or("it has too little memory for what is loaded")?;
    let write = |at: u64, bytes: &[u8]| {
        memory
            .write(at - layout::MEMORY, bytes)
            .map_err(|_| "there is too little memory for what is loaded")
    };
    let mut at = placement.kernel;
    while let Some(piece) = contents.next_piece().map_err(no_kernel)? {
        write(at, piece)?;
        at += piece.len() as u64;
        threads::preemption_point();
    }
    for (place, ramdisk) in placement.ramdisks.iter().zip(&plan.ramdisks) {
        write(place.start, module(ramdisk))?;
    }
    let ramdisks = placement.ramdisks.first().zip(placement.ramdisks.last());
    let seed = entropy::seed::<SEED>().to_vec();
    threads::preemption_point();
    let tree = Guest {
        affinities: (0..plan.vcpus as usize).map(affinity).collect(),
        memory: plan.memory,
        arguments: &plan.arguments,
        ramdisks: ramdisks.map(|(first, last)| first.start..last.end),
        has_disk: plan.has_disk(),
        has_its: plan.its,
        has_card: plan.card.network.is_some(),
        has_console: plan.hvc,
        has_balloon: plan.balloon,
        has_counters: common::counters().is_some(),
        seed,
    };
    write(placement.tree, &tree.tree(threads::preemption_point))?;
    // It finds the tree by x0.
    Ok(vec![(0, Start { entry: placement.kernel, context: placement.tree })])
}
