//! What records are made of.
//!
//! Record N lies in slot N modulo [`SLOTS`]. Each word of it follows from N, from the sector's place and from the word's: so a
//! sector says which record it is of, and whether it is whole.

/// The places for records.
pub(super) const SLOTS: u64 = 32;
/// The sectors of a record: more than Mayfly writes at a time, so that it is written in two pieces.
pub(super) const SECTORS: usize = 72;
pub(super) const WORDS: usize = 64;

/// The words of a sector.
pub(super) type Sector = [u64; WORDS];
/// The sectors of a record.
pub(super) type Record = [Sector; SECTORS];

/// As splitmix64 does.
const fn mixed(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// A number that seems random, and follows from this.
pub(super) const fn chosen(number: u64) -> u64 {
    mixed(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

const fn word(number: u64, place: usize, index: usize) -> u64 {
    match index {
        0 => number,
        _ => mixed(mixed(number << 16 | place as u64) + index as u64),
    }
}

/// Whether record `number` has zeroes in all sectors but its first.
pub(super) const fn is_cleared(number: u64) -> bool {
    chosen(number) >> 16 & 3 == 3
}

/// Writes record `number`, as one that is not cleared.
pub(super) fn write(number: u64, into: &mut Record) {
    for (place, sector) in into.iter_mut().enumerate() {
        for (index, to) in sector.iter_mut().enumerate() {
            *to = word(number, place, index);
        }
    }
}

/// Which record a sector is of; none, where it is none's. Zeroes are of record 0, which is not written.
pub(super) fn number(place: usize, sector: &Sector) -> Option<u64> {
    let number = sector[0];
    let is_whole = sector
        .iter()
        .enumerate()
        .all(|(index, found)| *found == if number == 0 { 0 } else { word(number, place, index) });
    let is_there = number == 0 || place == 0 || !is_cleared(number);
    (is_whole && is_there).then_some(number)
}

/// Whether a cleared record that comes behind `last` of the same slot, and not behind `newest`, may have left zeroes.
pub(super) fn is_cleared_later(last: u64, newest: u64) -> bool {
    (last + SLOTS..=newest).step_by(SLOTS as usize).any(is_cleared)
}

/// The last record of a slot, of those up to `said`; 0 if there is none.
pub(super) const fn last(slot: u64, said: u64) -> u64 {
    match said.checked_sub((said + SLOTS - slot) % SLOTS) {
        Some(number) => number,
        None => 0,
    }
}
