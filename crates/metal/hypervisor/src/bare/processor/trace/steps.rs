//! The steps that the core reports, as events of a trace.

use core::ptr::with_exposed_provenance;
use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_hwtrace::{Barrier, Event, Reach, Scope};
use mayfly_vm::platform::address::{PAGE_SIZE, Pfn};
use mayfly_vm::platform::observe::Step;
use mayfly_vm::platform::tlb::{self, Entries, Span, Vmid};

use super::end;
use crate::bare::processor::family;

/// Words of a table.
const WORDS: usize = 512;

/// The event of an invalidation.
pub(crate) fn invalidation(id: u64, vmid: Vmid, scope: &tlb::Scope) -> Event {
    let scope = match scope {
        tlb::Scope::All => Scope::All,
        tlb::Scope::Range(Span { gfns, stride, entries }) => Scope::Range {
            first: gfns.start.get(),
            end: gfns.end.get(),
            stride: *stride,
            reach: match entries {
                Entries::Leaves => Reach::Leaves,
                Entries::LeavesOfAnySize => Reach::Sizes,
                Entries::Any => Reach::Any,
            },
        },
    };
    Event::Tlbi { id, vmid: vmid.0, scope }
}

/// Keeps a step that the core has made.
pub(crate) fn step(begin: u64, step: &Step) {
    let event = match *step {
        Step::Entry { table, index, old, new } => {
            Event::Entry { table: table.get(), index: index as u32, old, new }
        }
        Step::Filled { table } => return filled(begin, table),
        Step::Root { top, order, format, levels } => {
            Event::Root { top: top.get(), order, levels, family: family(format) }
        }
        Step::RootGone { top } => Event::RootGone { top: top.get() },
        Step::VmidTaken { vmid, generation } => Event::VmidTake { vmid: vmid.0, generation },
        Step::VmidGiven { vmid } => Event::VmidGive { vmid: vmid.0 },
        Step::VmidKept { vmid, generation } => Event::VmidKeep { vmid: vmid.0, generation },
        Step::Generation { generation } => Event::Generation { generation },
        Step::Barrier => Event::Barrier { kind: Barrier::Memory },
        // Known here already, or not seen by hardware.
        _ => return,
    };
    end(begin, event);
}

/// A table was filled: an event for each run of entries in which each differs from the next by the same number.
fn filled(begin: u64, table: Pfn) {
    let start = with_exposed_provenance::<AtomicU64>((table.get() * PAGE_SIZE) as usize);
    // SAFETY: a table of the core's, which is there, and reached through atomics alone.
    let word = |index: usize| unsafe { &*start.add(index) }.load(Ordering::Relaxed);
    let mut index = 0;
    while index < WORDS {
        let value = word(index);
        let step = if index + 1 < WORDS { word(index + 1).wrapping_sub(value) } else { 0 };
        let mut count = 1;
        while index + count < WORDS
            && word(index + count).wrapping_sub(word(index + count - 1)) == step
        {
            count += 1;
        }
        let (table, first, len) = (table.get(), index as u32, count as u32);
        end(begin, Event::Fill { table, index: first, count: len, value, step });
        index += count;
    }
}
