//! Random calls of a program without `unsafe`: in any order, on two VMs of one machine, on one in another format, and with
//! parts of another machine. What they return is kept too long, forgotten, or shown to the other VM. Whatever it does, a
//! guest's tables name no frame but those that its host's memory has given it, and Miri and `AddressSanitizer` find
//! nothing.
//!
//! A call that would wait for its own caller is not made, where debug builds do not find it.

#![forbid(unsafe_code)]
#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

mod bus;
mod covered;
mod deferral;
mod devices;
mod formats;
mod guests;
mod host;
mod interrupts;
mod memory;
mod mixed;
mod step;
mod tables;

use std::sync::Arc;
use std::thread;

use proptest::prelude::*;

use mayfly_vm::testing::Machine;

use host::Host;
use step::Step;

/// Frames of a machine: for tables, and for guests' memory.
const FRAMES: usize = 512;
/// Steps of a program at most. Miri takes a second for some of them.
const STEPS: usize = if cfg!(miri) { 16 } else { 80 };

/// Makes `steps` on two VMs.
fn live(machine: &Arc<Machine>, steps: &[Step]) {
    let mut host = Host::new(machine);
    for step in steps {
        host.make(step);
        if !cfg!(miri) {
            host.check();
        }
    }
    host.check();
    host.end();
}

/// A short program for Miri, which takes too long for many random ones.
#[test]
fn each_call_is_misused_once() {
    use mayfly_vgic::SgiRegister;
    use mayfly_vm::Reason;
    use mayfly_vm::memslot::Flags;
    use mayfly_vm::stage2::{Role, Tables};
    use mayfly_vm::testing::Step::{Load, Store};
    use step::Fate::{Forgotten, Kept};
    let (flags, logs, role) = (Flags::empty(), Flags::LOG_DIRTY_PAGES, Role::MAIN);
    let run = |at| Step::Run { at, accesses: vec![Store(8, 42), Load(0x1000), Load(0x1fc_000)] };
    let take = |vm, fate| {
        let change = Reason::Unmap.into();
        Step::Invalidate { vm, piece: vm, from: 0, pages: 2, change, fate }
    };
    // The third interface is of a vCPU of the other GIC.
    let interrupts = vec![
        interrupts::Step::Pulse { intid: 33 },
        interrupts::Step::Sgi { vcpu: 0, register: SgiRegister::Sgi1, value: 3, pauses: true },
        interrupts::Step::Enter { at: 2 },
        interrupts::Step::Leave { at: 2 },
        interrupts::Step::Enter { at: 0 },
        interrupts::Step::Reset,
        interrupts::Step::Leave { at: 0 },
    ];
    let header = (devices::DATA, 16, 1, 1);
    let work = |device| {
        let data = if device == 3 { vec![] } else { vec![header] };
        let descriptors = [data, vec![(devices::DATA + 64, 60, 2, 0)]].concat();
        let (heads, request) = (vec![0], (0, 1));
        let features = 1 << 32;
        vec![
            devices::Step::Start { device, features },
            devices::Step::Offer { descriptors, heads, request },
            devices::Step::Serve { device, times: 2, misses: false },
            devices::Step::Take { misses: false },
            devices::Step::GiveBack { from: 1 },
            devices::Step::Stir { bytes: vec![1] },
        ]
    };
    let steps = [
        Step::Interrupts { vm: 0, steps: interrupts },
        Step::Devices { vm: 0, steps: work(2) },
        Step::Devices { vm: 1, steps: work(3) },
        Step::Devices { vm: 1, steps: work(4) },
        Step::Create { vm: 0, slot: 0, place: 0, pages: 4, piece: 0, flags },
        Step::Create { vm: 1, slot: 0, place: 0, pages: 4, piece: 2, flags: logs },
        Step::Create { vm: 1, slot: 1, place: 2, pages: 8, piece: 1, flags },
        Step::AddVcpu { vm: 0, id: 0 },
        Step::AddVcpu { vm: 1, id: 0 },
        run(0),
        run(1),
        Step::Root { vm: 0, role, fate: Kept },
        Step::Root { vm: 1, role, fate: Forgotten },
        Step::Translate { at: 0, vm: 1, place: 0 },
        take(0, Kept),
        Step::Zap { vm: 1, at: 0, place: 0, pages: 1, tables: Tables::Free },
        Step::Zap { vm: 0, at: 0, place: 0, pages: 1, tables: Tables::Free },
        Step::EndInvalidation { vm: 1, at: 0 },
        Step::EndInvalidation { vm: 0, at: 0 },
        Step::Harvest { vm: 1, slot: 0 },
        Step::Protect { vm: 1, place: 0, pages: 8, panics: true },
        run(0),
        Step::ReplaceRoots { vm: 0, fate: Forgotten },
        run(0),
        Step::Delete { vm: 0, slot: 0 },
        Step::Delete { vm: 1, slot: 0 },
        Step::Tag { fate: Kept },
        take(1, Forgotten),
        Step::LoseVcpu { at: 1, fate: Forgotten },
        Step::Destroy { vm: 1 },
        Step::Destroy { vm: 0 },
        Step::Reclaim,
    ];
    live(&Arc::new(Machine::new(FRAMES)), &steps);
}

/// So many cases, unless the environment says how many.
fn cases(cases: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|asked| asked.parse().ok());
    ProptestConfig {
        cases: asked.unwrap_or(cases),
        failure_persistence: None,
        ..Default::default()
    }
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn whatever_a_program_without_unsafe_calls_a_guest_has_what_its_host_gave_it(
        steps in prop::collection::vec(step::some(), 1..STEPS),
    ) {
        live(&Arc::new(Machine::new(FRAMES)), &steps);
    }
}

proptest! {
    #![proptest_config(cases(32))]

    #[test]
    fn nor_is_it_otherwise_where_two_threads_make_such_calls_on_one_machine(
        steps in prop::array::uniform2(prop::collection::vec(step::some(), 1..STEPS)),
    ) {
        let machine = Arc::new(Machine::new(FRAMES));
        thread::scope(|scope| {
            for steps in &steps {
                let machine = &machine;
                scope.spawn(move || live(machine, steps));
            }
        });
    }
}
