//! Every allocation that setting a slot makes is refused in turn; the slots stay as they were, and usable.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::Arc;

use mayfly_memslot::{AddressSpace, Error, Flags, Gpa, Hva, MemSlots, PAGE_SIZE, Region, SlotId};
use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::{Host, Platform};
use mayfly_srcu::{Config, Srcu};

thread_local! {
    /// Allocations of this thread until one is refused.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

struct Failing;

#[global_allocator]
static ALLOCATOR: Failing = Failing;

// SAFETY: passes everything on to the system's allocator, or gives no memory, as an allocator may.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let refuse = LEFT.with(|left| {
            left.set(left.get().map(|left| left.saturating_sub(1)));
            left.get() == Some(0)
        });
        // SAFETY: as the caller promises.
        if refuse { null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises; all memory is the system's.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// What `work` returns while this thread's `nth` allocation (from 1) and all later ones are refused, and whether it
/// came to that.
fn starved<T>(nth: usize, work: impl FnOnce() -> T) -> (T, bool) {
    LEFT.set(Some(nth));
    let result = work();
    let refused = LEFT.take() == Some(0);
    (result, refused)
}

fn region(index: u16, gfn: u64, pages: u64) -> Region<Hva> {
    Region {
        slot: SlotId::main(index),
        flags: Flags::empty(),
        gpa: Gpa::new(gfn * PAGE_SIZE),
        size: pages * PAGE_SIZE,
        backing: Hva::new(0),
    }
}

fn domain() -> (Arc<dyn Platform>, Srcu) {
    // Miri does not know `membarrier`.
    let host: Arc<dyn Platform> = Arc::new(if cfg!(miri) { Host::fenced() } else { Host::new() });
    let domain = Srcu::try_new(Arc::clone(&host), Config::default()).unwrap();
    (host, domain)
}

#[test]
fn a_change_that_runs_out_of_memory_changes_nothing_and_can_be_made_later() {
    let log = Flags::LOG_DIRTY_PAGES;
    let changes = [
        ("create", region(5, 100, 4), 4),
        ("create with a log", Region { flags: log, ..region(5, 100, 4) }, 6),
        ("move", region(1, 100, 4), 4),
        ("move and log", Region { flags: log, ..region(1, 100, 4) }, 6),
        ("log", Region { flags: log, ..region(1, 10, 4) }, 6),
        ("stop logging", region(2, 20, 4), 4),
        ("delete", region(1, 0, 0), 4),
    ];
    for (what, change, allocations) in changes {
        let (host, domain) = domain();
        let slots = MemSlots::try_new(host, &domain).unwrap();
        slots.set(&region(1, 10, 4)).unwrap();
        slots.set(&Region { flags: log, ..region(2, 20, 4) }).unwrap();
        let before = format!("{slots:?}");
        let mut refusals = 0;
        loop {
            let (result, refused) = starved(refusals + 1, || slots.set(&change));
            if !refused {
                assert!(matches!(result, Ok(Some(_))), "{what}: {result:?}");
                break;
            }
            assert!(matches!(result, Err(Error::OutOfMemory(OutOfMemory))), "{what}: {result:?}");
            assert_eq!(result.unwrap_err().errno(), 12);
            assert_eq!(format!("{slots:?}"), before, "{what}");
            refusals += 1;
        }
        assert_eq!(refusals, allocations, "{what}");
        assert_ne!(format!("{slots:?}"), before, "{what}");
        domain.barrier();
    }
}

#[test]
fn a_change_that_is_refused_or_makes_no_difference_takes_no_memory() {
    let (host, domain) = domain();
    let slots = MemSlots::try_new(host, &domain).unwrap();
    slots.set(&region(1, 10, 4)).unwrap();
    for (change, errno) in [(region(1, 10, 4), None), (region(2, 13, 4), Some(17))] {
        let (result, refused) = starved(1, || slots.set(&change));
        assert!(!refused);
        assert_eq!(result.err().map(|error| error.errno()), errno);
    }
}

#[test]
fn a_vm_without_memory_for_its_slots_is_told_so() {
    let (host, domain) = domain();
    for nth in [1, 2] {
        let host = Arc::clone(&host);
        let (result, refused) = starved(nth, || MemSlots::<Hva>::try_with_smm(host, &domain));
        assert!(refused);
        assert_eq!(result.unwrap_err(), OutOfMemory);
    }
    let (slots, refused) = starved(3, || MemSlots::<Hva>::try_with_smm(host, &domain).unwrap());
    assert!(!refused);
    assert!(slots.load(AddressSpace::Main, &domain.read_lock()).is_empty());
}
