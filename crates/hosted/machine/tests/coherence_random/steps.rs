//! What can happen, and by chance does.

use std::time::Duration;

use mayfly_stage2::Slice;
use proptest::prelude::*;

/// VMs of one host. They share no memory but what is merged, and the frames that one gives back and another gets.
pub(crate) const VMS: usize = 2;
/// vCPUs of each.
pub(crate) const VCPUS: usize = 3;
/// Slots of each.
pub(crate) const SLOTS: usize = 2;
/// Pages of each slot that anything happens to.
pub(crate) const PAGES: usize = 4;
/// Pages lie so far apart: two to a block.
pub(crate) const STRIDE: u64 = 1 << 20;
pub(crate) const SLOT: u64 = PAGES as u64 * STRIDE;
/// Where slots can begin: so many strides from 0 on, of which every other is a block's.
pub(crate) const BASES: u64 = 12;
/// How long something pauses for an access in its middle, where neither that comes to an end nor a fault is refused.
pub(crate) const PAUSE: Duration = Duration::from_millis(2);

/// One of a VM's vCPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    pub(crate) vm: usize,
    pub(crate) vcpu: usize,
}

/// A page, by its place in the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Which {
    pub(crate) vm: usize,
    pub(crate) slot: usize,
    pub(crate) page: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Access(Access),
    HostWrites(Which),
    HostReads(Which),
    Changes(Change),
    Beside(Change, Middle),
}

/// What another processor does as the first frames are maintained for a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Middle {
    /// Just before that, rather than just after.
    pub(crate) before: bool,
    pub(crate) access: Access,
    /// It writes, and then turns its caches off; or turns them on, and then reads.
    pub(crate) switches: bool,
}

/// By the vCPU of that number of the page's VM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) vcpu: usize,
    pub(crate) which: Which,
    pub(crate) write: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Switch(Who),
    SetWay(Who),
    Replug(Who),
    Reset(Who),
    Migrate(Which),
    MigrateBlock(Which),
    Reclaim(Which),
    Remap(Which),
    Fork(Which),
    EndForks,
    Protect(Which),
    /// Of two pages that a vCPU makes equal before.
    Merge(Access, Which),
    Unmerge,
    /// To so many strides from 0 on; or there again, if it is not there.
    Place(Which, u64),
    Remove(Which),
    Log(Which),
    Harvest(Which),
    /// A vCPU reads, whatever it finds.
    Look(Access),
}

/// Mostly the first of `count`, so that much happens to the same.
pub(crate) fn first_of(count: usize) -> impl Strategy<Value = usize> {
    prop_oneof![3 => Just(0), 1 => 1..count]
}

pub(crate) fn who() -> impl Strategy<Value = Who> {
    (first_of(VMS), 0..VCPUS).prop_map(|(vm, vcpu)| Who { vm, vcpu })
}

pub(crate) fn which() -> impl Strategy<Value = Which> {
    let parts = (first_of(VMS), first_of(SLOTS), 0..PAGES);
    parts.prop_map(|(vm, slot, page)| Which { vm, slot, page })
}

pub(crate) fn access() -> impl Strategy<Value = Access> {
    let parts = (0..VCPUS, which(), any::<bool>());
    parts.prop_map(|(vcpu, which, write)| Access { vcpu, which, write })
}

pub(crate) fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        8 => who().prop_map(Change::Switch),
        2 => who().prop_map(Change::SetWay),
        1 => who().prop_map(Change::Replug),
        1 => who().prop_map(Change::Reset),
        2 => which().prop_map(Change::Migrate),
        1 => which().prop_map(Change::MigrateBlock),
        2 => which().prop_map(Change::Reclaim),
        2 => which().prop_map(Change::Remap),
        3 => which().prop_map(Change::Fork),
        1 => Just(Change::EndForks),
        2 => which().prop_map(Change::Protect),
        2 => (access(), which()).prop_map(|(access, with)| Change::Merge(access, with)),
        1 => Just(Change::Unmerge),
        5 => (which(), 0..BASES).prop_map(|(which, base)| Change::Place(which, base)),
        1 => which().prop_map(Change::Remove),
        2 => which().prop_map(Change::Log),
        2 => which().prop_map(Change::Harvest),
        10 => access().prop_map(Change::Look),
    ]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => access().prop_map(Step::Access),
        1 => which().prop_map(Step::HostWrites),
        1 => which().prop_map(Step::HostReads),
        4 => change().prop_map(Step::Changes),
        4 => beside(),
        2 => move_beside_write(),
    ]
}

