//! A machine of several processors that run threads by [`Turns`], as the hypervisor does, in time that is made up: a
//! tick is a microsecond.

use mayfly_hypervisor::turns::{Share, Turn, Turns};

/// Ticks of a second.
pub(crate) const SECOND: u64 = 1_000_000;
/// Ticks of a millisecond.
pub(crate) const MILLISECOND: u64 = SECOND / 1000;
/// In which parts the time of VMs is kept.
const BIN: u64 = 10 * MILLISECOND;

/// What a vCPU does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Habit {
    /// It never sleeps.
    Spins,
    /// It runs so long, and then sleeps so long.
    Alternates(u64, u64),
    /// It runs until this long before its slice ends, and then sleeps so long.
    DucksTick(u64, u64),
    /// It sleeps until then, and then never again.
    Begins(u64),
}

/// A VM.
#[derive(Clone, Debug)]
pub(crate) struct Vm {
    pub(crate) weight: u32,
    /// In hundredths of a processor.
    pub(crate) cap: Option<u32>,
    pub(crate) vcpus: Vec<Habit>,
    /// The VM that is charged for all that this one has: it works for that.
    pub(crate) serves: Option<usize>,
}

impl Vm {
    /// One of `count` vCPUs that spin.
    pub(crate) fn spinning(count: usize) -> Self {
        Self { weight: Share::WEIGHT, cap: None, vcpus: vec![Habit::Spins; count], serves: None }
    }

    pub(crate) fn weight(self, weight: u32) -> Self {
        Self { weight, ..self }
    }

    pub(crate) fn cap(self, percent: u32) -> Self {
        Self { cap: Some(percent), ..self }
    }

    /// The most processors that it can use if its vCPUs spin.
    pub(crate) fn most(&self) -> f64 {
        let cap = self.cap.map_or(f64::INFINITY, |percent| f64::from(percent) / 100.0);
        cap.min(self.vcpus.len() as f64)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Asleep(u64),
    Waits,
    Runs,
}

struct Thread {
    turn: Turn,
    vm: usize,
    habit: Habit,
    state: State,
    /// How long it still runs before it sleeps.
    left: u64,
    /// When it woke, if it has not run since.
    woken: Option<u64>,
}

/// What was measured.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// What each VM had in each [`BIN`].
    bins: Vec<Vec<u64>>,
    /// How long each waking vCPU of a VM waited for a processor.
    pub(crate) wakes: Vec<Vec<u64>>,
    /// What each vCPU of each VM had.
    pub(crate) vcpus: Vec<Vec<u64>>,
    /// The share's own account.
    pub(crate) spent: Vec<u64>,
}

impl Outcome {
    /// The processors that a VM had in each window of 500 ms that begins at `from` or later.
    pub(crate) fn windows(&self, vm: usize, from: u64) -> Vec<f64> {
        let bins = &self.bins[vm][(from / BIN) as usize..];
        let length = 500 * MILLISECOND;
        bins.windows((length / BIN) as usize)
            .map(|window| window.iter().sum::<u64>() as f64 / length as f64)
            .collect()
    }

    /// All that a VM had, in ticks.
    pub(crate) fn total(&self, vm: usize) -> u64 {
        self.bins[vm].iter().sum()
    }

    fn add(&mut self, vm: usize, from: u64, to: u64) {
        let mut at = from;
        while at < to {
            let bin = (at / BIN) as usize;
            let end = to.min((at / BIN + 1) * BIN);
            if self.bins[vm].len() <= bin {
                self.bins[vm].resize(bin + 1, 0);
            }
            self.bins[vm][bin] += end - at;
            at = end;
        }
    }
}

struct Machine {
    turns: Turns,
    /// All are there before the first one is queued, and stay where they are.
    threads: Vec<Thread>,
    /// The thread that each processor runs.
    processors: Vec<Option<usize>>,
    /// The share that is charged for what each VM has, if not its own.
    charged: Vec<Option<*mut Share>>,
    now: u64,
    outcome: Outcome,
}

/// Runs VMs for so many ticks on so many processors.
pub(crate) fn run(processors: usize, vms: &[Vm], ticks: u64) -> Outcome {
    let mut shares: Vec<Share> =
        vms.iter().map(|vm| Share::new(vm.weight, vm.cap, SECOND)).collect();
    let mut machine = Machine {
        turns: Turns::new(),
        threads: Vec::new(),
        processors: vec![None; processors],
        charged: Vec::new(),
        now: 0,
        outcome: Outcome::default(),
    };
    machine.turns.patience().set_processors(processors as u64);
    for share in &mut shares {
        machine.turns.patience().add(share);
    }
    let pointers: Vec<*mut Share> = shares.iter_mut().map(|share| &raw mut *share).collect();
    machine.charged = vms.iter().map(|vm| vm.serves.map(|other| pointers[other])).collect();
    for (number, vm) in vms.iter().enumerate() {
        machine.outcome.bins.push(vec![0; ticks.div_ceil(BIN) as usize]);
        machine.outcome.wakes.push(Vec::new());
        machine.outcome.vcpus.push(vec![0; vm.vcpus.len()]);
        let share = pointers[number];
        for &habit in &vm.vcpus {
            // SAFETY: the shares are there until the end, and reached by these pointers alone.
            unsafe { (*share).add_thread() };
            let begins = if let Habit::Begins(at) = habit { at } else { 0 };
            machine.threads.push(Thread {
                turn: Turn::new(share),
                vm: number,
                habit,
                state: State::Asleep(begins),
                left: 0,
                woken: None,
            });
        }
    }
    machine.go_on_until(ticks);
    for processor in 0..processors {
        machine.leave(processor);
    }
    for pointer in pointers {
        // SAFETY: the shares are still there.
        machine.outcome.spent.push(unsafe { (*pointer).spent() });
    }
    let longest = machine.turns.patience().longest();
    assert!(longest <= 100, "a thread has waited for {longest} % of its bound: {vms:?}");
    machine.outcome
}

