//! What may be set: the rules of `kvm_set_memory_region`.

use crate::region::{AddressSpace, MAX_PAGES, PRIVATE_SLOTS, Region, USER_SLOTS};
use crate::{Backing, Edit, Error, Flags, Gfn, PAGE_SHIFT, PAGE_SIZE, Slot, Snapshot};

/// On whose behalf a slot is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    User,
    Hypervisor,
}

/// What can be said of `region` without knowing the slots.
pub(crate) fn check<B: Backing>(
    region: &Region<B>,
    owner: Owner,
    has_smm: bool,
) -> Result<(), Error> {
    let &Region { slot, flags, gpa, size, backing } = region;
    let position = backing.position();

    if slot.space == AddressSpace::Smm && !has_smm {
        return Err(Error::NoSuchSpace { space: slot.space as u16 });
    }
    let in_range = match owner {
        Owner::User => slot.index < USER_SLOTS,
        Owner::Hypervisor => (USER_SLOTS..USER_SLOTS + PRIVATE_SLOTS).contains(&slot.index),
    };
    if !in_range {
        return Err(Error::SlotOutOfRange { slot });
    }
    if owner == Owner::Hypervisor && !flags.is_empty() {
        return Err(Error::PrivateFlags { flags });
    }
    if !Flags::all().contains(flags) {
        return Err(Error::UnknownFlags { flags: flags - Flags::all() });
    }
    if !size.is_multiple_of(PAGE_SIZE) {
        return Err(Error::MisalignedSize { size });
    }
    if gpa.page_offset() != 0 {
        return Err(Error::MisalignedGpa { gpa });
    }
    if !position.is_multiple_of(PAGE_SIZE) {
        return Err(Error::MisalignedBacking { position });
    }
    if backing.checked_add(size).is_none() {
        return Err(Error::BackingTooShort { position, size });
    }
    if gpa.checked_add(size).is_none() {
        return Err(Error::GpaWraps { gpa, size });
    }
    // A limit of what dirty logs are indexed with, and private slots have none.
    let pages = size >> PAGE_SHIFT;
    if owner == Owner::User && pages > MAX_PAGES {
        return Err(Error::TooManyPages { pages });
    }
    Ok(())
}

/// What `region`, which has been checked, changes in `slots`, all of whose frames are below `limit`; nothing, if the
/// slot is so already.
pub(crate) fn edit<B: Backing>(
    slots: &Snapshot<B>,
    region: &Region<B>,
    limit: Gfn,
) -> Result<Option<Edit<B>>, Error> {
    let old = slots.slot(region.slot);
    if region.size == 0 {
        let old = old.ok_or(Error::NoSuchSlot { slot: region.slot })?;
        return Ok(Some(Edit::Delete { old: old.clone() }));
    }
    let Some(old) = old else {
        check_room(slots, region, limit)?;
        return Ok(Some(Edit::Create { new: Slot::try_new(region, None)? }));
    };
    check_same(old, region)?;
    let (moved, changed) = (region.gpa.gfn() != old.base(), region.flags != old.flags());
    if moved {
        check_room(slots, region, limit)?;
    }
    if !moved && !changed {
        return Ok(None);
    }
    let (old, new) = (old.clone(), Slot::try_new(region, old.log())?);
    Ok(Some(if moved { Edit::Move { old, new } } else { Edit::Flags { old, new } }))
}

/// An existing slot is moved, or its log switched; it does not become another one.
fn check_same<B: Backing>(old: &Slot<B>, region: &Region<B>) -> Result<(), Error> {
    let slot = region.slot;
    if region.backing != old.backing() {
        let (has, position) = (old.backing().position(), region.backing.position());
        return Err(Error::BackingChanged { slot, has, position });
    }
    if region.size != old.size() {
        return Err(Error::SizeChanged { slot, has: old.size(), size: region.size });
    }
    if (region.flags ^ old.flags()).contains(Flags::READONLY) {
        return Err(Error::ReadOnlyChanged { slot });
    }
    Ok(())
}

/// No other slot has a frame of `region`, and all of them are below `limit`: in this order, as
/// `kvm_arch_prepare_memory_region` is asked last.
fn check_room<B: Backing>(
    slots: &Snapshot<B>,
    region: &Region<B>,
    limit: Gfn,
) -> Result<(), Error> {
    let &Region { slot, gpa, size, .. } = region;
    let base = gpa.gfn();
    let end = base.checked_add(size >> PAGE_SHIFT).unwrap_or(base);
    if let Some(other) = slots.overlapping(base..end).find(|other| other.id() != slot) {
        return Err(Error::Overlap { slot, other: other.id() });
    }
    if end > limit {
        return Err(Error::GpaOutOfRange { gpa, size, limit });
    }
    Ok(())
}
