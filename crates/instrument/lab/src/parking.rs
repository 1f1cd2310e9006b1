//! vCPUs that stay out of the guest for a while, as one does whose VMM is busy with something else.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::patience::{LOOK, Look, until};

/// Where a vCPU waits that is to stay out.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Free,
    /// It is to park when it comes out next.
    Asked,
    Parked,
}

impl Parking {
    /// Has the vCPU park when it comes out.
    pub(crate) fn ask(&self) {
        *self.state() = State::Asked;
    }

    pub(crate) fn is_parked(&self) -> bool {
        *self.state() == State::Parked
    }

    /// Whether it is to park, or has.
    pub(crate) fn is_asked(&self) -> bool {
        *self.state() != State::Free
    }

    /// Has the vCPU go on.
    pub(crate) fn let_go(&self) {
        *self.state() = State::Free;
        self.changed.notify_all();
    }

    /// Waits until the vCPU is let go, if it is to park. Returns whether it was.
    pub(crate) fn park(&self) -> bool {
        let mut state = self.state();
        let is_asked = *state == State::Asked;
        if is_asked {
            *state = State::Parked;
            let is_parked = |state: &mut State| *state == State::Parked;
            drop(self.changed.wait_while(state, is_parked).unwrap_or_else(PoisonError::into_inner));
        }
        is_asked
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until all of these are parked, which were asked to. Each look begins with `first`.
pub(crate) fn until_parked<'a, I: Iterator<Item = &'a Parking>>(
    all: impl Fn() -> I,
    mut first: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    until(LOOK, "all vCPUs are parked that are to be", || {
        first()?;
        let left = all().filter(|parking| !parking.is_parked()).count();
        Ok(if left == 0 { Look::Break(()) } else { Look::Continue(left as u64) })
    })
}

#[cfg(test)]
mod tests {
    use std::thread::{scope, yield_now};

    use super::*;

    #[test]
    fn who_is_asked_parks_until_it_is_let_go_and_nobody_else_does() {
        let parking = Parking::default();
        assert!(!parking.park(), "nobody asked");
        parking.ask();
        scope(|scope| {
            let parked = scope.spawn(|| parking.park());
            while !parking.is_parked() {
                assert!(!parked.is_finished(), "it did not wait");
                yield_now();
            }
            parking.let_go();
            assert!(parked.join().unwrap());
        });
        assert!(!parking.is_asked());
    }
}
