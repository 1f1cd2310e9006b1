//! What the monitor does for tests and measurements: VMs that are killed at random, shares of the processors, phases that
//! are counted, a trace, overflows, system errors.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use mayfly_hypervisor::plan::Plan;

use super::account::Possession;
use super::{Monitor, make, shares, trace};
use crate::bare::measure::Phases;
use crate::bare::processor::{timer, traced};
use crate::bare::threads::console::say;
use crate::bare::threads::{self, Depth, Name};
use crate::bare::world::entropy;

impl Monitor {
    pub(super) fn shares(&mut self, seconds: u64) -> Result<(), String> {
        let mut machines = Vec::new();
        self.machines.each(|machine| machines.push(Arc::clone(machine)));
        shares::measure(&machines, seconds, |moment| self.rest_until(moment, |_| false))
    }

    /// Begins to count phases; with a name, ends one.
    pub(super) fn count(&mut self, name: Option<&str>) -> Result<(), String> {
        match (name, &mut self.phases) {
            (None, phases) => {
                // The counters of those before are stopped first.
                *phases = None;
                *phases = Some(Phases::begin()?);
            }
            (Some(name), Some(phases)) => phases.end(name),
            (Some(_), None) => return Err("nothing is counted: count begins to".to_string()),
        }
        Ok(())
    }

    /// Measures how deep stacks become. Prints how deep those were that have ended since it was begun.
    pub(super) fn stacks() {
        if !threads::measure_stacks() {
            return;
        }
        for (of, depth) in [("a vCPU", Depth::Vcpu), ("a run", Depth::Run)] {
            let (deepest, bytes) = (depth.deepest(), depth.bytes());
            say!("mayfly: the stacks of {of} have had at most {deepest} of {bytes} bytes");
        }
    }

    /// Has a thread of a VM overflow its stack, or the idle thread of a processor.
    pub(super) fn overflow(&self, name: Option<&str>) -> Result<(), String> {
        let Some(name) = name else {
            threads::overflow_idle();
            return Ok(());
        };
        let machine = self.find(name)?;
        let (name, account) = (Name::new("a test"), &machine.account);
        threads::spawn_for(name, account, threads::overflow)
            .map_err(|_| "there is no memory for a thread".to_string())
    }

    /// Has the guest of a VM's first vCPU take an `SError`.
    pub(super) fn system_error(&self, name: &str) -> Result<(), String> {
        let is_there = self.find(name)?.fail();
        is_there.then_some(()).ok_or_else(|| format!("{name} does not run"))
    }

    pub(super) fn trace(&self, mib: u64) {
        if let Some(why) = traced::refused() {
            return say!("mayfly: {why}");
        }
        let mut one_runs = false;
        self.machines.each(|machine| one_runs |= machine.is_running());
        if one_runs {
            return say!(
                "mayfly: a trace begins before any VM runs: give VMs start=no, then trace on, then vm start"
            );
        }
        trace::start(mib);
    }

    /// Runs `count` VMs like `like`, one after the other, and kills each at a random moment. Prints what they have
    /// lost.
    pub(super) fn lifecycles(&mut self, count: u32, like: &Plan, most: u64) -> Result<(), String> {
        let before = Possession::now();
        let longest = timer::frequency().saturating_mul(most) / 1000;
        for number in 0..count {
            let name = format!("{}-{number}", like.name);
            let machine = make(Plan { name, ..like.clone() }, None)?;
            self.start(&machine)?;
            let moment = u64::from_le_bytes(entropy::seed()) % longest.max(1);
            let end = timer::ticks().saturating_add(moment);
            self.pass_on_until(end, |monitor| monitor.ahead.is_interrupted());
            self.stop(&machine);
            self.unless_interrupted()?;
        }
        let (frames, bytes) = Possession::lost_since(before);
        say!(
            "mayfly: {count} runs like {}: {frames} frames and {bytes} bytes of heap lost",
            like.name
        );
        Ok(())
    }
}
