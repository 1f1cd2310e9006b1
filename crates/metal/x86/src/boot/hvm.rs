//! What a loader tells a kernel that it starts by PVH (xen/include/public/arch-x86/hvm/start_info.h).

use core::ops::Range;

const MAGIC: u32 = 0x336e_c578;
/// Bytes of the first version, and of the second, which has the memory map.
const FIRST_VERSION: usize = 40;
const SIZE: usize = 56;
const MODULE: usize = 32;
const ENTRY: usize = 24;
/// Modules and entries of the memory map that are looked at.
const MOST: usize = 128;

/// Bytes at a physical address.
pub trait Physical {
    /// Fills `bytes` with what is there. `None` if it is no memory.
    fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()>;
}

/// Why what the loader has told cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// It does not lie in memory.
    #[error("what the loader has told lies at {0:#x}, where there is no memory")]
    Place(u64),
    /// It does not begin as it has to.
    #[error("the loader has told nothing: {0:#x} stands where its mark has to be")]
    Magic(u32),
    /// It has no memory map.
    #[error("the loader has told no memory map (version {0})")]
    Version(u32),
    /// There are more modules, or regions, than any loader has.
    #[error("the loader has told of {0} modules or regions")]
    Count(u32),
}

/// What the loader has told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartInfo {
    /// Where the command line is; zero if there is none.
    pub command_line: u64,
    /// Where the ACPI's root pointer is; zero if there is none.
    pub rsdp: u64,
    modules: (u64, u32),
    map: (u64, u32),
}

/// A region of the memory map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its first address.
    pub start: u64,
    /// The first behind it.
    pub end: u64,
    /// Whether it is memory that may be used (type 1).
    pub usable: bool,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn half(bytes: &[u8], at: usize) -> u32 {
    let mut half = [0; 4];
    half.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(half)
}

impl StartInfo {
    /// What is told at `address`.
    ///
    /// # Errors
    ///
    /// [`Wrong`] says what is not as it has to be.
    pub fn read(memory: &impl Physical, address: u64) -> Result<Self, Wrong> {
        let mut bytes = [0; SIZE];
        memory.read(address, &mut bytes[..FIRST_VERSION]).ok_or(Wrong::Place(address))?;
        let (magic, version) = (half(&bytes, 0), half(&bytes, 4));
        if magic != MAGIC {
            return Err(Wrong::Magic(magic));
        }
        if version == 0 {
            return Err(Wrong::Version(version));
        }
        memory.read(address, &mut bytes).ok_or(Wrong::Place(address))?;
        let info = Self {
            modules: (word(&bytes, 16), half(&bytes, 12)),
            command_line: word(&bytes, 24),
            rsdp: word(&bytes, 32),
            map: (word(&bytes, 40), half(&bytes, 48)),
        };
        match [info.modules.1, info.map.1].into_iter().find(|&count| count as usize > MOST) {
            Some(count) => Err(Wrong::Count(count)),
            None => Ok(info),
        }
    }

    /// Where each module is. One that wraps around the end of the address space is left out.
    pub fn modules(
        self,
        memory: &impl Physical,
    ) -> impl Iterator<Item = Result<Range<u64>, Wrong>> {
        let (first, count) = self.modules;
        (0..u64::from(count)).filter_map(move |number| {
            let mut bytes = [0; MODULE];
            let at = first.checked_add(number * MODULE as u64)?;
            if memory.read(at, &mut bytes).is_none() {
                return Some(Err(Wrong::Place(at)));
            }
            let start = word(&bytes, 0);
            Some(Ok(start..start.checked_add(word(&bytes, 8))?))
        })
    }

