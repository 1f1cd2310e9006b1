//! The way from a linear address of a guest's to its physical memory, by its own tables (AMD APM volume 2, 5.2 and 5.3).
//!
//! Rights are not looked at: the CPU has come out for an access that it made, or was about to make. The guest may have
//! changed its tables since. What is found is then something else, in the guest's own memory.

use crate::svm::vmcb::Save;

const CR0_PAGING: u64 = 1 << 31;
const CR4_LARGE: u64 = 1 << 4;
const CR4_EXTENDED: u64 = 1 << 5;
const CR4_FIVE: u64 = 1 << 12;
const EFER_LONG: u64 = 1 << 10;

const PRESENT: u64 = 1;
const LARGE: u64 = 1 << 7;
/// Bits 51 to 12.
const FRAME: u64 = 0x000f_ffff_ffff_f000;

/// A guest's memory, as its processor's walks read it.
pub trait Memory {
    /// The word of 8 bytes at an address that is a multiple of 8. `None` if there is no memory.
    fn word(&self, address: u64) -> Option<u64>;
}

/// There is no translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotMapped;

/// How a guest translates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Not at all.
    Flat,
    /// By two levels, with entries of 4 bytes.
    Two,
    /// By three levels, with entries of 8 bytes,
    Three,
    /// by four,
    Four,
    /// and by five.
    Five,
}

/// The physical address of `linear`, as a guest with these registers has it.
///
/// # Errors
///
/// [`NotMapped`].
pub fn translate(save: &Save, linear: u64, memory: &impl Memory) -> Result<u64, NotMapped> {
    match way(save) {
        Way::Flat => Ok(linear & 0xffff_ffff),
        Way::Two => two_levels(save, linear as u32, memory),
        Way::Three => long::<3>(save, linear, memory),
        Way::Four => long::<4>(save, linear, memory),
        Way::Five => long::<5>(save, linear, memory),
    }
}

const fn way(save: &Save) -> Way {
    if save.cr0 & CR0_PAGING == 0 {
        Way::Flat
    } else if save.efer & EFER_LONG != 0 {
        if save.cr4 & CR4_FIVE != 0 { Way::Five } else { Way::Four }
    } else if save.cr4 & CR4_EXTENDED != 0 {
        Way::Three
    } else {
        Way::Two
    }
}

/// The number of levels is a constant, so that the walk of each has no loop.
fn long<const LEVELS: u32>(
    save: &Save,
    linear: u64,
    memory: &impl Memory,
) -> Result<u64, NotMapped> {
    // Of three levels, the topmost resolves two bits, and its table is at a multiple of 32; all others are of a page.
    let mut table = if LEVELS == 3 { save.cr3 & 0xffff_ffe0 } else { save.cr3 & FRAME };
    for level in (0..LEVELS).rev() {
        let bits = if LEVELS == 3 && level == 2 { 2 } else { 9 };
        let shift = 12 + 9 * level;
        let index = linear >> shift & ((1 << bits) - 1);
        let entry = memory.word(table + index * 8).filter(|entry| entry & PRESENT != 0);
        let entry = entry.ok_or(NotMapped)?;
        // Of the third level, only long mode has large pages.
        let is_large = level == 1 || level == 2 && LEVELS > 3;
        if level == 0 || is_large && entry & LARGE != 0 {
            let inner = (1 << shift) - 1;
            return Ok(entry & FRAME & !inner | linear & inner);
        }
        table = entry & FRAME;
    }
    Err(NotMapped)
}

