//! vCPUs are kicked.

use std::sync::Arc;
use std::time::Duration;

use mayfly_stage2::Format;

use crate::crew::Seat;
use crate::guests::VCPUS;
use crate::random::Random;
use crate::round::Round;

/// Kicks vCPUs, one that there never is among them, until the round is over.
pub(crate) fn kick<F: Format>(round: &Arc<Round<F>>, random: &mut Random, seat: &Seat) {
    while !round.tally.is_over() {
        seat.at("kicking");
        round.vm.kick(random.below(u64::from(VCPUS) + 1) as u32);
        std::thread::sleep(Duration::from_micros(random.below(200)));
    }
}
