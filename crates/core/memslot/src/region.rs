//! What a caller asks for.

use core::fmt;

use crate::Gpa;
use crate::error::Error;

/// Slots of an address space that its VM's owner may set: `KVM_USER_MEM_SLOTS` of x86.
pub const USER_SLOTS: u16 = i16::MAX.cast_unsigned() - PRIVATE_SLOTS;

/// Slots of an address space that only the hypervisor itself may set, for example for the APIC access page:
/// `KVM_INTERNAL_MEM_SLOTS` of x86. They follow the user's.
pub const PRIVATE_SLOTS: u16 = 3;

/// The most pages of a user's slot: `KVM_MEM_MAX_NR_PAGES`.
pub const MAX_PAGES: u64 = (1 << 31) - 1;

/// Which of a VM's views of guest physical memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressSpace {
    /// What vCPUs see.
    #[default]
    Main = 0,
    /// What x86 vCPUs see in system management mode.
    Smm = 1,
}

impl AddressSpace {
    /// How many there can be.
    pub(crate) const COUNT: u64 = 2;
}

/// Names a slot. Below [`USER_SLOTS`] the index is the user's, and from there on, to [`PRIVATE_SLOTS`] more, private.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId {
    /// The address space.
    pub space: AddressSpace,
    /// The number within it.
    pub index: u16,
}

impl SlotId {
    /// Slot `index` of the main address space.
    pub const fn main(index: u16) -> Self {
        Self { space: AddressSpace::Main, index }
    }

    /// Slot `index` of the SMM address space.
    pub const fn smm(index: u16) -> Self {
        Self { space: AddressSpace::Smm, index }
    }

    /// As `slot` of `struct kvm_userspace_memory_region` has it: bits 0 to 15 the index, bits 16 to 31 the address
    /// space.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchSpace`].
    pub const fn from_bits(slot: u32) -> Result<Self, Error> {
        let index = slot as u16;
        match slot >> u16::BITS {
            0 => Ok(Self::main(index)),
            1 => Ok(Self::smm(index)),
            space => Err(Error::NoSuchSpace { space: space as u16 }),
        }
    }
}

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.space {
            AddressSpace::Main => write!(f, "slot {}", self.index),
            AddressSpace::Smm => write!(f, "SMM slot {}", self.index),
        }
    }
}

bitflags::bitflags! {
    /// Properties of a slot, with the bits of `KVM_SET_USER_MEMORY_REGION`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Flags: u32 {
        /// Writes are recorded in the slot's [`DirtyBitmap`](crate::DirtyBitmap).
        const LOG_DIRTY_PAGES = 1 << 0;
        /// The guest's writes exit, as writes to a device do.
        const READONLY = 1 << 1;
    }
}

/// A slot as a caller wants it to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region<B> {
    /// Which slot.
    pub slot: SlotId,
    /// Its properties.
    pub flags: Flags,
    /// Where it begins in the guest. A multiple of [`PAGE_SIZE`](crate::PAGE_SIZE).
    pub gpa: Gpa,
    /// How long it is, in bytes. A multiple of [`PAGE_SIZE`](crate::PAGE_SIZE); zero deletes the slot.
    pub size: u64,
    /// Where its host memory begins, at a position that is a multiple of [`PAGE_SIZE`](crate::PAGE_SIZE).
    pub backing: B,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn a_slot_is_named_as_the_ioctl_names_it() {
        assert_eq!(SlotId::from_bits(7), Ok(SlotId::main(7)));
        assert_eq!(SlotId::from_bits(0x1_ffff), Ok(SlotId::smm(0xffff)));
        assert_eq!(SlotId::from_bits(0x2_0000), Err(Error::NoSuchSpace { space: 2 }));
        assert_eq!(SlotId::from_bits(u32::MAX), Err(Error::NoSuchSpace { space: 0xffff }));
        assert_eq!(format!("{}, {}", SlotId::main(3), SlotId::smm(4)), "slot 3, SMM slot 4");
    }

    #[test]
    fn there_are_as_many_slots_as_kvm_has_on_x86() {
        assert_eq!((USER_SLOTS, PRIVATE_SLOTS, MAX_PAGES), (32764, 3, 0x7fff_ffff));
    }
}
