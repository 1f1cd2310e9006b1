//! What is done between two measurements: whose turn is next, and a pause.

use std::time::{Duration, Instant};

/// How long a processor is kept busy after a pause, so that what is timed next does not also pay for its waking up.
const WARM_UP: Duration = Duration::from_micros(50);

/// Whose turn it is of `count`, each of which has one in every round: none of them always follows the same other.
pub(crate) fn turns(rounds: u32, count: usize) -> impl Iterator<Item = usize> {
    (0..rounds as usize).flat_map(move |round| (0..count).map(move |turn| (round + turn) % count))
}

/// Sleeps, and leaves the processor awake.
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
    let awake = Instant::now();
    while awake.elapsed() < WARM_UP {
        std::hint::spin_loop();
    }
}
