//! A VM's notifier that measures: how long the core takes, and which pages are being changed.

use std::cell::Cell;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mayfly_machine::address_space::{Change, Notifier, PageChange, Reason, Rights};
use mayfly_machine::walk::walk;
use mayfly_machine::{Arena, MachineWorld};
use mayfly_memslot::Hva;
use mayfly_platform::address::{Gfn, PAGE_SHIFT, Pfn};
use mayfly_record::nanoseconds;
use mayfly_stage2::{Format, Owed, Permissions};
use mayfly_vm::Vm;

use super::window::Windows;
use crate::work::cpu_here;

/// Looks at the clock, to find out what one takes.
const LOOKS: usize = 1001;

/// What was noted of a VM.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    /// Nanoseconds that the core took for each merged page.
    pub(super) merges: Vec<u64>,
    /// Nanoseconds that the core took for each break.
    pub(super) breaks: Vec<u64>,
    /// Nanoseconds of CPU time of whoever told the VM of any change, but for vCPUs, whose faults have theirs in them.
    pub(super) cpu: u64,
    /// Changes that found pages mapped, and left them so.
    pub(super) windows: u64,
}

/// Tells `inner`, of the VM's own memory alone, as if each VM were a process by itself.
pub(super) struct Watched<F: Format> {
    pub(super) inner: Box<dyn Notifier>,
    pub(super) vm: Vm<MachineWorld<F>>,
    pub(super) memory: Range<Hva>,
    pub(super) windows: Arc<Windows>,
    pub(super) arena: Arc<Arena>,
    /// Nanoseconds that a look at the thread's clock takes.
    pub(super) clock: u64,
    pub(super) books: Mutex<Books>,
}

#[derive(Debug, Default)]
pub(super) struct Books {
    under_way: Vec<UnderWay>,
    log: Log,
}

/// A change between its start and its end.
#[derive(Debug)]
struct UnderWay {
    change: Change,
    /// The pages that it found mapped, and that may stay so.
    window: Vec<usize>,
    /// What the core has taken so far.
    spent: Duration,
    /// Pages that got another frame.
    changed: u64,
}

impl<F: Format> Watched<F> {
    /// What was noted so far; it begins anew.
    pub(super) fn take(&self) -> Log {
        std::mem::take(&mut self.books().log)
    }

