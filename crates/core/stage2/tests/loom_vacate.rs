//! How CPUs have each other name no root, under loom: asked, interrupted or not, by one another at once, in every
//! interleaving, with every value that a load may return. Loom fails a model in which a register is looked at by another CPU
//! before its own has done with it, and one in which CPUs wait for each other for ever.

#![cfg(mayfly_loom)]

#[path = "model/explore.rs"]
mod explore;

use std::cell::Cell;

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::{Arc, Notify};
use loom::thread::{self, JoinHandle};

use mayfly_platform::tlb::Vmid;
use mayfly_platform::vacate::{Asked, ask_all};

use explore::explore;

const CPUS: usize = 3;

struct Machine {
    words: [Asked; CPUS],
    /// Whether each CPU names a root under VMID 1, or 2.
    names: [[UnsafeCell<bool>; 2]; CPUS],
    interrupts: [Notify; CPUS],
}

// SAFETY: loom checks every access to the cells.
unsafe impl Sync for Machine {}
// SAFETY: as above.
unsafe impl Send for Machine {}

impl Machine {
    fn new() -> Arc<Self> {
        let names = || std::array::from_fn(|_| UnsafeCell::new(true));
        Arc::new(Self {
            words: Default::default(),
            names: std::array::from_fn(|_| names()),
            interrupts: std::array::from_fn(|_| Notify::new()),
        })
    }

    /// CPU `here` looks. Returns whether something was asked of it.
    fn heed(&self, here: usize) -> bool {
        let mut is_asked = false;
        self.words[here].heed(|vmid| {
            is_asked = true;
            // SAFETY: loom checks it.
            self.names[here][usize::from(vmid.0) - 1].with_mut(|names| unsafe { *names = false });
        });
        is_asked
    }

    /// CPU `here` has `cpus` give up what is under `vmid`, whose root is freed then. Returns how often something was asked
    /// of it meanwhile.
    fn free(&self, here: usize, cpus: &[u32], vmid: u16) -> usize {
        let asked = Cell::new(0);
        let meanwhile = || {
            asked.set(asked.get() + usize::from(self.heed(here)));
            thread::yield_now();
        };
        let interrupt = |cpu: u32| self.interrupts[cpu as usize].notify();
        ask_all(&self.words, &mut cpus.iter().copied(), Vmid(vmid), interrupt, meanwhile);
        for cpu in cpus {
            let names = &self.names[*cpu as usize][usize::from(vmid) - 1];
            // SAFETY: loom checks it.
            assert!(!names.with(|names| unsafe { *names }), "a CPU names a root that is freed");
        }
        asked.get()
    }

    /// CPU `here` looks when it is interrupted, until so much was asked of it.
    fn look(&self, here: usize, mut times: usize) {
        while times > 0 {
            self.interrupts[here].wait();
            times -= usize::from(self.heed(here));
        }
    }
}

fn cpu(machine: &Arc<Machine>, run: impl FnOnce(&Machine) + 'static) -> JoinHandle<()> {
    let machine = Arc::clone(machine);
    thread::spawn(move || run(&machine))
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    explore(builder, model);
}

#[test]
fn no_cpu_names_a_root_when_all_have_been_waited_for() {
    check(|| {
        let machine = Machine::new();
        let cpus = [1, 2].map(|number| cpu(&machine, move |machine| machine.look(number, 1)));
        machine.free(0, &[1, 2], 1);
        cpus.into_iter().for_each(|cpu| cpu.join().unwrap());
    });
}

#[test]
fn two_cpus_that_ask_each_other_both_go_on() {
    check(|| {
        let machine = Machine::new();
        let other = cpu(&machine, |machine| {
            let asked = machine.free(1, &[0], 2);
            machine.look(1, 1 - asked);
        });
        let asked = machine.free(0, &[1], 1);
        machine.look(0, 1 - asked);
        other.join().unwrap();
    });
}

/// One of them is that CPU itself.
#[test]
fn two_that_ask_one_cpu_are_both_heeded() {
    check(|| {
        let machine = Machine::new();
        let other = cpu(&machine, |machine| _ = machine.free(1, &[0], 2));
        let asked = machine.free(0, &[0], 1);
        machine.look(0, 2 - asked);
        other.join().unwrap();
    });
}
