//! Everything at once: vCPUs that touch memory and devices while devices come and go, memory is taken away from under
//! them and given to somebody else, vCPUs are kicked and made anew, and other VMs live and die beside them.
//!
//! What is looked for: a device that is called after it was given back, memory that is used after its slot was deleted
//! (it is unmapped, or holds another slot's value by then), a value that is not the one written last, a call that never
//! returns, something that is never freed.
//!
//! A storm lasts until enough of everything has happened. `MAYFLY_STORM=20` asks for twenty times as much,
//! `MAYFLY_SEED=...` for the choices of an earlier run (the threads' timing is never the same).

mod cut;
mod devices;
mod guests;
mod memory;
mod random;
mod tally;
mod vms;
#[path = "../../../../core/hwtrace/tests/common/wider.rs"]
mod wider;

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use mayfly_hwtrace::Options;
use mayfly_machine::{Checked, Machine, MachineVm, VmOptions};
use mayfly_srcu::{Limits, Pace};

use cut::Cut;
use random::Random;
use tally::{Tally, What};

/// vCPUs of the VM in the eye of the storm, a thread each.
const VCPUS: u32 = 3;

/// Looks, a second apart at least, that find nothing more done of what is still to be done: a storm is taken to be stuck
/// then. Not a time: on a busy host whoever looks is kept from its processor as well.
const STUCK: u32 = 240;

/// What the threads share.
pub(crate) struct Storm {
    machine: Machine,
    pace: Pace,
    vm: MachineVm,
    tally: Arc<Tally>,
}

#[test]
fn nothing_is_used_after_it_is_gone_and_everybody_gets_on() {
    let what = [
        (What::Registered, 8000),
        (What::Unregistered, 8000),
        (What::SlotCreated, 3000),
        (What::SlotDeleted, 3000),
        (What::SlotMoved, 3000),
        (What::LogSwitched, 3000),
        (What::Kicked, 500),
        (What::VcpuCreated, 500),
        (What::DeviceCalled, 20_000),
        (What::Exited, 20_000),
        (What::WordVerified, 400_000),
        (What::VmLived, 1000),
    ];
    storm(Pace::Urgent, &what);
}

#[test]
fn nor_with_the_grace_periods_of_linux() {
    let what = [
        (What::Registered, 200),
        (What::Unregistered, 200),
        (What::SlotCreated, 50),
        (What::SlotDeleted, 50),
        (What::SlotMoved, 50),
        (What::LogSwitched, 50),
        (What::Kicked, 500),
        (What::VcpuCreated, 500),
        (What::DeviceCalled, 20_000),
        (What::Exited, 20_000),
        (What::WordVerified, 400_000),
        (What::VmLived, 300),
    ];
    storm(Pace::Linux { hz: 1000 }, &what);
}

fn storm(pace: Pace, quotas: &[(What, u64)]) {
    let mut random = Random::seeded();
    let machine = Machine::new().unwrap();
    let (checked, sink) = Checked::new(Options::default());
    let cut = Cut::default();
    machine.hardware().record(cut.before(sink));
    let vm = machine.create_vm_with(VmOptions { pace, ..VmOptions::default() }).unwrap();
    let tally = Arc::new(Tally::new(quotas));
    let private = machine.map(memory::PRIVATE_SIZE).unwrap();
    vm.set_memory_region(&memory::private_region(&private)).unwrap();
    let storm = Arc::new(Storm { machine, pace, vm, tally });

    let mut threads = Threads::default();
    for id in 0..VCPUS {
        threads.start(&storm, &mut random, move |storm, random| guests::live(storm, id, random));
    }
    threads.start(&storm, &mut random, devices::come_and_go);
    threads.start(&storm, &mut random, memory::change);
    threads.start(&storm, &mut random, vms::live_and_die);
    threads.start(&storm, &mut random, kick);
    threads.join(&storm);

    println!("{:?}", storm.tally);
    let Storm { machine, vm, tally, .. } = Arc::into_inner(storm).expect("the threads are gone");
    assert!(tally.is_met(), "{tally:?}");
    let srcu = vm.srcu().clone();
    vm.destroy();
    srcu.barrier();
    assert_eq!((srcu.stats().deferred, srcu.stats().deferred_bytes), (0, 0));
    if pace == Pace::Urgent {
        assert!(srcu.stats().peak_deferred <= Limits::default().hard_count);
        assert!(srcu.stats().peak_deferred_bytes <= Limits::default().hard_bytes);
    }
    drop(private);
    drop(machine);
    println!("{} events of hardware checked", checked.events());
    assert_eq!(checked.finish(), [], "what hardware sees breaks rules");
    cut.check_wider(Options::default());
}

fn kick(storm: &Storm, random: &mut Random) {
    while !storm.tally.is_over() {
        storm.vm.kick(random.below(u64::from(VCPUS) + 1) as u32);
        std::thread::sleep(Duration::from_micros(random.below(200)));
    }
}

/// The threads of a storm.
#[derive(Default)]
struct Threads(Vec<(JoinHandle<()>, std::sync::mpsc::Receiver<()>)>);

impl Threads {
    fn start(
        &mut self,
        storm: &Arc<Storm>,
        random: &mut Random,
        work: impl FnOnce(&Storm, &mut Random) + Send + 'static,
    ) {
        let (storm, mut random) = (storm.clone(), random.fork());
        let (ended, end) = channel();
        let thread = spawn(move || {
            let _end = End { tally: storm.tally.clone(), _ended: ended };
            work(&storm, &mut random);
        });
        self.0.push((thread, end));
    }

    /// Waits for all; panics as the first one that panicked did, or if one does not end.
    fn join(self, storm: &Storm) {
        let (mut found, mut as_before) = (Vec::new(), 0);
        for (_, end) in &self.0 {
            // Nothing is ever sent: the other end is dropped when the thread ends.
            while end.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                let now = storm.tally.unmet();
                as_before = if now == found { as_before + 1 } else { 0 };
                assert!(as_before < STUCK, "stuck: {:?}", storm.tally);
                found = now;
            }
        }
        for (thread, _) in self.0 {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    }
}

/// Dropped when its thread ends; if that is a panic, the storm is over for all.
struct End {
    tally: Arc<Tally>,
    _ended: Sender<()>,
}

impl Drop for End {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.tally.end();
        }
    }
}
