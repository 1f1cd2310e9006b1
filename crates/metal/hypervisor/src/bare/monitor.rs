//! The monitor: its commands start VMs, end them and show their state. They come from the boot arguments, from the console,
//! and from a program on the other side of the control port.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use mayfly_hypervisor::ahead::{self, Ahead, INTERRUPT};
use mayfly_hypervisor::board::Board;
use mayfly_hypervisor::command::{Command, HELP};
use mayfly_hypervisor::ending::End;
use mayfly_hypervisor::plan::Plan;

mod account;
mod asking;
mod control;
mod ends;
mod forks;
mod host;
mod live;
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
use crate::bare::world::merger;
use account::{Possession, list, say_bounds, say_heap, stat};
use host::AnyHost;
use machines::Machines;
use serve::Served;
use typing::type_for;
use vms::make;

/// Ctrl-], which leads from a guest's console to the monitor.
const LEAVES: u8 = 0x1d;

/// Why a command that waited has ended.
const INTERRUPTED: &str = "interrupted by Ctrl-C";

/// What follows a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Next,
    /// The commands of the same line are dropped.
    Dropped,
    PowerOff,
}

struct Monitor {
    host: Arc<dyn AnyHost>,
    machines: Machines,
    services: Vec<Arc<Served>>,
    /// The VM that typed bytes go to; none, where they go to the monitor.
    front: Option<Arc<Machine>>,
    /// What was typed for the monitor while it worked.
    ahead: Ahead,
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
        let (machines, services, ahead) = (Machines::default(), Vec::new(), Ahead::default());
        let mut monitor = Monitor { host, machines, services, front: None, ahead, phases: None };
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
        let is_first = self.front.is_none();
        if is_first {
            self.show(Some(Arc::clone(&machine)));
        }
        let begun = if starts { self.start(&machine) } else { Ok(()) };
        if is_first && begun.is_err() {
            self.show(None);
        }
        begun
    }

    /// Does the commands of the boot arguments, and then those that are typed or come by the control port, until one powers the
    /// machine off.
    fn serve(&mut self, arguments: &str) {
        for command in Command::script(arguments) {
            match self.obey(command) {
                Then::Next => {}
                Then::Dropped => break,
                Then::PowerOff => return,
            }
        }
        if self.front.is_none() {
            prompt();
        }
        let mut line = String::new();
        loop {
            let byte = self.typed().or_else(|| {
                self.obey_control();
                self.ahead.take_interrupt().then_some(INTERRUPT)
            });
            match byte {
                Some(INTERRUPT) => {
                    line.clear();
                    console::bytes(b"^C\r\n");
                    prompt();
                }
                Some(b'\r' | b'\n') => {
                    console::bytes(b"\r\n");
                    let command = Command::read(&core::mem::take(&mut line));
                    if self.obey(command) == Then::PowerOff {
                        return;
                    }
                    if self.front.is_none() {
                        prompt();
                    }
                }
                Some(8 | 0x7f) if line.pop().is_some() => console::bytes(b"\x08 \x08"),
                Some(byte @ b' '..=b'~') if line.len() < 200 => {
                    console::bytes(&[byte]);
                    line.push(char::from(byte));
                }
                _ => {}
            }
        }
    }

    /// The next byte that is typed for the monitor, which does nothing. Bytes that are typed for a guest go there. None if
    /// there is a request of the control port.
    fn typed(&mut self) -> Option<u8> {
        loop {
            let before = self.ahead.take();
            let byte = before.or_else(|| console::next_typed(u64::MAX, control::has_asked))?;
            if self.front.is_none() {
                return Some(byte);
            }
            if self.pass_on(byte) {
                prompt();
            }
        }
    }

    /// Takes a byte that is typed while the monitor works: one for a guest goes there, and one for the monitor is kept.
    /// Waits for it until the deadline, or until there is a request of the control port that the caller takes.
    fn hear(&mut self, deadline: u64, takes_requests: bool) {
        let before = self.front.as_ref().and_then(|_| self.ahead.take());
        let has_other = || takes_requests && control::has_asked();
        let Some(byte) = before.or_else(|| console::next_typed(deadline, has_other)) else {
            return;
        };
        if self.front.is_some() {
            if self.pass_on(byte) {
                say!("mayfly: the monitor is at work; Ctrl-C ends a wait");
            }
        } else if self.ahead.push(byte) {
            let most = ahead::MOST;
            say!("mayfly: {most} bytes have been typed ahead, and what is typed now is lost");
        }
    }

    /// Passes a byte on to the VM in front. Returns whether it leads to the monitor instead.
    fn pass_on(&mut self, byte: u8) -> bool {
        if byte == LEAVES {
            self.show(None);
            say!("");
            return true;
        }
        if let Some(machine) = &self.front {
            // A guest that takes no byte has a full FIFO, or is just being frozen or reset, or has not begun. The byte waits
            // for a moment, and is lost then.
            for _ in 0..100 {
                if machine.uart.typed(&[byte]) == 1 || !machine.is_running() {
                    break;
                }
                ends::wait(timer::ticks() + timer::frequency() / 1000);
            }
        }
        false
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

    /// Does a command. Returns what follows it.
    fn obey(&mut self, command: Result<Command, &'static str>) -> Then {
        threads::preemption_point();
        let done = match command {
            Ok(Command::PowerOff) => return Then::PowerOff,
            Ok(command) => self.carry_out(command),
            Err(why) => Err(why.to_string()),
        };
        let is_interrupted = self.ahead.take_interrupt();
        match done {
            Err(why) => say!("mayfly: {why}"),
            Ok(()) if is_interrupted => say!("mayfly: {INTERRUPTED}"),
            Ok(()) => {}
        }
        if is_interrupted { Then::Dropped } else { Then::Next }
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
            Command::Stat(name) => self.say_all(name.as_deref())?,
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
                    self.rest_until(u64::MAX, |_| !machine.is_running())?;
                } else {
                    let mut number = 0;
                    while let Some(machine) = self.machines.after(number).cloned() {
                        self.rest_until(u64::MAX, |_| !machine.is_running())?;
                        number = machine.number;
                    }
                }
            }
            Command::Served { name, count } => self.await_served(&name, count)?,
            Command::Await { name, text } => self.await_text(&name, &text)?,
            Command::Lives { count, like, most } => {
                let model = self.find(&like)?;
                self.lifecycles(count, &model.plan, most)?;
            }
            Command::Turnover { count, from, after } => {
                self.turnover(count, &from, after)?;
            }
            Command::Ask { name, count, seconds } => self.ask(&name, count, seconds)?,
            Command::Stacks => Self::stacks(),
            Command::Overflow(name) => self.overflow(name.as_deref())?,
            Command::SystemError(name) => self.system_error(&name)?,
            Command::Count(name) => self.count(name.as_deref())?,
            Command::Shares(seconds) => self.shares(seconds)?,
            Command::Uplink(rate) => own::uplink(rate),
            Command::Merge(part) => {
                let part = merger::set_part(part);
                say!("mayfly: the merger takes {part} hundredths of a CPU at most");
            }
            Command::Measure(course, rounds) => self.host.measure(course, rounds),
            Command::Sleep(milliseconds) => {
                let ticks = timer::frequency().saturating_mul(milliseconds) / 1000;
                self.rest_until(timer::ticks().saturating_add(ticks), |_| false)?;
            }
            Command::TraceOn(mib) => self.trace(mib),
            Command::TracePrint => trace::print(),
        }
        Ok(())
    }

    /// Prints what the VM or the service of this name has, or what all have; and the program itself.
    ///
    /// # Errors
    ///
    /// That there is none of this name.
    fn say_all(&self, name: Option<&str>) -> Result<(), String> {
        let is_meant = |its: &str| name.is_none_or(|name| name == its);
        match name {
            Some(name) if self.services.iter().any(|served| served.name == name) => {}
            Some(name) => stat(&*self.find(name)?),
            None => self.machines.each(|machine| stat(machine)),
        }
        self.services
            .iter()
            .filter(|served| is_meant(&served.name))
            .for_each(|served| served.stat());
        own::uplink(None);
        say_heap();
        say_bounds();
        Ok(())
    }

    /// Waits until a VM has printed `text`.
    fn await_text(&mut self, name: &str, text: &str) -> Result<(), String> {
        let machine = self.find(name)?;
        // What it printed before it goes back does not count.
        let is_said = || !machine.is_going_back() && machine.uart.has_said(text.as_bytes());
        self.rest_until(u64::MAX, |_| !machine.is_running() || is_said())?;
        if is_said() {
            Ok(())
        } else {
            Err(format!("{name} has stopped, and has not said: {text}"))
        }
    }

    /// Hears what is typed, until `is_over`, or the deadline.
    fn pass_on_until(&mut self, deadline: u64, is_over: impl Fn(&Self) -> bool) {
        while !is_over(self) && timer::ticks() < deadline {
            let soon = timer::ticks() + timer::frequency() / 50;
            self.hear(soon.min(deadline), false);
        }
    }

    /// The same, and does what is asked for by the control port: nothing else is being done to a VM.
    ///
    /// # Errors
    ///
    /// That Ctrl-C was typed.
    fn rest_until(&mut self, deadline: u64, is_over: impl Fn(&Self) -> bool) -> Result<(), String> {
        while !is_over(self) && timer::ticks() < deadline {
            self.unless_interrupted()?;
            let soon = timer::ticks() + timer::frequency() / 50;
            self.hear(soon.min(deadline), true);
            self.obey_control();
            if let Some(phases) = &mut self.phases {
                phases.look();
            }
        }
        Ok(())
    }

    /// Whether the command goes on.
    ///
    /// # Errors
    ///
    /// That Ctrl-C was typed.
    fn unless_interrupted(&self) -> Result<(), String> {
        if self.ahead.is_interrupted() { Err(INTERRUPTED.to_string()) } else { Ok(()) }
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