    /// The memory map, as it is told: in any order, and with regions that may overlap.
    pub fn regions(self, memory: &impl Physical) -> impl Iterator<Item = Result<Region, Wrong>> {
        let (first, count) = self.map;
        (0..u64::from(count)).filter_map(move |number| {
            let mut bytes = [0; ENTRY];
            let at = first.checked_add(number * ENTRY as u64)?;
            if memory.read(at, &mut bytes).is_none() {
                return Some(Err(Wrong::Place(at)));
            }
            let start = word(&bytes, 0);
            let end = start.saturating_add(word(&bytes, 8));
            Some(Ok(Region { start, end, usable: half(&bytes, 16) == 1 }))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// Memory from an address on.
    struct At(u64, Vec<u8>);

    impl Physical for At {
        fn read(&self, address: u64, bytes: &mut [u8]) -> Option<()> {
            let from = usize::try_from(address.checked_sub(self.0)?).ok()?;
            bytes.copy_from_slice(self.1.get(from..from.checked_add(bytes.len())?)?);
            Some(())
        }
    }

    fn told(modules: &[(u64, u64)], map: &[(u64, u64, u32)]) -> Vec<u8> {
        let mut bytes = vec![0; SIZE];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &MAGIC.to_le_bytes());
        put(4, &1_u32.to_le_bytes());
        put(12, &(modules.len() as u32).to_le_bytes());
        put(16, &(0x1000 + SIZE as u64).to_le_bytes());
        put(24, &0x77_u64.to_le_bytes());
        put(32, &0x88_u64.to_le_bytes());
        put(40, &(0x1000 + (SIZE + MODULE * modules.len()) as u64).to_le_bytes());
        put(48, &(map.len() as u32).to_le_bytes());
        for (start, size) in modules {
            bytes.extend([*start, *size, 0, 0].iter().flat_map(|word| word.to_le_bytes()));
        }
        for (start, size, kind) in map {
            bytes.extend(
                [*start, *size, u64::from(*kind)].iter().flat_map(|word| word.to_le_bytes()),
            );
        }
        bytes
    }

    #[test]
    fn modules_and_regions_are_those_that_are_told() {
        let memory =
            At(0x1000, told(&[(0x20_0000, 5)], &[(0, 0x9fc00, 1), (0xf_0000, 0x1_0000, 2)]));
        let info = StartInfo::read(&memory, 0x1000).unwrap();
        assert_eq!((info.command_line, info.rsdp), (0x77, 0x88));
        assert_eq!(info.modules(&memory).collect::<Vec<_>>(), [Ok(0x20_0000..0x20_0005)]);
        let map: Vec<_> = info.regions(&memory).map(Result::unwrap).collect();
        assert_eq!(map[0], Region { start: 0, end: 0x9fc00, usable: true });
        assert_eq!(map[1], Region { start: 0xf_0000, end: 0x10_0000, usable: false });
    }

    #[test]
    fn what_is_not_told_is_an_error() {
        let good = told(&[], &[]);
        let read = |bytes: &[u8], at| StartInfo::read(&At(0x1000, bytes.to_vec()), at);
        assert_eq!(read(&good, 0x2000), Err(Wrong::Place(0x2000)));
        assert_eq!(read(&good[..SIZE - 1], 0x1000), Err(Wrong::Place(0x1000)));
        let with = |at: usize, byte| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            read(&bytes, 0x1000)
        };
        assert_eq!(with(0, 0), Err(Wrong::Magic(MAGIC & !0xff)));
        assert_eq!(with(4, 0), Err(Wrong::Version(0)));
        assert_eq!(with(51, 1), Err(Wrong::Count(1 << 24)));
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_bad(bytes in prop::collection::vec(any::<u8>(), 0..300), marked: bool) {
            let mut bytes = bytes;
            if marked && bytes.len() >= 8 {
                bytes[..8].copy_from_slice(&[0x78, 0xc5, 0x6e, 0x33, 1, 0, 0, 0]);
            }
            let memory = At(0, bytes);
            if let Ok(info) = StartInfo::read(&memory, 0) {
                for module in info.modules(&memory).flatten() {
                    prop_assert!(module.start <= module.end);
                }
                for region in info.regions(&memory).flatten() {
                    prop_assert!(region.start <= region.end);
                }
            }
        }
    }
}
