//! What a random program does next.

use proptest::prelude::*;

use crate::{bus, deferral, devices, formats, guests, interrupts, memory, tables};
use mayfly_vm::memslot::{Flags, Gfn};
use mayfly_vm::stage2::{Role, Tables};
use mayfly_vm::testing::Step as Access;
use mayfly_vm::{Change, Protection, Reason};

/// The places of guests' memory: pages of tables that are near each other and far apart.
pub(crate) const PLACES: [u64; 5] = [0, 4, 508, 1 << 18, (1 << 27) + 511];
/// Pages of a slot at most, and of each piece of host memory.
pub(crate) const PAGES: u64 = 8;
/// More calls than are made on a VM's GIC, or on its devices, before something else is done.
pub(crate) const FEW: usize = if cfg!(miri) { 6 } else { 16 };
/// Pieces of host memory: each VM has one of its own, and both have the last.
pub(crate) const PIECES: usize = 3;

/// What becomes of something that a call returned.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    Dropped,
    Kept,
    Forgotten,
}

/// A call, or a few. `vm` is one of two; other numbers are taken modulo what there is.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Create {
        vm: usize,
        slot: u16,
        place: usize,
        pages: u64,
        piece: usize,
        flags: Flags,
    },
    Delete {
        vm: usize,
        slot: u16,
    },
    Move {
        vm: usize,
        slot: u16,
        place: usize,
    },
    AddVcpu {
        vm: usize,
        id: u32,
    },
    LoseVcpu {
        at: usize,
        fate: Fate,
    },
    Run {
        at: usize,
        accesses: Vec<Access>,
    },
    Kick {
        vm: usize,
        id: u32,
    },
    Invalidate {
        vm: usize,
        piece: usize,
        from: u64,
        pages: u64,
        change: Change,
        fate: Fate,
    },
    /// Ends what is kept, in a VM that may be another one.
    EndInvalidation {
        vm: usize,
        at: usize,
    },
    /// Shows what is kept to a VM, for frames that it may be or not be of.
    Zap {
        vm: usize,
        at: usize,
        place: usize,
        pages: u64,
        tables: Tables,
    },
    Protect {
        vm: usize,
        place: usize,
        pages: u64,
        panics: bool,
    },
    Age {
        vm: usize,
        place: usize,
        pages: u64,
    },
    Split {
        vm: usize,
        place: usize,
        pages: u64,
    },
    TakeWritten {
        vm: usize,
        place: usize,
        panics: bool,
    },
    ReplaceRoots {
        vm: usize,
        fate: Fate,
    },
    Root {
        vm: usize,
        role: Role,
        fate: Fate,
    },
    /// Reads a root that was kept, in a section of a VM that may be another one.
    Translate {
        at: usize,
        vm: usize,
        place: usize,
    },
    LoseRoot {
        at: usize,
    },
    RefuseFaults {
        vm: usize,
        place: usize,
    },
    ChangeNoSlots {
        vm: usize,
        place: usize,
        panics: bool,
    },
    Harvest {
        vm: usize,
        slot: u16,
    },
    Collapse {
        vm: usize,
        slot: u16,
    },
    Register {
        vm: usize,
        start: u64,
        registers: bool,
    },
    Tag {
        fate: Fate,
    },
    Release {
        vm: usize,
    },
    Destroy {
        vm: usize,
    },
    CloseStage2 {
        vm: usize,
    },
    Reclaim,
    Memory {
        vm: usize,
        step: memory::Step,
    },
    Roots {
        vm: usize,
        place: usize,
        pages: u64,
        step: tables::Step,
    },
    Bus {
        vm: usize,
        step: bus::Step,
    },
    RunOwn(guests::Step),
    Foreign(formats::Step),
    Defer(deferral::Step),
    Interrupts {
        vm: usize,
        steps: Vec<interrupts::Step>,
    },
    Devices {
        vm: usize,
        steps: Vec<devices::Step>,
    },
}

pub(crate) fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![4 => Just(Fate::Dropped), 3 => Just(Fate::Kept), 1 => Just(Fate::Forgotten)]
}

fn change() -> impl Strategy<Value = Change> {
    let reason = prop_oneof![
        Just(Reason::Unmap),
        Just(Reason::Exit),
        Just(Reason::Migrate),
        Just(Reason::Reclaim { coherent: false }),
        Just(Reason::Protect),
        Just(Reason::Merge),
    ];
    let new = prop_oneof![Just(Protection::None), Just(Protection::ReadOnly)];
    (reason, new).prop_map(|(reason, new)| Change { reason, old: Protection::ReadWrite, new })
}

pub(crate) fn accesses() -> impl Strategy<Value = Vec<Access>> {
    let address = (0..PLACES.len(), 0..PAGES, 0..512_u64)
        .prop_map(|(place, page, word)| (Gfn::new(PLACES[place] + page).get() << 12) + word * 8);
    let access = (address, any::<u64>(), any::<bool>()).prop_map(|(address, value, stores)| {
        if stores { Access::Store(address, value) } else { Access::Load(address) }
    });
    prop::collection::vec(access, 1..8)
}

