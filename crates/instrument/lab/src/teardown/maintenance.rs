//! Where cache maintenance has to stay, and where it must not come back.

use anyhow::{Context, ensure};
use mayfly_machine::address_space::Backing;
use mayfly_machine::{HostMemory, Instruction, LINE, Machine, MachineVm, VmOptions};
use mayfly_memslot::{Gpa, Hva, SlotId};
use mayfly_platform::address::{Gfn, PAGE_SIZE};
use mayfly_stage2::{Leaf, Level, Mapped, Permissions, Role};
use mayfly_vm::Exit;

use crate::mapping::Mapping;

use super::machine::TableFormat;

/// A VM's memory: two blocks.
const SIZE: u64 = 4 << 20;

/// What the guest writes to each page.
const VALUE: u64 = 7;

/// The lines of a page.
pub(super) const LINES: u64 = PAGE_SIZE / LINE;

/// Lines that were cleaned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cleaned {
    /// When a page was swapped out by a device that does not look into the caches.
    pub(super) swap_out: u64,
    /// By one that does.
    pub(super) coherent_swap_out: u64,
    /// When a table was replaced by a block over the same frames.
    pub(super) block_over_table: u64,
}

/// Does each to a VM of its own, whose memory is mapped in leaves of `mapping`.
pub(super) fn observe(machine: &Machine<TableFormat>, mapping: Mapping) -> anyhow::Result<Cleaned> {
    Ok(Cleaned {
        swap_out: swap_out(machine, mapping, false)?,
        coherent_swap_out: swap_out(machine, mapping, true)?,
        block_over_table: block_over_table(machine)?,
    })
}

/// Swaps a page out that the guest has written, and has the guest read it again.
fn swap_out(
    machine: &Machine<TableFormat>,
    mapping: Mapping,
    coherent_swap: bool,
) -> anyhow::Result<u64> {
    let memory = machine.map_backed(SIZE, mapping.backing())?;
    let vm = vm(machine, &memory, VmOptions { coherent_swap, ..VmOptions::default() })?;
    let mut vcpu = vm.create_vcpu(0)?;
    let (gpa, len) = (Gpa::new(0), SIZE);
    let mut cpu = machine.cpu(vec![Instruction::Touch { gpa, len, value: VALUE }]);
    ensure!(vcpu.run(&mut cpu) == Exit::Halt, "the guest does not halt");

    let before = machine.cache().lines().cleaned;
    let third = Hva::new(memory.hva().get() + 3 * PAGE_SIZE);
    ensure!(machine.space().reclaim(third), "there is no page to swap out");
    let cleaned = machine.cache().lines().cleaned - before;

    cpu.load(vec![Instruction::Verify { gpa, len, value: VALUE }]);
    ensure!(vcpu.run(&mut cpu) == Exit::Halt, "the guest does not halt");
    ensure!(cpu.mismatches() == 0, "the guest reads something else than it wrote");
    drop(vcpu);
    vm.destroy();
    Ok(cleaned)
}

/// Maps a block by pages, and then as what it is.
fn block_over_table(machine: &Machine<TableFormat>) -> anyhow::Result<u64> {
    let memory = machine.map_backed(SIZE, Backing::Contiguous)?;
    let vm = vm(machine, &memory, VmOptions::default())?;
    let before = machine.cache().lines().cleaned;
    {
        let section = vm.srcu().read_lock();
        let root = vm.stage2().root(Role::MAIN, &section)?;
        let leaf = Leaf::new(machine.space().resolve(memory.hva(), true)?.pfn, Permissions::all());
        let (first, seen) = (Gfn::new(0), vm.stage2().sample());
        let gfns = first..Gfn::new(Level::MIB2.pages());
        // SAFETY: the frames of the memory, which stays as long as the VM.
        let by_pages = unsafe { root.map_run(gfns, Level::PAGE, &leaf, seen, &section) }?;
        // SAFETY: as above.
        let block = unsafe { root.grant(first, Level::MIB2, leaf, seen, &section) };
        let as_block = block.map()?;
        ensure!([by_pages, as_block] == [Mapped::Installed; 2], "{by_pages:?}, {as_block:?}");
        let (level, _) = root.translate(first, &section).context("nothing is mapped")?;
        ensure!(level == Level::MIB2, "the table is still there");
    }
    vm.destroy();
    Ok(machine.cache().lines().cleaned - before)
}

fn vm(
    machine: &Machine<TableFormat>,
    memory: &HostMemory,
    options: VmOptions,
) -> anyhow::Result<MachineVm<TableFormat>> {
    let vm = machine.create_vm_with(options)?;
    vm.set_memory_region(&memory.region(SlotId::main(0), Gpa::new(0)))?;
    Ok(vm)
}
