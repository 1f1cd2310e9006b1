//! Buried tables: tables that are out of their tree, until no walker can read them.
//!
//! A table that was taken out of its tree, and out of every TLB and walk cache, may still be read by a walker that
//! found it before: a vCPU that handles a fault, inside an SRCU section. So the table is *buried*: it is pushed onto a
//! list that is linked through the tables themselves (the first entry of each is a removed one, which has room for a
//! frame number). Burying therefore never allocates, and vCPUs bury without a lock. A caller that *collects* takes the
//! whole list, asks for a grace period, and frees the tables that an earlier grace period covers. The reclaimer
//! collects at the latest ([`buried`](crate::buried)).
//!
//! - **\[bury\]** is the release of the push; **\[collect\]** is the acquire of the swap that takes the list. What was
//!   taken out of the trees before \[bury\] is out of them before \[collect\]. The grace period that is asked for after
//!   \[collect\] waits for every section that could have found it. Hardware has stopped walking it before \[bury\]
//!   (`litmus/S2+zap+reuse`).
//!
//! A relaxed \[collect\] would do as well, and no test can tell: a caller that takes the list asks for a grace period
//! before it looks at the list, and so executes a full fence (`srcu`: \[request\]), which acquires what it has loaded.
//! The order is stated where the code relies on it, and costs nothing: one exchange a batch.

use mayfly_platform::address::Pfn;
use mayfly_platform::lock::Lock;
use mayfly_platform::sync::{AtomicU64, AtomicUsize, CacheLine, Ordering};
use mayfly_srcu::{Cookie, Srcu};

use crate::entry::linked;
use crate::tables::Tables;

/// No table: ends a list. Frame 0 is no table's.
const NONE: Pfn = Pfn::new(0);

/// So many buried tables (16 MiB) may await their readers before others stay where they are: those that a zap has
/// emptied are left hanging ([`prune`](crate::prune)), and those below a block that is to be are kept. Of several who
/// look at the same time, each may bury what one entry leads to.
pub(crate) const BOUND: usize = 4096;

pub(crate) struct Graveyard {
    fresh: CacheLine<AtomicU64>,
    /// Tables that are buried and not freed.
    count: AtomicUsize,
    /// Batches that were freed.
    batches: AtomicUsize,
    batch: Lock<Batch>,
}

/// A number of batches.
#[derive(Clone, Copy)]
pub(crate) struct Batches(usize);

/// Tables that a grace period was asked for.
struct Batch {
    first: Pfn,
    cookie: Option<Cookie>,
}

/// Dead tables in a list of their own, each linked to the next by its first entry.
pub(crate) struct Dead {
    first: Pfn,
    last: Pfn,
    count: usize,
}

impl Dead {
    pub(crate) const NONE: Self = Self { first: NONE, last: NONE, count: 0 };

    /// How many they are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Adds the table in `pfn`, whose first entry is removed.
    pub(crate) fn push(&mut self, pfn: Pfn, tables: &Tables) {
        tables.link(pfn, self.first);
        self.first = pfn;
        if self.count == 0 {
            self.last = pfn;
        }
        self.count += 1;
    }
}

impl Graveyard {
    pub(crate) fn new() -> Self {
        Self {
            fresh: CacheLine(AtomicU64::new(NONE.get())),
            count: AtomicUsize::new(0),
            batches: AtomicUsize::new(0),
            batch: Lock::new(Batch { first: NONE, cookie: None }),
        }
    }

    /// Takes over `dead`, of which no TLB remembers anything. Does not wait.
    pub(crate) fn bury(&self, dead: &Dead, tables: &Tables) {
        if dead.count == 0 {
            return;
        }
        self.count.fetch_add(dead.count, Ordering::Relaxed);
        let mut fresh = self.fresh.load(Ordering::Relaxed);
        loop {
            tables.link(dead.last, Pfn::new(fresh));
            // [bury]
            let first = dead.first.get();
            match self.fresh.compare_exchange(fresh, first, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => fresh = other,
            }
        }
    }

    /// How many tables await reclaim.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// How many batches have been freed, for [`Graveyard::has_freed_what_was_there`].
    pub(crate) fn batches(&self) -> Batches {
        Batches(self.batches.load(Ordering::Relaxed))
    }

    /// Whether what was buried when `since` was asked is freed: it was in the batch of that moment, or in the next.
    pub(crate) fn has_freed_what_was_there(&self, since: Batches) -> bool {
        self.batches().0.wrapping_sub(since.0) >= 2
    }