    fn timed(&self, work: impl FnOnce()) -> Duration {
        let cpu = (!IS_VCPU.get()).then(cpu_here);
        let start = Instant::now();
        work();
        let wall = start.elapsed();
        if let Some(before) = cpu {
            self.books().log.cpu += (cpu_here() - before).saturating_sub(self.clock);
        }
        wall
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part of a change that is the VM's.
    fn own(&self, change: &Change) -> Option<Change> {
        let range =
            change.range.start.max(self.memory.start)..change.range.end.min(self.memory.end);
        (range.start < range.end).then(|| Change { range, ..change.clone() })
    }

    fn pages(&self, range: &Range<Hva>) -> Range<usize> {
        let page = |hva: Hva| ((hva.get() - self.memory.start.get()) >> PAGE_SHIFT) as usize;
        page(range.start)..page(range.end)
    }

    fn is_mapped(&self, page: usize) -> bool {
        let _section = self.vm.srcu().read_lock();
        self.windows.top().is_some_and(|top| {
            walk::<F>(&self.arena, top, Gfn::new(page as u64), Permissions::READ).is_ok()
        })
    }

    /// Opens the window of a change: none where everything is taken away, or just being so.
    fn open(&self, change: &Change) {
        let pages = self.pages(&change.range);
        let mapped: Vec<usize> = match change.new {
            Rights::None => Vec::new(),
            _ => pages.clone().filter(|&page| self.is_mapped(page)).collect(),
        };
        let mut books = self.books();
        let is_taken = |page: usize| {
            books.under_way.iter().any(|other| {
                other.change.new == Rights::None && self.pages(&other.change.range).contains(&page)
            })
        };
        let window: Vec<usize> = mapped.into_iter().filter(|&page| !is_taken(page)).collect();
        if change.new == Rights::None {
            self.windows.close(pages);
        }
        self.windows.open(window.iter().copied());
        let (spent, changed) = (Duration::ZERO, 0);
        books.under_way.push(UnderWay { change: change.clone(), window, spent, changed });
    }

    /// Adds to a change that is under way.
    fn add(&self, page: Hva, spent: Duration, changed: u64) {
        let mut books = self.books();
        let is_it = |under_way: &&mut UnderWay| {
            under_way.change.new != Rights::None && under_way.change.range.contains(&page)
        };
        if let Some(under_way) = books.under_way.iter_mut().find(is_it) {
            under_way.spent += spent;
            under_way.changed += changed;
        }
    }

    fn close(&self, change: &Change, spent: Duration) {
        let mut books = self.books();
        let Some(at) = books.under_way.iter().position(|other| other.change == *change) else {
            return;
        };
        let UnderWay { window, spent: before, changed, .. } = books.under_way.swap_remove(at);
        self.windows.close(window.iter().copied());
        let Log { merges, breaks, windows, .. } = &mut books.log;
        *windows += u64::from(!window.is_empty());
        let spent = nanoseconds(before + spent);
        match change.reason {
            Reason::Merge => {
                let pages = changed.max(1);
                merges.extend((0..pages).map(|_| spent / pages));
            }
            Reason::CopyOnWrite if change.old == Rights::ReadOnly => breaks.push(spent),
            _ => {}
        }
    }
}

thread_local! {
    static IS_VCPU: Cell<bool> = const { Cell::new(false) };
}

/// Says that this thread runs a vCPU.
pub(super) fn runs_a_vcpu() {
    IS_VCPU.set(true);
}

/// What a look at the thread's clock takes, in nanoseconds: of many, the median.
pub(super) fn cost_of_clock() -> u64 {
    let look = || {
        let before = cpu_here();
        cpu_here() - before
    };
    let mut looks: Vec<u64> = (0..LOOKS).map(|_| look()).collect();
    looks.sort_unstable();
    looks[looks.len() / 2]
}

impl<F: Format> Notifier for Watched<F> {
    fn invalidate_start(&self, change: &Change) {
        let Some(change) = self.own(change) else { return };
        self.open(&change);
        let spent = self.timed(|| self.inner.invalidate_start(&change));
        self.add(change.range.start, spent, 0);
    }

    fn change_ptes(&self, first: Hva, changes: &[Option<PageChange>]) {
        // One change is of one VM: its memory is a mapping of its own.
        let count = changes.iter().flatten().count() as u64;
        if self.memory.contains(&first) && count > 0 {
            let spent = self.timed(|| self.inner.change_ptes(first, changes));
            self.add(first, spent, count);
        }
    }

    fn change_ptes_owing(&self, first: Hva, changes: &[Option<PageChange>]) -> Option<Owed> {
        let count = changes.iter().flatten().count() as u64;
        if !self.memory.contains(&first) || count == 0 {
            return None;
        }
        let mut owed = None;
        let spent = self.timed(|| owed = self.inner.change_ptes_owing(first, changes));
        self.add(first, spent, count);
        owed
    }

    fn change_pte(&self, page: Hva, change: &PageChange) {
        self.change_ptes(page, &[Some(*change)]);
    }

    fn allow_writes(&self, page: Hva, frame: Pfn) {
        if self.memory.contains(&page) {
            let spent = self.timed(|| self.inner.allow_writes(page, frame));
            self.add(page, spent, 0);
        }
    }

    fn invalidate_end(&self, change: &Change) {
        let Some(change) = self.own(change) else { return };
        let spent = self.timed(|| self.inner.invalidate_end(&change));
        self.close(&change, spent);
    }
}