fn two_levels(save: &Save, linear: u32, memory: &impl Memory) -> Result<u64, NotMapped> {
    let entry = |table: u64, index: u32| {
        let at = table + u64::from(index) * 4;
        let word = memory.word(at & !7).ok_or(NotMapped)?;
        let entry = (word >> (8 * (at & 4))) & 0xffff_ffff;
        if entry & PRESENT == 0 { Err(NotMapped) } else { Ok(entry) }
    };
    let upper = entry(save.cr3 & 0xffff_f000, linear >> 22)?;
    if upper & LARGE != 0 && save.cr4 & CR4_LARGE != 0 {
        // Bits 20 to 13 are bits 39 to 32 of the address.
        let frame = upper & 0xffc0_0000 | (upper >> 13 & 0xff) << 32;
        return Ok(frame | u64::from(linear & 0x3f_ffff));
    }
    let lower = entry(upper & 0xffff_f000, linear >> 12 & 0x3ff)?;
    Ok(lower & 0xffff_f000 | u64::from(linear & 0xfff))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Default)]
    struct Tables(HashMap<u64, u64>);

    impl Memory for Tables {
        fn word(&self, address: u64) -> Option<u64> {
            (address < 1 << 30).then(|| self.0.get(&address).copied().unwrap_or(0))
        }
    }

    fn guest(cr0: u64, cr3: u64, cr4: u64, efer: u64) -> Save {
        let mut save = Save::reset();
        (save.cr0, save.cr3, save.cr4, save.efer) = (cr0, cr3, cr4, efer);
        save
    }

    const LONG: u64 = 1 << 10 | 1 << 8;

    #[test]
    fn without_paging_an_address_is_itself() {
        let save = guest(1, 0, 0, 0);
        assert_eq!(translate(&save, 0xfee0_00b0, &Tables::default()), Ok(0xfee0_00b0));
    }

    #[test]
    fn four_levels_lead_to_a_page_and_each_large_one_ends_before() {
        let linear = 0xffff_8123_4567_89ab_u64;
        let at = |table: u64, shift: u32| table + (linear >> shift & 0x1ff) * 8;
        let mut tables = Tables::default();
        tables.0.insert(at(0x1000, 39), 0x2003);
        tables.0.insert(at(0x2000, 30), 0x3003);
        tables.0.insert(at(0x3000, 21), 0x4003);
        tables.0.insert(at(0x4000, 12), 0x8000_0000_0005_5003);
        let save = guest(1 << 31 | 1, 0x1008, 1 << 5, LONG);
        assert_eq!(translate(&save, linear, &tables), Ok(0x559ab));
        tables.0.insert(at(0x3000, 21), 0x60_0083);
        assert_eq!(translate(&save, linear, &tables), Ok(0x60_0000 | linear & 0x1f_ffff));
        tables.0.insert(at(0x2000, 30), 0x4000_0083);
        assert_eq!(translate(&save, linear, &tables), Ok(0x4000_0000 | linear & 0x3fff_ffff));
        // Of the topmost, the bit means nothing.
        tables.0.insert(at(0x1000, 39), 0x2083);
        assert_eq!(translate(&save, linear, &tables), Ok(0x4000_0000 | linear & 0x3fff_ffff));
        tables.0.insert(at(0x1000, 39), 0x2002);
        assert_eq!(translate(&save, linear, &tables), Err(NotMapped));
    }

    #[test]
    fn tables_of_32_bits_lead_to_pages_too() {
        let linear = 0xc012_3456_u64;
        let mut tables = Tables::default();
        // PAE: two bits, nine, nine.
        tables.0.insert(0x1020 + 3 * 8, 0x2001);
        tables.0.insert(0x2000, 0x3003);
        tables.0.insert(0x3000 + 0x123 * 8, 0x5_0077_7003);
        assert_eq!(
            translate(&guest(1 << 31, 0x1020, 1 << 5, 0), linear, &tables),
            Ok(0x5_0077_7456)
        );
        // Ten and ten: entry 0x300 is the first half of a word, and 0x123 the second.
        tables.0.insert(0x6000 + 0x300 * 4, 0x7003);
        tables.0.insert(0x7000 + 0x122 * 4, 0x0088_8003 << 32);
        let save = guest(1 << 31, 0x6000, 1 << 4, 0);
        assert_eq!(translate(&save, linear, &tables), Ok(0x88_8456));
        tables.0.insert(0x6000 + 0x300 * 4, 0x0040_2083);
        assert_eq!(translate(&save, linear, &tables), Ok(0x1_0052_3456));
    }

    proptest! {
        #[test]
        fn tables_of_any_content_are_walked_to_an_end(
            words in prop::collection::hash_map(0_u64..0x1000, any::<u64>(), 0..64), cr0: u64, cr3 in 0_u64..0x8000, cr4: u64, efer: u64, linear: u64,
        ) {
            let tables = Tables(words.into_iter().map(|(at, word)| (at * 8, word | 1)).collect());
            let found = translate(&guest(cr0, cr3, cr4, efer), linear, &tables);
            if let Ok(address) = found {
                prop_assert!(address < 1 << 52 && address % 4096 == linear % 4096);
            }
        }
    }
}
