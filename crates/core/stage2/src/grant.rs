//! What a guest may have: the proof without which no frame is mapped.
//!
//! A guest writes what it likes to a frame that its tables name. If that frame were a table, or memory of the
//! hypervisor's, then the next walk, or the next access of the hypervisor's own, would find what the guest has written.
//! An announcement ([`sequence`](crate::sequence)) proves where something may be mapped, and when. It does not prove
//! which frame. That is known to the host's memory alone, which has given the frame to this guest. So:
//!
//! - *A fault* maps a [`Grant`]. To make one is `unsafe`, and is done in one place, where the host was asked. A grant
//!   has its root, its place, its frames, and the sample of the fault's window in it. Therefore it leads to no other VM
//!   and to no other place. Mapping uses it up. It cannot be kept past the section in which it was made. If it is kept
//!   for so long that the host has taken something of it away, it is refused when it is mapped, as every slow fault is.
//! - *What the host changes in place* ([`Stage2::replace`](crate::Stage2::replace), `replace_owing`, `allow_writes`),
//!   and *a run* that is mapped before any fault ([`Root::map_run`]), is `unsafe` to call. There the call that names the
//!   frames is the one that maps them. Nothing would carry a proof from one to the other.
//!
//! A grant that is forgotten maps nothing. No instruction is executed for it: it is the arguments of the mapping, in
//! one value.

use mayfly_platform::address::{Gfn, Pfn};
use mayfly_srcu::Section;

use crate::format::check_leaf;
use crate::root::Root;
use crate::sequence::Seen;
use crate::{Error, Format, Leaf, Level, Permissions};

/// Proves that a guest may have some frames at a place of its memory: what the host has said in a fault's window. It is
/// used up when it is [mapped](Grant::map).
///
/// Code without `unsafe` cannot make one, and so cannot hand a guest the table that its own root begins with:
///
/// ```compile_fail,E0133
/// #![forbid(unsafe_code)]
/// use mayfly_platform::address::Gfn;
/// use mayfly_srcu::Section;
/// use mayfly_stage2::{Format, Leaf, Level, Permissions, Role, Stage2};
///
/// fn own_table<F: Format>(stage2: &Stage2<F>, section: &impl Section) {
///     let root = stage2.find_root(Role::MAIN, section).unwrap();
///     let leaf = Leaf::new(root.top(), Permissions::all());
///     let grant = root.grant(Gfn::new(0), Level::PAGE, leaf, stage2.sample(), section);
///     grant.map().unwrap();
/// }
/// ```
///
/// It maps once:
///
/// ```compile_fail,E0382
/// fn twice<F: mayfly_stage2::Format>(grant: mayfly_stage2::Grant<'_, F>) {
///     grant.map().unwrap();
///     grant.map().unwrap();
/// }
/// ```
///
/// ```compile_fail,E0277
/// fn copy(of: &impl Clone) {}
///
/// fn copied<F: mayfly_stage2::Format>(grant: &mayfly_stage2::Grant<'_, F>) {
///     copy(grant);
/// }
/// ```
///
/// ```compile_fail,E0507
/// fn borrowed<F: mayfly_stage2::Format>(grant: &mayfly_stage2::Grant<'_, F>) {
///     grant.map().unwrap();
/// }
/// ```
///
/// and its part is not there when all of it is mapped:
///
/// ```compile_fail,E0505
/// use mayfly_stage2::{Format, Grant, Level, Permissions};
///
/// fn part_of_what_is_gone<F: Format>(mut grant: Grant<'_, F>) {
///     let page = grant.part(Level::PAGE, Permissions::READ);
///     grant.map().unwrap();
///     page.map().unwrap();
/// }
/// ```
///
/// It is mapped in the VM that it was made for. Nothing else is told where to:
///
/// ```compile_fail,E0061
/// use mayfly_stage2::{Format, Grant, Root};
///
/// fn elsewhere<F: Format>(grant: Grant<'_, F>, root_of_another_vm: &Root<F>) {
///     grant.map(root_of_another_vm).unwrap();
/// }
/// ```
///
/// It cannot be kept past the section of the fault, or past its root:
///
/// ```compile_fail,E0505
/// use mayfly_platform::address::{Gfn, Pfn};
/// use mayfly_srcu::Srcu;
/// use mayfly_stage2::{Format, Leaf, Level, Permissions, Root, Seen};
///
/// unsafe fn kept<F: Format>(root: &Root<F>, srcu: &Srcu, seen: Seen) {
///     let section = srcu.read_lock();
///     let leaf = Leaf::new(Pfn::new(5), Permissions::READ);
///     let grant = unsafe { root.grant(Gfn::new(0), Level::PAGE, leaf, seen, &section) };
///     drop(section);
///     grant.map().unwrap();
/// }
/// ```
///
/// ```compile_fail,E0505
/// use mayfly_platform::address::{Gfn, Pfn};
/// use mayfly_srcu::Section;
/// use mayfly_stage2::{Format, Leaf, Level, Permissions, RootRef, Seen};
///
/// unsafe fn kept<F: Format>(root: RootRef<F>, section: &impl Section, seen: Seen) {
///     let leaf = Leaf::new(Pfn::new(5), Permissions::READ);
///     let grant = unsafe { root.grant(Gfn::new(0), Level::PAGE, leaf, seen, section) };
///     drop(root);
///     grant.map().unwrap();
/// }
/// ```
#[must_use = "nothing is mapped by it before `map`"]
pub struct Grant<'a, F: Format> {
    pub(crate) root: &'a Root<F>,
    /// The page that it was made for.
    pub(crate) gfn: Gfn,
    pub(crate) level: Level,
    /// The page or block that is to be mapped, from its first frame on.
    pub(crate) leaf: Leaf,
    pub(crate) seen: Seen,
}

