//! `measure`: lives of a bare guest, each step of which is counted in retired instructions ([`mayfly_lifecycle_steps`]). What they are
//! made of is what other VMs are made of; their vCPUs run on the monitor's thread, one at a time.

mod counted;
mod guest;
mod lives;

use mayfly_lifecycle_steps::Line;

use super::console::say;
use super::cpus;
use super::vm::HostOf;
use counted::Counter;

/// Has lives be lived for so many rounds, and prints what they took.
pub(super) fn run<const FWB: bool>(host: &HostOf<FWB>, rounds: u32) {
    if let Err(why) = measured(host, rounds) {
        say!("mayfly: nothing is measured: {why}");
    }
}

fn measured<const FWB: bool>(host: &HostOf<FWB>, rounds: u32) -> Result<(), &'static str> {
    if cpus::count() != 1 {
        return Err("what other processors execute is not counted: start the machine with one");
    }
    let mut counter = Counter::begin()?;
    say!("{}", Line::BEGIN);
    for _ in 0..rounds {
        lives::round(host, &mut counter)?;
    }
    say!("{}", Line::end(counter.lines()));
    Ok(())
}
