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
use mayfly_stage2::{Entry, Format, Level};
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

/// What stage 2 has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapped {
    /// Pages of 4 KiB that are mapped.
    pub(crate) pages: u64,
    /// Frames of tables below the roots that vCPUs may run on. How many roots there are is the design's own: one that maps
    /// nothing is no work.
    pub(crate) tables: u64,
}

impl Start {
    /// What a VM of the software machine has, but for its devices.
    ///
    /// Pages are counted entry by entry, on every root; a vCPU that faults meanwhile may make it one or the other count.
    pub(crate) fn of<F: Format>(vm: &Vm<MachineWorld<F>>, arena: &Arena) -> Self {
        let section = vm.srcu().read_lock();
        let stage2 = vm.stage2();
        let roots: Vec<Pfn> = stage2.roots(&section).map(|root| root.top()).collect();
        let mapped = Some(Mapped::of::<F>(arena, roots, stage2.frames() as u64));
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
    /// Of a stage 2 with `frames` frames of tables, whose roots begin at `tops`, in format `F`.
    pub(crate) fn of<F: Format>(
        arena: &Arena,
        tops: impl IntoIterator<Item = Pfn>,
        frames: u64,
    ) -> Self {
        tops.into_iter().fold(Self { pages: 0, tables: frames }, |all, top| Self {
            pages: all.pages + pages::<F>(arena, top),
            tables: all.tables.saturating_sub(1 << F::ROOT_ORDER),
        })
    }
}

/// Pages of 4 KiB that a root maps whose first table is `top`, in format `F`.
fn pages<F: Format>(arena: &Arena, top: Pfn) -> u64 {
    let tables = (0..1 << F::ROOT_ORDER).map(|frame| Pfn::new(top.get() + frame));
    tables.map(|table| pages_below::<F>(arena, table, F::TOP)).sum()
}

fn pages_below<F: Format>(arena: &Arena, table: Pfn, level: Level) -> u64 {
    use mayfly_stage2::State::{Leaf, Table};
    let of = |entry: Entry<F>| match (entry.state(level), level.below()) {
        (Leaf, _) => level.pages(),
        (Table(table), Some(below)) => pages_below::<F>(arena, table, below),
        _ => 0,
    };
    arena.words(table).map(|word| of(Entry::from_bits(word.load(Ordering::Relaxed)))).sum()
}

/// What the VMs of a row had, by what began from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Starts(BTreeMap<&'static str, BTreeSet<State>>);

impl Starts {
    /// Notes that `work` begins from this.
    pub(crate) fn note(&mut self, work: &'static str, start: Start) {
        self.0.entry(work).or_default().insert(start.state());
    }

    /// Adds what others began from.
    pub(crate) fn extend(&mut self, others: &Self) {
        for (work, states) in &others.0 {
            self.0.entry(work).or_default().extend(states.iter().cloned());
        }
    }

    /// Adds all of it to `row`.
    pub(crate) fn report(&self, row: ResultRow) -> ResultRow {
        let all =
            self.0.iter().flat_map(|(work, states)| states.iter().map(move |one| (work, one)));
        all.fold(row, |row, (work, state)| row.began(work, state.clone()))
    }
}
