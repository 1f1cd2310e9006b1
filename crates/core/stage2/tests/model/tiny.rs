//! A format with two levels, and nothing that a model does not need.

use mayfly_platform::address::Pfn;
use mayfly_stage2::{Entry, Format, Kind, Leaf, Level, Permissions};

/// Blocks of four pages in a root of four entries. `BREAK`: whether a block and a table, or leaves of different frames,
/// take each other's place by way of an absent entry only, and TLBs keep a leaf by which an access has faulted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiny<const BREAK: bool>;

const PRESENT: u64 = 1 << 0;
const TABLE: u64 = 1 << 1;
const WRITE: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 6;
const FREED: u64 = 1 << 7;
const WRITTEN: u64 = 1 << 8;
const PFN_SHIFT: u32 = 12;

/// What the words of a freed frame are: a table and a leaf that nobody may read.
pub(crate) const POISON: u64 = PRESENT | FREED;

// SAFETY: a table has its bit, and a leaf does not; the CPUs of the models take entries for that.
unsafe impl<const BREAK: bool> Format for Tiny<BREAK> {
    const NAME: &'static str = "tiny";
    const TOP: Level = Level::MIB2;
    const ROOT_ORDER: u32 = 0;
    const LARGEST_BLOCK: Level = Level::MIB2;
    const PFN_BITS: u32 = 16;
    const SETS_ACCESSED: bool = false;
    const SETS_DIRTY: bool = false;
    const COHERENT: bool = false;
    const KEEPS_FAULTING: bool = BREAK;

    fn encode_leaf(_: Level, leaf: &Leaf) -> u64 {
        let mut bits = leaf.pfn.get() << PFN_SHIFT | PRESENT;
        if leaf.permissions.contains(Permissions::WRITE) {
            bits |= WRITE;
        }
        if leaf.accessed {
            bits |= ACCESSED;
        }
        if leaf.written {
            bits |= WRITTEN;
        }
        bits
    }

    fn decode_leaf(_: Level, bits: u64) -> Leaf {
        let mut permissions = Permissions::READ;
        permissions.set(Permissions::WRITE, bits & WRITE != 0);
        let (accessed, written) = (bits & ACCESSED != 0, bits & WRITTEN != 0);
        Leaf { accessed, written, ..Leaf::new(Pfn::new(bits >> PFN_SHIFT), permissions) }
    }

    fn encode_table(pfn: Pfn) -> u64 {
        pfn.get() << PFN_SHIFT | TABLE | PRESENT
    }

    fn kind(_: Level, bits: u64) -> Kind {
        assert_eq!(bits & FREED, 0, "a freed table was read");
        if bits & TABLE != 0 { Kind::Table(Pfn::new(bits >> PFN_SHIFT)) } else { Kind::Leaf }
    }

    fn requires_break_before_make(
        level: Level,
        old: Entry<Self>,
        new: Entry<Self>,
        _same_contents: bool,
    ) -> bool {
        let kinds = [old, new].map(|entry| Self::kind(level, entry.bits()));
        BREAK
            && match kinds {
                [Kind::Leaf, Kind::Leaf] => old.to_leaf(level).pfn != new.to_leaf(level).pfn,
                _ => true,
            }
    }
}
