//! What part of a processor VMs have, in each window of 500 ms.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::bare::processor::timer;
use crate::bare::threads::Account;
use crate::bare::threads::console::say;
use crate::bare::vm::Machine;

/// How often in a second the accounts are looked at. A window begins at each look.
const STEPS: u64 = 40;

/// Measures for so many seconds what part of a processor each VM has, and prints it. `pass` lets time pass until a moment.
///
/// # Errors
///
/// Those of `pass`.
pub(super) fn measure<E>(
    machines: &[Arc<Machine>],
    seconds: u64,
    mut pass: impl FnMut(u64) -> Result<(), E>,
) -> Result<(), E> {
    let mut windows = Windows::new(machines.iter().map(|machine| &machine.account));
    for step in 1..=seconds * STEPS {
        pass(windows.begun + timer::frequency() * step / STEPS)?;
        windows.look();
    }
    for (machine, (least, most)) in machines.iter().zip(windows.bounds()) {
        say!(
            "mayfly: {} had {least} to {most} thousandths of a CPU in each 500 ms",
            machine.plan.name
        );
    }
    Ok(())
}

/// The windows of some accounts.
struct Windows {
    accounts: Vec<Windowed>,
    begun: u64,
}

struct Windowed {
    account: Arc<Account>,
    /// What it had spent, and when, at each of the last looks.
    looks: VecDeque<(u64, u64)>,
    least: u64,
    most: u64,
}

impl Windows {
    /// Those of `accounts`, from now on.
    fn new<'a>(accounts: impl Iterator<Item = &'a Arc<Account>>) -> Self {
        let windowed = |account: &Arc<Account>| Windowed {
            account: Arc::clone(account),
            looks: VecDeque::from([account.spent()]),
            least: u64::MAX,
            most: 0,
        };
        Self { accounts: accounts.map(windowed).collect(), begun: timer::ticks() }
    }

    /// Looks at the accounts.
    fn look(&mut self) {
        for it in &mut self.accounts {
            let (spent, now) = it.account.spent();
            it.looks.push_back((spent, now));
            // The last look at which the window is long enough, or longer, where this thread was late.
            let is_whole = |&(_, at): &(u64, u64)| (now - at) * 2 >= timer::frequency();
            while it.looks.get(1).is_some_and(is_whole) {
                it.looks.pop_front();
            }
            if let Some((before, at)) = it.looks.front().copied().filter(is_whole) {
                let part = (spent - before) * 1000 / (now - at);
                it.least = it.least.min(part);
                it.most = it.most.max(part);
            }
        }
    }

    /// The least and the most that each had in a window, in thousandths of a processor.
    fn bounds(&self) -> impl Iterator<Item = (u64, u64)> {
        self.accounts.iter().map(|it| (it.least, it.most))
    }
}
