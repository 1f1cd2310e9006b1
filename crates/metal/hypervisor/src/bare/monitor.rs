//! The monitor: its commands start VMs, end them and show their state. They come from the boot arguments, and from the
//! console.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use mayfly_hypervisor::command::{Command, HELP};
use mayfly_hypervisor::ending::End;
use mayfly_hypervisor::plan::{self, Plan};
use mayfly_hypervisor::tree::Board;

mod account;
mod ends;
mod forks;
mod host;
mod own;
mod serve;
mod shares;
mod trace;
mod trials;
mod typing;

use crate::bare::own::disk;
use crate::bare::processor::{power_off, timer};
use crate::bare::threads;
use crate::bare::threads::console::{self, say};
use crate::bare::vm::{Machine, Template};
use account::{Possession, list, say_bounds, say_heap, stat};
use host::AnyHost;
use serve::Served;
use typing::type_for;

/// Ctrl-], which leads from a guest's console to the monitor.
const LEAVES: u8 = 0x1d;

struct Monitor {
    host: Arc<dyn AnyHost>,
    machines: Vec<Arc<Machine>>,
    services: Vec<Arc<Served>>,
    /// The VM that typed bytes go to; none, where they go to the monitor.
    front: Option<Arc<Machine>>,
}

/// The monitor's thread.
pub(crate) fn main(board: &Board) {
    let Ok(host) = host::start() else {
        say!("mayfly: there is too little memory to start");
        power_off()
    };
    if own::start().is_err() {
        say!("mayfly: there is too little memory for the threads of the machine's devices");
        power_off()
    }
    let before = Possession::now();
    let is_whole = {
        let host = Arc::clone(&host);
        let mut monitor = Monitor { host, machines: Vec::new(), services: Vec::new(), front: None };
        monitor.begin(board);
        monitor.serve(&board.arguments);
        monitor.end()
    };
    let lost = Possession::lost_since(before);
    say_bounds();
    match lost {
        (0, 0) if is_whole => {
            let Possession { frames, bytes } = before;
            say!(
                "mayfly: nothing was lost: all VMs have ended, {frames} frames are free and {bytes} bytes of heap in use, as before"
            );
        }
        (frames, bytes) => say!("mayfly: LOST {frames} frames, {bytes} bytes of heap"),
    }
    power_off()
}

impl Monitor {
    /// Makes the VMs of the modules, and starts them.
    fn begin(&mut self, board: &Board) {
        let (plans, wrong) = Plan::all(&board.modules);
        for why in wrong {
            say!("mayfly: {why}");
        }
        for plan in plans {
            let starts = plan.starts;
            let Some(machine) = make(plan, None) else { continue };
            self.machines.push(Arc::clone(&machine));
            if self.front.is_none() {
                self.show(Some(Arc::clone(&machine)));
            }
            if starts {
                self.start(&machine);
            }
            threads::preemption_point();
        }
    }

    /// Does the commands of the boot arguments, and then those that are typed, until one powers the machine off.
    fn serve(&mut self, arguments: &str) {
        for command in Command::script(arguments) {
            if self.obey(command) {
                return;
            }
        }
        if self.front.is_none() {
            prompt();
        }
        let mut line = String::new();
        loop {
            let Some(byte) = self.typed(u64::MAX) else { continue };
            match byte {
                b'\r' | b'\n' => {
                    console::bytes(b"\r\n");
                    if self.obey(Command::read(&core::mem::take(&mut line))) {
                        return;
                    }
                    if self.front.is_none() {
                        prompt();
                    }
                }
                8 | 0x7f if line.pop().is_some() => console::bytes(b"\x08 \x08"),
                b' '..=b'~' if line.len() < 200 => {
                    console::bytes(&[byte]);
                    line.push(char::from(byte));
                }
                _ => {}
            }
        }
    }

    /// The next byte that is typed for the monitor. Bytes that are typed for a guest go there.
    fn typed(&mut self, deadline: u64) -> Option<u8> {
        loop {
            let byte = console::next_typed(deadline)?;
            match &self.front {
                None => return Some(byte),
                Some(_) if byte == LEAVES => {
                    self.show(None);
                    say!("");
                    prompt();
                }
                Some(machine) => {
                    // A guest that takes no byte has a full FIFO. The byte waits for a moment, and is lost then.
                    for _ in 0..100 {
                        if machine.uart.typed(&[byte]) == 1 || !machine.is_running() {
                            break;
                        }
                        ends::wait(timer::ticks() + timer::frequency() / 1000);
                    }
                }
            }
        }
    }

