//! Grace periods as Linux v6.18 has them, to be measured beside ours.
//!
//! This module models *when* things happen. *Whether* a reader is still inside is asked of the same records as always,
//! so the domain is as safe as any. The model is derived from the behaviour of `kernel/rcu/srcutree.c`, by function:
//!
//! - `srcu_gp_start_if_needed`, `srcu_funnel_gp_start`: a callback, and a synchroniser, which is a callback that wakes
//!   its caller, asks for the first grace period that has not begun (`rcu_seq_snap`). An idle domain starts one at once
//!   and arms its work item: after one jiffy if it is normal, without delay if it is expedited. An expedited request to
//!   a domain with a grace period under way only raises `needed_exp`; **the work item that is armed stays armed for the
//!   time that it was armed for** (`queue_delayed_work` on a pending item does nothing). This project is about that
//!   wait.
//! - `process_srcu`, `srcu_advance_state`: the work item makes two scans, with the flip between; a scan that finds
//!   readers is tried again after 5 us if the grace period is expedited, and else at the next step.
//! - `srcu_get_delay`: a step's delay is zero if an expedited request is pending, else one jiffy; plus the jiffies that
//!   the grace period has lasted beyond one; at most ten.
//! - `srcu_gp_end`: callbacks are invoked at once after an expedited grace period, and a jiffy later after a normal
//!   one; the next grace period begins right away if one is needed.
//! - `srcu_might_be_idle` (since v6.13 `srcu_should_expedite`): `synchronize_srcu` on a domain idle for 25 us is
//!   expedited. "Idle" is judged as on the boot CPU, on whose list a domain of less than 128 CPUs has its callbacks;
//!   elsewhere they do not count.
//! - `srcu_barrier`: a callback behind all others, for the same grace period.
//! - A timer never fires early, so one armed for `n` jiffies fires at the tick that ends jiffy `n` from now, between
//!   `n` and `n + 1` jiffies later (`calc_index` in `kernel/time/timer.c`).
//!
//! Left out: the tree of nodes for large machines, and everything about boot. There are no bounds, as there are none in
//! Linux.

mod queue;
pub(crate) mod state;
mod waiter;

use core::mem::ManuallyDrop;

use mayfly_platform::sync::spin_loop;
use mayfly_platform::time::Instant;

use self::state::{
    Due, EXPEDITE_HOLDOFF, IDLE, LinuxPace, NANOS_PER_SECOND, RETRY_DELAY, SCAN1, SCAN2, STATE,
    max_nodelay, snap,
};
use self::waiter::Waiter;
use crate::callback::{Callback, Chain, Finally};
use crate::domain::Domain;
use crate::runners::Runner;

impl LinuxPace {
    /// `call_srcu`, and its expedited form. Returns the sequence number that `callback`, if any, waits for.
    pub(crate) fn call(&self, domain: &Domain, callback: Option<Callback>, expedited: bool) -> u64 {
        let jiffies = self.jiffies(domain);
        let mut state = self.state.lock(domain.world().platform());
        let seq = snap(state.seq);
        if let Some(callback) = callback {
            // Its readers may have it: a panic leaks it.
            let callback = ManuallyDrop::new(callback);
            domain.backlog.add_unbounded(callback.bytes());
            state.queue.push(ManuallyDrop::into_inner(callback), seq);
        }
        state.needed = state.needed.max(seq);
        if expedited {
            state.needed_exp = state.needed_exp.max(seq);
        }
        if state.seq & STATE == IDLE {
            state.start(jiffies);
            let delay = state.delay(self.hz, jiffies).min(1);
            state.arm_work(jiffies, delay);
        }
        seq
    }

    /// `synchronize_srcu`, and its expedited form.
    pub(crate) fn synchronize(&self, domain: &crate::Srcu, expedited: bool) {
        let inner = domain.inner();
        let expedited = expedited || self.might_be_idle(inner);
        let waiter = Waiter::new();
        // SAFETY: the waiter outlives the callback, see `Waiter::wait`.
        let callback = unsafe { waiter.callback() };
        self.call(inner, Some(callback), expedited);
        domain.want_worker();
        waiter.wait(inner);
    }

    /// `srcu_barrier`
    pub(crate) fn barrier(&self, domain: &crate::Srcu) {
        let inner = domain.inner();
        let waiter = Waiter::new();
        {
            let mut state = self.state.lock(inner.world().platform());
            let Some(seq) = state.queue.last_seq() else {
                drop(state);
                // What is not queued any more may still be running.
                return inner.wait_for_runners();
            };
            // SAFETY: the waiter outlives the callback, see `Waiter::wait`.
            let callback = unsafe { waiter.callback() };
            inner.backlog.add_unbounded(callback.bytes());
            state.queue.push(callback, seq);
        }
        domain.want_worker();
        waiter.wait(inner);
    }

    /// `poll_state_synchronize_srcu`
    pub(crate) fn is_done(&self, domain: &Domain, seq: u64) -> bool {
        self.state.lock(domain.world().platform()).seq >= seq
    }

    /// Whether a grace period is under way or needed, or a callback queued.
    pub(crate) fn is_busy(&self, domain: &Domain) -> bool {
        let state = self.state.lock(domain.world().platform());
        state.next() != Due::Unarmed || !state.queue.is_empty()
    }

    /// When something is due next.
    pub(crate) fn next(&self, domain: &Domain) -> Instant {
        let state = self.state.lock(domain.world().platform());
        self.instant(state.next())
    }

