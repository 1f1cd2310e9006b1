//! The state of one interrupt, in one word, and its transitions.
//!
//! The word has the whole state of an interrupt. So each transition is one compare-exchange, and no lock is needed to
//! keep parts of it together. The functions are pure; `crate::vgic` applies them.
//!
//! An interrupt is *pending* while its latch is set, or its line is high and it is level-sensitive. It is *active* from
//! its acknowledgement to its deactivation; its owner is the vCPU that has acknowledged it. It is *loaded* while a list
//! register of its owner has it, which is between that vCPU's `enter` and `leave`. The guest then changes it unseen.
//! What other parties want changed waits as a request until `leave` folds the list register into the word.
//!
//! The latch goes into the list register when the interrupt is loaded (*carried*), so a latch that is set later is
//! another edge.
//!
//! The line of an interrupt that is linked to a physical one is high from the moment when the physical one is taken.
//! It is low again once the guest has acknowledged the interrupt, and once the embedder, which looks at the device, says
//! that it has fallen. While the interrupt is loaded, the list register has the line (*taken*), so that a line that is
//! high later is the physical interrupt's next one. The latch of such an interrupt is what the guest's own writes make of
//! it, and does not fall with the line.
//!
//! An LPI is an edge of group 1 that is never active. Its word says which redistributor it is pending at by a route, as that
//! of an SPI does. Enable and priority come from the guest's table.

use crate::MAX_VCPUS;
use crate::load::{End, Load};

/// The first LPI.
pub(crate) const FIRST_LPI: u32 = 8192;

/// The bits of the word.
mod bit {
    pub(super) const ENABLED: u64 = 1 << 0;
    pub(super) const GROUP1: u64 = 1 << 1;
    pub(super) const EDGE: u64 = 1 << 2;
    pub(super) const LATCH: u64 = 1 << 3;
    pub(super) const LINE: u64 = 1 << 4;
    pub(super) const ACTIVE: u64 = 1 << 5;
    /// Linked to a physical interrupt: never pending and active at once, and its line is high while that one is taken.
    pub(super) const HARDWARE: u64 = 1 << 6;
    pub(super) const LOADED: u64 = 1 << 7;
    /// The list register was loaded with the latch.
    pub(super) const CARRIED: u64 = 1 << 8;
    /// What `leave` is to do with the list register: forget that it is pending, that it is active, or make it active.
    pub(super) const DROP_PENDING: u64 = 1 << 9;
    pub(super) const DROP_ACTIVE: u64 = 1 << 10;
    pub(super) const SET_ACTIVE: u64 = 1 << 11;
    /// A reader waits for the list register to be folded, to see the state.
    pub(super) const ASKED: u64 = 1 << 12;
    /// It was disabled while loaded, and may still be taken: `RWP` is one.
    pub(super) const RECALLED: u64 = 1 << 13;
    /// The list register was loaded with the line of a linked one.
    pub(super) const TAKEN: u64 = 1 << 14;

    /// What an interrupt has that no list register has: the same places in a saved state.
    pub(super) const AT_REST: u64 = ENABLED | GROUP1 | EDGE | LATCH | LINE | ACTIVE | HARDWARE;

    pub(super) const REQUESTS: u64 = DROP_PENDING | DROP_ACTIVE | SET_ACTIVE | ASKED | RECALLED;
}

const PRIORITY: u32 = 16;
const OWNER: u32 = 24;
/// The upper five bits of the priority that an active one has been acknowledged at.
const RUNNING: u32 = 35;
const AFFINITY: u32 = 40;

/// All that is saved: see [`State::saved`].
const SAVED: u64 = bit::AT_REST
    | (PRIORITY_BITS as u64) << PRIORITY
    | OWNER_MASK << OWNER
    | 0x1f << RUNNING
    | 0xff_ffff << AFFINITY;

const OWNER_MASK: u64 = (1 << (RUNNING - OWNER)) - 1;
const _: () = assert!(MAX_VCPUS as u64 <= OWNER_MASK + 1);

/// The affinity of no vCPU.
const NOBODY: u64 = 0xff_ffff;

/// The bits of a priority that are kept: 32 levels, the fewest that a virtual CPU interface has.
pub(crate) const PRIORITY_BITS: u8 = 0xf8;

/// One interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct State(pub(crate) u64);

impl State {
    /// After reset: disabled, group 0, the highest priority, level-sensitive unless it is `edge`; routed to affinity 0.
    pub(crate) const fn reset(edge: bool, hardware: bool) -> Self {
        let edge = if edge { bit::EDGE } else { 0 };
        Self(edge | if hardware { bit::HARDWARE } else { 0 })
    }

