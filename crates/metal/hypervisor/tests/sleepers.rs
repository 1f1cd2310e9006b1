//! The threads that sleep, beside a naive model of them.

use mayfly_hypervisor::sleepers::{Sleeper, Sleepers};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A thread sleeps for a word, and until a moment.
    Add(usize, u64),
    /// One that sleeps for a word is taken.
    Word(usize),
    /// One that is due is taken.
    Due(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let word = || (0..6_usize).prop_map(|word| 64 * word);
    let moment = prop_oneof![3 => 0..20_u64, 1 => Just(u64::MAX)];
    prop_oneof![
        2 => (word(), moment).prop_map(|(word, deadline)| Step::Add(word, deadline)),
        1 => word().prop_map(Step::Word),
        1 => (0..20_u64).prop_map(Step::Due),
    ]
}

/// A thread in the model: its word, its deadline, and what it is in [`Sleepers`].
type Asleep = (usize, u64, *mut Sleeper);

/// Takes one out of the model, which must be there.
fn remove(model: &mut Vec<Asleep>, taken: *mut Sleeper) -> Asleep {
    let at = model.iter().position(|(.., sleeper)| *sleeper == taken);
    model.remove(at.expect("a thread is taken that does not sleep"))
}

fn free(sleeper: *mut Sleeper) {
    // SAFETY: it was made of a box, and was taken.
    drop(unsafe { Box::from_raw(sleeper) });
}

proptest! {
    #[test]
    fn the_threads_that_are_taken_are_those_of_the_model(
        steps in prop::collection::vec(any_step(), 0..200),
    ) {
        let mut sleepers = Sleepers::new();
        let mut model: Vec<Asleep> = Vec::new();
        for step in steps {
            match step {
                Step::Add(word, deadline) => {
                    let sleeper = Box::into_raw(Box::new(Sleeper::new()));
                    // SAFETY: it stays until it is taken.
                    unsafe { sleepers.add(sleeper, word, deadline) };
                    model.push((word, deadline, sleeper));
                }
                Step::Word(word) => {
                    let oldest = model.iter().find(|asleep| asleep.0 == word).map(|asleep| asleep.2);
                    prop_assert_eq!(sleepers.has_one_for(word), oldest.is_some());
                    let taken = sleepers.take_for(word);
                    prop_assert_eq!(taken, oldest);
                    if let Some(taken) = taken {
                        free(remove(&mut model, taken).2);
                    }
                }
                Step::Due(now) => {
                    let first = model.iter().map(|asleep| asleep.1).min();
                    let taken = sleepers.take_due(now);
                    prop_assert_eq!(taken.is_some(), first.is_some_and(|first| first <= now));
                    if let Some(taken) = taken {
                        let (_, deadline, sleeper) = remove(&mut model, taken);
                        prop_assert_eq!(Some(deadline), first);
                        free(sleeper);
                    }
                }
            }
            let first = model.iter().map(|asleep| asleep.1).min();
            prop_assert_eq!(sleepers.next(), first.unwrap_or(u64::MAX));
        }
        for word in (0..6).map(|word| 64 * word) {
            while let Some(taken) = sleepers.take_for(word) {
                free(remove(&mut model, taken).2);
            }
        }
        prop_assert!(model.is_empty());
    }
}