    /// Runs what is due. Called by the worker alone, one turn at a time. Returns when something is due next.
    pub(crate) fn work(&self, domain: &Domain) -> Instant {
        loop {
            let now = self.jiffies(domain);
            let mut state = self.state.lock(domain.world().platform());
            if state.work.is_due(now) {
                state.work = Due::Unarmed;
                drop(state);
                self.process(domain);
            } else if state.invoke_timer.is_due(now) {
                state.invoke_timer = Due::Unarmed;
                state.invoke = Due::Now;
            } else if state.invoke.is_due(now) {
                state.invoke = Due::Unarmed;
                drop(state);
                self.invoke(domain);
            } else {
                return self.instant(state.next());
            }
        }
    }

    /// Everything queued, for when no reader can be left.
    pub(crate) fn take_all(&self, domain: &Domain) -> Chain {
        self.state.lock(domain.world().platform()).queue.take_until(u64::MAX).callbacks
    }

    /// `process_srcu`
    fn process(&self, domain: &Domain) {
        self.advance(domain);
        let jiffies = self.jiffies(domain);
        let mut state = self.state.lock(domain.world().platform());
        let mut delay = state.delay(self.hz, jiffies);
        if delay > 0 {
            state.rescheduled.1 = 0;
        } else if state.rescheduled.0 == jiffies {
            state.rescheduled.1 += 1;
            if state.rescheduled.1 > max_nodelay(self.hz) {
                delay = 1;
            }
        } else {
            state.rescheduled = (jiffies, 1);
        }
        state.reschedule(jiffies, delay);
    }

    /// `srcu_advance_state`
    fn advance(&self, domain: &Domain) {
        let jiffies = self.jiffies(domain);
        let scan = {
            let mut state = self.state.lock(domain.world().platform());
            if state.seq & STATE == IDLE {
                if state.seq >= state.needed {
                    return;
                }
                state.start(jiffies);
            }
            if state.seq & STATE == SCAN1 {
                // The first scan looks at the counter that was flipped away from last time, which is empty but for
                // stragglers; the flip then separates the readers that this grace period waits for from those that it
                // does not. Sampling is that separation here.
                state.scan = Some(domain.snapshot());
                state.seq = (state.seq & !STATE) | SCAN2;
                state.nodelay = 0;
            }
            state.scan.unwrap_or(0)
        };
        if self.try_check_zero(domain, scan) {
            self.end(domain);
        }
    }

    /// `try_check_zero`: looks twice, and once more if a thread is in a hurry.
    fn try_check_zero(&self, domain: &Domain, scan: u64) -> bool {
        let jiffies = self.jiffies(domain);
        let urgent = self.state.lock(domain.world().platform()).delay(self.hz, jiffies) == 0;
        for _ in 0..=u32::from(urgent) {
            if domain.advance(scan) {
                return true;
            }
            let retry = domain.world().now().as_nanos() + RETRY_DELAY;
            while domain.world().now().as_nanos() < retry {
                spin_loop();
            }
        }
        domain.advance(scan)
    }

    /// `srcu_gp_end`
    fn end(&self, domain: &Domain) {
        let jiffies = self.jiffies(domain);
        let mut state = self.state.lock(domain.world().platform());
        let delay = u64::from(state.seq >= state.needed_exp);
        state.last_end = domain.world().now();
        state.nodelay = 0;
        state.scan = None;
        state.seq = (state.seq | STATE) + 1;
        state.needed_exp = state.needed_exp.max(state.seq);
        state.arm_invoke(jiffies, delay);
        if state.seq < state.needed {
            state.start(jiffies);
            state.reschedule(jiffies, 0);
        }
    }

    /// `srcu_invoke_callbacks`
    fn invoke(&self, domain: &Domain) {
        let _after = Finally(|| {
            domain.notify();
            let mut state = self.state.lock(domain.world().platform());
            let seq = state.seq & !STATE;
            if state.queue.first_seq().is_some_and(|first| first <= seq) {
                state.invoke = Due::Now;
            }
        });
        // Counted before anything is taken out: a barrier that finds the queue empty finds this.
        let runner = Runner::new(domain.world().context());
        // SAFETY: it has ended when it goes.
        unsafe { domain.gate().runners.begin(&runner) };
        let ready = {
            let mut state = self.state.lock(domain.world().platform());
            let seq = state.seq & !STATE;
            state.queue.take_until(seq)
        };
        domain.run_piece(ready, &runner);
    }

    /// `srcu_might_be_idle`
    fn might_be_idle(&self, domain: &Domain) -> bool {
        let now = domain.world().now();
        let state = self.state.lock(domain.world().platform());
        state.queue.is_empty()
            && now.as_nanos() >= state.last_end.as_nanos() + EXPEDITE_HOLDOFF
            && state.seq >= state.needed
    }

    fn jiffies(&self, domain: &Domain) -> u64 {
        let now = u128::from(domain.world().now().as_nanos());
        u64::try_from(now * u128::from(self.hz) / u128::from(NANOS_PER_SECOND)).unwrap_or(u64::MAX)
    }

    /// When a work item that is armed for `due` is to run.
    fn instant(&self, due: Due) -> Instant {
        match due {
            Due::Unarmed => Instant::NEVER,
            Due::Now => Instant::from_nanos(0),
            Due::Jiffy(jiffy) => {
                let nanos = u128::from(jiffy) * u128::from(NANOS_PER_SECOND);
                Instant::from_nanos(
                    u64::try_from(nanos.div_ceil(u128::from(self.hz))).unwrap_or(u64::MAX),
                )
            }
        }
    }
}
