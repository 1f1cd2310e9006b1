//! Short programs for Miri, which takes too long for many random ones. Between them they misuse each kind of call once. Each
//! begins with VMs of its own: one that takes Miri long holds up no other, and is named.

use std::sync::Arc;

use mayfly_vgic::SgiRegister;
use mayfly_vm::Reason;
use mayfly_vm::memslot::Flags;
use mayfly_vm::stage2::{Role, Tables};
use mayfly_vm::testing::Machine;
use mayfly_vm::testing::Step::{Load, Store};

use crate::step::Fate::{Forgotten, Kept};
use crate::step::{Fate, Step};
use crate::{FRAMES, devices, interrupts, live};

fn run(at: usize) -> Step {
    Step::Run { at, accesses: vec![Store(8, 42), Load(0x1000), Load(0x1fc_000)] }
}

fn take(vm: usize, fate: Fate) -> Step {
    let change = Reason::Unmap.into();
    Step::Invalidate { vm, piece: vm, from: 0, pages: 2, change, fate }
}

/// The first VM has a slot, and the second one two, of which one has a log; each has a vCPU, which has run.
fn begin() -> Vec<Step> {
    let (flags, logs) = (Flags::empty(), Flags::LOG_DIRTY_PAGES);
    vec![
        Step::Create { vm: 0, slot: 0, place: 0, pages: 4, piece: 0, flags },
        Step::Create { vm: 1, slot: 0, place: 0, pages: 4, piece: 2, flags: logs },
        Step::Create { vm: 1, slot: 1, place: 2, pages: 8, piece: 1, flags },
        Step::AddVcpu { vm: 0, id: 0 },
        Step::AddVcpu { vm: 1, id: 0 },
        run(0),
        run(1),
    ]
}

fn live_from_the_beginning(steps: impl IntoIterator<Item = Step>) {
    let steps: Vec<_> = begin().into_iter().chain(steps).collect();
    live(&Arc::new(Machine::new(FRAMES)), &steps);
}

#[test]
fn each_call_is_misused_once_of_roots_and_announcements() {
    let role = Role::MAIN;
    live_from_the_beginning([
        Step::Root { vm: 0, role, fate: Kept },
        Step::Root { vm: 1, role, fate: Forgotten },
        Step::Translate { at: 0, vm: 1, place: 0 },
        take(0, Kept),
        Step::Zap { vm: 1, at: 0, place: 0, pages: 1, tables: Tables::Free },
        Step::Zap { vm: 0, at: 0, place: 0, pages: 1, tables: Tables::Free },
        Step::EndInvalidation { vm: 1, at: 0 },
        Step::EndInvalidation { vm: 0, at: 0 },
        run(0),
    ]);
}

#[test]
fn each_call_is_misused_once_of_logs_and_slots() {
    live_from_the_beginning([
        Step::Harvest { vm: 1, slot: 0 },
        Step::Protect { vm: 1, place: 0, pages: 8, panics: true },
        Step::ReplaceRoots { vm: 0, fate: Forgotten },
        run(0),
        Step::Delete { vm: 0, slot: 0 },
        Step::Delete { vm: 1, slot: 0 },
    ]);
}

#[test]
fn each_call_is_misused_once_of_ends() {
    live_from_the_beginning([
        Step::Tag { fate: Kept },
        take(1, Forgotten),
        Step::ReplaceRoots { vm: 0, fate: Forgotten },
        Step::LoseVcpu { at: 1, fate: Forgotten },
        Step::Destroy { vm: 1 },
        Step::Destroy { vm: 0 },
        Step::Reclaim,
    ]);
}

#[test]
fn each_call_is_misused_once_of_interrupts() {
    // The third interface is of a vCPU of the other GIC.
    let steps = vec![
        interrupts::Step::Pulse { intid: 33 },
        interrupts::Step::Sgi { vcpu: 0, register: SgiRegister::Sgi1, value: 3, pauses: true },
        interrupts::Step::Enter { at: 2 },
        interrupts::Step::Leave { at: 2 },
        interrupts::Step::Enter { at: 0 },
        interrupts::Step::Reset,
        interrupts::Step::Leave { at: 0 },
    ];
    live(&Arc::new(Machine::new(FRAMES)), &[Step::Interrupts { vm: 0, steps }]);
}

/// Works a device of `vm`.
fn work(vm: usize, device: usize) {
    let header = (devices::DATA, 16, 1, 1);
    let data = if device == 3 { vec![] } else { vec![header] };
    let descriptors = [data, vec![(devices::DATA + 64, 60, 2, 0)]].concat();
    let (heads, request) = (vec![0], (0, 1));
    let features = 1 << 32;
    let steps = vec![
        devices::Step::Start { device, features },
        devices::Step::Offer { descriptors, heads, request },
        devices::Step::Serve { device, times: 2, misses: false },
        devices::Step::Take { misses: false },
        devices::Step::GiveBack { from: 1, untold: false },
        devices::Step::Stir { bytes: vec![1] },
    ];
    live(&Arc::new(Machine::new(FRAMES)), &[Step::Devices { vm, steps }]);
}

#[test]
fn each_call_is_misused_once_of_a_disk() {
    work(0, 2);
}

#[test]
fn each_call_is_misused_once_of_a_source_of_entropy() {
    work(1, 3);
}

#[test]
fn each_call_is_misused_once_of_a_card() {
    work(1, 4);
}
