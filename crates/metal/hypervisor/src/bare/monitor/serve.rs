//! Services: forks of a frozen VM, one for each connection ([`service`](mayfly_hypervisor::service)). A service has a thread,
//! which makes its forks and ends them.
//!
//! The thread's processor time is on an account of its own: a flood of connections takes from VMs no more than another VM
//! would. It waits for nobody's memory, and ends nobody for a fork: where a fork does not get what it is guaranteed at once,
//! it is not made, and its client asks again.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mayfly_dispatch::Flow;
use mayfly_hypervisor::ending::End;
use mayfly_hypervisor::plan::{self, Plan};
use mayfly_hypervisor::service::{End as FlowEnd, Next, Offer, Phase};
use mayfly_vm::platform::time::Instant;

use super::host::{self, AnyHost};
use super::{Monitor, ends};
use crate::bare::devices::network::{Desk, Seat, now};
use crate::bare::processor::timer;
use crate::bare::threads::console::say;
use crate::bare::threads::{self, Account, Name};
use crate::bare::vm::{Machine, Template};

/// A service, as the monitor knows it.
pub(super) struct Served {
    pub(super) name: String,
    from: String,
    offer: Offer,
    desk: Arc<Desk>,
    /// Its thread has ended.
    is_over: AtomicBool,
    /// How many forks could not be made.
    unmade: AtomicU64,
}

impl Monitor {
    /// Has each connection to the address of a frozen VM get a fork of its own.
    pub(super) fn serve_forks(&mut self, name: &str, from: &str, parameters: &[String]) {
        if let Err(why) = self.try_serve(name, from, parameters) {
            say!("mayfly: {name} does not serve: {why}");
        }
    }

    fn try_serve(&mut self, name: &str, from: &str, parameters: &[String]) -> Result<(), String> {
        let (model, template) = self.frozen(from)?;
        if !plan::is_name(&format!("{name}-{}", u64::MAX)) {
            return Err("its name has 1 to 11 letters, digits, '-' and '_'".to_string());
        }
        self.check_free(name)?;
        let (offer, rest) = Offer::parse(parameters)?;
        let plan = model.plan.forked(name, &rest)?;
        if plan.card.network.is_none() {
            return Err(format!("{from} has no network card"));
        }
        let config = offer.config(plan.card.mac(name));
        let mut machines = Vec::new();
        let room = machines.try_reserve_exact(usize::from(offer.forks));
        room.map_err(|_| "there is no memory for its forks")?;
        let desk = Desk::open(&plan.card, config, offer.forks)?;
        let (name, from) = (name.to_string(), from.to_string());
        let (is_over, unmade) = (AtomicBool::new(false), AtomicU64::new(0));
        let served = Served { name, from, offer, desk, is_over, unmade };
        let served = Arc::new(served);
        let host = Arc::clone(&self.host);
        let its = Arc::clone(&served);
        let work = move || {
            Worker { host, served: Arc::clone(&its), plan, template, machines }.work();
            its.is_over.store(true, Ordering::Release);
            ends::note();
        };
        let account = Account::apart();
        let begun = threads::spawn_for(Name::new("a service"), &account, work);
        if begun.is_err() {
            served.desk.close();
            return Err("there is no memory for its thread".to_string());
        }
        say!("mayfly: {} serves: each connection gets a fork of its own", served.name);
        self.services.push(served);
        Ok(())
    }

    /// Waits until so many forks of a service have ended, and none is left; or until the service has ended, which the control
    /// port may be asked for meanwhile.
    ///
    /// # Errors
    ///
    /// Why they are waited for no longer.
    pub(super) fn await_served(&mut self, name: &str, count: u64) -> Result<(), String> {
        let found = self.services.iter().find(|served| served.name == name).cloned();
        let served = found.ok_or_else(|| format!("there is no service {name}"))?;
        let is_enough = |served: &Served| {
            let forks = served.desk.with(|service| service.forks());
            forks.gone >= count && forks.gone == forks.made
        };
        let is_over = |served: &Served| served.is_over.load(Ordering::Acquire);
        self.rest_until(u64::MAX, |_| is_enough(&served) || is_over(&served))?;
        if !is_enough(&served) {
            return Err(format!("{name} has ended before {count} of its forks had"));
        }
        Ok(())
    }

    /// Ends a service, and waits until everything that its forks had is freed. Returns whether there is one of that name.
    pub(super) fn end_service(&mut self, name: &str) -> bool {
        let Some(place) = self.services.iter().position(|served| served.name == name) else {
            return false;
        };
        let served = self.services.remove(place);
        served.desk.close();
        self.pass_on_until(u64::MAX, |_| served.is_over.load(Ordering::Acquire));
        served.stat();
        true
    }
}

