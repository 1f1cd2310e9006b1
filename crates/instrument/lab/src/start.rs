//! What measured work begins from: how many pages are mapped, tables, memslots and devices there are.
//!
//! A call on a VM that has less takes less, whatever the design is. So every experiment counts what its VMs have at each
//! moment at which measured work begins ([`Start`]), and its rows say so ([`Starts::report`]).

use std::collections::{BTreeMap, BTreeSet};

use mayfly_machine::{Arena, MachineWorld};
use mayfly_memslot::AddressSpace;
use mayfly_platform::address::Pfn;
use mayfly_platform::sync::Ordering;
use mayfly_record::{ResultRow, State};
use mayfly_stage2::{self as stage2, Entry, Format, Level};
use mayfly_vm::Vm;

/// What a VM has. What an experiment cannot see from outside is not there; what none of its VMs has, neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Start {
    /// What stage 2 has.
    pub(crate) mapped: Option<Mapped>,
    /// Memslots, those that the VM adds itself included.
    pub(crate) slots: u64,
    pub(crate) vcpus: u64,
    /// Devices and ioeventfds on its buses.
    pub(crate) devices: Option<u64>,
}

/// What stage 2 has, as a walk from the roots that vCPUs may run on finds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapped {
    /// Pages of 4 KiB that are mapped.
    pub(crate) pages: u64,
    /// Tables below the roots. How many roots there are is the design's own: one that maps nothing is no work.
    pub(crate) tables: u64,
}

impl Start {
    /// What a VM of the software machine has, but for its devices.
    ///
    /// It is counted entry by entry. Where a vCPU faults meanwhile, what it maps is counted or not.
    pub(crate) fn of<F: Format>(vm: &Vm<MachineWorld<F>>, arena: &Arena) -> Self {
        let section = vm.srcu().read_lock();
        let stage2 = vm.stage2();
        let mapped = Some(Mapped::of::<F>(arena, stage2.roots(&section).map(|root| root.top())));
        let slots = vm.slots().load(AddressSpace::Main, &section).len() as u64;
        Self { mapped, slots, vcpus: vm.vcpu_count() as u64, devices: None }
    }

    fn state(self) -> State {
        let Self { mapped, slots, vcpus, devices } = self;
        let all = [
            ("pages", mapped.map(|mapped| mapped.pages)),
            ("tables", mapped.map(|mapped| mapped.tables)),
            ("slots", Some(slots)),
            ("vcpus", Some(vcpus)),
            ("devices", devices),
        ];
        let known = all.into_iter().filter_map(|(name, count)| Some((name.to_owned(), count?)));
        known.collect()
    }
}

impl Mapped {
    /// Of the roots in format `F` whose first tables are `tops`.
    pub(crate) fn of<F: Format>(arena: &Arena, tops: impl IntoIterator<Item = Pfn>) -> Self {
        let mut all = Self::default();
        for top in tops {
            let tables = (0..1 << F::ROOT_ORDER).map(|frame| Pfn::new(top.get() + frame));
            tables.for_each(|table| all.add_table::<F>(arena, table, F::TOP));
        }
        all
    }

    /// Adds what a table of `level` leads to.
    fn add_table<F: Format>(&mut self, arena: &Arena, table: Pfn, level: Level) {
        for word in arena.words(table) {
            let entry = Entry::<F>::from_bits(word.load(Ordering::Relaxed));
            match (entry.state(level), level.below()) {
                (stage2::State::Leaf, _) => self.pages += level.pages(),
                (stage2::State::Table(table), Some(below)) => {
                    self.tables += 1;
                    self.add_table::<F>(arena, table, below);
                }
                _ => {}
            }
        }
    }
}

/// What the VMs of a row had, by what began from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Starts(BTreeMap<&'static str, BTreeSet<State>>);

impl Starts {
    /// Notes that `work` begins from this.
    pub(crate) fn note(&mut self, work: &'static str, start: Start) {
        self.0.entry(work).or_default().insert(start.state());
    }

    /// What all of them had.
    pub(crate) fn of_all<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = Self::default();
        for (work, states) in parts.into_iter().flat_map(|part| &part.0) {
            all.0.entry(work).or_default().extend(states.iter().cloned());
        }
        all
    }

    /// Adds all of it to `row`.
    pub(crate) fn report(&self, row: ResultRow) -> ResultRow {
        let all =
            self.0.iter().flat_map(|(work, states)| states.iter().map(move |one| (work, one)));
        all.fold(row, |row, (work, state)| row.began(work, state.clone()))
    }
}
