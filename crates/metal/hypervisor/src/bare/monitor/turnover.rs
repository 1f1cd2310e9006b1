//! Forks that are made and destroyed one after the other, and what that takes.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use mayfly_hypervisor::ending::End;

use super::account::Possession;
use super::asking::Client;
use super::{Monitor, ends, make};
use crate::bare::processor::timer;
use crate::bare::threads::console::say;
use crate::bare::vm::Machine;

/// What something took, each time that it was done, in nanoseconds.
#[derive(Default)]
struct Taken {
    all: u64,
    most: u64,
    times: u64,
}

impl Taken {
    fn add(&mut self, nanoseconds: u64) {
        self.all += nanoseconds;
        self.most = self.most.max(nanoseconds);
        self.times += 1;
    }

    fn say(&self, what: &str) {
        let mean = self.all / self.times.max(1);
        say!("mayfly: {what} took {mean} ns on average, and {} at most", self.most);
    }
}

/// What the steps of many forks have taken, and the frames that these had.
#[derive(Default)]
struct Turnover {
    forks: Taken,
    resets: Taken,
    ends: Taken,
    given_back: u64,
    frames: u64,
}

impl Monitor {
    /// Makes `count` forks of a frozen VM, one after the other. Each answers a request, or is reset after so many milliseconds
    /// and runs as long again, and is destroyed. Prints what that took, and what was lost.
    pub(super) fn turnover(
        &mut self,
        count: u32,
        from: &str,
        after: Option<u64>,
    ) -> Result<(), String> {
        let (model, template) = self.frozen(from)?;
        let before = Possession::now();
        let mut taken = Turnover::default();
        for number in 0..count {
            let plan =
                model.plan.forked(&format!("{from}-{number}"), &["overcommit=yes".into()])?;
            let machine = make(plan, Some(Arc::clone(&template)))?;
            let lived = self.live(&machine, after, &mut taken);
            // However it has fared: no command finds it, and nobody else ends it.
            let began = timer::ticks();
            machine.end(End::Killed);
            ends::wait_until(|| !machine.is_running());
            taken.ends.add(timer::instant(timer::ticks() - began).as_nanos());
            lived?;
        }
        let (frames_lost, bytes_lost) = Possession::lost_since(before);
        say!(
            "mayfly: {count} forks of {from} were made and destroyed, one after the other: {frames_lost} frames and {bytes_lost} bytes of heap lost"
        );
        let each = |frames: u64| frames / u64::from(count.max(1));
        taken.forks.say("a fork");
        if after.is_some() {
            let frames = each(taken.given_back);
            taken.resets.say(&format!("a reset, with {frames} frames given back,"));
        }
        taken.ends.say(&format!("the end, with {} frames of its own,", each(taken.frames)));
        Ok(())
    }

    /// Has a fork live until it is to be ended.
    ///
    /// # Errors
    ///
    /// Why it could not. It may run all the same.
    fn live(
        &mut self,
        machine: &Arc<Machine>,
        after: Option<u64>,
        taken: &mut Turnover,
    ) -> Result<(), String> {
        self.start(machine)?;
        if let Some(milliseconds) = after {
            self.let_run(milliseconds)?;
            taken.forks.add(entered(machine)?);
            machine.go_back();
            self.let_run(milliseconds)?;
            taken.resets.add(entered(machine)?);
            taken.given_back += machine.counts.given_back();
        } else {
            self.await_answer(machine)?;
            taken.forks.add(entered(machine)?);
        }
        taken.frames += machine.frames();
        Ok(())
    }

    fn let_run(&mut self, milliseconds: u64) -> Result<(), String> {
        let end = timer::ticks() + timer::frequency() * milliseconds / 1000;
        self.pass_on_until(end, |monitor| monitor.ahead.is_interrupted());
        self.unless_interrupted()
    }

    /// Has a fork answer a request.
    fn await_answer(&mut self, machine: &Arc<Machine>) -> Result<(), String> {
        let mut client = Client::new(Arc::clone(machine));
        client.ask();
        while !client.turn(|_| {}) {
            if !machine.is_running() {
                return Err(format!("{} has ended before it has answered", machine.plan.name));
            }
            self.let_run(1)?;
        }
        Ok(())
    }
}

/// How long a fork took until it went on.
fn entered(machine: &Machine) -> Result<u64, String> {
    let name = &machine.plan.name;
    machine.counts.until_entered().ok_or_else(|| format!("{name} has not gone on"))
}
