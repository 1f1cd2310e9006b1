//! Requests to many VMs at random moments, and how long their answers take.
//!
//! A VM that has not answered one request is not asked the next. That one counts from its own moment all the same, so that
//! a slow answer is not hidden by those that it holds up.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use mayfly_hypervisor::needs::CHUNK_BYTES;

use super::Monitor;
use super::account::Possession;
use crate::bare::processor::timer;
use crate::bare::threads;
use crate::bare::threads::console::say;
use crate::bare::vm::Machine;
use crate::bare::world::entropy;
use crate::bare::world::share::Share;

/// How long the last answers are waited for, in seconds.
const PATIENCE: u64 = 60;

/// A VM that is asked.
pub(super) struct Client {
    pub(super) machine: Arc<Machine>,
    /// The moments of the requests that it has not answered yet and whose time has come, in ticks.
    asked: VecDeque<u64>,
    answered: u32,
    /// Bytes of the first of these requests that were typed.
    typed: usize,
}

impl Client {
    pub(super) fn new(machine: Arc<Machine>) -> Self {
        Self { machine, asked: VecDeque::new(), answered: 0, typed: 0 }
    }

    /// Has it be asked from now on.
    pub(super) fn ask(&mut self) {
        self.asked.push_back(timer::ticks());
    }

    /// Types what can be typed, and looks whether it has answered. Returns whether it has answered all. `note` is told how
    /// long it took, in ticks.
    pub(super) fn turn(&mut self, mut note: impl FnMut(u64)) -> bool {
        while let Some(&asked) = self.asked.front() {
            if !self.machine.is_in_run() {
                return false;
            }
            let number = self.answered + 1;
            let line = format!("write {number}\r");
            self.typed += self.machine.uart.typed(&line.as_bytes()[self.typed..]);
            let answer = format!("wrote {number},");
            if self.typed < line.len() || !self.machine.uart.has_said(answer.as_bytes()) {
                return false;
            }
            note(timer::ticks() - asked);
            self.asked.pop_front();
            (self.answered, self.typed) = (number, 0);
        }
        true
    }
}

impl Monitor {
    /// Asks each of the VMs NAME-0, NAME-1 and so on `count` times, at random moments within `seconds`, and prints how long
    /// their answers took.
    pub(super) fn ask(&mut self, name: &str, count: u32, seconds: u64) -> Result<(), String> {
        let mut clients = Vec::new();
        while let Ok(machine) = self.find(&format!("{name}-{}", clients.len())) {
            clients.push(Client::new(machine));
            threads::preemption_point();
        }
        if clients.is_empty() {
            return Err(format!("there is no VM {name}-0"));
        }
        say_memory(name, &clients);
        let began = timer::ticks();
        let span = timer::frequency() * seconds;
        // In their order, with what tells two of one moment apart.
        let mut moments = BTreeSet::new();
        for client in 0..clients.len() {
            for number in 0..count {
                let moment = began + u64::from_le_bytes(entropy::seed()) % span;
                moments.insert((moment, client, number));
                threads::preemption_point();
            }
        }
        let (all, end) = (moments.len(), began + span);
        let (mut delays, mut busy) = (BTreeMap::<u64, usize>::new(), Vec::new());
        while timer::ticks() < end || !busy.is_empty() {
            if timer::ticks() > end + timer::frequency() * PATIENCE {
                break;
            }
            while let Some(&(moment, client, _)) =
                moments.first().filter(|next| next.0 <= timer::ticks())
            {
                moments.pop_first();
                if clients[client].asked.is_empty() {
                    busy.push(client);
                }
                clients[client].asked.push_back(moment);
                threads::preemption_point();
            }
            let mut note = |delay| *delays.entry(delay).or_default() += 1;
            busy.retain(|&client| !clients[client].turn(&mut note));
            let next = moments.first().map_or(end, |next| next.0);
            let soon = timer::ticks() + timer::frequency() / 1000;
            self.rest_until(if busy.is_empty() { next } else { soon }, |_| false)?;
        }
        let answered = delays.values().sum::<usize>();
        let within = |percent: usize| {
            let mut before = 0;
            let mut last = 0;
            for (&delay, &times) in &delays {
                threads::preemption_point();
                if before * 100 >= answered * percent {
                    break;
                }
                (before, last) = (before + times, delay);
            }
            timer::instant(last).as_nanos() / 1000
        };
        say!(
            "mayfly: {} VMs have answered {answered} of {all} requests in {seconds} s: half of them within {} us, 99 % within {} us, all within {} us",
            clients.len(),
            within(50),
            within(99),
            within(100)
        );
        say_memory(name, &clients);
        Ok(())
    }
}

/// Prints what these VMs have on average.
fn say_memory(name: &str, clients: &[Client]) {
    let (mut pages, mut chunks, mut own, mut running) = (0, 0, 0, 0);
    for Client { machine, .. } in clients {
        pages += machine.frames() * 4;
        if let Some(worlds) = machine.worlds() {
            let used = |share: Option<&Arc<Share>>| share.map_or(0, |share| share.used());
            own += used(worlds.run.share());
            chunks += used(worlds.memory.share());
        }
        running += u64::from(machine.is_in_run());
        threads::preemption_point();
    }
    let count = clients.len() as u64;
    let Possession { frames, bytes } = Possession::now();
    let kib = |chunks: u64| chunks * (CHUNK_BYTES >> 10) / count;
    say!(
        "mayfly: of {count} VMs {name}, {running} run; each has {} KiB of pages, in {} KiB with their tables, and {} KiB of stacks and tables of stage 2; {} KiB of the machine are free, with what the heap has grown by, and {} KiB of heap in use",
        pages / count,
        kib(chunks),
        kib(own),
        frames * 4,
        bytes >> 10
    );
}
