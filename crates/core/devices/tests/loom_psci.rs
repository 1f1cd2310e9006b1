//! PSCI under loom: what a core has written is found by whoever finds that it is off, or on.

#![cfg(mayfly_loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

use mayfly_devices::psci::{Core, Outcome, Psci};

const CPU_ON: u64 = 0xc400_0003;
const AFFINITY_INFO: u64 = 0xc400_0004;
const OFF: u64 = 1;

/// Core 0, which is on, and core 1, with what the thread that runs it writes.
struct System {
    psci: Psci<[Core; 2]>,
    written: UnsafeCell<u64>,
}

// SAFETY: loom checks that accesses to the cell are ordered.
unsafe impl Sync for System {}
// SAFETY: as above.
unsafe impl Send for System {}

impl System {
    fn new(second: Core) -> Arc<Self> {
        Arc::new(Self { psci: Psci::new([Core::on(0), second]), written: UnsafeCell::new(0) })
    }

    fn call(&self, function: u64) -> Outcome {
        self.psci.call(0, &[function, 1, 0, 0])
    }

    /// What core 1 has written: loom fails the model where nothing orders the two.
    fn find_written(&self) {
        // SAFETY: loom checks it.
        let written = self.written.with(|written| unsafe { *written });
        assert_eq!(written, 1);
    }
}

/// Runs core 1, which writes, and then is in another state.
fn run(system: &Arc<System>, then: fn(&Psci<[Core; 2]>)) -> JoinHandle<()> {
    let system = Arc::clone(system);
    thread::spawn(move || {
        // SAFETY: as in `find_written`.
        system.written.with_mut(|written| unsafe { *written = 1 });
        then(&system.psci);
    })
}

#[test]
fn who_turns_a_core_on_again_finds_what_its_last_run_wrote() {
    loom::model(|| {
        let system = System::new(Core::on(1));
        let core = run(&system, |psci| psci.stopped(1));
        if let Outcome::Start { target, .. } = system.call(CPU_ON) {
            assert_eq!(target, 1);
            system.find_written();
        }
        core.join().unwrap();
    });
}

#[test]
fn who_is_told_that_a_core_is_off_finds_what_it_wrote() {
    loom::model(|| {
        let system = System::new(Core::on(1));
        let core = run(&system, |psci| psci.stopped(1));
        if system.call(AFFINITY_INFO) == Outcome::Return(OFF) {
            system.find_written();
        }
        core.join().unwrap();
    });
}

#[test]
fn who_finds_that_a_core_is_on_finds_what_came_before_its_first_instruction() {
    loom::model(|| {
        let system = System::new(Core::off(1));
        assert!(matches!(system.call(CPU_ON), Outcome::Start { .. }));
        let core = run(&system, |psci| psci.started(1));
        if system.psci.is_on(1) {
            system.find_written();
        }
        core.join().unwrap();
    });
}
