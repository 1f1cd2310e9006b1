//! CPUs that run guests, and their TLBs.
//!
//! A CPU in a guest acts on invalidations between two accesses; whoever completes one waits for it. A CPU that has left
//! is not waited for: what it remembers is invalidated for it.

use std::ops::Range;

use shuttle::sync::{Condvar, Mutex, MutexGuard};

use mayfly_platform::address::Gfn;
use mayfly_platform::tlb::{Scope, Span, Tlb, TlbToken, Vmid};
use mayfly_stage2::{Leaf, Level};

use crate::model::gfn;

pub(crate) struct Cpus {
    state: Mutex<State>,
    /// Some CPU has acted on its invalidations, or left its guest.
    changed: Condvar,
}

struct State {
    cpus: Vec<Cpu>,
    /// How often everybody was asked to leave.
    kicks: u64,
}

#[derive(Default)]
struct Cpu {
    in_guest: bool,
    kicked: bool,
    remembered: Vec<Translation>,
    pending: Vec<(Vmid, Scope)>,
}

/// What a TLB remembers of a leaf.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Translation {
    pub(crate) vmid: Vmid,
    pub(crate) level: Level,
    pub(crate) first: u64,
    pub(crate) leaf: Leaf,
}

impl Translation {
    fn gfns(&self) -> Range<Gfn> {
        gfn(self.first)..gfn(self.first + self.level.pages())
    }

    fn covers(&self, page: u64) -> bool {
        (self.first..self.first + self.level.pages()).contains(&page)
    }

    fn is_in(&self, vmid: Vmid, scope: &Scope) -> bool {
        let overlaps = match scope {
            Scope::All => true,
            Scope::Range(span) => span.forgets_leaf(&self.gfns()),
        };
        self.vmid == vmid && overlaps
    }
}

impl Cpu {
    fn act_on_pending(&mut self) {
        for (vmid, scope) in self.pending.drain(..) {
            self.remembered.retain(|translation| !translation.is_in(vmid, &scope));
        }
    }
}

impl Cpus {
    pub(crate) fn new(count: usize) -> Self {
        let cpus = (0..count).map(|_| Cpu::default()).collect();
        Self { state: Mutex::new(State { cpus, kicks: 0 }), changed: Condvar::new() }
    }

    /// To be read before a root is loaded, for [`Cpus::enter`].
    pub(crate) fn kicks(&self) -> u64 {
        self.lock().kicks
    }

    /// Enters the guest, unless everybody was asked to leave since `kicks` was read.
    pub(crate) fn enter(&self, cpu: usize, kicks: u64) -> bool {
        let mut state = self.lock();
        let may = state.kicks == kicks;
        state.cpus[cpu].in_guest = may;
        may
    }

    /// Between two accesses. Returns whether the CPU may stay in the guest.
    pub(crate) fn serve(&self, cpu: usize) -> bool {
        let mut state = self.lock();
        let cpu = &mut state.cpus[cpu];
        if !cpu.pending.is_empty() {
            cpu.act_on_pending();
            self.changed.notify_all();
        }
        !cpu.kicked
    }

    pub(crate) fn leave(&self, cpu: usize) {
        let mut state = self.lock();
        let cpu = &mut state.cpus[cpu];
        cpu.act_on_pending();
        (cpu.in_guest, cpu.kicked) = (false, false);
        self.changed.notify_all();
    }

    /// Has every CPU leave its guest, and waits until those that are in one have.
    pub(crate) fn kick_all(&self) {
        let mut state = self.lock();
        state.kicks += 1;
        for cpu in state.cpus.iter_mut().filter(|cpu| cpu.in_guest) {
            cpu.kicked = true;
        }
        while state.cpus.iter().any(|cpu| cpu.kicked) {
            state = self.changed.wait(state).unwrap();
        }
    }

    /// What the CPU remembers of `page`.
    pub(crate) fn remembered(&self, cpu: usize, vmid: Vmid, page: u64) -> Option<Translation> {
        let state = self.lock();
        let mut all = state.cpus[cpu].remembered.iter();
        all.find(|translation| translation.vmid == vmid && translation.covers(page)).copied()
    }

    /// The CPU remembers what it has found; `alone`: and must not remember anything else of the same pages.
    pub(crate) fn remember(&self, cpu: usize, new: Translation, alone: bool) {
        let remembered = &mut self.lock().cpus[cpu].remembered;
        let scope = Scope::Range(Span::pages(new.gfns()));
        for old in remembered.iter().filter(|old| alone && old.is_in(new.vmid, &scope)) {
            let fits = (old.level, old.leaf.pfn) == (new.level, new.leaf.pfn);
            assert!(fits, "one page by two entries: no break before make");
        }
        remembered.push(new);
    }

    /// The CPU has faulted on `page`, and what it remembers of it is of no use.
    pub(crate) fn forget(&self, cpu: usize, vmid: Vmid, page: u64) {
        let remembered = &mut self.lock().cpus[cpu].remembered;
        remembered.retain(|translation| translation.vmid != vmid || !translation.covers(page));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn wait_for_pending(&self, mut state: MutexGuard<'_, State>) {
        while state.cpus.iter().any(|cpu| !cpu.pending.is_empty()) {
            state = self.changed.wait(state).unwrap();
        }
    }
}

// SAFETY: a CPU that uses what it should have forgotten fails the test.
unsafe impl Tlb for Cpus {
    fn issue(&self, vmid: Vmid, scope: Scope) -> TlbToken {
        for cpu in &mut self.lock().cpus {
            cpu.pending.push((vmid, scope.clone()));
            if !cpu.in_guest {
                cpu.act_on_pending();
            }
        }
        TlbToken(0)
    }

    fn complete(&self, _token: TlbToken) {
        self.wait_for_pending(self.lock());
    }

    fn invalidate_all_vmids(&self) {
        let mut state = self.lock();
        for cpu in &mut state.cpus {
            if cpu.in_guest {
                let vmids = (1..8).map(Vmid);
                cpu.pending.extend(vmids.map(|vmid| (vmid, Scope::All)));
            } else {
                cpu.remembered.clear();
            }
        }
        self.wait_for_pending(state);
    }
}
