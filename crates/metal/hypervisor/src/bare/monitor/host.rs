//! The host of VMs, whatever the format of their tables.

use alloc::sync::Arc;

use mayfly_hypervisor::account::ShareId;
use mayfly_hypervisor::ending::End;
use mayfly_hypervisor::needs::Needs;
use mayfly_hypervisor::plan::Plan;
use mayfly_lifecycle_steps::Course;
use mayfly_vm::platform::memory::OutOfMemory;

use super::{control, ends};
use crate::bare::measure;
use crate::bare::threads::console::say;
use crate::bare::threads::{self, Depth, Name};
use crate::bare::vm::arch::with_format;
use crate::bare::vm::{Host, Machine, TableFormat, WithFormat};

/// A [`Host`] of any format.
pub(super) trait AnyHost: Send + Sync {
    /// What a VM needs at most, whose disk has so many bytes of memory.
    fn needs(&self, plan: &Plan, disk: u64) -> Needs;

    /// Runs a VM until the run has ended and everything that the run had is freed.
    fn run(&self, machine: &Machine) -> Result<End, &'static str>;

    /// Counts the steps of a course, for so many rounds.
    fn measure(&self, course: Course, rounds: u32);
}

impl<F: TableFormat> AnyHost for Host<F> {
    fn needs(&self, plan: &Plan, disk: u64) -> Needs {
        Self::needs(plan, disk)
    }

    fn run(&self, machine: &Machine) -> Result<End, &'static str> {
        Host::run(self, machine)
    }

    fn measure(&self, course: Course, rounds: u32) {
        measure::run(self, course, rounds);
    }
}

struct Start;

impl WithFormat for Start {
    type Output = Result<Arc<dyn AnyHost>, OutOfMemory>;

    fn run<F: TableFormat>(self) -> Self::Output {
        let host: Arc<dyn AnyHost> = Host::<F>::start()?;
        Ok(host)
    }
}

/// The host of the format that this machine's processors have.
pub(super) fn start() -> Result<Arc<dyn AnyHost>, OutOfMemory> {
    with_format(Start)
}

/// Starts the thread of a VM, which has what it is guaranteed.
///
/// # Errors
///
/// Why not. Then the VM is over.
pub(super) fn spawn(
    machine: &Machine,
    work: impl FnOnce() + Send + 'static,
) -> Result<(), &'static str> {
    let share = machine.worlds().map_or(ShareId::SYSTEM, |worlds| worlds.run.share_id());
    let spawned =
        threads::spawn_in(Name::new("the run"), (share, Depth::Run), &machine.account, work);
    spawned.map_err(|_| {
        machine.over();
        "there is no memory for its thread"
    })
}

/// What the thread of a VM does: a run, and another as long as the guest restarts the machine.
pub(super) fn run(host: &dyn AnyHost, machine: &Machine) {
    let name = &machine.plan.name;
    let mut restarts = 0_u64;
    let end = loop {
        match host.run(machine) {
            Ok(End::Reset) if machine.is_fork() => {
                // Its kernel was never loaded: another run would begin as the frozen VM was, with the disk of this one.
                say!(
                    "mayfly: {name} restarts, and ends: vm reset has a fork go on as its frozen VM was"
                );
                break End::Reset;
            }
            Ok(End::Reset) if machine.is_disk_busy() => {
                // What the next run writes might be overwritten by what this one has written.
                say!(
                    "mayfly: {name} restarts, and ends: the machine's disk has not answered what it was asked for"
                );
                break End::Reset;
            }
            Ok(End::Reset) => {
                machine.settle();
                restarts += 1;
                // A guest may restart without end. It prints a line for each doubling, and not for each restart.
                match restarts {
                    1 => say!("mayfly: {name} restarts"),
                    _ if restarts.is_power_of_two() => {
                        say!("mayfly: {name} has restarted {restarts} times");
                    }
                    _ => {}
                }
            }
            Ok(end) => {
                say!("mayfly: {name} {end}");
                break end;
            }
            Err(why) => {
                say!("mayfly: {name} does not start: {why}");
                break End::Failed;
            }
        }
    };
    control::end(name, end, || machine.over());
    ends::note();
}
