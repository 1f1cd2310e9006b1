//! `measure`: lifecycles of a bare guest, each step of which is counted in retired instructions
//! ([`mayfly_lifecycle_steps`]). Their VMs are made of what other VMs are made of. Their vCPUs run on the monitor's
//! thread, one at a time; where two send interrupts to each other, the second has a thread of its own.
//!
//! `count`: what VMs and the program execute in a phase, whatever VMs there are ([`Phases`]).

#[cfg(target_arch = "aarch64")]
mod arm64;
mod counted;
mod forked;
mod guest;
mod interrupts;
mod logged;
mod parts;
mod phases;
mod steps;
#[cfg(target_arch = "x86_64")]
mod x86;

use mayfly_lifecycle_steps::course::Side as _;
use mayfly_lifecycle_steps::{Course, Line, REGISTERS};

use crate::bare::processor::cpus;
use crate::bare::threads::console::say;
use crate::bare::vm::{Host, TableFormat};
use arch::Identity;
#[cfg(target_arch = "aarch64")]
use arm64 as arch;
use counted::Counter;
pub(crate) use phases::Phases;
use steps::Mayfly;
#[cfg(target_arch = "x86_64")]
use x86 as arch;

/// Counts a course for so many rounds, and prints what its steps take.
pub(crate) fn run<F: TableFormat>(host: &Host<F>, course: Course, rounds: u32) {
    if let Err(why) = measured(host, course, rounds) {
        say!("mayfly: cannot measure: {why}");
    }
}

fn measured<F: TableFormat>(
    host: &Host<F>,
    course: Course,
    rounds: u32,
) -> Result<(), &'static str> {
    one_cpu()?;
    let mut counter = Counter::begin()?;
    say!("{REGISTERS}{}", Identity::read());
    say!("{}", Line::BEGIN);
    for _ in 0..rounds {
        Mayfly { host, counter: &mut counter }.round_of(course)?;
    }
    say!("{}", Line::end(counter.lines()));
    Ok(())
}

/// Whether what this CPU counts is what the machine executes.
fn one_cpu() -> Result<(), &'static str> {
    if cpus::count() == 1 {
        return Ok(());
    }
    Err("the machine has several CPUs, and only one is counted: start it with one (QEMU: -smp 1)")
}
