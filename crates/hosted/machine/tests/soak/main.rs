//! Everything that changes a guest's memory, at once and for long: slots are created, moved, logged and deleted; the
//! host unmaps, moves, protects, swaps out, migrates, merges and forks what is behind them; pages are aged, logs
//! harvested; vCPUs are kicked and made anew, and other VMs live and die beside. Meanwhile the guests read, and know
//! what they have to find ([`book`]).
//!
//! What is looked for: a translation that is used after it should have been forgotten, a frame that is used after it
//! was given back, a write that is lost, or that a dirty log does not tell of; memory that is there where it should not
//! be, or the other way round; a call that never returns; a frame that is never freed.
//!
//! A soak goes through the formats, and both ways to zap a slot, a round each, on a machine of its own. A round ends
//! when enough of everything has happened, or a quarter of that with `MAYFLY_SOAK_SHARE=4`. `MAYFLY_SOAK=600` has rounds
//! follow for so many seconds; `MAYFLY_SEED=...` makes the choices of an earlier run (the threads' timing is never the
//! same). `MAYFLY_SOAK_EVENTS=...` has what hardware sees checked for so many events of each round, from its beginning on;
//! otherwise for all.

mod book;
mod crew;
mod guests;
mod host;
mod kicks;
#[path = "../storm/random.rs"]
mod random;
mod round;
mod slots;
mod tally;
mod vms;

use std::time::{Duration, Instant};

use mayfly_stage2::{Arm, Ept, Sv39x4};
use mayfly_vm::SlotZap;

use random::Random;
use tally::{ROUNDS, Tally};

/// A round of a soak.
type Run = fn(SlotZap, &mut Random, &Tally) -> u64;

#[test]
fn guests_find_what_was_written_last_whatever_changes_under_them() {
    let mut random = Random::seeded();
    let (total, start) = (Tally::default(), Instant::now());
    let wanted = std::env::var("MAYFLY_SOAK").map_or(Duration::ZERO, |seconds| {
        Duration::from_secs(seconds.parse().expect("MAYFLY_SOAK is a number of seconds"))
    });
    let rounds: [(Run, _); ROUNDS as usize] = [
        (round::run::<Ept>, SlotZap::Range),
        (round::run::<Arm<48>>, SlotZap::AllRoots),
        (round::run::<Sv39x4>, SlotZap::Range),
        (round::run::<Ept>, SlotZap::AllRoots),
        (round::run::<Arm<48>>, SlotZap::Range),
        (round::run::<Sv39x4>, SlotZap::AllRoots),
    ];
    let is_over = |done: usize| done >= rounds.len() && start.elapsed() >= wanted;
    let mut events = 0;
    for (done, (run, slot_zap)) in rounds.iter().cycle().enumerate() {
        if is_over(done) {
            break;
        }
        events += run(*slot_zap, &mut random, &total);
    }
    println!("in {:?}, {events} events of hardware checked: {total:?}", start.elapsed());
    assert!(total.is_met(ROUNDS), "{total:?}");
}
