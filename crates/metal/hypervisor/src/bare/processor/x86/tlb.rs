//! What TLBs of this machine keep: of guests' tables, and of the program's own ([`mayfly_shootdown`]).

use mayfly_shootdown::guests::{self, Of, Place};
use mayfly_shootdown::own::{self, Seen};
use mayfly_vm::platform::tlb::Vmid;
use x86_64::VirtAddr;
use x86_64::instructions::tlb;

use super::this_cpu::kick;
use super::{cpu, spin};
use crate::bare::processor::cpus;

static GUESTS: guests::Generation = guests::Generation::new();
static PLACES: [Place; cpus::MAX] = [const { Place::new() }; cpus::MAX];

static OWN: own::Generation = own::Generation::new();
static SEEN: [Seen; cpus::MAX] = [const { Seen::new() }; cpus::MAX];

/// The place of this processor.
#[inline]
fn place() -> &'static Place {
    &PLACES[cpu::number()]
}

/// This processor is about to enter a guest under that VMID. Returns whether all that it keeps of guests is to be flushed first.
#[inline]
pub(crate) fn enters(vmid: Vmid) -> bool {
    place().enter(&GUESTS, vmid)
}

/// It has come out.
#[inline]
pub(crate) fn leaves() {
    place().leave();
}

/// It has come out, and may not have flushed what it was to flush.
pub(crate) fn has_not_flushed() {
    place().has_not_flushed();
}

/// Has all processors forget what they keep of guests' tables. Those in a guest that it is `of` are brought out, and waited
/// for.
pub(crate) fn invalidate(of: Of) {
    let meanwhile = || {
        look();
        spin::relax();
    };
    GUESTS.invalidate(PLACES[..cpus::count() as usize].iter(), of, kick, meanwhile);
}

/// Flushes what this processor keeps of the program's own tables, if another has changed these.
#[inline]
pub(crate) fn look() {
    SEEN[cpu::number()].look(&OWN, tlb::flush_all);
}

/// Has all processors forget what they keep of `pages` pages of the program's own addresses, whose entries were cleared. The
/// caller has no lock.
pub(crate) fn invalidate_own(address: u64, pages: u64) {
    for page in 0..pages {
        tlb::flush(VirtAddr::new(address + page * 4096));
    }
    let count = cpus::count() as usize;
    if count <= 1 {
        return;
    }
    let kick_others = || (0..count).filter(|number| *number != cpu::number()).for_each(kick);
    let meanwhile = || {
        look();
        spin::relax();
    };
    OWN.invalidate(SEEN[..count].iter(), kick_others, meanwhile);
}
