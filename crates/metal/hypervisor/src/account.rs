//! The account of the machine's memory: what each VM is guaranteed, and what it has.
//!
//! A *share* is what one VM, or the disk of one, has of the machine. It has a guarantee, and uses more or less than
//! that. The account counts in units of one size, and knows nothing of where they are. It keeps two rules:
//!
//! 1. The guarantees of all shares, and what the hypervisor itself uses, are never more than the machine has. A share
//!    that would make them more is refused.
//! 2. As many units are free as all active shares may still take within their guarantees. So a share within its
//!    guarantee always gets a unit. A share that is above its guarantee, or would be, *borrows*: it gets a unit only if
//!    the rule holds afterwards.
//!
//! When a share cannot borrow, memory has ended. Then the VM of the share that is furthest above its guarantee is to be
//! ended. One is ended at a time: what it has comes back little by little, and may be enough. A share that is admitted
//! is not active yet while others have borrowed what it is guaranteed: they are ended first, and until then the units
//! that it waits for are not lent to others.
//!
//! No call looks at all shares: those that there are not are linked, and the one that is furthest above its guarantee is
//! at the root of a tree.

mod furthest;

use furthest::{furthest, note};

/// A share. Its number is given to another share when nothing of it is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareId(u16);

impl ShareId {
    /// What the hypervisor has for itself: it has no guarantee, and is never ended.
    pub const SYSTEM: Self = Self(0);

    /// Its number, below that of the shares that the account has room for.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is no such share.
    Absent,
    /// Its guarantee counts, and others still use some of it.
    Admitted,
    /// It may take what it is guaranteed.
    Active,
    /// Its VM has ended: what it uses is coming back.
    Leaving,
}

/// The information on a share.
#[derive(Clone, Copy, Debug)]
pub struct ShareInfo {
    state: State,
    guarantee: u64,
    used: u64,
    /// Of one that is absent: the next that is.
    next: Option<ShareId>,
    /// It is no further above its guarantee than this.
    bound: u64,
    /// The share that the node of this number has in the tree ([`furthest`]).
    furthest: ShareId,
}

impl ShareInfo {
    /// Of no share.
    pub const ABSENT: Self = Self {
        state: State::Absent,
        guarantee: 0,
        used: 0,
        next: None,
        bound: 0,
        furthest: ShareId::SYSTEM,
    };

    /// How far it is above its guarantee.
    fn above(&self) -> u64 {
        self.used.saturating_sub(self.guarantee)
    }

    /// What an active share may still take within its guarantee.
    fn owed(&self) -> u64 {
        match self.state {
            State::Active => self.guarantee.saturating_sub(self.used),
            _ => 0,
        }
    }

    /// How much of the machine its guarantee takes: of a share that is leaving, no more than it uses.
    fn promised(&self) -> u64 {
        match self.state {
            State::Leaving => self.guarantee.min(self.used),
            _ => self.guarantee,
        }
    }
}

/// Why a share is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its guarantee cannot be kept.
    Guarantee {
        /// Units that it was to be guaranteed.
        wanted: u64,
        /// Units that are neither guaranteed to others nor the hypervisor's.
        left: u64,
    },
    /// There are as many shares as the account has room for.
    TooMany,
}

/// The account.
#[derive(Debug)]
pub struct Account<'a> {
    /// The first is the hypervisor's own.
    shares: &'a mut [ShareInfo],
    total: u64,
    free: u64,
    /// What the guarantees take, of all shares.
    promised: u64,
    /// What active shares may still take within their guarantees.
    owed: u64,
    /// The guarantees of shares that are admitted and not active.
    awaited: u64,
    /// The share whose VM is being ended.
    chosen: Option<ShareId>,
    /// The first share that is absent.
    absent: Option<ShareId>,
}

impl<'a> Account<'a> {
    /// Of a machine that has nothing yet, with room for one share less than there are `shares`.
    pub fn new(shares: &'a mut [ShareInfo]) -> Self {
        shares.fill(ShareInfo::ABSENT);
        let mut absent = None;
        for (index, share) in shares.iter_mut().enumerate().skip(1).rev() {
            share.next = absent;
            absent = u16::try_from(index).ok().map(ShareId);
        }
        if let Some(system) = shares.first_mut() {
            system.state = State::Active;
        }
        Self { shares, total: 0, free: 0, promised: 0, owed: 0, awaited: 0, chosen: None, absent }
    }

    /// The machine has so many units more.
    pub fn add(&mut self, units: u64) {
        self.total += units;
        self.free += units;
    }

    /// All that the machine has.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// What may be guaranteed to shares that are not there yet.
    pub fn left(&self) -> u64 {
        self.total - self.of(ShareId::SYSTEM).used - self.promised
    }

    /// What a share uses.
    pub fn used(&self, id: ShareId) -> u64 {
        self.of(id).used
    }

    /// How far a share is above its guarantee.
    pub fn above(&self, id: ShareId) -> u64 {
        self.of(id).above()
    }

