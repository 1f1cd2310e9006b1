//! The walk of a stage-2 table, as hardware does it.

use std::sync::atomic::Ordering;

use mayfly_hwtrace::Event;
use mayfly_platform::address::{Gfn, Hpa, PAGE_SHIFT, Pfn};
use mayfly_platform::frames::WORDS;
use mayfly_stage2::{Entry, Format, Leaf, Level, Permissions, State};

use crate::Arena;

/// What a walk found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// The table's level that had it.
    pub level: Level,
    /// The page or block, as the access left it.
    pub leaf: Leaf,
}

/// Why a walk gave no translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkFault {
    /// Where it ended.
    pub level: Level,
    /// Why.
    pub cause: Cause,
}

/// Why a walk ended without a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The entry is absent, or the guest frame is none.
    Absent,
    /// The entry is absent, and another thread is changing it: it will be there shortly.
    Frozen,
    /// The leaf has accessed clear, and that is software's to set.
    Accessed,
    /// The leaf does not allow the access.
    Permission,
    /// The root, a table, or the leaf is where no physical address of the processor leads
    /// ([`Processors::pa_bits`](crate::Processors::pa_bits)).
    AddressSize,
}

/// How far the addresses of a processor go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressSizes {
    pub(crate) pa_bits: u32,
    pub(crate) ipa_bits: u32,
}

impl AddressSizes {
    /// As far as any format's.
    pub(crate) const ANY: Self = Self { pa_bits: u64::BITS, ipa_bits: u64::BITS };

    /// Whether a frame has an address.
    fn reach(self, pfn: Pfn) -> bool {
        is_below(pfn.get(), self.pa_bits)
    }

    /// Whether a guest frame has one.
    fn take(self, gfn: Gfn) -> bool {
        is_below(gfn.get(), self.ipa_bits)
    }
}

fn is_below(page: u64, bits: u32) -> bool {
    page.checked_shr(bits.saturating_sub(PAGE_SHIFT)).unwrap_or(0) == 0
}

/// Walks the table in format `F` whose root begins in frame `top`, for an access to `gfn`.
///
/// Sets accessed and dirty, where hardware does, by a compare-exchange of the entry.
///
/// # Errors
///
/// [`WalkFault`].
///
/// # Panics
///
/// If a table is not in the arena.
pub fn walk<F: Format>(
    arena: &Arena,
    top: Pfn,
    gfn: Gfn,
    access: Permissions,
) -> Result<Walked, WalkFault> {
    let sizes = AddressSizes::ANY;
    walk_on::<F>(arena, sizes, (F::TOP, top), gfn, access, |_, _, bits| bits, |_, _| ())
}

/// As [`walk`], on a processor whose addresses go so far, and from a table of its level on, which is on the way to
/// `gfn`. `find` says what is found of an entry that has such bits: of which frame, and where in it. `met` is told of
/// each table below it.
///
/// What goes past the processor's addresses faults as Arm says (DDI 0487, pseudocode `AArch64.S2Translate`): a guest's
/// address before anything is walked, as if it were absent; a table's or a leaf's frame, the root's too, before access
/// flag and permissions are looked at, by an address size fault. (Intel: an EPT violation, and an EPT misconfiguration;
/// AMD: a nested page fault, with RSV set for the latter; RISC-V: a guest-page fault, and an access fault.)
pub(crate) fn walk_on<F: Format>(
    arena: &Arena,
    sizes: AddressSizes,
    (mut level, mut table): (Level, Pfn),
    gfn: Gfn,
    access: Permissions,
    find: impl Fn(Pfn, usize, u64) -> u64,
    mut met: impl FnMut(Level, Pfn),
) -> Result<Walked, WalkFault> {
    if !sizes.take(gfn) {
        return Err(WalkFault { level: F::TOP, cause: Cause::Absent });
    }
    if !sizes.reach(table) {
        return Err(WalkFault { level, cause: Cause::AddressSize });
    }
    let mut index = gfn.get() / level.pages();
    if level < F::TOP {
        index %= WORDS as u64;
    } else if index >= (WORDS as u64) << F::ROOT_ORDER {
        return Err(WalkFault { level, cause: Cause::Absent });
    }
    // Marks are put into what is there, and not into what was.
    let mut has_failed = false;
    loop {
        let place = Hpa::new((table.get() << PAGE_SHIFT) + index * 8);
        let word = arena.word(place);
        // Acquire: a table's entries are read after the entry that it was found by.
        let present = word.load(Ordering::Acquire);
        let number = index as usize % WORDS;
        let bits = if has_failed { present } else { find(place.pfn(), number, present) };
        let entry = Entry::<F>::from_bits(bits);
        let fault = |cause| Err(WalkFault { level, cause });
        match entry.state(level) {
            State::Empty | State::Removed => return fault(Cause::Absent),
            State::Frozen => return fault(Cause::Frozen),
            State::Table(below) => {
                let Some(next) = level.below() else { return fault(Cause::Absent) };
                if !sizes.reach(below) {
                    return fault(Cause::AddressSize);
                }
                (level, table) = (next, below);
                met(level, table);
                has_failed = false;
                index = gfn.get() / level.pages() % WORDS as u64;
            }
            State::Leaf => {
                let leaf = entry.to_leaf(level);
                if !sizes.reach(leaf.pfn) {
                    return fault(Cause::AddressSize);
                }
                if !leaf.accessed && !F::SETS_ACCESSED {
                    return fault(Cause::Accessed);
                }
                if !leaf.permissions.contains(access) {
                    return fault(Cause::Permission);
                }
                let dirty = leaf.dirty || F::SETS_DIRTY && access.contains(Permissions::WRITE);
                let used = Leaf { accessed: true, dirty, ..leaf };
                let (old, new) = (entry.bits(), Entry::<F>::leaf(level, &used).bits());
                let marked =
                    Event::Mark { table: place.pfn().get(), index: number as u32, old, new };
                let mark =
                    || word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok();
                let is_marked =
                    used == leaf || arena.recording(mark, |done| done.then_some(marked));
                if is_marked {
                    return Ok(Walked { level, leaf: used });
                }
                has_failed = true;
            }
        }
    }
}

/// What a walk for a read would find, if it were made now: for a CPU that walks on its own. It marks nothing, and
/// whatever it meets, a table that is none any more among it, at worst it finds nothing.
pub(crate) fn glimpse<F: Format>(arena: &Arena, top: Pfn, gfn: Gfn) -> Option<Walked> {
    let (mut level, mut table) = (F::TOP, top);
    let mut index = gfn.get() / level.pages();
    if index >= (WORDS as u64) << F::ROOT_ORDER {
        return None;
    }
    loop {
        let at = (table.get() << PAGE_SHIFT) + index * 8;
        if !arena.has(Pfn::new(at >> PAGE_SHIFT), 1) {
            return None;
        }
        let bits = arena.word(Hpa::new(at)).load(Ordering::Acquire);
        let entry = Entry::<F>::from_bits(bits);
        match entry.state(level) {
            State::Table(below) => {
                (level, table) = (level.below()?, below);
                index = gfn.get() / level.pages() % WORDS as u64;
            }
            State::Leaf => {
                let leaf = entry.to_leaf(level);
                let is_found = (leaf.accessed || F::SETS_ACCESSED)
                    && leaf.permissions.contains(Permissions::READ)
                    && arena.has(leaf.pfn, level.pages());
                return is_found.then_some(Walked { level, leaf });
            }
            State::Empty | State::Removed | State::Frozen => return None,
        }
    }
}
