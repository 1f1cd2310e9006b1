//! Addresses and frame numbers, a type each: one cannot be passed where another is meant.

use core::fmt;

/// Bits of an address within its page.
pub const PAGE_SHIFT: u32 = 12;

/// Bytes of a page, and of a frame.
pub const PAGE_SIZE: u64 = 1 << PAGE_SHIFT;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident counts $unit:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// The number as this type; any is valid.
            #[inline]
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// The bare number.
            #[inline]
            pub const fn get(self) -> u64 {
                self.0
            }

            #[doc = concat!("So many ", $unit, " further; `None` past the end of the number space.")]
            #[inline]
            pub const fn checked_add(self, count: u64) -> Option<Self> {
                match self.0.checked_add(count) {
                    Some(sum) => Some(Self(sum)),
                    None => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }
    };
}

number! {
    /// A guest frame number: a guest physical address in units of [`PAGE_SIZE`].
    Gfn counts "frames"
}

number! {
    /// A guest physical address, in bytes.
    Gpa counts "bytes"
}

number! {
    /// A host physical frame number: a host physical address in units of [`PAGE_SIZE`].
    Pfn counts "frames"
}

number! {
    /// A host physical address, in bytes.
    Hpa counts "bytes"
}

number! {
    /// A host virtual address, in bytes.
    Hva counts "bytes"
}

impl Pfn {
    /// The frame's first address; `None` for a number that no address has (2^52 and above).
    #[inline]
    pub const fn hpa(self) -> Option<Hpa> {
        if self.0 >> (u64::BITS - PAGE_SHIFT) == 0 { Some(Hpa(self.0 << PAGE_SHIFT)) } else { None }
    }
}

impl Hpa {
    /// The frame that the address lies in.
    #[inline]
    pub const fn pfn(self) -> Pfn {
        Pfn(self.0 >> PAGE_SHIFT)
    }
}

impl Gfn {
    /// The frame's first address; `None` for a number that no address has (2^52 and above).
    #[inline]
    pub const fn gpa(self) -> Option<Gpa> {
        if self.0 >> (u64::BITS - PAGE_SHIFT) == 0 { Some(Gpa(self.0 << PAGE_SHIFT)) } else { None }
    }
}

impl Gpa {
    /// The frame that the address lies in.
    #[inline]
    pub const fn gfn(self) -> Gfn {
        Gfn(self.0 >> PAGE_SHIFT)
    }

    /// The address's distance from the beginning of its frame, in bytes.
    #[inline]
    pub const fn page_offset(self) -> u64 {
        self.0 % PAGE_SIZE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn a_frame_and_its_first_address_name_each_other() {
        assert_eq!(Gpa::new(0x5fff).gfn(), Gfn::new(5));
        assert_eq!(Gpa::new(0x5fff).page_offset(), 0xfff);
        assert_eq!(Gfn::new(5).gpa(), Some(Gpa::new(0x5000)));
    }

    #[test]
    fn a_frame_beyond_the_last_address_has_none() {
        assert_eq!(Gfn::new((1 << 52) - 1).gpa(), Some(Gpa::new(0xffff_ffff_ffff_f000)));
        assert_eq!(Gfn::new(1 << 52).gpa(), None);
        assert_eq!(Gfn::new(u64::MAX).gpa(), None);
    }

    #[test]
    fn adding_past_the_end_gives_none() {
        assert_eq!(Hva::new(u64::MAX).checked_add(0), Some(Hva::new(u64::MAX)));
        assert_eq!(Hva::new(u64::MAX).checked_add(1), None);
    }

    #[test]
    fn numbers_are_printed_in_hexadecimal() {
        assert_eq!(format!("{} {:?}", Gpa::new(0x1000), Gfn::new(1)), "0x1000 Gfn(0x1)");
    }
}
