//! A VM's memslots, as code reads them that does not change them.

use core::fmt;

use mayfly_memslot::{AddressSpace, Backing, MemSlots, Snapshot};
use mayfly_srcu::Section;

/// A VM's memslots, to be read.
///
/// They are changed by [`Vm::set_memory_region`](crate::Vm::set_memory_region), which also takes away what was mapped
/// through them:
///
/// ```compile_fail,E0599
/// #![forbid(unsafe_code)]
/// use mayfly_vm::memslot::Region;
/// use mayfly_vm::{Vm, World};
///
/// fn delete_and_leave_mapped<W: World>(vm: &Vm<W>, slot: Region<W::Backing>) {
///     vm.slots().set(&Region { size: 0, ..slot }).unwrap();
/// }
/// ```
pub struct Slots<'a, B: Backing>(pub(crate) &'a MemSlots<B>);

impl<'a, B: Backing> Slots<'a, B> {
    /// The present slots of `space`, good until the section ends: as [`MemSlots::load`].
    ///
    /// # Panics
    ///
    /// If `section` is not one of the VM's domain.
    pub fn load<'s>(&self, space: AddressSpace, section: &'s impl Section) -> &'s Snapshot<B>
    where
        'a: 's,
    {
        self.0.load(space, section)
    }
}

impl<B: Backing> fmt::Debug for Slots<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