    /// Admits a share with that guarantee. It is to be made [active](Account::activate).
    ///
    /// # Errors
    ///
    /// [`Refused`]. It does not depend on what others have borrowed.
    pub fn admit(&mut self, guarantee: u64) -> Result<ShareId, Refused> {
        let left = self.left();
        if guarantee > left {
            return Err(Refused::Guarantee { wanted: guarantee, left });
        }
        let id = self.absent.ok_or(Refused::TooMany)?;
        let share = &mut self.shares[id.index()];
        self.absent = share.next;
        (share.state, share.guarantee) = (State::Admitted, guarantee);
        self.promised += guarantee;
        self.awaited += guarantee;
        Ok(id)
    }

    /// Makes a share active that was admitted, if what it is guaranteed is free. Returns whether it is active.
    pub fn activate(&mut self, id: ShareId) -> bool {
        let share = &mut self.shares[id.index()];
        if share.state == State::Admitted && self.owed + share.guarantee <= self.free {
            share.state = State::Active;
            self.awaited -= share.guarantee;
            self.owed += share.guarantee;
        }
        share.state == State::Active
    }

    /// Guarantees an active share what it uses, and no more: its VM has ended, and it keeps that. It is never chosen then.
    /// Returns whether that can be guaranteed; if not, nothing has changed.
    pub fn keep(&mut self, id: ShareId) -> bool {
        if self.of(id).state != State::Active || self.above(id) > self.left() {
            return false;
        }
        self.change(id, |share| share.guarantee = share.used);
        self.chosen = self.chosen.filter(|&chosen| chosen != id);
        true
    }

    /// Guarantees an active share that it can take `units` more than it uses. Returns whether that can be guaranteed without that
    /// others give back what they have borrowed; if not, nothing has changed.
    pub fn allow(&mut self, id: ShareId, units: u64) -> bool {
        let share = self.of(id);
        let guarantee = share.guarantee.max(share.used + units);
        let (more, owed) = (guarantee - share.guarantee, guarantee - share.used);
        let of_others = self.owed - share.owed() + self.awaited;
        if share.state != State::Active || more > self.left() || owed + of_others > self.free {
            return false;
        }
        self.change(id, |share| share.guarantee = guarantee);
        true
    }

    /// The VM of a share has ended. What the share uses is still to be given back.
    pub fn leave(&mut self, id: ShareId) {
        if self.of(id).state == State::Admitted {
            self.awaited -= self.of(id).guarantee;
        }
        self.change(id, |share| share.state = State::Leaving);
    }

    /// Whether a share gets `units` more.
    pub fn may_take(&self, id: ShareId, units: u64) -> bool {
        let share = self.of(id);
        if share.state != State::Active {
            return false;
        }
        if share.used + units <= share.guarantee {
            return true;
        }
        let owed = self.owed - share.owed();
        self.free >= units + owed + self.awaited
    }

    /// A share takes `units`, as it [may](Account::may_take).
    pub fn take(&mut self, id: ShareId, units: u64) {
        debug_assert!(self.may_take(id, units), "a share asks before it takes");
        self.free -= units;
        self.change(id, |share| share.used += units);
    }

    /// A share gives back `units` of what it has taken.
    pub fn give_back(&mut self, id: ShareId, units: u64) {
        self.free += units;
        self.change(id, |share| share.used -= units);
    }

    /// Chooses the share whose VM is to be ended for `id` to get `units`: the one that would be furthest above its
    /// guarantee, if `id` got them. That may be `id`. Until that share is gone no other is chosen, since what it uses
    /// is coming back. `None` if `id` gets them as it is, or none is above; or it is to be asked again.
    pub fn choose(&mut self, id: ShareId, units: u64) -> Option<ShareId> {
        let has_enough = match self.of(id).state {
            State::Admitted => self.owed + self.of(id).guarantee <= self.free,
            _ => self.may_take(id, units),
        };
        if has_enough {
            return None;
        }
        if self.chosen.is_some() {
            return self.chosen;
        }
        let other = furthest(self.shares)?;
        // The one that asks is chosen where another would be as far.
        let would_be_above = match id {
            ShareId::SYSTEM => 0,
            _ => (self.of(id).used + units).saturating_sub(self.of(id).guarantee),
        };
        self.chosen = if would_be_above > 0 && would_be_above >= self.of(other).above() {
            Some(id)
        } else {
            Some(other).filter(|_| other != ShareId::SYSTEM && self.of(other).above() > 0)
        };
        self.chosen
    }

    fn of(&self, id: ShareId) -> &ShareInfo {
        &self.shares[id.index()]
    }

    /// Changes a share, and with it the sums and the tree. One that is leaving, and uses nothing any more, is absent then.
    fn change(&mut self, id: ShareId, change: impl FnOnce(&mut ShareInfo)) {
        let share = &mut self.shares[id.index()];
        let (owed, promised) = (share.owed(), share.promised());
        change(share);
        if share.state == State::Leaving && share.used == 0 {
            (share.state, share.guarantee, share.next) = (State::Absent, 0, self.absent);
            self.absent = Some(id);
            self.chosen = self.chosen.filter(|&chosen| chosen != id);
        }
        self.owed = self.owed - owed + share.owed();
        self.promised = self.promised - promised + share.promised();
        if id != ShareId::SYSTEM {
            note(self.shares, id);
        }
    }
}