impl Served {
    /// Prints what has become of its forks, its connections, and their frames.
    pub(super) fn stat(&self) {
        let Self { name, from, offer, .. } = self;
        let (forks, counts, times) =
            self.desk.with(|service| (service.forks(), *service.counts(), *service.times()));
        let [a, b, c, d] = offer.ip;
        say!("{name}: forks of {from} answer at {a}.{b}.{c}.{d}, port {}", offer.port);
        say!(
            "{name}: {} forks made, {} destroyed, {} alive, {} not made for want of memory, {} SYNs waiting",
            forks.made,
            forks.gone,
            forks.made - forks.gone,
            forks.failed,
            forks.asked
        );
        let ended = |ends: &[FlowEnd]| ends.iter().map(|end| counts.ended.of(*end)).sum::<u64>();
        say!(
            "{name}: {} connections, {} closed by both sides, {} reset, {} ended by a timer, {} without a fork",
            counts.asked,
            ended(&[FlowEnd::Closed]),
            ended(&[FlowEnd::Reset, FlowEnd::Refused, FlowEnd::Cancelled]),
            ended(&[FlowEnd::HalfOpen, FlowEnd::Abandoned, FlowEnd::TooLong]),
            ended(&[FlowEnd::Failed])
        );
        say!(
            "{name}: {} frames came in for forks, {} again for one that was not made yet, {} were answered without one, {} were lost for want of room, {} went nowhere; {} frames of forks went out, {} were answered, {} went nowhere",
            counts.delivered,
            counts.repeated,
            counts.answered,
            self.desk.lost(),
            counts.dropped.total(),
            counts.sent,
            counts.told,
            counts.refused.total()
        );
        let Some(means) = times.means() else { return };
        for (phase, nanoseconds) in means {
            let what = match phase {
                Phase::Made => "from its SYN until it is begun to be made",
                Phase::Seated => "until its card has the SYN",
                Phase::Answers => "until its first frame",
                Phase::Over => "until its connection is over",
                Phase::Gone => "until everything that it had is free",
            };
            say!("{name}: {nanoseconds} ns {what}, on average of {} forks", times.count());
        }
    }
}

/// The thread of a service.
struct Worker {
    host: Arc<dyn AnyHost>,
    served: Arc<Served>,
    plan: Plan,
    template: Arc<Template>,
    /// Its forks, until everything that they had is free.
    machines: Vec<(Flow, Arc<Machine>)>,
}

impl Worker {
    fn work(mut self) {
        let served = Arc::clone(&self.served);
        let desk = &served.desk;
        loop {
            let seen = desk.bell.rung();
            self.forget_ended();
            match desk.with(|service| service.next(now())) {
                Next::Make(flow) => {
                    if let Err(why) = self.try_make(flow) {
                        desk.with(|service| service.unmade(flow));
                        self.say_unmade(&why);
                    }
                }
                Next::End(flow) => {
                    let machine = self.machines.iter().find(|(other, _)| *other == flow);
                    if let Some((_, machine)) = machine {
                        machine.end(End::Killed);
                    }
                }
                Next::Wait(_) if desk.with(|service| service.is_over()) => return,
                Next::Wait(until) => desk.bell.wait(seen, until.map_or(u64::MAX, ticks)),
            }
            threads::preemption_point();
        }
    }

    /// Forgets the forks of which everything is free.
    fn forget_ended(&mut self) {
        while let Some(place) = self.machines.iter().position(|(_, its)| !its.is_running()) {
            let (flow, machine) = self.machines.swap_remove(place);
            drop(machine);
            self.served.desk.with(|service| service.gone(flow, now()));
            threads::preemption_point();
        }
    }

    /// Makes the fork of a flow, and starts it.
    fn try_make(&mut self, flow: Flow) -> Result<(), String> {
        let Self { host, served, plan, template, .. } = self;
        let plan = Plan { name: format!("{}-{}", served.name, flow.number()), ..plan.clone() };
        let machine = Machine::try_new(plan, Some(Arc::clone(template)))?;
        let machine = Arc::new(machine.seated(Seat::new(Arc::clone(&served.desk), flow)));
        threads::preemption_point();
        machine.counts.ask(timer::ticks());
        machine.admit(&host.needs(&machine.plan, machine.disk_bytes()))?;
        machine.begin();
        if !machine.has_memory_at_once() {
            machine.over();
            return Err("what it is guaranteed is borrowed by others".to_string());
        }
        let (host, its, desk) = (Arc::clone(host), Arc::clone(&machine), Arc::clone(&served.desk));
        host::spawn(&machine, move || {
            // A fork that cannot begin is one that has ended: its client hears nothing of it, and asks again.
            let _ = host.run(&its);
            its.over();
            drop(its);
            desk.bell.ring();
        })?;
        self.machines.push((flow, machine));
        Ok(())
    }

    /// Prints why a fork was not made: whoever sends SYNs may have it said once for each doubling.
    fn say_unmade(&self, why: &str) {
        let count = self.served.unmade.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            say!("mayfly: {} has made no fork for {count} connections: {why}", self.served.name);
        }
    }
}

/// The ticks of a time, which is in nanoseconds.
fn ticks(nanoseconds: u64) -> u64 {
    timer::ticks_at(Instant::from_nanos(nanoseconds))
}
