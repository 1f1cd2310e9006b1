//! Every execution of the protocol's two store bufferings on machines that reorder memory accesses: what loom cannot
//! model, because the reader's side has no fence.
//!
//! A machine executes the instructions of a thread in any order that its rules allow, each at once for everybody
//! (memory is multi-copy atomic, as x86-TSO and Armv8 are). [`Machine::Tso`] lets a load pass an earlier store, which
//! is what a store buffer does. [`Machine::Weak`] lets any access pass any other one but for fences, acquire, release,
//! dependencies, and accesses to the same location: more than Armv8 does.
//!
//! `membarrier(2)` is taken apart as in `kernel/sched/membarrier.c`: a fence, an interrupt to the reader's CPU if that
//! runs a thread of the process, waiting until it was handled, a fence. An interrupt is taken between two instructions:
//! all before have been executed and none after. The reader's thread may be switched out and in again anywhere, with
//! the scheduler's fences (`Documentation/scheduler/membarrier.rst`).
//!
//! Each claim stands beside the same with a part left out, which must be found to fail.

#![cfg(not(any(mayfly_loom, mayfly_shuttle)))]

use std::collections::HashSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Machine {
    Tso,
    Weak,
}

/// Where a value is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The published version: 0, then 1.
    Version,
    /// Whether version 0 was freed.
    Freed,
    /// The reader's word: odd while it is inside.
    Section,
    /// Somebody sleeps until the reader leaves.
    Awaited,
    /// The reader's CPU runs a thread of the process (`rq->curr`).
    Current,
    /// The reader is registered.
    Live,
}

const PLACES: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Store(Place, u8),
    /// A store that no earlier access may come after.
    Release(Place, u8),
    /// Into the register of the thread that this place has.
    Load(Place),
    /// A load that no later access may come before.
    Acquire(Place),
    /// Uses what was loaded from `Version`: finds out whether it is freed.
    Use,
    /// Waits until the section that was loaded from `Section`, if it was one, is over.
    AwaitSection,
    Fence,
    /// Interrupts the reader's CPU if `Current` was loaded as set.
    Interrupt,
    AwaitInterrupt,
}

use Place::{Awaited, Current, Freed, Live, Section, Version};
use Step::{Acquire, AwaitInterrupt, AwaitSection, Fence, Interrupt, Load, Release, Store, Use};

impl Step {
    fn place(self) -> Option<Place> {
        match self {
            Store(place, _) | Release(place, _) | Load(place) | Acquire(place) => Some(place),
            Use => Some(Freed),
            AwaitSection => Some(Section),
            Fence | Interrupt | AwaitInterrupt => None,
        }
    }

    fn is_store(self) -> bool {
        matches!(self, Store(..) | Release(..))
    }

    fn depends_on(self, earlier: Self) -> bool {
        match self {
            Use => matches!(earlier, Load(Version) | Acquire(Version)),
            AwaitSection => matches!(earlier, Load(Section) | Acquire(Section)),
            Interrupt => matches!(earlier, Load(Current)),
            AwaitInterrupt => earlier == Interrupt,
            _ => false,
        }
    }
}

impl Machine {
    /// Whether `earlier` is executed before `later`, which comes after it in the program.
    fn keeps(self, earlier: Step, later: Step) -> bool {
        if earlier == Fence || later == Fence || later.depends_on(earlier) {
            return true;
        }
        if earlier.place().is_some() && earlier.place() == later.place() {
            return true;
        }
        match self {
            Machine::Tso => !earlier.is_store() || later.is_store(),
            // Waiting for a section to be over ends with an acquire, as it is a loop around one.
            Machine::Weak => {
                matches!(later, Release(..)) || matches!(earlier, Acquire(_) | AwaitSection)
            }
        }
    }
}

const READER: usize = 0;
const UPDATER: usize = 1;

/// A state that an execution may be in.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    memory: [u8; PLACES],
    /// What each thread has loaded from each place last.
    loaded: [[u8; PLACES]; 2],
    /// The steps that each thread has executed, a bit each.
    executed: [u32; 2],
    interrupted: bool,
    used_after_free: bool,
}

/// What became of the executions of two programs.
struct Outcome {
    ends: Vec<State>,
    states: usize,
}

impl Outcome {
    fn uses_after_free(&self) -> usize {
        self.ends.iter().filter(|end| end.used_after_free).count()
    }

