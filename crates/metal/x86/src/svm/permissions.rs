//! The permission map of MSRs (APM volume 2, 15.11): which of them a guest reads and writes without coming out.

/// Bytes of the map: two pages.
pub const MSR_MAP_BYTES: usize = 0x2000;
/// Bytes of the map of ports: three pages, of which the last is for an access that begins at the last port.
pub const PORT_MAP_BYTES: usize = 0x3000;

/// Where the two bits of an MSR are, of which the first is for reading: a byte, and the number of a bit. `None` if it is in
/// none of the three ranges, and always comes out.
const fn place(msr: u32) -> Option<(usize, u32)> {
    let (first, page) = match msr {
        0..=0x1fff => (0, 0),
        0xc000_0000..=0xc000_1fff => (0xc000_0000, 0x800),
        0xc001_0000..=0xc001_1fff => (0xc001_0000, 0x1000),
        _ => return None,
    };
    let number = (msr - first) as usize;
    Some((page + number / 4, (number % 4 * 2) as u32))
}

/// A map in which `direct` are the guest's own, and all others come out.
pub const fn msr_map(direct: &[u32]) -> [u8; MSR_MAP_BYTES] {
    let mut map = [0xff; MSR_MAP_BYTES];
    let mut at = 0;
    while at < direct.len() {
        if let Some((byte, bit)) = place(direct[at]) {
            map[byte] &= !(0b11 << bit);
        }
        at += 1;
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_direct_and_nothing_else_is() {
        let direct = [0xc000_0100, 0xc000_0101, 0x174, 0x1fff];
        let map = msr_map(&direct);
        for msr in (0..0x3000).chain(0xbfff_f000..0xc000_3000).chain(0xc000_f000..0xc001_3000) {
            let comes_out = place(msr).is_none_or(|(byte, bit)| map[byte] >> bit & 3 != 0);
            assert_eq!(comes_out, !direct.contains(&msr), "{msr:#x}");
        }
        // SYSENTER_CS is the MSR 0x174: bits 0 and 1 of byte 0x5d (15.11).
        assert_eq!(map[0x5d], 0b1111_1100);
        assert_eq!(map[0x800 + 0x40], 0b1111_0000);
    }

    #[test]
    fn an_msr_of_no_range_is_left_alone() {
        assert_eq!(msr_map(&[0x4b56_4d01]), [0xff; MSR_MAP_BYTES]);
    }
}
