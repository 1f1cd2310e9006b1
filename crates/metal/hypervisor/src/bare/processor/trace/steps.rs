//! The steps that the core reports, as events of a trace.

use core::ptr::with_exposed_provenance;
use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_hwtrace::steps;
use mayfly_vm::platform::address::PAGE_SIZE;
use mayfly_vm::platform::observe::Step;

use super::end;
use crate::bare::processor::{family, traced};

/// Words of a table.
const WORDS: usize = 512;

/// Keeps a step that the core has made.
pub(crate) fn step(begin: u64, step: &Step) {
    if let Step::Filled { table } = *step {
        let start = with_exposed_provenance::<AtomicU64>((table.get() * PAGE_SIZE) as usize);
        // SAFETY: a table of the core's, which is there, and reached through atomics alone.
        let word = |index: usize| unsafe { &*start.add(index) }.load(Ordering::Relaxed);
        steps::fills(table.get(), WORDS, word, |event| end(begin, event));
    } else if let Some(event) = steps::event(step, family) {
        traced::each(event, |event| end(begin, event));
    }
}