    /// Puts a VM's console in front, or the monitor.
    fn show(&mut self, machine: Option<Arc<Machine>>) {
        if let Some(old) = &self.front {
            old.uart.set_in_front(false);
        }
        if let Some(new) = &machine {
            new.uart.set_in_front(true);
        }
        self.front = machine;
    }

    fn find(&self, name: &str) -> Option<Arc<Machine>> {
        let found = self.machines.iter().find(|machine| machine.plan.name == name);
        if found.is_none() {
            say!("mayfly: there is no VM {name}");
        }
        found.cloned()
    }

    /// Does a command. Returns whether the machine is to be powered off.
    fn obey(&mut self, command: Result<Command, &'static str>) -> bool {
        threads::preemption_point();
        match command {
            Err(why) => say!("mayfly: {why}"),
            Ok(Command::Nothing) => {}
            Ok(Command::Help) => HELP.lines().for_each(|line| say!("{line}")),
            Ok(Command::List) => self.machines.iter().for_each(|machine| list(machine)),
            Ok(Command::Stat(name)) => {
                let is_meant = |machine: &&Arc<Machine>| {
                    name.as_ref().is_none_or(|name| *name == machine.plan.name)
                };
                self.machines.iter().filter(is_meant).for_each(|machine| stat(machine));
                let is_meant =
                    |served: &&Arc<Served>| name.as_ref().is_none_or(|name| *name == served.name);
                self.services.iter().filter(is_meant).for_each(|served| served.stat());
                own::uplink(None);
                say_heap();
                say_bounds();
            }
            Ok(Command::Create { name, like, parameters, arguments }) => {
                self.create(&name, &like, &parameters, arguments);
            }
            Ok(Command::Forks(command)) => self.obey_of_forks(command),
            Ok(Command::Type { name, text }) => {
                if let Some(machine) = self.find(&name) {
                    type_for(&machine, &text);
                }
            }
            Ok(Command::Start(name)) => {
                if let Some(machine) = self.find(&name) {
                    self.start(&machine);
                }
            }
            Ok(Command::Stop(name)) => {
                if let Some(machine) = self.find(&name) {
                    self.stop(&machine);
                }
            }
            Ok(Command::Kill(name)) => {
                if let Some(machine) = self.find(&name) {
                    machine.end(End::Killed);
                }
            }
            Ok(Command::Restart(name)) => {
                if let Some(machine) = self.find(&name) {
                    self.stop(&machine);
                    self.start(&machine);
                }
            }
            Ok(Command::Destroy(name)) => {
                if !self.end_service(&name)
                    && let Some(machine) = self.find(&name)
                {
                    self.stop(&machine);
                    if self.front.as_ref().is_some_and(|front| Arc::ptr_eq(front, &machine)) {
                        self.show(None);
                    }
                    self.machines.retain(|other| !Arc::ptr_eq(other, &machine));
                }
            }
            Ok(Command::Console(name)) => {
                if let Some(machine) = self.find(&name) {
                    say!("mayfly: the console of {name}; Ctrl-] returns to the monitor");
                    self.show(Some(machine));
                }
            }
            Ok(Command::Log(name)) => {
                if let Some(machine) = self.find(&name) {
                    machine.uart.print_log();
                    say!("");
                }
            }
            Ok(Command::Wait(name)) => {
                let meant: Vec<_> = match name {
                    Some(name) => self.find(&name).into_iter().collect(),
                    None => self.machines.clone(),
                };
                for machine in &meant {
                    self.wait(machine);
                }
            }
            Ok(Command::Served { name, count }) => self.await_served(&name, count),
            Ok(Command::Await { name, text }) => self.await_text(&name, &text),
            Ok(Command::Lives { count, like, most }) => {
                if let Some(model) = self.find(&like) {
                    self.lifecycles(count, &model.plan, most);
                }
            }
            Ok(Command::Overflow(name)) => self.overflow(name.as_deref()),
            Ok(Command::Shares(seconds)) => self.shares(seconds),
            Ok(Command::Uplink(rate)) => own::uplink(rate),
            Ok(Command::Measure(rounds)) => self.host.measure(rounds),
            Ok(Command::Sleep(milliseconds)) => {
                let ticks = timer::frequency().saturating_mul(milliseconds) / 1000;
                self.pass_on_until(timer::ticks().saturating_add(ticks), |_| false);
            }
            Ok(Command::TraceOn(mib)) => self.trace(mib),
            Ok(Command::TracePrint) => trace::print(),
            Ok(Command::PowerOff) => return true,
        }
        false
    }

