//! Populates memory: it is there, and mapped, before anything is measured.

use std::ops::Range;

use anyhow::ensure;
use mayfly_machine::{FRAMES, HostMemory, Machine, MachineVm};
use mayfly_memslot::{Gpa, Hva};
use mayfly_platform::address::{PAGE_SHIFT, PAGE_SIZE, Pfn};
use mayfly_stage2::{Format, Leaf, Level, Mapped, Permissions, Role};

use crate::mapping::Mapping;
use crate::params::Size;

/// Frames for a machine with a VM of `memory`: twice that, so that there is room for tables, and for blocks that are
/// not whole.
pub(crate) fn frames_for(memory: Size) -> anyhow::Result<usize> {
    Ok(FRAMES.max(usize::try_from(memory.bytes() >> (PAGE_SHIFT - 1))?))
}

/// Has the host find frames for the first `bytes` of `memory`: what is not there cannot be in a cache.
pub(crate) fn touch(memory: &HostMemory, bytes: u64) {
    for page in (0..bytes).step_by(PAGE_SIZE as usize) {
        memory.write_u64(page, page);
    }
}

/// Maps guest memory from `gpa` on to the first `bytes` of `memory`, which is contiguous, as faults would, but a GiB at
/// a time. `each` is told of so many frames from the first on, before they are mapped.
pub(crate) fn map<F: Format>(
    machine: &Machine<F>,
    vm: &MachineVm<F>,
    gpa: Gpa,
    (memory, bytes): (&HostMemory, u64),
    mapping: Mapping,
    each: impl Fn(Pfn, u64),
) -> anyhow::Result<()> {
    map_part(machine, vm, gpa, (memory, 0..bytes), mapping, each)
}

/// As [`map`], of a part of `memory`, all of which is guest memory from `gpa` on. The part begins and ends where a leaf
/// may.
pub(crate) fn map_part<F: Format>(
    machine: &Machine<F>,
    vm: &MachineVm<F>,
    gpa: Gpa,
    (memory, part): (&HostMemory, Range<u64>),
    mapping: Mapping,
    each: impl Fn(Pfn, u64),
) -> anyhow::Result<()> {
    // Blocks of the host, which are aligned from the memory's beginning on.
    let piece = Level::GIB1.pages() << PAGE_SHIFT;
    let mut next = part.start;
    while next < part.end {
        let from = next;
        next = ((from / piece + 1) * piece).min(part.end);
        let section = vm.srcu().read_lock();
        let root = vm.stage2().root(Role::MAIN, &section)?;
        let seen = vm.stage2().sample();
        let host = Hva::new(memory.hva().get() + from);
        let leaf = Leaf::new(machine.space().resolve(host, true)?.pfn, Permissions::all());
        let len = next - from;
        each(leaf.pfn, len >> PAGE_SHIFT);
        let first = gpa.get() + from;
        let gfns = Gpa::new(first).gfn()..Gpa::new(first + len).gfn();
        // SAFETY: the space has just said so, and tells the VM before it takes anything away.
        let mapped = unsafe { root.map_run(gfns.clone(), mapping.level(), &leaf, seen, &section) }?;
        ensure!(mapped == Mapped::Installed, "mapping {gfns:?} gave {mapped:?}");
    }
    Ok(())
}