impl Machine {
    fn turn(&mut self, thread: usize) -> *mut Turn {
        &raw mut self.threads[thread].turn
    }

    fn find(&self, turn: *mut Turn) -> usize {
        let is_it = |thread: &Thread| core::ptr::eq(&raw const thread.turn, turn);
        self.threads.iter().position(is_it).expect("a thread that was queued")
    }

    fn go_on_until(&mut self, end: u64) {
        loop {
            self.settle();
            let next = self.next_event();
            if next >= end {
                self.now = end;
                return;
            }
            assert!(next > self.now, "time goes on");
            self.now = next;
        }
    }

    /// The next moment at which something happens by itself.
    fn next_event(&self) -> u64 {
        let asleep = self.threads.iter().filter_map(|thread| match thread.state {
            State::Asleep(until) => Some(until),
            _ => None,
        });
        let running = self.processors.iter().flatten().map(|&number| {
            let thread = &self.threads[number];
            (thread.turn.began() + thread.left).min(thread.turn.end())
        });
        asleep.chain(running).chain([self.turns.next_event()]).min().unwrap_or(u64::MAX)
    }

    /// Does all that is due now.
    fn settle(&mut self) {
        self.turns.is_due(self.now);
        for processor in 0..self.processors.len() {
            let Some(number) = self.processors[processor] else { continue };
            let thread = &self.threads[number];
            if thread.left <= self.now - thread.turn.began() {
                self.sleep(processor, number);
            } else if thread.turn.end() <= self.now {
                self.end_slice(processor, number);
            }
        }
        for number in 0..self.threads.len() {
            if matches!(self.threads[number].state, State::Asleep(until) if until <= self.now) {
                self.wake(number);
            }
        }
        for processor in 0..self.processors.len() {
            if self.processors[processor].is_none() {
                self.take(processor);
            }
        }
    }

    fn leave(&mut self, processor: usize) {
        let Some(number) = self.processors[processor] else { return };
        self.account(number);
        let turn = self.turn(number);
        // SAFETY: it runs.
        unsafe { self.turns.stop(turn, self.now) };
        self.processors[processor] = None;
    }

    /// Counts what a thread has had since it began.
    fn account(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        let (vm, began) = (thread.vm, thread.turn.began());
        thread.left = thread.left.saturating_sub(self.now - began);
        self.outcome.add(vm, began, self.now);
        let first = self.threads.iter().position(|other| other.vm == vm).expect("itself");
        self.outcome.vcpus[vm][number - first] += self.now - began;
        if let Some(share) = self.charged[vm] {
            let turn = self.turn(number);
            // SAFETY: it runs, and shares are there until the end.
            unsafe { self.turns.bill(turn, share, self.now - began) };
        }
    }

    fn sleep(&mut self, processor: usize, number: usize) {
        let length = match self.threads[number].habit {
            Habit::Alternates(_, length) | Habit::DucksTick(_, length) => length,
            Habit::Spins | Habit::Begins(_) => unreachable!("it does not sleep"),
        };
        self.leave(processor);
        self.threads[number].state = State::Asleep(self.now + length);
    }

    fn end_slice(&mut self, processor: usize, number: usize) {
        self.account(number);
        let turn = self.turn(number);
        // SAFETY: it runs.
        if unsafe { self.turns.prolong(turn, self.now) } {
            return;
        }
        self.preempt(processor, number);
    }

    fn preempt(&mut self, processor: usize, number: usize) {
        self.threads[number].state = State::Waits;
        let turn = self.turn(number);
        // SAFETY: it runs.
        let next = unsafe { self.turns.exchange(turn, self.now) };
        self.go_on(processor, next);
    }

    fn wake(&mut self, number: usize) {
        let thread = &mut self.threads[number];
        (thread.state, thread.woken) = (State::Waits, Some(self.now));
        thread.left = match thread.habit {
            Habit::Alternates(length, _) => length,
            Habit::Spins | Habit::Begins(_) | Habit::DucksTick(..) => u64::MAX / 2,
        };
        let turn = self.turn(number);
        // SAFETY: it was asleep.
        unsafe { self.turns.wake(turn, self.now) };
        if let Some(idle) = self.processors.iter().position(Option::is_none) {
            return self.take(idle);
        }
        let precedence = |&at: &usize| {
            let runs = &raw const self.threads[self.processors[at].expect("none is idle")].turn;
            // SAFETY: the one waits, the other runs.
            unsafe { self.turns.precedence(turn, runs, self.now) }
        };
        let best = (0..self.processors.len()).max_by_key(precedence).expect("a processor");
        if precedence(&best) > 0 {
            let runs = self.processors[best].expect("none is idle");
            self.account(runs);
            self.preempt(best, runs);
        }
    }

    fn take(&mut self, processor: usize) {
        let next = self.turns.take(self.now);
        self.go_on(processor, next);
    }

    fn go_on(&mut self, processor: usize, next: Option<*mut Turn>) {
        self.processors[processor] = None;
        let Some(turn) = next else { return };
        let number = self.find(turn);
        self.processors[processor] = Some(number);
        let thread = &mut self.threads[number];
        assert_eq!(thread.state, State::Waits, "only threads that wait are taken");
        thread.state = State::Runs;
        if let Habit::DucksTick(before, _) = thread.habit {
            thread.left = (thread.turn.end() - self.now).saturating_sub(before).max(1);
        }
        if let Some(woken) = thread.woken.take() {
            self.outcome.wakes[thread.vm].push(self.now - woken);
        }
    }
}