    /// Waits until a VM has printed `text`.
    fn await_text(&mut self, name: &str, text: &str) {
        let Some(machine) = self.find(name) else { return };
        let is_said = || machine.uart.has_said(text.as_bytes());
        self.pass_on_until(u64::MAX, |_| !machine.is_running() || is_said());
        if !is_said() {
            say!("mayfly: {name} has stopped, and has not said: {text}");
        }
    }

    fn create(&mut self, name: &str, like: &str, parameters: &[String], arguments: Option<String>) {
        let Some(model) = self.find(like) else { return };
        if !plan::is_name(name) {
            return say!("mayfly: a name has 1 to 32 letters, digits, '-' and '_'");
        }
        if self.is_taken(name) {
            return say!("mayfly: there is a VM {name} already");
        }
        match model.plan.changed(name, parameters, arguments) {
            Ok(plan) => self.machines.extend(make(plan, None)),
            Err(why) => say!("mayfly: {why}"),
        }
    }

    fn is_taken(&self, name: &str) -> bool {
        self.machines.iter().any(|machine| machine.plan.name == name)
            || self.services.iter().any(|served| served.name == name)
    }

    fn start(&mut self, machine: &Arc<Machine>) {
        let name = &machine.plan.name;
        if machine.template().is_some() {
            return say!(
                "mayfly: {name} is frozen, and runs no more: vm fork makes a VM that does"
            );
        }
        if machine.is_running() {
            return say!("mayfly: {name} is running");
        }
        if machine.plan.partition.is_some() {
            // The claim fails if it is not known then.
            let patience = timer::ticks() + 10 * timer::frequency();
            self.pass_on_until(patience, |_| disk::is_known());
        }
        if let Err(why) = machine.claim() {
            return say!("mayfly: {name} does not start: {why}");
        }
        machine.counts.ask();
        let needs = self.host.needs(&machine.plan, machine.disk_bytes());
        if let Err(why) = machine.admit(&needs) {
            machine.over();
            return say!("mayfly: {name} does not start: it needs {needs}; {why}");
        }
        machine.begin();
        // Others may have borrowed what it is guaranteed.
        self.pass_on_until(u64::MAX, |_| machine.has_memory());
        let (host, its) = (Arc::clone(&self.host), Arc::clone(machine));
        if let Err(why) = host::spawn(machine, move || host::run(&*host, &its)) {
            say!("mayfly: {name} does not start: {why}");
        }
    }

    fn stop(&mut self, machine: &Machine) {
        machine.end(End::Killed);
        self.wait(machine);
    }

    /// Waits until a VM has stopped, and everything that it had is freed.
    fn wait(&mut self, machine: &Machine) {
        self.pass_on_until(u64::MAX, |_| !machine.is_running());
    }

    /// Passes on what is typed, until `is_over`, or the deadline.
    fn pass_on_until(&mut self, deadline: u64, is_over: impl Fn(&Self) -> bool) {
        while !is_over(self) && timer::ticks() < deadline {
            let soon = timer::ticks() + timer::frequency() / 50;
            let _ = self.typed(soon.min(deadline));
        }
    }

    /// Ends all VMs. Returns whether all have stopped.
    fn end(mut self) -> bool {
        while let Some(name) = self.services.last().map(|served| served.name.clone()) {
            self.end_service(&name);
        }
        let machines = core::mem::take(&mut self.machines);
        for machine in &machines {
            machine.end(End::Killed);
        }
        for machine in &machines {
            self.wait(machine);
        }
        self.show(None);
        trace::discard();
        // The thread of the last may just be about to end.
        machines.iter().all(|machine| !machine.is_running())
    }
}

/// Makes a VM that begins as `origin`, or with its kernel; or prints why not.
fn make(plan: Plan, origin: Option<Arc<Template>>) -> Option<Arc<Machine>> {
    match Machine::try_new(plan, origin) {
        Ok(machine) => Some(Arc::new(machine)),
        Err(why) => {
            say!("mayfly: {why}");
            None
        }
    }
}

fn prompt() {
    console::bytes(b"mayfly> ");
}
