//! A VM whose dirty log is started, harvested and stopped.

use alloc::boxed::Box;
use alloc::vec::Vec;

use mayfly_lifecycle_steps::course::Vcpu as _;
use mayfly_lifecycle_steps::guest::{MEMORY, MEMORY_BYTES, Order, REGION};
use mayfly_lifecycle_steps::large::Mapping;
use mayfly_lifecycle_steps::logged::{self, Log, PAGES, Share};
use mayfly_lifecycle_steps::times;
use mayfly_vm::Vm;
use mayfly_vm::memslot::{DirtyWord, Flags, Region, SlotId};

use super::counted::Counter;
use super::guest::{Obedient, seat};
use super::parts::{Outcome, create, machine, memory, region, slot, vcpu};
use crate::bare::vm::{Host, Kinds, TableFormat};

/// The slot that is logged.
const SLOT: u32 = 1;

#[inline(never)]
pub(super) fn logged<F: TableFormat>(
    host: &Host<F>,
    counter: &mut Counter,
    mapping: Mapping,
) -> Outcome<()> {
    let bytes = MEMORY_BYTES + times::BYTES;
    let memory = memory(host, bytes, mapping)?;
    let (vm, run) = (create(host, &memory)?, machine(host, &memory, 1)?);
    slot(&vm, 0, MEMORY, MEMORY_BYTES)?;
    slot(&vm, SLOT, REGION, times::BYTES)?;
    let seat = seat(&run, 0)?;
    let vcpu = vcpu(&vm, 0)?;
    let mut vcpu = Obedient::new(&run, &seat, vcpu);
    vcpu.run()?;
    vcpu.obey(Order::Caches, 1)?;

    let mut log = Harvests::try_new(&vm)?;
    logged::logged(mapping, &mut vcpu, counter, &mut log)?;

    drop(vcpu);
    vm.destroy();
    Ok(())
}

/// The log, and what was taken out of it.
struct Harvests<'a, F: TableFormat> {
    vm: &'a Vm<Kinds<F>>,
    /// A place for each word of the log, so that one call takes all.
    taken: Box<[DirtyWord]>,
    count: usize,
}

impl<'a, F: TableFormat> Harvests<'a, F> {
    fn try_new(vm: &'a Vm<Kinds<F>>) -> Outcome<Self> {
        let words = (PAGES / 64) as usize;
        let mut taken = Vec::new();
        taken.try_reserve_exact(words).map_err(|_| "there is no memory for a list")?;
        taken.resize(words, DirtyWord::default());
        Ok(Self { vm, taken: taken.into_boxed_slice(), count: 0 })
    }
}

impl<F: TableFormat> Log<Obedient<'_, F>> for Harvests<'_, F> {
    type Error = &'static str;

    fn start(&mut self) -> Outcome<()> {
        let flags = Flags::LOG_DIRTY_PAGES;
        let logged = Region { flags, ..region(SLOT, REGION, times::BYTES) };
        self.vm.set_memory_region(&logged).map_err(|_| "the log cannot be started")
    }

    fn harvest(&mut self, _vcpu: &mut Obedient<'_, F>) -> Outcome<()> {
        let harvest = self.vm.harvest_marked(SlotId::main(SLOT as u16), &mut 0, &mut self.taken);
        self.count = harvest.map_err(|_| "the log cannot be harvested")?;
        Ok(())
    }

    fn named(&mut self, _vcpu: &mut Obedient<'_, F>) -> u32 {
        let words = &self.taken[..core::mem::take(&mut self.count)];
        words.iter().map(|word| word.marks.count_ones()).sum()
    }

    fn stop(&mut self) -> Outcome<()> {
        let before = self.vm.replace_memory_region(&region(SLOT, REGION, times::BYTES));
        let before = before.map_err(|_| "the log cannot be stopped")?;
        let log = before.as_ref().and_then(|slot| slot.dirty()).ok_or("there was no log")?;
        let collapsed = self.vm.collapse_written(SlotId::main(SLOT as u16), log);
        collapsed.map(drop).map_err(|_| "blocks cannot be put in place")
    }

    fn has_lost(&self, _share: Share, _named: u32) -> &'static str {
        "a harvest has not named the pages that were written"
    }
}