    /// Frees what can be freed without waiting; where another caller is doing so, that one does it.
    pub(crate) fn collect(&self, tables: &Tables, srcu: &Srcu) {
        self.collect_if(tables, srcu, |cookie| srcu.poll(cookie));
    }

    /// As [`Graveyard::collect`], of what `is_over` says of a grace period that it is. Returns whether this was at it.
    pub(crate) fn collect_if(
        &self,
        tables: &Tables,
        srcu: &Srcu,
        is_over: impl Fn(Cookie) -> bool,
    ) -> bool {
        let Some(mut batch) = self.batch.try_lock(&*tables.mmu) else { return false };
        while self.advance(&mut batch, tables, srcu, &is_over) {}
        true
    }

    /// Frees everything that is buried. Waits for readers, and for a caller that is freeing. Not from inside a section.
    pub(crate) fn collect_all(&self, tables: &Tables, srcu: &Srcu) {
        loop {
            let mut batch = self.batch.lock(&*tables.mmu);
            while self.advance(&mut batch, tables, srcu, &|cookie| srcu.poll(cookie)) {}
            drop(batch);
            if self.count() == 0 {
                return;
            }
            // A CPU that has counted what it buries, and not buried it yet, is inside a section too.
            srcu.synchronize_expedited();
        }
    }

    /// Frees everything that is buried, when no CPU can be reading it.
    pub(crate) fn clear(&mut self, tables: &Tables) {
        let batch = self.batch.get_mut();
        for first in [batch.first, Pfn::new(self.fresh.load(Ordering::Acquire))] {
            free_list(first, tables);
        }
    }

    /// One step: frees the batch, or makes one of what is fresh. Returns whether another step may do more.
    fn advance(
        &self,
        batch: &mut Batch,
        tables: &Tables,
        srcu: &Srcu,
        is_over: &impl Fn(Cookie) -> bool,
    ) -> bool {
        if let Some(cookie) = batch.cookie {
            if !is_over(cookie) {
                return false;
            }
            batch.cookie = None;
            let freed = free_list(core::mem::replace(&mut batch.first, NONE), tables);
            self.count.fetch_sub(freed, Ordering::Relaxed);
            self.batches.fetch_add(1, Ordering::Relaxed);
        }
        // [collect]
        batch.first = Pfn::new(self.fresh.swap(NONE.get(), Ordering::Acquire));
        if batch.first == NONE {
            return false;
        }
        batch.cookie = Some(srcu.start_poll());
        true
    }
}

/// Frees the tables of a list. Returns how many there were.
fn free_list(mut first: Pfn, tables: &Tables) -> usize {
    let mut freed = 0;
    while first != NONE {
        let next = linked(tables.word(first, 0).load(Ordering::Relaxed));
        tables.free(first, 0);
        first = next;
        freed += 1;
    }
    freed
}

#[cfg(all(test, mayfly_loom))]
#[path = "../tests/model/mod.rs"]
#[allow(dead_code, unused_imports, reason = "this is about tables, and models have more")]
mod model;

#[cfg(all(test, mayfly_loom))]
mod tests {
    use alloc::sync::Arc;

    use mayfly_platform::Mmu;

    use super::model::{NoTlb, Tiny, Vm};
    use super::*;
    use crate::Ept;

    /// Of [bury] and [collect] alone: the CPU that buries is in no section, and has executed no fence.
    #[test]
    fn what_was_done_to_a_table_before_it_was_buried_was_done_before_it_is_freed() {
        loom::model(|| {
            let vm = Vm::<Tiny<false>, _>::new(2, NoTlb);
            let mmu: Arc<dyn Mmu> = vm.world.clone();
            let shared = Arc::new((Graveyard::new(), Tables::new(mmu, 2)));
            let burier = {
                let shared = Arc::clone(&shared);
                let dead = [(); 2].map(|()| shared.1.allocate::<Ept>(0).unwrap());
                loom::thread::spawn(move || {
                    let (graveyard, tables) = &*shared;
                    let mut list = Dead::NONE;
                    dead.into_iter().for_each(|pfn| list.push(pfn, tables));
                    graveyard.bury(&list, tables);
                })
            };
            let (graveyard, tables) = &*shared;
            let collect = || graveyard.collect_if(tables, &vm.domain, |_| true);
            assert!(collect());
            burier.join().unwrap();
            assert!(collect());
            assert_eq!((graveyard.count(), vm.world.arena.in_use()), (0, 0));
        });
    }
}
