//! Watches a piece of work: which cache lines of the memory in question does it load, and which does it store to?
//!
//! What is allocated [`inside`] comes from memory of its own. That, and the arena of tables, is made inaccessible while
//! a piece of work runs. Each instruction that accesses it traps (SIGSEGV), is written down, and is let through: its
//! page is opened, the processor's single-step flag has it trap once more behind the instruction (SIGTRAP), and the
//! page is closed again. So a store is seen whatever it stores, and a compare-exchange whether it succeeds or not (as a
//! store, which it is to the line).
//!
//! An instruction that accesses two places in one page is seen at the first; none of those that share memory between
//! threads does.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{c_int, siginfo_t, ucontext_t};

use crate::common::frames;

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

const PAGE: usize = 4096;
const INSIDE: usize = 64 << 20;

/// Numbers of cache lines: addresses in units of [`LINE`].
pub(crate) type Lines = BTreeSet<usize>;

/// What a piece of work has touched.
#[derive(Debug)]
pub(crate) struct Touched {
    /// Loaded from.
    pub(crate) read: Lines,
    /// Stored to.
    pub(crate) written: Lines,
}

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Where the memory inside begins; 0 before there is any.
static START: AtomicUsize = AtomicUsize::new(0);
/// How much of it is given out.
static GIVEN: AtomicUsize = AtomicUsize::new(0);

struct Watched;

#[global_allocator]
static ALLOCATOR: Watched = Watched;

// SAFETY: the system's memory; or, inside, memory that is given out once and never again, as aligned as it should be.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !IS_INSIDE.get() {
            // SAFETY: as the caller promises.
            return unsafe { System.alloc(layout) };
        }
        let start = START.load(Ordering::Relaxed);
        let room = layout.size() + layout.align();
        let given =
            (start + GIVEN.fetch_add(room, Ordering::Relaxed)).next_multiple_of(layout.align());
        if given + layout.size() > start + INSIDE {
            return null_mut();
        }
        given as *mut u8
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let start = START.load(Ordering::Relaxed);
        if !(start..start + INSIDE).contains(&memory.addr()) {
            // SAFETY: as the caller promises; it was the system's.
            unsafe { System.dealloc(memory, layout) }
        }
    }
}

/// Has everything that `work` allocates lie in the memory that is watched.
pub(crate) fn inside<T>(work: impl FnOnce() -> T) -> T {
    if START.load(Ordering::Relaxed) == 0 {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory, wherever there is room.
        let start = unsafe { libc::mmap(null_mut(), INSIDE, access, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let _ = START.compare_exchange(0, start.addr(), Ordering::Relaxed, Ordering::Relaxed);
    }
    // The arena makes itself when it is first used, and not inside.
    frames::arena();
    IS_INSIDE.set(true);
    let result = work();
    IS_INSIDE.set(false);
    result
}

/// The thread whose work is watched.
static WATCHED: AtomicUsize = AtomicUsize::new(0);
/// What it touched: the number of a line, doubled, and one more for a store.
static LOG: [AtomicUsize; 1 << 14] = [const { AtomicUsize::new(0) }; 1 << 14];
static LOGGED: AtomicUsize = AtomicUsize::new(0);
/// Pages that are open for the present instruction.
static OPEN: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];
static OPENED: AtomicUsize = AtomicUsize::new(0);

/// Does `work` and says what it touched. One at a time.
pub(crate) fn touched<T>(work: impl FnOnce() -> T) -> (T, Touched) {
    LOGGED.store(0, Ordering::Relaxed);
    WATCHED.store(this_thread(), Ordering::Relaxed);
    let before = [handle(libc::SIGSEGV, on_access), handle(libc::SIGTRAP, on_step)];
    for (start, bytes) in places() {
        protect(start, bytes, libc::PROT_NONE);
    }
    let result = work();
    for (start, bytes) in places() {
        protect(start, bytes, libc::PROT_READ | libc::PROT_WRITE);
    }
    for (signal, before) in [libc::SIGSEGV, libc::SIGTRAP].into_iter().zip(before) {
        // SAFETY: what was there before.
        unsafe { libc::sigaction(signal, &raw const before, null_mut()) };
    }
    let logged = LOGGED.load(Ordering::Relaxed);
    assert!(logged < LOG.len(), "there is room for what is written down");
    let mut touched = Touched { read: Lines::new(), written: Lines::new() };
    for access in &LOG[..logged] {
        let access = access.load(Ordering::Relaxed);
        let lines = if access & 1 == 1 { &mut touched.written } else { &mut touched.read };
        lines.insert(access >> 1);
    }
    (result, touched)
}

/// What is watched, in whole pages.
fn places() -> [(usize, usize); 2] {
    let tables = frames::place();
    [(START.load(Ordering::Relaxed), INSIDE), (tables.start, tables.len())]
}

fn protect(start: usize, bytes: usize, access: c_int) {
    // SAFETY: memory that is this module's or the arena's, and nobody else's; whoever accesses it meanwhile traps.
    let done = unsafe { libc::mprotect(start as *mut c_void, bytes, access) };
    if done != 0 {
        give_up("mprotect failed\n");
    }
}

fn this_thread() -> usize {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::pthread_self() as usize }
}

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

