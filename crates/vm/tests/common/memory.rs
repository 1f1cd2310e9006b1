//! The host's memory in a test: the page at address `a` is in the frame of the same number, unless a test says
//! otherwise; and its caches, which write down what is cleaned.

use std::collections::BTreeMap;
use std::sync::Mutex;

use mayfly_memslot::{Hva, PAGE_SHIFT};
use mayfly_platform::address::Pfn;
use mayfly_stage2::Level;
use mayfly_vm::{Cache, HostFault, HostMemory, Resolved};

type Hook = Box<dyn FnMut() + Send>;

pub(crate) struct Memory {
    state: Mutex<State>,
    hook: Mutex<Option<Hook>>,
}

struct State {
    /// What is said of every page.
    level: Level,
    /// Whether the guest may write what it only reads.
    writable: bool,
    /// Pages that are not in the frame of their number.
    moved: BTreeMap<u64, Pfn>,
    fault: Option<HostFault>,
    asked: Vec<(Hva, bool)>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        let state = State {
            level: Level::PAGE,
            writable: true,
            moved: BTreeMap::new(),
            fault: None,
            // Tests that count allocations have room for what is written down in them.
            asked: Vec::with_capacity(1 << 12),
        };
        Self { state: Mutex::new(state), hook: Mutex::new(None) }
    }

    /// Has it say of every page that it lies in a block of `level`.
    pub(crate) fn set_level(&self, level: Level) {
        self.state.lock().unwrap().level = level;
    }

    /// Whether a page that is read may be written as well.
    pub(crate) fn set_writable(&self, writable: bool) {
        self.state.lock().unwrap().writable = writable;
    }

    /// The page at `hva` is in frame `pfn` from now on.
    pub(crate) fn move_page(&self, hva: Hva, pfn: u64) {
        self.state.lock().unwrap().moved.insert(hva.get() >> PAGE_SHIFT, Pfn::new(pfn));
    }

    /// Has it fail, or no more.
    pub(crate) fn fail_with(&self, fault: Option<HostFault>) {
        self.state.lock().unwrap().fault = fault;
    }

    /// What it was asked since the last time, and whether for writing.
    pub(crate) fn take_asked(&self) -> Vec<(Hva, bool)> {
        let asked = Vec::with_capacity(1 << 12);
        std::mem::replace(&mut self.state.lock().unwrap().asked, asked)
    }

    /// Has `hook` called once, when it is next asked: it has made up its mind, and not answered yet.
    pub(crate) fn when_asked(&self, hook: impl FnMut() + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }
}

impl HostMemory<Hva> for Memory {
    fn resolve(&self, backing: Hva, write: bool) -> Result<Resolved, HostFault> {
        let resolved = {
            let mut state = self.state.lock().unwrap();
            state.asked.push((backing, write));
            let page = backing.get() >> PAGE_SHIFT;
            let moved = state.moved.get(&page).copied();
            let resolved = Resolved {
                pfn: moved.unwrap_or(Pfn::new(page)),
                level: if moved.is_some() { Level::PAGE } else { state.level },
                writable: write || state.writable,
            };
            state.fault.map_or(Ok(resolved), Err)
        };
        // What it has said is not with its caller yet, as when a real one is preempted here.
        let hook = self.hook.lock().unwrap().take();
        if let Some(mut hook) = hook {
            hook();
        }
        resolved
    }
}

/// Caches that write down what is cleaned.
#[derive(Default)]
pub(crate) struct Caches(Mutex<Vec<(Pfn, u64)>>);

impl Caches {
    /// What was cleaned since the last time: first frame, and how many.
    pub(crate) fn take_cleaned(&self) -> Vec<(Pfn, u64)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Cache for Caches {
    fn clean(&self, first: Pfn, count: u64) {
        self.0.lock().unwrap().push((first, count));
    }
}
