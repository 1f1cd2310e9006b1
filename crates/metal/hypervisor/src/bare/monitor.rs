//! The monitor: its commands start VMs, end them and show their state. They come from the boot arguments, from the console,
//! and from a program on the other side of the control port.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use mayfly_hypervisor::command::{Command, HELP};
use mayfly_hypervisor::ending::End;
use mayfly_hypervisor::plan::Plan;
use mayfly_hypervisor::tree::Board;

mod account;
mod asking;
mod control;
mod ends;
mod forks;
mod host;
mod machines;
mod own;
mod serve;
mod shares;
mod trace;
mod trials;
mod turnover;
mod typing;
mod vms;

use crate::bare::measure::Phases;
use crate::bare::processor::{power_off, timer};
use crate::bare::threads;
use crate::bare::threads::console::{self, say};
use crate::bare::vm::Machine;
use account::{Possession, list, say_bounds, say_heap, stat};
use host::AnyHost;
use machines::Machines;
use serve::Served;
use typing::type_for;
use vms::make;

/// Ctrl-], which leads from a guest's console to the monitor.
const LEAVES: u8 = 0x1d;

struct Monitor {
    host: Arc<dyn AnyHost>,
    machines: Machines,
    services: Vec<Arc<Served>>,
    /// The VM that typed bytes go to; none, where they go to the monitor.
    front: Option<Arc<Machine>>,
    /// Where phases are counted.
    phases: Option<Phases>,
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
        let (machines, services) = (Machines::default(), Vec::new());
        let mut monitor = Monitor { host, machines, services, front: None, phases: None };
        threads::preemption_point();
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
        threads::preemption_point();
        for plan in plans {
            if let Err(why) = self.begin_with(plan) {
                say!("mayfly: {why}");
            }
            threads::preemption_point();
        }
    }

    fn begin_with(&mut self, plan: Plan) -> Result<(), String> {
        let starts = plan.starts;
        let machine = make(plan, None)?;
        self.machines.insert(&machine);
        if self.front.is_none() {
            self.show(Some(Arc::clone(&machine)));
        }
        if starts { self.start(&machine) } else { Ok(()) }
    }

    /// Does the commands of the boot arguments, and then those that are typed or come by the control port, until one powers the
    /// machine off.
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
            let Some(byte) = self.typed(u64::MAX, true) else {
                self.obey_control();
                continue;
            };
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

    /// The next byte that is typed for the monitor. Bytes that are typed for a guest go there. None at the deadline, and if
    /// there is a request of the control port that the caller takes.
    fn typed(&mut self, deadline: u64, takes_requests: bool) -> Option<u8> {
        loop {
            let byte = console::next_typed(deadline, || takes_requests && control::has_asked())?;
            match &self.front {
                None => return Some(byte),
                Some(_) if byte == LEAVES => {
                    self.show(None);
                    say!("");
                    prompt();
                }
                Some(machine) => {
                    // A guest that takes no byte has a full FIFO, or is just being frozen or reset, or has not begun. The byte
                    // waits for a moment, and is lost then.
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

    /// Does a command. Returns whether the machine is to be powered off.
    fn obey(&mut self, command: Result<Command, &'static str>) -> bool {
        threads::preemption_point();
        let done = match command {
            Ok(Command::PowerOff) => return true,
            Ok(command) => self.carry_out(command),
            Err(why) => Err(why.to_string()),
        };
        if let Err(why) = done {
            say!("mayfly: {why}");
        }
        false
    }

    /// Carries out a command, which does not power the machine off.
    ///
    /// # Errors
    ///
    /// Why it could not.
    fn carry_out(&mut self, command: Command) -> Result<(), String> {
        match command {
            Command::Nothing | Command::PowerOff => {}
            Command::Help => HELP.lines().for_each(|line| say!("{line}")),
            Command::List => self.machines.each(|machine| list(machine)),
            Command::Stat(name) => self.say_all(name.as_deref()),
            Command::Create { name, like, parameters, arguments } => {
                self.create(&name, &like, &parameters, arguments)?;
            }
            Command::Forks(command) => self.obey_of_forks(command)?,
            Command::Type { name, text } => type_for(&*self.find(&name)?, &text),
            Command::Balloon { name, bytes } => self.find(&name)?.ask_for(bytes)?,
            Command::Start(name) => self.start(&self.find(&name)?)?,
            Command::Stop(name) => self.stop(&*self.find(&name)?),
            Command::Kill(name) => self.find(&name)?.end(End::Killed),
            Command::Restart(name) => {
                let machine = self.find(&name)?;
                self.stop(&machine);
                self.start(&machine)?;
            }
            Command::Destroy(name) => self.destroy(&name)?,
            Command::Console(name) => {
                let machine = self.find(&name)?;
                say!("mayfly: the console of {name}; Ctrl-] returns to the monitor");
                self.show(Some(machine));
            }
            Command::Log(name) => {
                self.find(&name)?.uart.print_log();
                say!("");
            }
            Command::Wait(name) => {
                if let Some(name) = name {
                    let machine = self.find(&name)?;
                    self.rest_until(u64::MAX, |_| !machine.is_running());
                } else {
                    let mut number = 0;
                    while let Some(machine) = self.machines.after(number).cloned() {
                        self.rest_until(u64::MAX, |_| !machine.is_running());
                        number = machine.number;
                    }
                }
            }
            Command::Served { name, count } => self.await_served(&name, count),
            Command::Await { name, text } => self.await_text(&name, &text)?,
            Command::Lives { count, like, most } => {
                let model = self.find(&like)?;
                self.lifecycles(count, &model.plan, most)?;
            }
            Command::Turnover { count, from, after } => {
                self.turnover(count, &from, after)?;
            }
            Command::Ask { name, count, seconds } => self.ask(&name, count, seconds)?,
            Command::Overflow(name) => self.overflow(name.as_deref())?,
            Command::SystemError(name) => self.system_error(&name)?,
            Command::Count(name) => self.count(name.as_deref())?,
            Command::Shares(seconds) => self.shares(seconds),
            Command::Uplink(rate) => own::uplink(rate),
            Command::Measure(course, rounds) => self.host.measure(course, rounds),
            Command::Sleep(milliseconds) => {
                let ticks = timer::frequency().saturating_mul(milliseconds) / 1000;
                self.rest_until(timer::ticks().saturating_add(ticks), |_| false);
            }
            Command::TraceOn(mib) => self.trace(mib),
            Command::TracePrint => trace::print(),
        }
        Ok(())
    }

    /// Prints what the VM of this name has, or what all have; and the program itself.
    fn say_all(&self, name: Option<&str>) {
        let is_meant = |its: &str| name.is_none_or(|name| name == its);
        match name {
            Some(name) => self.machines.find(name).into_iter().for_each(|machine| stat(machine)),
            None => self.machines.each(|machine| stat(machine)),
        }
        self.services
            .iter()
            .filter(|served| is_meant(&served.name))
            .for_each(|served| served.stat());
        own::uplink(None);
        say_heap();
        say_bounds();
    }

    /// Waits until a VM has printed `text`.
    fn await_text(&mut self, name: &str, text: &str) -> Result<(), String> {
        let machine = self.find(name)?;
        // What it printed before it goes back does not count.
        let is_said = || !machine.is_going_back() && machine.uart.has_said(text.as_bytes());
        self.rest_until(u64::MAX, |_| !machine.is_running() || is_said());
        if is_said() {
            Ok(())
        } else {
            Err(format!("{name} has stopped, and has not said: {text}"))
        }
    }

    /// Passes on what is typed, until `is_over`, or the deadline.
    fn pass_on_until(&mut self, deadline: u64, is_over: impl Fn(&Self) -> bool) {
        while !is_over(self) && timer::ticks() < deadline {
            let soon = timer::ticks() + timer::frequency() / 50;
            let _ = self.typed(soon.min(deadline), false);
        }
    }

    /// The same, and does what is asked for by the control port: nothing else is being done to a VM.
    fn rest_until(&mut self, deadline: u64, is_over: impl Fn(&Self) -> bool) {
        while !is_over(self) && timer::ticks() < deadline {
            let soon = timer::ticks() + timer::frequency() / 50;
            let _ = self.typed(soon.min(deadline), true);
            self.obey_control();
            if let Some(phases) = &mut self.phases {
                phases.look();
            }
        }
    }

    /// Ends all VMs. Returns whether all have stopped.
    fn end(mut self) -> bool {
        control::close();
        while let Some(name) = self.services.last().map(|served| served.name.clone()) {
            self.end_service(&name);
        }
        let mut machines = core::mem::take(&mut self.machines);
        machines.each(|machine| machine.end(End::Killed));
        machines.each(|machine| self.wait(machine));
        self.show(None);
        trace::discard();
        // The thread of the last may just be about to end.
        let mut all_have = true;
        machines.each(|machine| all_have &= !machine.is_running());
        machines.clear();
        all_have
    }
}

fn prompt() {
    console::bytes(b"mayfly> ");
}
