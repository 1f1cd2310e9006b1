//! The slots of a VM.

use alloc::sync::Arc;
use core::fmt;

use mayfly_platform::Platform;
use mayfly_platform::lock::Lock;
use mayfly_platform::memory::OutOfMemory;
use mayfly_srcu::{Rcu, Section, Srcu};

use crate::rules::{self, Owner};
use crate::{AddressSpace, Backing, Change, Edit, Error, Gfn, Prepared, Region, Snapshot};

/// The memslots of a VM, in one address space or two.
///
/// Readers load a [`Snapshot`] inside a section and never wait. Writers are serialised, from the look at the present
/// slots until the new ones are published; waiting for readers comes after that, so one writer's wait holds up no
/// other.
pub struct MemSlots<B: Backing> {
    main: Rcu<Snapshot<B>>,
    smm: Rcu<Snapshot<B>>,
    has_smm: bool,
    /// The first frame that a guest cannot address.
    limit: Gfn,
    writer: Lock<()>,
    platform: Arc<dyn Platform>,
}

impl<B: Backing> MemSlots<B> {
    /// No slots, in the main address space; readers are those of `domain`, and writers wait for each other on
    /// `platform`.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`].
    pub fn try_new(platform: Arc<dyn Platform>, domain: &Srcu) -> Result<Self, OutOfMemory> {
        Ok(Self {
            main: Rcu::new(domain, Snapshot::try_empty(AddressSpace::Main)?),
            smm: Rcu::new(domain, Snapshot::try_empty(AddressSpace::Smm)?),
            has_smm: false,
            limit: Gfn::new(u64::MAX),
            writer: Lock::new(()),
            platform,
        })
    }

    /// As [`MemSlots::try_new`], with an address space for system management mode as well.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`].
    pub fn try_with_smm(platform: Arc<dyn Platform>, domain: &Srcu) -> Result<Self, OutOfMemory> {
        Ok(Self { has_smm: true, ..Self::try_new(platform, domain)? })
    }

    /// The same, for guests that cannot address frame `limit`, nor any after it: slots end before it from now on. A
    /// frame number goes as far as addresses of 64 bits otherwise.
    #[must_use]
    pub fn below(self, limit: Gfn) -> Self {
        Self { limit, ..self }
    }

    /// The present slots of `space`, good until the section ends. Without an SMM address space, that one is empty.
    ///
    /// A section that begins after a change was made finds the change.
    ///
    /// # Panics
    ///
    /// If `section` is one of another domain.
    #[inline]
    pub fn load<'a>(&'a self, space: AddressSpace, section: &'a impl Section) -> &'a Snapshot<B> {
        self.space(space).load(section)
    }

    /// Creates, deletes, moves or changes a slot, as `KVM_SET_USER_MEMORY_REGION` does, and waits for readers as the
    /// kind of change needs it ([`Change::settle`]): not at all when a slot is created. `None`: the slot was so
    /// already.
    ///
    /// A size of zero deletes. An existing slot can be moved (another `gpa`), and its
    /// [`LOG_DIRTY_PAGES`](crate::Flags::LOG_DIRTY_PAGES) can be switched; everything else about it stays. A slot that
    /// is moved keeps its log.
    ///
    /// Must not be called from inside a section of the domain.
    ///
    /// # Errors
    ///
    /// [`Error`]; no slot is changed then.
    pub fn set(&self, region: &Region<B>) -> Result<Option<Edit<B>>, Error> {
        Ok(self.apply(region)?.map(Change::settle))
    }

    /// As [`MemSlots::set`], for the [`PRIVATE_SLOTS`](crate::PRIVATE_SLOTS): they have no flags, and may be larger
    /// than [`MAX_PAGES`](crate::MAX_PAGES).
    ///
    /// # Errors
    ///
    /// [`Error`]; no slot is changed then.
    pub fn set_private(&self, region: &Region<B>) -> Result<Option<Edit<B>>, Error> {
        Ok(self.apply_private(region)?.map(Change::settle))
    }

    /// As [`MemSlots::set`] without the wait: publishes, and leaves the old snapshot to the caller.
    ///
    /// # Errors
    ///
    /// [`Error`]; no slot is changed then.
    pub fn apply(&self, region: &Region<B>) -> Result<Option<Change<B>>, Error> {
        Ok(self.prepare(region)?.map(Prepared::publish))
    }

    /// As [`MemSlots::set_private`] without the wait.
    ///
    /// # Errors
    ///
    /// [`Error`]; no slot is changed then.
    pub fn apply_private(&self, region: &Region<B>) -> Result<Option<Change<B>>, Error> {
        Ok(self.prepare_private(region)?.map(Prepared::publish))
    }

    /// As [`MemSlots::apply`], up to publishing: for a caller that has to do something about a change before any reader
    /// finds it. Other writers wait meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn prepare(&self, region: &Region<B>) -> Result<Option<Prepared<'_, B>>, Error> {
        self.prepare_for(Owner::User, region)
    }

    /// As [`MemSlots::apply_private`], up to publishing.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn prepare_private(&self, region: &Region<B>) -> Result<Option<Prepared<'_, B>>, Error> {
        self.prepare_for(Owner::Hypervisor, region)
    }

    fn prepare_for(
        &self,
        owner: Owner,
        region: &Region<B>,
    ) -> Result<Option<Prepared<'_, B>>, Error> {
        rules::check(region, owner, self.has_smm)?;
        let space = self.space(region.slot.space);
        let writer = self.writer.lock(&*self.platform);
        // SAFETY: only replaced here, under the lock, when it has been looked at.
        let present = unsafe { space.load_protected() };
        let Some(edit) = rules::edit(present, region, self.limit)? else { return Ok(None) };
        let next = present.try_edited(&edit)?;
        Ok(Some(Prepared::new(edit, next, space, writer)))
    }

    #[inline]
    fn space(&self, space: AddressSpace) -> &Rcu<Snapshot<B>> {
        match space {
            AddressSpace::Main => &self.main,
            AddressSpace::Smm => &self.smm,
        }
    }
}

impl<B: Backing> fmt::Debug for MemSlots<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemSlots")
            .field("main", &self.main)
            .field("smm", &self.smm)
            .finish_non_exhaustive()
    }
}
