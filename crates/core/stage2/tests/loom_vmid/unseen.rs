//! Lines alone: the machine's TLBs do nothing, so that nothing but the protocol orders what CPUs do.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use mayfly_platform::Model;
use mayfly_platform::tlb::Vmid;
use mayfly_stage2::{VmidTag, Vmids};

use super::machine::{NUMBERS, index};
use super::{check, world};

/// CPUs on which nobody looks.
struct Unseen;

impl world::Hooks for Unseen {
    fn forget(&self) {}

    fn vacate(&self, _: u32, _: Vmid) {}
}

struct Machine {
    vmids: Vmids,
    /// Written by whoever is active under a number.
    exclusive: [UnsafeCell<u32>; NUMBERS],
}

// SAFETY: loom checks every access to the cells.
unsafe impl Sync for Machine {}
// SAFETY: as above.
unsafe impl Send for Machine {}

impl Machine {
    fn new() -> Arc<Self> {
        let mmu = world::mmu(Model::new(), NUMBERS as u32, Unseen);
        // SAFETY: the machine's only ones.
        let vmids = unsafe { Vmids::try_new(mmu, 2) }.unwrap();
        Arc::new(Self { vmids, exclusive: std::array::from_fn(|_| UnsafeCell::new(0)) })
    }

    fn root(&self) -> VmidTag {
        self.vmids.tag().unwrap()
    }

    fn run_alone(&self, cpu: u32, root: &VmidTag) -> Vmid {
        // SAFETY: no other thread of a model is on this CPU.
        let vmid = unsafe { root.activate(cpu, self.vmids.vcpu()) }.vmid;
        self.run(vmid);
        vmid
    }

    fn run(&self, vmid: Vmid) {
        // SAFETY: loom checks it.
        self.exclusive[index(vmid)].with_mut(|cell| unsafe { *cell += 1 });
    }

    /// Gives numbers to so many roots, by the third CPU.
    fn take(&self, count: usize) {
        for root in (0..count).map(|_| self.root()) {
            self.run_alone(2, &root);
        }
    }
}

#[test]
fn what_a_cpu_did_under_a_number_that_it_gave_up_comes_before_what_others_do_under_it() {
    check(|| {
        let machine = Machine::new();
        let [old, other, new] = [(); 3].map(|()| machine.root());
        // The first to be given out anew.
        let vmid = machine.run_alone(0, &old);
        machine.take(NUMBERS - 1);
        let thread = {
            let machine = Arc::clone(&machine);
            thread::spawn(move || machine.run_alone(1, &new))
        };
        machine.run(vmid);
        machine.run_alone(0, &other);
        thread.join().unwrap();
    });
}

/// The CPU that rolls over has looked at the number when it was another root's.
#[test]
fn a_number_that_a_cpu_has_just_claimed_is_found_by_the_roll_over_of_another() {
    check(|| {
        let machine = Machine::new();
        let [gone, one, other] = [(); 3].map(|()| machine.root());
        machine.take(NUMBERS - 1);
        machine.run_alone(2, &gone);
        let thread = {
            let machine = Arc::clone(&machine);
            thread::spawn(move || (machine.run_alone(1, &other), other))
        };
        // SAFETY: no CPU is on it any more, and no model of a TLB has anything under its number.
        unsafe {
            machine.vmids.leave(&gone);
            machine.vmids.retire(&gone);
        }
        let here = machine.run_alone(0, &one);
        let (there, _other) = thread.join().unwrap();
        assert_ne!(here, there, "two roots that are active have one number");
    });
}
