//! The TLBs' mailboxes under loom: a CPU that enters, polls and leaves, against those who make it forget, in every
//! interleaving, with every value that a load may return. (Loom gives a read-modify-write the latest value, so it does
//! not see what would happen if posts were not ordered before their count.)

#![cfg(mayfly_loom)]

#[path = "../src/tlb/mailbox.rs"]
mod mailbox;

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

use mayfly_platform::Model;
use mayfly_platform::address::Gfn;
use mayfly_platform::tlb::{Scope, Span, Vmid};

use mailbox::{Mailbox, Request, Waited};

/// A guest page: a table entry that says which of two frames it is in, and the first of them.
struct Page {
    entry: AtomicU64,
    /// Read by the guest, and reused by who took it away: loom fails the model where the two are not ordered.
    old_frame: UnsafeCell<u64>,
}

struct Machine {
    platform: Model,
    mailbox: Mailbox,
    pages: [Page; 2],
}

// SAFETY: loom checks every access to the cells.
unsafe impl Sync for Machine {}
// SAFETY: as above.
unsafe impl Send for Machine {}

/// The CPU, with one translation remembered for each page; each page has a VMID of its own.
struct Cpu {
    machine: Arc<Machine>,
    seen: u32,
    remembered: [Option<u64>; 2],
}

fn vmid(page: usize) -> Vmid {
    Vmid(page as u16 + 1)
}

impl Machine {
    fn new() -> Arc<Self> {
        let page = || Page { entry: AtomicU64::new(0), old_frame: UnsafeCell::new(0) };
        Arc::new(Self { platform: Model::new(), mailbox: Mailbox::new(), pages: [page(), page()] })
    }

    /// Has a page in the other frame, and reuses the first one; returns how the CPU was waited for.
    fn take_away(&self, page: usize, everything: bool) -> Waited {
        self.pages[page].entry.store(1, Ordering::Relaxed);
        // [issue]
        fence(Ordering::SeqCst);
        if everything {
            self.mailbox.post(None, &self.platform);
        } else if self.mailbox.may_hold(vmid(page)) {
            let scope = Scope::Range(Span::pages(Gfn::new(0)..Gfn::new(1)));
            let request = Request { vmid: vmid(page), scope };
            self.mailbox.post(Some(request), &self.platform);
        }
        // [complete]
        fence(Ordering::SeqCst);
        let waited = self.mailbox.wait(self.mailbox.posted(), &self.platform);
        // SAFETY: that nobody reads it is what the model is about.
        self.pages[page].old_frame.with_mut(|frame| unsafe { *frame += 1 });
        waited
    }
}

impl Cpu {
    fn new(machine: &Arc<Machine>) -> Self {
        Self { machine: Arc::clone(machine), seen: 0, remembered: [None; 2] }
    }

    /// In the guest that has `page`: uses it, so often.
    fn run(&mut self, page: usize, times: u32) {
        let machine = Arc::clone(&self.machine);
        machine.mailbox.enter(vmid(page), self.seen);
        for _ in 0..times {
            if machine.mailbox.has_mail(self.seen) {
                self.take_mail(&machine, page);
            }
            let Page { entry, old_frame } = &machine.pages[page];
            if *self.remembered[page].get_or_insert_with(|| entry.load(Ordering::Relaxed)) == 0 {
                // SAFETY: that nobody writes it is what the model is about.
                old_frame.with(|frame| unsafe { std::hint::black_box(*frame) });
            }
        }
        machine.mailbox.leave(self.seen, &machine.platform);
    }

    fn take_mail(&mut self, machine: &Machine, page: usize) {
        let mut requests = Vec::new();
        let (posted, everything) = machine.mailbox.take(&mut requests, &machine.platform);
        for forgotten in requests {
            self.remembered[usize::from(forgotten.vmid.0) - 1] = None;
        }
        if everything {
            self.remembered = [None; 2];
            machine.mailbox.holds_only(vmid(page));
        }
        self.seen = posted;
        machine.mailbox.acknowledge(posted, &machine.platform);
    }
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.check(model);
}

#[test]
fn a_frame_that_was_taken_away_is_not_used_by_a_cpu_that_polls() {
    check(4, || {
        let machine = Machine::new();
        let mut cpu = Cpu::new(&machine);
        let guest = thread::spawn(move || cpu.run(0, 2));
        machine.take_away(0, false);
        guest.join().unwrap();
    });
}

#[test]
fn a_frame_that_was_taken_away_is_not_used_by_a_cpu_that_comes_back() {
    check(4, || {
        let machine = Machine::new();
        let mut cpu = Cpu::new(&machine);
        let guest = thread::spawn(move || {
            cpu.run(0, 1);
            cpu.run(0, 1);
        });
        machine.take_away(0, false);
        guest.join().unwrap();
    });
}

#[test]
fn a_cpu_that_dropped_a_vmid_uses_nothing_old_when_it_takes_it_up_again() {
    check(4, || {
        let machine = Machine::new();
        let mut cpu = Cpu::new(&machine);
        // It holds both.
        cpu.run(0, 1);
        cpu.run(1, 1);
        let guest = thread::spawn(move || {
            cpu.run(1, 1);
            cpu.run(0, 1);
        });
        machine.take_away(1, true);
        machine.take_away(0, false);
        guest.join().unwrap();
    });
}

#[test]
fn two_who_meet_at_a_mailbox_are_both_heeded() {
    check(3, || {
        let machine = Machine::new();
        let mut cpu = Cpu::new(&machine);
        cpu.run(1, 1);
        cpu.run(0, 1);
        let guest = thread::spawn(move || {
            cpu.run(0, 1);
            cpu.run(1, 1);
        });
        let other = {
            let machine = Arc::clone(&machine);
            thread::spawn(move || machine.take_away(1, false))
        };
        machine.take_away(0, false);
        other.join().unwrap();
        guest.join().unwrap();
    });
}

#[test]
fn who_sleeps_until_a_cpu_has_forgotten_is_woken() {
    // A wake-up that is lost is a deadlock, which loom reports. Somewhere in there the issuer does sleep.
    let slept = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = slept.clone();
    check(4, move || {
        let machine = Machine::new();
        let mut cpu = Cpu::new(&machine);
        let guest = thread::spawn(move || cpu.run(0, 3));
        if machine.take_away(0, false) == Waited::Asleep {
            seen.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        guest.join().unwrap();
    });
    assert!(slept.load(std::sync::atomic::Ordering::Relaxed));
}
