//! What is done between two measurements: whose turn it is next, and a pause.

use std::time::{Duration, Instant};

use mayfly_record::Chance;

use crate::experiment::Request;

/// The parameter that says what chance came from, in records.
pub(crate) const SEED: &str = "seed";

/// How long a processor is kept busy after a pause, so that what is timed next does not also pay for its waking up.
const WARM_UP: Duration = Duration::from_micros(50);

/// What the chance of a pass comes from: the same for each run, and another for each pass of it.
pub(crate) fn seed(request: &Request<'_>) -> u64 {
    0x6d61_7966_6c79_u64.wrapping_add(request.pass.into())
}

/// Whose turn it is of `count`, each of which has one in every round, in an order that chance gives the round: none of them
/// always follows the same other.
pub(crate) fn turns(rounds: u32, count: usize, seed: u64) -> impl Iterator<Item = usize> {
    let mut chance = Chance::new(seed);
    (0..rounds).flat_map(move |_| {
        let mut round: Vec<usize> = (0..count).collect();
        chance.shuffle(&mut round);
        round
    })
}

/// Sleeps, and leaves the processor awake.
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
    let awake = Instant::now();
    while awake.elapsed() < WARM_UP {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_turn_in_every_round_and_comes_to_follow_every_other() {
        let drawn: Vec<usize> = turns(1000, 4, 1).collect();
        let mut followed = [[0; 4]; 4];
        for round in drawn.chunks(4) {
            let mut sorted = round.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
            for pair in round.windows(2) {
                followed[pair[0]][pair[1]] += 1;
            }
        }
        for (first, counts) in followed.iter().enumerate() {
            for (second, &count) in counts.iter().enumerate() {
                let expected = if first == second { 0..1 } else { 180..320 };
                assert!(expected.contains(&count), "{second} after {first}: {count} of 1000");
            }
        }
    }

    #[test]
    fn turns_repeat_from_their_seed_and_differ_by_it() {
        let drawn = |seed| turns(20, 5, seed).collect::<Vec<_>>();
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
        assert_eq!(turns(3, 0, 1).count(), 0);
        assert_eq!(turns(3, 1, 1).collect::<Vec<_>>(), [0, 0, 0]);
    }
}
