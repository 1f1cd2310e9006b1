//! What an observer is told is all that was written.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::frames::{Frames, WORDS};
use mayfly_platform::observe::{Observer, Step, Ticket};
use mayfly_platform::tlb::Vmid;
use mayfly_stage2::{Format, Level, Mapped, Reclaimer, Tables};

use crate::common::granted::MapsAny;
use crate::common::{Platformed, World, role};
use crate::{READ_WRITE, UNHURRIED, gfns, leaf};

in_formats! { all_that_is_written_is_told_and_in_order }

const BLOCK: u64 = Level::MIB2.pages();

/// The words of tables, as they must be by what was told.
struct Book {
    platform: Weak<Platformed>,
    tickets: AtomicU64,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    words: BTreeMap<(u64, usize), u64>,
    roots: Vec<Pfn>,
    vmids: Vec<Vmid>,
    barriers: u32,
    filled: u32,
}

impl Book {
    /// Asserts that every table is as was told.
    fn assert_true(&self) {
        for (&(table, index), &told) in &self.told.lock().unwrap().words {
            assert_eq!(told, self.word(Pfn::new(table), index), "entry {index} of {table:#x}");
        }
    }

    fn word(&self, table: Pfn, index: usize) -> u64 {
        let platform = self.platform.upgrade().unwrap();
        let at = table.get() as usize * WORDS + index;
        // SAFETY: a table of the arena, whose words are there as long as the platform.
        unsafe { &*platform.linear_map().wrapping_add(at) }.load(Ordering::Relaxed)
    }
}

struct ByBook(Arc<Book>);

impl Observer for ByBook {
    fn begin(&self) -> Ticket {
        Ticket(self.0.tickets.fetch_add(1, Ordering::SeqCst))
    }

    fn end(&self, begun: Ticket, step: Step) {
        assert!(begun.0 < self.0.tickets.load(Ordering::SeqCst));
        let mut told = self.0.told.lock().unwrap();
        match step {
            Step::Entry { table, index, old, new } => {
                let before = told.words.insert((table.get(), index), new).unwrap_or(0);
                assert_eq!(before, old, "somebody wrote entry {index} of {table}, and told nobody");
            }
            Step::Filled { table } => {
                told.filled += 1;
                let filled = |index| ((table.get(), index), self.0.word(table, index));
                told.words.extend((0..WORDS).map(filled));
            }
            Step::Root { top, .. } => told.roots.push(top),
            Step::RootGone { top } => told.roots.retain(|root| *root != top),
            Step::VmidTaken { vmid, .. } => told.vmids.push(vmid),
            Step::VmidGiven { vmid } => told.vmids.retain(|given| *given != vmid),
            Step::Barrier => told.barriers += 1,
            other => panic!("nothing gives a cause for {other:?}"),
        }
    }
}

fn map<F: Format>(world: &World<F>, gfn: u64, level: Level) -> Mapped {
    let section = world.srcu.read_lock();
    let root = world.stage2.find_root(role(0), &section).unwrap();
    let (what, seen) = (leaf(gfn, READ_WRITE), world.stage2.sample());
    root.map(Gfn::new(gfn), level, &what, seen, &section).unwrap()
}

fn all_that_is_written_is_told_and_in_order<F: Format>() {
    let platform = Platformed::new(64);
    let (platform_of, told) = (Arc::downgrade(&platform), Mutex::default());
    let book = Arc::new(Book { platform: platform_of, tickets: AtomicU64::new(0), told });
    let _ = platform.observer.set(Box::new(ByBook(Arc::clone(&book))));
    let world = World::<F>::on(platform, Reclaimer::<F>::BOUND);
    let vcpu = world.vcpu(0);
    // Has every table stay that is taken out, so that it can be looked at.
    let reader = world.srcu.reader().unwrap();
    let held = reader.lock();
    assert_eq!(map(&world, 3, Level::PAGE), Mapped::Installed);
    // A table gives way to a block, and that to a table; then there is nothing.
    assert_eq!(map(&world, 0, Level::MIB2), Mapped::Installed);
    book.assert_true();
    let invalidation = world.stage2.begin_invalidation(&gfns(0..BLOCK));
    world.stage2.write_protect(gfns(5..7), UNHURRIED, |_, _| ());
    book.assert_true();
    world.stage2.zap(&invalidation, gfns(0..BLOCK), Tables::Free, UNHURRIED);
    drop(invalidation);
    book.assert_true();
    {
        let told = book.told.lock().unwrap();
        let found = (&*told.roots, &*told.vmids, told.filled);
        assert_eq!(found, (&[vcpu.root.top()][..], &[vcpu.vmid][..], 1));
        assert!(told.barriers >= 3, "one for each time that a TLB may be asked");
        assert!(told.words.values().any(|word| *word != 0));
    }
    drop((vcpu, held));
    drop(reader);
    world.destroy();
    let told = book.told.lock().unwrap();
    assert_eq!((told.roots.len(), told.vmids.len()), (0, 0), "all went as it came");
}
