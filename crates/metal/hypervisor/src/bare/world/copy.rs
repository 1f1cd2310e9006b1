//! Copies of memory that a guest may be reading and writing. Each access is atomic, so a race yields bytes that were
//! there at some time.

use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use mayfly_vm::platform::address::PAGE_SIZE;

const WORD: usize = size_of::<u64>();

/// How many of `length` bytes from `at` on are before the first whole word.
fn head(at: u64, length: usize) -> usize {
    ((at.next_multiple_of(WORD as u64) - at) as usize).min(length)
}

/// Copies from `at`.
///
/// # Safety
///
/// All of it is memory, mapped one to one, and stays so meanwhile.
pub(crate) unsafe fn read(at: u64, into: &mut [u8]) {
    let (head, rest) = into.split_at_mut(head(at, into.len()));
    let middle = at + head.len() as u64;
    let (words, tail) = rest.split_at_mut(rest.len() / WORD * WORD);
    let end = middle + words.len() as u64;
    // SAFETY: the caller's promise; words are aligned.
    unsafe {
        read_bytes(at, head);
        let from = with_exposed_provenance::<AtomicU64>(middle as usize);
        for (number, word) in words.chunks_exact_mut(WORD).enumerate() {
            word.copy_from_slice(&(*from.add(number)).load(Ordering::Relaxed).to_ne_bytes());
        }
        read_bytes(end, tail);
    }
}

/// # Safety
///
/// As for [`read`].
unsafe fn read_bytes(at: u64, into: &mut [u8]) {
    let from = with_exposed_provenance::<AtomicU8>(at as usize);
    for (number, byte) in into.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *byte = unsafe { &*from.add(number) }.load(Ordering::Relaxed);
    }
}

/// Copies to `at`.
///
/// # Safety
///
/// As for [`read`]; nothing of the program's own is there.
pub(crate) unsafe fn write(at: u64, from: &[u8]) {
    let (head, rest) = from.split_at(head(at, from.len()));
    let middle = at + head.len() as u64;
    let (words, tail) = rest.split_at(rest.len() / WORD * WORD);
    let end = middle + words.len() as u64;
    // SAFETY: the caller's promise; words are aligned.
    unsafe {
        write_bytes(at, head);
        let to = with_exposed_provenance::<AtomicU64>(middle as usize);
        for (number, word) in words.as_chunks::<WORD>().0.iter().enumerate() {
            (*to.add(number)).store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        write_bytes(end, tail);
    }
}

/// Copies the page at `from` to the page at `to`. Neither is written by others meanwhile, and the second is read by none:
/// so this is one copy of the machine's, a quarter of the instructions of as many atomic accesses.
///
/// # Safety
///
/// As for [`read`] and [`write()`], of the whole pages; and what is said of others is so.
pub(crate) unsafe fn page(from: u64, to: u64) {
    let from = with_exposed_provenance::<u8>(from as usize);
    let to = with_exposed_provenance_mut::<u8>(to as usize);
    // SAFETY: the caller's promise.
    unsafe { to.copy_from_nonoverlapping(from, PAGE_SIZE as usize) };
}

/// # Safety
///
/// As for [`write()`].
unsafe fn write_bytes(at: u64, from: &[u8]) {
    let to = with_exposed_provenance::<AtomicU8>(at as usize);
    for (number, byte) in from.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { &*to.add(number) }.store(*byte, Ordering::Relaxed);
    }
}