fn handle(signal: c_int, handler: Handler) -> libc::sigaction {
    // SAFETY: all zeroes is a `sigaction`; both are valid for the call; the handler is one that takes three arguments.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(signal, &raw const action, &raw mut before), 0);
        before
    }
}

/// `EFLAGS.TF`: trap behind the next instruction.
const SINGLE_STEP: i64 = 1 << 8;
/// Of a page fault's error code: the access was a store.
const STORE: i64 = 1 << 1;

extern "C" fn on_access(_signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a SIGSEGV's information, and the context that it interrupted.
    let (address, context) =
        unsafe { ((*info).si_addr().addr(), &mut *context.cast::<ucontext_t>()) };
    let is_ours = START.load(Ordering::Relaxed) != 0
        && places().iter().any(|&(start, bytes)| (start..start + bytes).contains(&address));
    if !is_ours {
        give_up("an access to memory that is not there\n");
    }
    if WATCHED.load(Ordering::Relaxed) != this_thread() {
        give_up("an access by a thread that is not watched\n");
    }
    let registers = &mut context.uc_mcontext.gregs;
    let is_store = registers[libc::REG_ERR as usize] & STORE != 0;
    let at = LOGGED.load(Ordering::Relaxed);
    if let Some(place) = LOG.get(at) {
        place.store(address / LINE * 2 + usize::from(is_store), Ordering::Relaxed);
        LOGGED.store(at + 1, Ordering::Relaxed);
    }
    let opened = OPENED.load(Ordering::Relaxed);
    let page = address / PAGE * PAGE;
    OPEN[opened].store(page, Ordering::Relaxed);
    OPENED.store(opened + 1, Ordering::Relaxed);
    protect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE);
    registers[libc::REG_EFL as usize] |= SINGLE_STEP;
}

extern "C" fn on_step(_signal: c_int, _info: *mut siginfo_t, context: *mut c_void) {
    for page in &OPEN[..OPENED.swap(0, Ordering::Relaxed)] {
        protect(page.load(Ordering::Relaxed), PAGE, libc::PROT_NONE);
    }
    // SAFETY: the kernel gives the context that it interrupted.
    let context = unsafe { &mut *context.cast::<ucontext_t>() };
    context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !SINGLE_STEP;
}

/// Ends the process, from inside a signal handler.
fn give_up(why: &str) -> ! {
    // SAFETY: both may be called in a handler.
    unsafe {
        libc::write(2, why.as_ptr().cast(), why.len());
        libc::abort()
    }
}