    /// An LPI after reset: disabled, and at no redistributor.
    pub(crate) const fn reset_lpi() -> Self {
        Self(bit::EDGE | bit::GROUP1 | NOBODY << AFFINITY)
    }

    /// Whether an LPI that is in no list register can be so.
    pub(crate) const fn is_lpi(self) -> bool {
        let never = bit::ACTIVE | bit::LINE | bit::HARDWARE;
        self.is_edge() && self.is_group1() && !self.has(never)
    }

    /// As a saved state has it; `None` while a list register has it.
    pub(crate) const fn saved(self) -> Option<u64> {
        if self.is_loaded() { None } else { Some(self.0) }
    }

    /// From a saved state, unless no interrupt that is in no list register is so, or none of a GIC of so many vCPUs:
    /// one of `vcpu`'s own, an SGI or not, or an SPI; linked or not.
    pub(crate) const fn from_saved(
        saved: u64,
        vcpus: usize,
        vcpu: Option<usize>,
        sgi: bool,
        linked: bool,
    ) -> Option<Self> {
        let state = Self(saved);
        let is_own = match vcpu {
            // It is acknowledged by the vCPU whose it is, and routed nowhere.
            Some(vcpu) => {
                let owner = state.owner();
                state.affinity() == 0 && (owner == vcpu || owner == 0 && !state.is_active())
            }
            None => state.owner() < vcpus,
        };
        let is_sgi = !sgi || state.is_edge() && !state.is_high();
        let is_whole = saved & !SAVED == 0 && is_own && is_sgi && state.is_hardware() == linked;
        if is_whole { Some(state) } else { None }
    }

    const fn has(self, bits: u64) -> bool {
        self.0 & bits != 0
    }

    const fn with(self, bits: u64, set: bool) -> Self {
        Self(if set { self.0 | bits } else { self.0 & !bits })
    }

    pub(crate) const fn is_enabled(self) -> bool {
        self.has(bit::ENABLED)
    }

    pub(crate) const fn is_group1(self) -> bool {
        self.has(bit::GROUP1)
    }

    /// Whether its group is one of `groups`, a bit each.
    pub(crate) const fn is_in(self, groups: u32) -> bool {
        groups >> (self.is_group1() as u32) & 1 != 0
    }

    pub(crate) const fn is_edge(self) -> bool {
        self.has(bit::EDGE)
    }

    pub(crate) const fn is_hardware(self) -> bool {
        self.has(bit::HARDWARE)
    }

    pub(crate) const fn is_high(self) -> bool {
        self.has(bit::LINE)
    }

    pub(crate) const fn is_loaded(self) -> bool {
        self.has(bit::LOADED)
    }

    pub(crate) const fn is_asked(self) -> bool {
        self.has(bit::LOADED) && self.has(bit::ASKED)
    }

    pub(crate) const fn is_recalled(self) -> bool {
        self.has(bit::RECALLED)
    }

    /// As far as is known: while loaded, since it was.
    pub(crate) const fn is_active(self) -> bool {
        if self.has(bit::SET_ACTIVE) {
            true
        } else {
            self.has(bit::ACTIVE) && !self.has(bit::DROP_ACTIVE)
        }
    }

    /// Pending, apart from what a list register has.
    const fn waits(self) -> bool {
        self.has(bit::LATCH) || self.has(bit::LINE) && (!self.has(bit::EDGE) || self.is_hardware())
    }

    /// As far as is known: while loaded, since it was.
    pub(crate) const fn is_pending(self) -> bool {
        self.waits()
            || self.has(bit::TAKEN)
            || self.has(bit::CARRIED) && !self.has(bit::DROP_PENDING)
    }

    /// Whether the physical interrupt that it is linked to is to be active while its vCPU runs.
    pub(crate) const fn holds_physical(self) -> bool {
        self.is_hardware() && (self.is_pending() || self.is_active())
    }

    pub(crate) const fn priority(self) -> u8 {
        (self.0 >> PRIORITY) as u8
    }

    /// The vCPU that has acknowledged it, or has it loaded. Means nothing otherwise.
    pub(crate) const fn owner(self) -> usize {
        (self.0 >> OWNER & OWNER_MASK) as usize
    }

    /// `Aff2.Aff1.Aff0` of where it is routed.
    pub(crate) const fn affinity(self) -> u32 {
        (self.0 >> AFFINITY) as u32
    }

    pub(crate) const fn with_enabled(self, enabled: bool) -> Self {
        let state = self.with(bit::ENABLED, enabled);
        if enabled || !self.is_enabled() { state } else { state.recall() }
    }

