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
mod misused;
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
const FRAMES: usize = if cfg!(miri) { 128 } else { 512 };
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