/// Both are mostly about the same slot, or VM.
pub(crate) fn beside() -> impl Strategy<Value = Step> {
    let coin = prop::bool::weighted;
    let parts = (change(), any::<bool>(), access(), coin(0.7), coin(0.3));
    parts.prop_map(|(change, before, mut access, is_near, switches)| {
        if is_near {
            access.which = change.near(access.which);
        }
        Step::Beside(change, Middle { before, access, switches })
    })
}

/// A slot is mostly moved onto itself, and written where it was and is.
pub(crate) fn move_beside_write() -> impl Strategy<Value = Step> {
    let parts = (which(), 0..BASES / 2, any::<bool>(), 0..VCPUS, 0..PAGES);
    parts.prop_map(|(which, base, before, vcpu, page)| {
        let access = Access { vcpu, which: Which { page, ..which }, write: true };
        Step::Beside(Change::Place(which, base), Middle { before, access, switches: false })
    })
}

/// What a world is like.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a coin that is tossed")]
pub(crate) struct Nature {
    /// The first slots have memory of huge pages.
    pub(crate) huge: bool,
    pub(crate) all_roots: bool,
    /// Turning caches off is always seen; otherwise only after an operation by set and way.
    pub(crate) fgt: bool,
    pub(crate) coherent_swap: bool,
    /// Entries of a slice.
    pub(crate) slice: u32,
}

pub(crate) fn nature() -> impl Strategy<Value = Nature> {
    let slice = prop_oneof![Just(1), Just(Slice::default().entries)];
    let huge = prop::bool::weighted(0.3);
    (huge, any::<[bool; 3]>(), slice).prop_map(|(huge, [all_roots, fgt, coherent_swap], slice)| {
        Nature { huge, all_roots, fgt, coherent_swap, slice }
    })
}

impl Change {
    /// The page that it is about, if it is about any.
    pub(crate) fn about(self) -> Option<Which> {
        match self {
            Self::Migrate(which)
            | Self::MigrateBlock(which)
            | Self::Reclaim(which)
            | Self::Remap(which)
            | Self::Fork(which)
            | Self::Protect(which)
            | Self::Place(which, _)
            | Self::Remove(which)
            | Self::Log(which)
            | Self::Harvest(which) => Some(which),
            _ => None,
        }
    }

    /// What is as near to it as can be, or else `which`.
    pub(crate) fn near(self, which: Which) -> Which {
        match self {
            Self::Switch(Who { vm, .. })
            | Self::SetWay(Who { vm, .. })
            | Self::Replug(Who { vm, .. })
            | Self::Reset(Who { vm, .. }) => Which { vm, ..which },
            Self::Look(access) => access.which,
            _ => Which { page: which.page, ..self.about().unwrap_or(which) },
        }
    }

    /// Whether `access` cannot be made in its middle, or the model cannot tell what comes of it.
    pub(crate) fn forbids(self, access: Access) -> bool {
        let Access { vcpu, which, write } = access;
        match self {
            // The vCPU cannot do both.
            Self::Switch(who) | Self::SetWay(who) | Self::Replug(who) | Self::Reset(who) => {
                (who.vm, who.vcpu) == (which.vm, vcpu)
            }
            Self::Look(access) => (access.which.vm, access.vcpu) == (which.vm, vcpu),
            Self::Merge(first, with) => first.vcpu == vcpu || [first.which, with].contains(&which),
            // It is not there, or may not be written.
            Self::Remove(other) => other.is_beside(which),
            Self::Remap(other) => other == which,
            Self::Protect(other) => write && other == which,
            // Before or after.
            Self::Log(other) | Self::Harvest(other) => write && other.is_beside(which),
            _ => false,
        }
    }
}

impl Which {
    /// Whether it is in the same slot.
    pub(crate) fn is_beside(self, other: Self) -> bool {
        (self.vm, self.slot) == (other.vm, other.slot)
    }
}
