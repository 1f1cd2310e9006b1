//! The kernel's ring buffer as it is read: pages of events, each with the time since the one before
//! (`events/header_page` and `events/header_event` of tracefs; `include/linux/ring_buffer.h`).

/// Bytes before the first event: the time, and how much of the page is used.
const HEADER: usize = 16;
/// Of the word that says how much is used: events were lost before this page, and their number stands behind the last one.
const MISSED: u64 = 1 << 31 | 1 << 30;
const DELTA_BITS: u32 = 27;

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// Gives each event's time and content to `each`. What is not well formed ends the page.
pub(super) fn events(page: &[u8], mut each: impl FnMut(u64, &[u8])) {
    let (Some(mut time), Some(used)) = (long(page, 0), long(page, 8)) else { return };
    let used = (used & 0xFFFF_FFFF & !MISSED) as usize;
    let Some(data) = page.get(HEADER..HEADER.saturating_add(used)) else { return };
    let mut at = 0;
    while let Some(head) = word(data, at) {
        let (kind, delta) = (head & 31, u64::from(head >> 5));
        let after = at + 4;
        let second = word(data, after);
        match (kind, second) {
            (PADDING, Some(length)) if delta > 0 => {
                time += delta;
                at = after + length as usize;
            }
            (TIME_EXTEND, Some(high)) => {
                time += u64::from(high) << DELTA_BITS | delta;
                at = after + 4;
            }
            (TIME_STAMP, Some(high)) => {
                time = u64::from(high) << DELTA_BITS | delta;
                at = after + 4;
            }
            (0, Some(length)) if length >= 4 => {
                time += delta;
                let end = after + length as usize;
                let Some(content) = data.get(after + 4..end) else { return };
                each(time, content);
                at = end;
            }
            (1..PADDING, _) => {
                time += delta;
                let end = after + 4 * kind as usize;
                let Some(content) = data.get(after..end) else { return };
                each(time, content);
                at = end;
            }
            _ => return,
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(time: u64, flags: u64, words: &[u32]) -> Vec<u8> {
        let mut page = Vec::new();
        page.extend(time.to_ne_bytes());
        page.extend(((4 * words.len() as u64) | flags).to_ne_bytes());
        page.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        page.resize(4096, 0);
        page
    }

    fn read(page: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut all = Vec::new();
        events(page, |time, content| all.push((time, content.to_vec())));
        all
    }

    #[test]
    fn times_add_up_over_all_kinds_of_events() {
        let head = |kind: u32, delta: u32| kind | delta << 5;
        let words = [
            head(1, 5),
            0xAA, // one word
            head(TIME_EXTEND, 3),
            1, // 1 << 27 and 3 more
            head(0, 2),
            12,
            0xBB,
            0xCC, // two words behind their length
            head(PADDING, 7),
            8,
            0xDD, // one that was discarded
            head(TIME_STAMP, 9),
            2, // from here on it is (2 << 27) + 9
            head(1, 1),
            0xEE,
            head(PADDING, 0),
            0,
            0, // nothing more
            head(1, 1),
            0xFF,
        ];
        let bytes = |words: &[u32]| words.iter().flat_map(|one| one.to_ne_bytes()).collect();
        let first = 100 + 5;
        let expected: [(u64, Vec<u8>); 3] = [
            (first, bytes(&[0xAA])),
            (first + (1 << 27) + 3 + 2, bytes(&[0xBB, 0xCC])),
            ((2 << 27) + 9 + 1, bytes(&[0xEE])),
        ];
        for flags in [0, MISSED, 1 << 31] {
            assert_eq!(read(&page(100, flags, &words)), expected);
        }
    }

    #[test]
    fn what_is_cut_off_is_left_out() {
        assert!(read(&[]).is_empty() && read(&[0; 16]).is_empty());
        assert!(read(&page(1, 0, &[2 | 1 << 5, 7])).is_empty());
        assert!(read(&page(1, 0, &[0, 400, 7])).is_empty());
        assert!(read(&page(1, 0, &[0, 0, 7])).is_empty());
        assert!(read(&page(1, 1 << 20, &[1, 7])).is_empty());
    }

    proptest! {
        #[test]
        fn no_page_is_read_for_ever_or_beyond_its_end(
            words in prop::collection::vec(any::<u32>(), 0..64),
            used in any::<u64>(),
        ) {
            let mut page = page(u64::from(u32::MAX), 0, &words);
            read(&page);
            page[8..16].copy_from_slice(&used.to_ne_bytes());
            page.truncate(words.len() * 5);
            read(&page);
        }
    }
}