    /// The updater found the reader inside and would sleep; the reader did not find that it is awaited.
    fn lost_wake_ups(&self) -> usize {
        let lost = |end: &&State| {
            end.loaded[UPDATER][Section as usize] % 2 == 1
                && end.loaded[READER][Awaited as usize] == 0
        };
        self.ends.iter().filter(lost).count()
    }
}

/// Executes both programs in every way that `machine` can.
fn explore(machine: Machine, programs: [&[Step]; 2]) -> Outcome {
    let mut memory = [0; PLACES];
    memory[Current as usize] = 1;
    if programs[READER].contains(&Load(Awaited)) {
        // The reader that is to leave is inside.
        memory[Section as usize] = 1;
    }
    let begin = State {
        memory,
        loaded: [[0; PLACES]; 2],
        executed: [0; 2],
        interrupted: false,
        used_after_free: false,
    };
    let mut seen = HashSet::from([begin.clone()]);
    let mut todo = vec![begin];
    let mut ends = Vec::new();
    while let Some(state) = todo.pop() {
        let mut add = |next: State| {
            if seen.insert(next.clone()) {
                todo.push(next);
            }
        };
        let mut moved = false;
        // An interrupt is taken where a prefix of the program has been executed.
        let executed = state.executed[READER];
        if state.interrupted && executed & (executed + 1) == 0 {
            moved = true;
            add(State { interrupted: false, ..state.clone() });
        }
        for thread in [READER, UPDATER] {
            for index in 0..programs[thread].len() {
                if let Some(next) = execute(machine, programs[thread], thread, index, &state) {
                    moved = true;
                    add(next);
                }
            }
        }
        if !moved {
            let all = |thread: usize| (1_u32 << programs[thread].len()) - 1;
            assert_eq!(state.executed, [all(READER), all(UPDATER)], "an execution is stuck");
            ends.push(state);
        }
    }
    Outcome { ends, states: seen.len() }
}

/// The state after step `index` of `thread`, if that can be executed now.
fn execute(
    machine: Machine,
    program: &[Step],
    thread: usize,
    index: usize,
    state: &State,
) -> Option<State> {
    let done = |step: usize| state.executed[thread] & (1 << step) != 0;
    let waits = |step: usize| !done(step) && machine.keeps(program[step], program[index]);
    if done(index) || (0..index).any(waits) {
        return None;
    }
    let mut next = state.clone();
    next.executed[thread] |= 1 << index;
    let loaded = &mut next.loaded[thread];
    match program[index] {
        Store(place, value) | Release(place, value) => next.memory[place as usize] = value,
        Load(place) | Acquire(place) => loaded[place as usize] = state.memory[place as usize],
        Use => {
            let old = loaded[Version as usize] == 0;
            next.used_after_free |= old && state.memory[Freed as usize] == 1;
        }
        AwaitSection => {
            let section = loaded[Section as usize];
            if section % 2 == 1 && state.memory[Section as usize] == section {
                return None;
            }
        }
        Fence => {}
        Interrupt => next.interrupted = loaded[Current as usize] == 1,
        AwaitInterrupt => {
            if state.interrupted {
                return None;
            }
        }
    }
    Some(next)
}

/// How often the first version was freed under a reader that registers meanwhile, by an updater that found no reader
/// registered and so passed no heavy barrier.
fn failures_to_register(machine: Machine, after_registering: &[Step]) -> usize {
    let reader = [&[Store(Live, 1)], after_registering, &reading(&[])].concat();
    let mut outcome = explore(machine, [&reader, &replacing(&[Fence, Acquire(Live)])]);
    outcome.ends.retain(|end| end.loaded[UPDATER][Live as usize] == 0);
    assert!(!outcome.ends.is_empty());
    outcome.uses_after_free()
}

/// Twice: enter, \[light\], load, use, leave.
fn reading(light: &[Step]) -> Vec<Step> {
    let mut program = Vec::new();
    for section in [1, 3] {
        program.push(Store(Section, section));
        program.extend(light);
        program.extend([Acquire(Version), Use, Release(Section, section + 1)]);
    }
    program
}

/// Replace, \[heavy\], look for the reader, wait for it, free.
fn replacing(heavy: &[Step]) -> Vec<Step> {
    let mut program = vec![Release(Version, 1)];
    program.extend(heavy);
    program.extend([Acquire(Section), AwaitSection, Store(Freed, 1)]);
    program
}