    /// An LPI as its byte of the guest's table says.
    pub(crate) const fn configured(self, byte: u8) -> Self {
        self.with_priority(byte).with_enabled(byte & 1 != 0)
    }

    /// Whether an LPI is to be given to the vCPU of that affinity, which has not got it.
    pub(crate) const fn is_lpi_due(self, affinity: u32) -> bool {
        let bits = bit::ENABLED | bit::LATCH;
        self.0 & (bits | bit::LOADED) == bits && self.affinity() == affinity
    }

    /// An LPI that is pending at no redistributor any more.
    pub(crate) const fn cleared(self) -> Self {
        self.unlatched().recall()
    }

    /// An LPI that is not pending any more at the redistributor of that affinity.
    pub(crate) const fn cleared_at(self, affinity: u32) -> Self {
        if self.affinity() == affinity { self.cleared() } else { self }
    }

    /// Whether an LPI is pending at the redistributor of that affinity.
    pub(crate) const fn is_pending_at(self, affinity: u32) -> bool {
        self.affinity() == affinity && self.is_pending()
    }

    /// An LPI at the redistributor of that affinity: taken back from the list register of another vCPU, if there it is.
    pub(crate) const fn moved(self, affinity: u32) -> Self {
        if self.affinity() == affinity { self } else { self.with_affinity(affinity).recall() }
    }

    /// Taken back from the list register, if there it is.
    pub(crate) const fn recall(self) -> Self {
        if self.is_loaded() { self.with(bit::RECALLED, true) } else { self }
    }

    pub(crate) const fn with_group1(self, group1: bool) -> Self {
        self.with(bit::GROUP1, group1)
    }

    pub(crate) const fn with_edge(self, edge: bool) -> Self {
        self.with(bit::EDGE, edge)
    }

    pub(crate) const fn with_priority(self, priority: u8) -> Self {
        let kept = (priority & PRIORITY_BITS) as u64;
        Self(self.0 & !(0xff << PRIORITY) | kept << PRIORITY)
    }

    pub(crate) const fn with_affinity(self, affinity: u32) -> Self {
        Self(self.0 & !(0xff_ffff << AFFINITY) | (affinity as u64 & 0xff_ffff) << AFFINITY)
    }

    const fn with_owner(self, owner: usize) -> Self {
        Self(self.0 & !(OWNER_MASK << OWNER) | (owner as u64 & OWNER_MASK) << OWNER)
    }

    const fn running_at(self, priority: u8) -> Self {
        Self(self.0 & !(0x1f << RUNNING) | (priority as u64 >> 3) << RUNNING)
    }

    /// The priority that counts: of an active one that which it was acknowledged at, for the guest may have written
    /// another since.
    pub(crate) const fn rank(self) -> u8 {
        if self.has(bit::ACTIVE) {
            ((self.0 >> RUNNING) as u8 & 0x1f) << 3
        } else {
            self.priority()
        }
    }

    /// Its line is driven to `high`: a rising edge sets the latch of an edge-triggered one.
    pub(crate) const fn with_line(self, high: bool) -> Self {
        let rises = high && !self.has(bit::LINE) && self.is_edge();
        self.with(bit::LINE, high).with(bit::LATCH, rises || self.has(bit::LATCH))
    }

    /// An edge, or a write that makes it pending.
    pub(crate) const fn latched(self) -> Self {
        self.with(bit::LATCH, true)
    }

    /// A write that makes it pending no more. One whose line is high is so still. One that is linked is so again when its
    /// physical interrupt comes again, which it does if the line is high.
    pub(crate) const fn unlatched(self) -> Self {
        let drops = self.has(bit::CARRIED | bit::TAKEN | bit::DROP_PENDING);
        let state = if self.is_hardware() { self.withdrawn() } else { self };
        state.with(bit::LATCH, false).with(bit::DROP_PENDING, drops)
    }

    /// The physical interrupt that it is linked to was taken.
    pub(crate) const fn taken(self) -> Self {
        self.with(bit::LINE, true)
    }

    /// The line of the physical interrupt that it is linked to has fallen.
    pub(crate) const fn withdrawn(self) -> Self {
        self.with(bit::LINE | bit::TAKEN, false)
    }

    /// A write that makes it active, on `owner` if it is no thread's yet.
    pub(crate) const fn activated(self, owner: usize) -> Self {
        if self.is_loaded() {
            self.with(bit::DROP_ACTIVE, false).with(bit::SET_ACTIVE, true)
        } else if self.has(bit::ACTIVE) {
            self
        } else {
            self.with(bit::ACTIVE, true).with_owner(owner).running_at(self.priority())
        }
    }

