//! TLBs: a list of what was invalidated, and one TLB that remembers whatever a test walks.

use std::collections::BTreeMap;
use std::sync::Mutex;

use mayfly_platform::address::Gfn;
use mayfly_platform::tlb::{Scope, TlbToken, Vmid};
use mayfly_stage2::{Leaf, Level, MemoryType, Permissions};

/// What a TLB remembers of one guest frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remembered {
    pub(crate) pfn: u64,
    pub(crate) permissions: Permissions,
    pub(crate) memory: MemoryType,
    /// The leaf's size.
    level: Level,
}

impl Remembered {
    fn of(gfn: Gfn, level: Level, leaf: &Leaf) -> Self {
        let pfn = leaf.pfn.get() + (gfn.get() & (level.pages() - 1));
        Self { pfn, permissions: leaf.permissions, memory: leaf.memory, level }
    }

    /// Asserts that what is remembered of `gfn` allows no more than the leaf that it is in now.
    pub(crate) fn assert_covered_by(&self, gfn: Gfn, level: Level, leaf: &Leaf) {
        let now = Self { level: self.level, ..Self::of(gfn, level, leaf) };
        let covered = Self { permissions: now.permissions | self.permissions, ..*self };
        assert_eq!(now, covered, "{gfn} is remembered as {self:?}");
    }
}

type Hook = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(crate) struct Tlbs {
    issued: Mutex<Vec<(Vmid, Scope)>>,
    completed: Mutex<u64>,
    remembered: Mutex<BTreeMap<(Vmid, Gfn), Remembered>>,
    hook: Mutex<Option<Hook>>,
    completion_hook: Mutex<Option<Hook>>,
}

impl Tlbs {
    /// What was invalidated since this was asked last.
    pub(crate) fn take_issued(&self) -> Vec<(Vmid, Scope)> {
        std::mem::take(&mut self.issued.lock().unwrap())
    }

    /// Has `hook` called at the next invalidation, before it is done.
    pub(crate) fn on_next_issue(&self, hook: impl FnOnce() + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }

    /// Has `hook` called when the next invalidation is done, before its caller knows.
    pub(crate) fn on_next_complete(&self, hook: impl FnOnce() + Send + 'static) {
        *self.completion_hook.lock().unwrap() = Some(Box::new(hook));
    }

    /// Has no hook called any more.
    pub(crate) fn forget_hook(&self) {
        *self.hook.lock().unwrap() = None;
    }

    /// Has the TLB remember where `gfn` is mapped under `vmid`.
    pub(crate) fn walk(&self, vmid: Vmid, gfn: Gfn, level: Level, leaf: &Leaf) {
        self.remembered.lock().unwrap().insert((vmid, gfn), Remembered::of(gfn, level, leaf));
    }

    /// Everything that the TLB remembers.
    pub(crate) fn remembered(&self) -> BTreeMap<(Vmid, Gfn), Remembered> {
        self.remembered.lock().unwrap().clone()
    }

    /// Forgets only frames in the range, and not what a block of theirs maps beside them: an operation that changes a
    /// block has to name all of it. And only what lies at the addresses, and is of the kind that is named.
    pub(crate) fn issue(&self, vmid: Vmid, scope: Scope) -> TlbToken {
        let hook = self.hook.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
        self.remembered.lock().unwrap().retain(|(of, gfn), remembered| {
            *of != vmid
                || match &scope {
                    Scope::Range(span) => {
                        let first = remembered.level.first(*gfn);
                        let end = Gfn::new(first.get() + remembered.level.pages());
                        !span.gfns.contains(gfn) || !span.forgets_leaf(&(first..end))
                    }
                    Scope::All => false,
                }
        });
        let mut issued = self.issued.lock().unwrap();
        issued.push((vmid, scope));
        TlbToken(issued.len() as u64)
    }

    pub(crate) fn complete(&self, _token: TlbToken) {
        let hook = self.completion_hook.lock().unwrap().take();
        if let Some(hook) = hook {
            hook();
        }
        *self.completed.lock().unwrap() += 1;
    }

    /// How many invalidations were completed.
    pub(crate) fn completed(&self) -> u64 {
        *self.completed.lock().unwrap()
    }

    pub(crate) fn forget_all(&self) {
        self.remembered.lock().unwrap().clear();
    }
}