impl<F: Format> Root<F> {
    /// Says that the guest may have the page or block of `level` that `gfn` lies in, as `leaf` says, in the frames from
    /// `leaf`'s on. `seen` was sampled before the host was asked.
    ///
    /// # Panics
    ///
    /// If `section` is not one of the VM's domain.
    ///
    /// # Safety
    ///
    /// - The guest of this root's VM may have each of these frames at its page, with `leaf`'s rights, by accesses of
    ///   `leaf`'s type. None of them is a table, of any VM. No Rust code has a reference into them, except to atomics
    ///   and to cells that are accessed as if a device wrote to them.
    /// - That was so after `seen` had been [sampled](crate::Stage2::sample) from this VM, and stays so until a call on
    ///   this VM has returned that takes it away: [`Stage2::zap`](crate::Stage2::zap),
    ///   [`write_protect`](crate::Stage2::write_protect) or [`replace`](crate::Stage2::replace) of those pages, inside
    ///   an invalidation of them that has not ended before; or until no vCPU is in its guest, and none enters it again.
    #[expect(clippy::inline_always, reason = "it is the arguments of the mapping")]
    #[inline(always)]
    pub unsafe fn grant<'a>(
        &'a self,
        gfn: Gfn,
        level: Level,
        leaf: Leaf,
        seen: Seen,
        section: &'a impl Section,
    ) -> Grant<'a, F> {
        self.check(section);
        Grant { root: self, gfn, level, leaf, seen }
    }
}

impl<F: Format> Grant<'_, F> {
    /// The page or block that is to be mapped, from its first frame on.
    ///
    /// # Errors
    ///
    /// [`Error::PfnOutOfRange`], [`Error::Misaligned`].
    #[inline]
    pub fn leaf(&self) -> Result<&Leaf, Error> {
        check_leaf::<F>(self.level, self.leaf.pfn)?;
        Ok(&self.leaf)
    }

    /// How much is to be mapped.
    #[inline]
    pub fn level(&self) -> Level {
        self.level
    }

    /// The page that it was made for.
    #[inline]
    pub fn gfn(&self) -> Gfn {
        self.gfn
    }

    /// The root in which it is to be mapped.
    #[inline]
    pub fn root(&self) -> &Root<F> {
        self.root
    }

    /// A part of it: the page that it was made for, or the block of `level` around that page; with no rights but
    /// `permissions`. No more than it has itself. The rest is there again when the part is mapped.
    #[inline]
    pub fn part(&mut self, level: Level, permissions: Permissions) -> Grant<'_, F> {
        let Self { root, gfn, seen, .. } = *self;
        let permissions = self.leaf.permissions & permissions;
        let level = level.min(self.level);
        let before = level.first(gfn).get() - self.level.first(gfn).get();
        let pfn = Pfn::new(self.leaf.pfn.get().wrapping_add(before));
        let leaf = Leaf { pfn, permissions, ..self.leaf };
        Grant { root, gfn, level, leaf, seen }
    }
}

impl<F: Format> core::fmt::Debug for Grant<'_, F> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Grant")
            .field("gfn", &self.gfn)
            .field("level", &self.level)
            .field("leaf", &self.leaf)
            .finish_non_exhaustive()
    }
}