    /// A write that makes it active no more, or its deactivation.
    pub(crate) const fn deactivated(self) -> Self {
        if self.is_loaded() {
            self.with(bit::SET_ACTIVE, false).with(bit::DROP_ACTIVE, true)
        } else {
            self.with(bit::ACTIVE, false)
        }
    }

    /// A reader wants to see what the guest has made of it.
    pub(crate) const fn asked(self) -> Self {
        if self.is_loaded() { self.with(bit::ASKED, true) } else { self }
    }

    /// Whether the vCPU that has it loaded has to come out, so that the step from `self` to `to` has an effect.
    ///
    /// A line that rises does not ask for it: a level-sensitive interrupt is loaded so that its end is told. That of a
    /// linked one does, for it rises when the guest has ended what was loaded.
    pub(crate) const fn recalls(self, to: Self) -> bool {
        let set = to.0 & !self.0;
        let cleared = self.0 & !to.0;
        to.is_loaded()
            && (set & (bit::REQUESTS | bit::LATCH) != 0
                || set & bit::LINE != 0 && to.is_hardware()
                || cleared & bit::TAKEN != 0
                || cleared & bit::LINE != 0 && !to.has(bit::EDGE | bit::HARDWARE)
                || (self.0 ^ to.0) & (bit::GROUP1 | bit::EDGE) != 0
                || self.priority() != to.priority()
                || self.affinity() != to.affinity())
    }

    /// Whether it is to be given to a vCPU that has not got it, as far as the groups in `enabled` (bit 0 and 1) allow.
    pub(crate) const fn is_deliverable(self, enabled: u32) -> bool {
        self.is_enabled()
            && self.waits()
            && !self.has(bit::ACTIVE | bit::LOADED)
            && self.is_in(enabled)
    }

    /// Into a list register of vCPU `me`, which takes the groups in `enabled`, and to which it is routed or not
    /// (`mine`). `None`: it is nothing for that vCPU now.
    pub(crate) const fn load(self, me: usize, mine: bool, enabled: u32) -> Option<(Self, Load)> {
        if self.is_loaded() {
            return None;
        }
        let loaded = self.with(bit::LOADED, true).with_owner(me);
        if self.has(bit::ACTIVE) {
            if self.owner() != me {
                return None;
            }
            // A second edge may be pending behind an active one. A level is looked at again when that one ends, and so
            // is whatever is not this vCPU's to take.
            let again = self.with(bit::ACTIVE, false).is_deliverable(enabled) && mine;
            let pending = again && self.is_edge() && !self.is_hardware();
            let carried = loaded
                .with(bit::CARRIED, pending)
                .with(bit::LATCH, self.has(bit::LATCH) && !pending);
            let end = self.end(self.waits() && !pending);
            return Some((carried, Load { pending, active: true, end }));
        }
        if !mine || !self.is_deliverable(enabled) {
            return None;
        }
        let taken = self.is_hardware() && self.has(bit::LINE);
        let carried = loaded
            .with(bit::CARRIED, self.has(bit::LATCH))
            .with(bit::TAKEN, taken)
            .with(bit::LINE, self.has(bit::LINE) && !taken)
            .with(bit::LATCH, false);
        Some((carried, Load { pending: true, active: false, end: self.end(false) }))
    }

    /// What its end does, if something else of it `waits` until then.
    const fn end(self, waits: bool) -> End {
        if waits {
            End::Told
        } else if self.is_hardware() {
            End::Linked
        } else if self.is_edge() {
            End::Nothing
        } else {
            End::Told
        }
    }

    /// Out of a list register that says it is now `pending`, and `active`, and was loaded with `priority`.
    pub(crate) const fn fold(self, pending: bool, active: bool, priority: u8) -> Self {
        let latch = pending && self.has(bit::CARRIED) && !self.has(bit::DROP_PENDING);
        let line = pending && self.has(bit::TAKEN);
        let stays = active && !self.has(bit::DROP_ACTIVE);
        let acknowledged = active && (!self.has(bit::ACTIVE) || self.has(bit::CARRIED) && !pending);
        let begins = acknowledged || !self.has(bit::ACTIVE);
        let rank = if acknowledged { priority } else { self.priority() };
        let folded = if begins { self.running_at(rank) } else { self };
        folded
            .with(bit::LOADED | bit::CARRIED | bit::TAKEN | bit::REQUESTS, false)
            .with(bit::LINE, line || self.has(bit::LINE))
            .with(bit::LATCH, latch || self.has(bit::LATCH))
            .with(bit::ACTIVE, stays || self.has(bit::SET_ACTIVE))
    }
}
