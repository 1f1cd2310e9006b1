//! Every allocation may fail. Then a call says so, or pages wait for an equal in a later pass; nothing is lost.

#![cfg(not(mayfly_loom))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};

use mayfly_merge::{Group, Host, Limits, Looked, Merged, Merger};
use mayfly_platform::address::Pfn;

thread_local! {
    /// How many allocations of this thread are still to succeed; `None`: all.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The system's allocator, which refuses where the thread that asks wants it to.
struct Refusing;

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

// SAFETY: memory comes from `System`, or does not come, which a caller has to expect.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match LEFT.get() {
            Some(0) => return std::ptr::null_mut(),
            Some(left) => LEFT.set(Some(left - 1)),
            None => {}
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn with_allocations<T>(allowed: usize, work: impl FnOnce() -> T) -> T {
    LEFT.set(Some(allowed));
    let result = work();
    LEFT.set(None);
    result
}

const PAGES: u64 = 600;
const VALUES: u64 = 400;

/// Pages whose frames have their numbers, until they are merged.
struct Fixed {
    frames: RefCell<Vec<u64>>,
    /// References of the merger, by frame.
    held: RefCell<Vec<u64>>,
    /// Pages, by frame.
    having: RefCell<Vec<u64>>,
}

impl Fixed {
    fn new() -> Self {
        let counts = |count| RefCell::new(vec![count; PAGES as usize]);
        Self { frames: RefCell::new((0..PAGES).collect()), held: counts(0), having: counts(1) }
    }

    fn value(&self, page: u64) -> u64 {
        self.frames.borrow()[page as usize] % VALUES
    }

    fn shared(&self) -> usize {
        self.held.borrow().iter().filter(|&&held| held > 0).count()
    }
}

impl Host for Fixed {
    fn look(&self, page: u64) -> Option<Looked> {
        let frame = self.frame(page)?;
        let shared = self.held.borrow()[frame.get() as usize] > 0;
        Some(Looked { frame, shared, sum: self.value(page) << 40 })
    }

    fn frame(&self, page: u64) -> Option<Pfn> {
        Some(Pfn::new(self.frames.borrow()[page as usize]))
    }

    fn holds(&self, page: u64, frame: Pfn) -> bool {
        self.value(page) == frame.get() % VALUES
    }

    fn equal(&self, page: u64, other: u64) -> bool {
        self.value(page) == self.value(other)
    }

    fn references(&self, frame: Pfn) -> u64 {
        let at = frame.get() as usize;
        self.having.borrow()[at] + self.held.borrow()[at]
    }

    fn close(&self, _: Group, _: u64, frame: Pfn, _: u64) -> Option<Pfn> {
        self.held.borrow_mut()[frame.get() as usize] += 1;
        Some(frame)
    }

    fn merge(&self, first: u64, with: &[Pfn], became: &mut dyn FnMut(Merged)) {
        for (page, with) in (first..).zip(with) {
            let own = std::mem::replace(&mut self.frames.borrow_mut()[page as usize], with.get());
            self.having.borrow_mut()[own as usize] -= 1;
            self.having.borrow_mut()[with.get() as usize] += 1;
            became(Merged::Now);
        }
    }

    fn put(&self, frame: Pfn) {
        self.held.borrow_mut()[frame.get() as usize] -= 1;
    }

    fn while_settled(&self, then: &mut dyn FnMut()) {
        then();
    }
}

#[test]
fn where_memory_ends_pages_are_merged_later_and_frames_are_given_back() {
    let limits = Limits {
        max_page_sharing: 256,
        pages_to_merge: 8,
        pages_a_find: 1,
        most_passes: 1,
        pages_a_look: 1,
    };
    for allowed in 0.. {
        let (host, mut merger) = (Fixed::new(), Merger::new());
        let registered = with_allocations(allowed, || merger.register(&host, Group(0), 0..PAGES));
        if registered.is_err() {
            assert!(merger.pages() < PAGES);
            merger.register(&host, Group(0), 0..PAGES).unwrap();
        }
        let whole = with_allocations(allowed, || {
            merger.scan(&host, &limits, PAGES);
            merger.scan(&host, &limits, PAGES);
            host.shared()
        });
        (0..2).for_each(|_| assert_eq!(merger.scan(&host, &limits, PAGES), PAGES));
        assert_eq!(host.shared() as u64, PAGES - VALUES, "all that are equal");

        // A range is parted, for which memory may be missing: then nothing has changed.
        let parted = with_allocations(allowed, || merger.unregister(&host, &(200..300)));
        assert_eq!(merger.pages(), if parted.is_ok() { PAGES - 100 } else { PAGES });
        merger.give_up(&host);
        assert_eq!(host.shared(), 0);
        if registered.is_ok() && parted.is_ok() && whole as u64 == PAGES - VALUES {
            return;
        }
    }
}
