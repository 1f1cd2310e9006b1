//! What TLBs may have: under which VMIDs, of which roots; and what of it was taken away.

use std::collections::HashMap;
use std::ops::Range;

use crate::entries::{Kind, Leaf};
use crate::event::{Reach, Scope};
use crate::lives::Tickets;
use crate::rules::Rule;
use crate::tables::{Found, Word, pages};

/// A VMID under which TLBs may have something.
#[derive(Debug)]
pub(crate) struct Exposure {
    /// Of the root at this frame; none, when that is gone.
    pub(crate) root: Option<u64>,
    /// The frame of that root, also when it is gone.
    pub(crate) top: u64,
    /// When a CPU was first in the guest for certain; the greatest ticket, where that is not known.
    pub(crate) since: u64,
    /// When one came in last, for certain.
    pub(crate) entered: u64,
    /// The greatest first ticket of those that left it.
    pub(crate) left: u64,
    /// The greatest second ticket of those.
    pub(crate) out: u64,
    /// CPUs in the guest, and since when for certain; the greatest ticket, where that is not known.
    pub(crate) inside: HashMap<u32, u64>,
    /// The number of its last entry, among all.
    pub(crate) enters: u64,
}

/// To whom a VMID belongs.
#[derive(Debug, Default)]
pub(crate) struct Tenancy {
    /// When it was taken last.
    pub(crate) taken: Option<Tickets>,
    /// The last generation in which it was taken, or kept.
    pub(crate) generation: u64,
    /// When it was given back last.
    pub(crate) given: Option<Tickets>,
}

/// How a CPU was in the guest under a VMID.
#[derive(Debug, Default)]
pub(crate) struct Stay {
    /// The greatest second ticket of those that it entered by.
    pub(crate) entered: u64,
    /// Of those that it left by, the one that began last.
    pub(crate) left: Option<Tickets>,
    /// The greatest second ticket of those.
    pub(crate) out: u64,
    /// The root of the last entry.
    pub(crate) root: u64,
}

impl Stay {
    /// The greatest second ticket of all.
    pub(crate) fn reach(&self) -> u64 {
        self.entered.max(self.out)
    }
}

/// Who wrote an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    pub(crate) cpu: u32,
    /// The tickets of the write.
    pub(crate) tickets: Tickets,
    /// Walks may miss the write until a barrier.
    pub(crate) is_seen_late: bool,
}

impl Writer {
    /// No CPU has written it away, though it should be gone since an event at `tickets`.
    pub(crate) const fn nobody(tickets: Tickets) -> Self {
        Self { cpu: u32::MAX, tickets, is_seen_late: false }
    }
}

/// Whether something is in its entry still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remains {
    /// It was taken away.
    No,
    /// It is there still, as far as the trace goes, and should not be: no invalidation counts.
    Live,
    /// It was there when its table was free, or its root was gone, and is not any more: no rule asks for more than those did
    /// before.
    Orphaned,
}

/// Something that was taken away, and that TLBs may have until it is invalidated.
#[derive(Debug)]
pub(crate) struct Stale {
    pub(crate) word: Word,
    /// The root in whose tree it was.
    pub(crate) root: u64,
    pub(crate) level: u32,
    pub(crate) gfn: u64,
    pub(crate) bits: u64,
    pub(crate) kind: Kind,
    /// The write that took it away.
    pub(crate) writer: Writer,
    /// Whether a CPU had been in the guest before that for certain. If not, it breaks no rule.
    pub(crate) certain: bool,
    pub(crate) remains: Remains,
    /// Invalidations that reach it, by CPU and number.
    pub(crate) by: Vec<(u32, u64)>,
    /// Those of them that come after it in whatever order.
    pub(crate) by_for_certain: Vec<(u32, u64)>,
    /// When it was invalidated first, in one order or another; the greatest ticket, where it was in none.
    pub(crate) maybe_over: u64,
    /// The line of one that would, if a barrier ordered the write before it; and the CPU that issued that.
    pub(crate) unordered: Option<(u64, u32)>,
    /// Its frame was free, and is given out again.
    pub(crate) is_given: bool,
    pub(crate) needs: Vec<Need>,
}

/// By when something has to be invalidated.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    pub(crate) rule: Rule,
    pub(crate) line: u64,
    /// The second ticket of the event on that line.
    pub(crate) end: u64,
    pub(crate) what: String,
    /// The frames that are free; none, where that is no matter.
    pub(crate) frames: Range<u64>,
    /// A rule only if some CPU is in the guest at that time or later, which was so for certain from this ticket on.
    pub(crate) used: Option<u64>,
}

impl Need {
    /// When it has to be invalidated, at the latest; at any time, where there is none.
    pub(crate) fn limit(&self) -> Option<u64> {
        if self.rule == Rule::BreakBeforeMake { Some(self.end) } else { self.used }
    }
}

impl Stale {
    /// What was found, and is gone, or should be, by `writer`; no invalidation reaches it yet.
    pub(crate) fn new(
        found: &Found,
        writer: Writer,
        (needs, live, certain): (Vec<Need>, bool, bool),
    ) -> Self {
        let Found { word, root, level, gfn, bits, kind } = *found;
        Self {
            word,
            root,
            level,
            gfn,
            bits,
            kind,
            writer,
            certain,
            remains: if live { Remains::Live } else { Remains::No },
            by: Vec::new(),
            by_for_certain: Vec::new(),
            maybe_over: u64::MAX,
            unordered: None,
            is_given: false,
            needs,
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        self.remains == Remains::Live
    }

    /// It is not there any more, by `writer`, though its table was free before that, or its root was gone.
    pub(crate) fn end(&mut self, writer: Writer, is_certain: bool) {
        (self.remains, self.writer) = (Remains::Orphaned, writer);
        self.certain &= is_certain;
    }

    /// Whether an invalidation of `scope` reaches it.
    pub(crate) fn is_reached(&self, scope: Scope) -> bool {
        if self.is_live() {
            return false;
        }
        let Scope::Range { first, end, stride, reach } = scope else { return true };
        let own = pages(self.level);
        let reached = match self.kind {
            Kind::Absent => return true,
            Kind::Table(_) => reach == Reach::Any,
            Kind::Leaf(_) => reach != Reach::Leaves || own == stride,
        };
        // The first address that does not lie before it.
        let address = first + self.gfn.saturating_sub(first).next_multiple_of(stride);
        reached && address < end.min(self.gfn + own)
    }

    /// Whether TLBs may have it, also in whatever order it was invalidated.
    pub(crate) fn is_left_for_certain(&self) -> bool {
        self.certain && self.maybe_over == u64::MAX
    }

    /// Whether an access to `frame` at `gfn` can be made by it.
    pub(crate) fn allows(&self, gfn: u64, frame: u64, right: u8) -> bool {
        matches!(self.kind, Kind::Leaf(leaf) if allows(leaf, self.level, self.gfn, gfn, frame, right))
    }
}

/// Whether an access to `frame` at `gfn` can be made by `leaf`, which is at `first`.
pub(crate) fn allows(leaf: Leaf, level: u32, first: u64, gfn: u64, frame: u64, right: u8) -> bool {
    let Some(into) = gfn.checked_sub(first).filter(|into| *into < pages(level)) else {
        return false;
    };
    leaf.frame + into == frame && leaf.rights & right == right
}