/// Leave, \[light\], look whether somebody sleeps until then.
fn leaving(light: &[Step]) -> Vec<Step> {
    let mut program = vec![Release(Section, 2)];
    program.extend(light);
    program.push(Load(Awaited));
    program
}

/// Ask to be called, \[heavy\], look whether the reader is inside still.
fn going_to_sleep(heavy: &[Step]) -> Vec<Step> {
    let mut program = vec![Store(Awaited, 1)];
    program.extend(heavy);
    program.push(Acquire(Section));
    program
}

/// A switch to a thread of another process and back, as the scheduler makes it.
const SWITCH: [Step; 4] = [Fence, Store(Current, 0), Store(Current, 1), Fence];
const MEMBARRIER: [Step; 5] = [Fence, Load(Current), Interrupt, AwaitInterrupt, Fence];

/// `program` as it is, and with `switch` at each place.
fn with_switch(program: &[Step], switch: &[Step]) -> Vec<Vec<Step>> {
    let switched_at = |at: usize| [&program[..at], switch, &program[at..]].concat();
    std::iter::once(program.to_vec()).chain((0..=program.len()).map(switched_at)).collect()
}

/// Uses after free, and lost wake-ups, of readers with `light` and updaters with `heavy`, in all executions on
/// `machine`.
fn failures(machine: Machine, light: &[Step], heavy: &[Step], switch: &[Step]) -> (usize, usize) {
    let (mut freed, mut lost, mut states) = (0, 0, 0);
    for reader in with_switch(&reading(light), switch) {
        let outcome = explore(machine, [&reader, &replacing(heavy)]);
        freed += outcome.uses_after_free();
        states += outcome.states;
    }
    for reader in with_switch(&leaving(light), switch) {
        let outcome = explore(machine, [&reader, &going_to_sleep(heavy)]);
        lost += outcome.lost_wake_ups();
        states += outcome.states;
    }
    println!("{machine:?}: {states} states, {freed} uses after free, {lost} lost wake-ups");
    (freed, lost)
}

#[test]
fn a_reader_without_a_fence_and_membarrier_never_fail() {
    for machine in [Machine::Tso, Machine::Weak] {
        assert_eq!(failures(machine, &[], &MEMBARRIER, &SWITCH), (0, 0), "{machine:?}");
    }
}

#[test]
fn a_fence_on_either_side_never_fails() {
    for machine in [Machine::Tso, Machine::Weak] {
        assert_eq!(failures(machine, &[Fence], &[Fence], &[]), (0, 0), "{machine:?}");
    }
}

#[test]
fn without_the_interrupt_both_fail() {
    for machine in [Machine::Tso, Machine::Weak] {
        let (freed, lost) = failures(machine, &[], &[Fence], &[]);
        assert!(freed > 0 && lost > 0, "{machine:?}");
    }
}

#[test]
fn without_the_updaters_fence_both_fail() {
    for machine in [Machine::Tso, Machine::Weak] {
        let (freed, lost) = failures(machine, &[Fence], &[], &[]);
        assert!(freed > 0 && lost > 0, "{machine:?}");
    }
}

#[test]
fn without_the_fence_before_the_interrupt_both_fail() {
    for machine in [Machine::Tso, Machine::Weak] {
        let (freed, lost) = failures(machine, &[], &MEMBARRIER[1..], &SWITCH);
        assert!(freed > 0 && lost > 0, "{machine:?}");
    }
}

#[test]
fn without_the_fence_after_the_interrupt_both_fail_where_loads_are_reordered() {
    let heavy = &MEMBARRIER[..4];
    assert_eq!(failures(Machine::Tso, &[], heavy, &SWITCH), (0, 0));
    let (freed, lost) = failures(Machine::Weak, &[], heavy, &SWITCH);
    assert!(freed > 0 && lost > 0);
}

#[test]
fn without_the_schedulers_fences_a_reader_that_was_switched_out_fails() {
    for machine in [Machine::Tso, Machine::Weak] {
        let (freed, lost) = failures(machine, &[], &MEMBARRIER, &SWITCH[1..3]);
        assert!(freed > 0 && lost > 0, "{machine:?}");
    }
}

#[test]
fn a_fence_at_registration_is_what_lets_an_updater_that_finds_nobody_go_without_membarrier() {
    for machine in [Machine::Tso, Machine::Weak] {
        assert_eq!(failures_to_register(machine, &[Fence]), 0, "{machine:?}");
        assert!(failures_to_register(machine, &[]) > 0, "{machine:?}");
    }
}
