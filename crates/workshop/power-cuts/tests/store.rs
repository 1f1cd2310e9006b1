//! What is durable, and what a cut leaves.

use std::collections::BTreeSet;

use mayfly_power_cuts::{NoSuchSectors, Random, SECTOR, Store};
use proptest::prelude::*;

const SECTORS: usize = 12;

fn store() -> Store {
    Store::new(vec![0; SECTORS * SECTOR]).unwrap()
}

/// The first byte of each sector, of which all bytes are that.
fn sectors(bytes: &[u8]) -> Vec<u8> {
    bytes
        .chunks(SECTOR)
        .map(|sector| {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is torn");
            sector[0]
        })
        .collect()
}

fn read(store: &Store) -> Vec<u8> {
    let mut bytes = vec![0xaa; store.len()];
    store.read(0, &mut bytes).unwrap();
    sectors(&bytes)
}

#[derive(Clone, Debug)]
enum Step {
    Write(usize, usize),
    /// A flush is asked for.
    Ask,
    /// One of those that were asked for is carried out.
    Flush(prop::sample::Index),
    Cut(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..SECTORS, 1..5_usize).prop_map(|(first, count)| Step::Write(first, count.min(SECTORS - first))),
        2 => Just(Step::Ask),
        2 => any::<prop::sample::Index>().prop_map(Step::Flush),
        1 => any::<u64>().prop_map(Step::Cut),
    ]
}

proptest! {
    /// Beside a naive model, which keeps all that was ever written to each sector, and from which on of it may be there.
    #[test]
    fn a_cut_leaves_what_was_flushed_or_written_since(steps in prop::collection::vec(any_step(), 0..80)) {
        let mut store = store();
        // Each write has a byte of its own. The history of a sector begins with what is durable at least.
        let mut histories = vec![vec![0_u8]; SECTORS];
        let mut asked = Vec::new();
        let mut byte = 0_u8;
        for step in steps {
            match step {
                Step::Write(first, count) => {
                    byte += 1;
                    store.write((first * SECTOR) as u64, &vec![byte; count * SECTOR]).unwrap();
                    histories[first..first + count].iter_mut().for_each(|history| history.push(byte));
                }
                Step::Ask => asked.push((store.now(), byte)),
                Step::Flush(which) if !asked.is_empty() => {
                    let (moment, until) = asked.swap_remove(which.index(asked.len()));
                    store.flush(moment);
                    for history in &mut histories {
                        let last = history.iter().rposition(|byte| *byte <= until).unwrap_or(0);
                        history.drain(..last);
                    }
                    let durable: Vec<u8> = histories.iter().map(|history| history[0]).collect();
                    prop_assert_eq!(sectors(store.durable()), durable);
                }
                Step::Flush(_) => {}
                Step::Cut(seed) => {
                    let volatile = histories.iter().filter(|history| history.len() > 1).count();
                    let loss = store.cut(&mut Random::new(seed));
                    prop_assert_eq!(loss.volatile, volatile);
                    let left = read(&store);
                    prop_assert_eq!(&sectors(store.durable()), &left);
                    let mut lost = 0;
                    for (history, byte) in histories.iter_mut().zip(left) {
                        prop_assert!(history.contains(&byte), "{byte} was never there, or is older than what was flushed");
                        lost += usize::from(history.last() != Some(&byte));
                        *history = vec![byte];
                    }
                    prop_assert_eq!(loss.lost, lost);
                }
            }
            let newest: Vec<u8> = histories.iter().map(|history| *history.last().unwrap()).collect();
            prop_assert_eq!(read(&store), newest);
        }
    }
}

/// What some cuts have left of two requests that write the same two sectors.
fn left_by_cuts() -> (BTreeSet<Vec<u8>>, usize) {
    let (mut all, mut torn) = (BTreeSet::new(), 0);
    for seed in 0..300 {
        let mut store = store();
        store.write(0, &[1; 2 * SECTOR]).unwrap();
        store.write(0, &[2; 2 * SECTOR]).unwrap();
        torn += store.cut(&mut Random::new(seed)).torn;
        all.insert(read(&store)[..2].to_vec());
    }
    (all, torn)
}

#[test]
fn all_that_may_be_left_is_left_sooner_or_later() {
    let (all, torn) = left_by_cuts();
    assert_eq!(all.len(), 3 * 3, "each sector has one of three contents");
    assert!(torn > 0);
    assert_eq!(left_by_cuts(), (all, torn), "the seed says all");
}

#[test]
fn there_are_whole_sectors_and_no_more_than_there_are() {
    let mut store = store();
    let end = (SECTORS * SECTOR) as u64;
    for (offset, len) in [(end, 512), (end - 512, 1024), (1, 512), (0, 511), (u64::MAX - 511, 512)]
    {
        assert_eq!(store.read(offset, &mut vec![0; len]), Err(NoSuchSectors), "{offset} {len}");
        assert_eq!(store.write(offset, &vec![1; len]), Err(NoSuchSectors), "{offset} {len}");
    }
    assert_eq!(store.write(end, &[]), Ok(()));
    assert_eq!(read(&store), [0; SECTORS]);
    assert!(Store::new(vec![0; 513]).is_err());
}