/// Some step, the more often the more it takes to get anywhere by it.
pub(crate) fn some() -> impl Strategy<Value = Step> {
    let (vm, slot, place, pages) = (0..2_usize, 0..4_u16, 0..PLACES.len(), 1..=PAGES);
    let (at, panics) = (any::<usize>(), any::<bool>());
    let flags = prop_oneof![Just(Flags::empty()), Just(Flags::LOG_DIRTY_PAGES)];
    let role = (0..2_u8).prop_map(|number| Role::new(number).unwrap());
    let tables = prop_oneof![Just(Tables::Free), Just(Tables::Keep)];
    let here = (vm.clone(), place.clone(), pages.clone());
    prop_oneof![
        8 => (vm.clone(), slot.clone(), place.clone(), pages.clone(), 0..PIECES, flags).prop_map(
            |(vm, slot, place, pages, piece, flags)| {
                Step::Create { vm, slot, place, pages, piece, flags }
            }
        ),
        3 => (vm.clone(), slot.clone()).prop_map(|(vm, slot)| Step::Delete { vm, slot }),
        2 => (vm.clone(), slot.clone(), place.clone())
            .prop_map(|(vm, slot, place)| Step::Move { vm, slot, place }),
        4 => (vm.clone(), 0..4_u32).prop_map(|(vm, id)| Step::AddVcpu { vm, id }),
        1 => (at, fate()).prop_map(|(at, fate)| Step::LoseVcpu { at, fate }),
        12 => (at, accesses()).prop_map(|(at, accesses)| Step::Run { at, accesses }),
        1 => (vm.clone(), 0..4_u32).prop_map(|(vm, id)| Step::Kick { vm, id }),
        4 => (vm.clone(), 0..PIECES, 0..PAGES, pages.clone(), change(), fate()).prop_map(
            |(vm, piece, from, pages, change, fate)| {
                Step::Invalidate { vm, piece, from, pages, change, fate }
            }
        ),
        4 => (vm.clone(), at).prop_map(|(vm, at)| Step::EndInvalidation { vm, at }),
        3 => (vm.clone(), at, place.clone(), pages.clone(), tables).prop_map(
            |(vm, at, place, pages, tables)| Step::Zap { vm, at, place, pages, tables }
        ),
        2 => (here.clone(), panics)
            .prop_map(|((vm, place, pages), panics)| Step::Protect { vm, place, pages, panics }),
        1 => here.clone().prop_map(|(vm, place, pages)| Step::Age { vm, place, pages }),
        1 => here.clone().prop_map(|(vm, place, pages)| Step::Split { vm, place, pages }),
        1 => (vm.clone(), place.clone(), panics)
            .prop_map(|(vm, place, panics)| Step::TakeWritten { vm, place, panics }),
        2 => (vm.clone(), fate()).prop_map(|(vm, fate)| Step::ReplaceRoots { vm, fate }),
        2 => (vm.clone(), role, fate()).prop_map(|(vm, role, fate)| Step::Root { vm, role, fate }),
        3 => (at, vm.clone(), place.clone())
            .prop_map(|(at, vm, place)| Step::Translate { at, vm, place }),
        1 => at.prop_map(|at| Step::LoseRoot { at }),
        1 => (vm.clone(), place.clone()).prop_map(|(vm, place)| Step::RefuseFaults { vm, place }),
        1 => (vm.clone(), place, panics)
            .prop_map(|(vm, place, panics)| Step::ChangeNoSlots { vm, place, panics }),
        2 => (vm.clone(), slot.clone()).prop_map(|(vm, slot)| Step::Harvest { vm, slot }),
        1 => (vm.clone(), slot).prop_map(|(vm, slot)| Step::Collapse { vm, slot }),
        1 => (vm.clone(), 0..4_u64, any::<bool>())
            .prop_map(|(vm, start, registers)| Step::Register { vm, start, registers }),
        1 => fate().prop_map(|fate| Step::Tag { fate }),
        1 => vm.clone().prop_map(|vm| Step::Release { vm }),
        1 => vm.clone().prop_map(|vm| Step::Destroy { vm }),
        1 => vm.prop_map(|vm| Step::CloseStage2 { vm }),
        3 => Just(Step::Reclaim),
        4 => (0..2_usize, memory::some()).prop_map(|(vm, step)| Step::Memory { vm, step }),
        8 => (here, tables::some())
            .prop_map(|((vm, place, pages), step)| Step::Roots { vm, place, pages, step }),
        3 => (0..2_usize, bus::some()).prop_map(|(vm, step)| Step::Bus { vm, step }),
        6 => guests::some().prop_map(Step::RunOwn),
        8 => formats::some().prop_map(Step::Foreign),
        8 => deferral::some().prop_map(Step::Defer),
        8 => (0..2_usize, prop::collection::vec(interrupts::some(), 1..FEW))
            .prop_map(|(vm, steps)| Step::Interrupts { vm, steps }),
        8 => (0..2_usize, devices::some()).prop_map(|(vm, steps)| Step::Devices { vm, steps }),
    ]
}
