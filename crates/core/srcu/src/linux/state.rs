//! What a domain that is paced as Linux remembers, and the arithmetic of its delays. No step in this file looks at a
//! reader or waits.

use mayfly_platform::lock::Lock;
use mayfly_platform::time::Instant;

use super::queue::Queue;

/// `RCU_SEQ_STATE_MASK`: the low bits of a sequence number say how far its grace period is.
pub(super) const STATE: u64 = 3;
pub(super) const IDLE: u64 = 0;
pub(super) const SCAN1: u64 = 1;
pub(super) const SCAN2: u64 = 2;

/// `SRCU_INTERVAL`, in jiffies.
pub(super) const INTERVAL: u64 = 1;
/// `SRCU_MAX_INTERVAL`, in jiffies.
pub(super) const MAX_INTERVAL: u64 = 10;
/// `SRCU_DEFAULT_RETRY_CHECK_DELAY`, in nanoseconds.
pub(super) const RETRY_DELAY: u64 = 5_000;
/// `DEFAULT_SRCU_EXP_HOLDOFF`, in nanoseconds.
pub(super) const EXPEDITE_HOLDOFF: u64 = 25_000;

pub(super) const NANOS_PER_SECOND: u64 = 1_000_000_000;

pub(crate) struct LinuxPace {
    pub(super) hz: u64,
    pub(super) state: Lock<State>,
}

/// `struct srcu_usage`, as far as it decides when something happens. Sequence numbers are 64 bits and do not wrap.
pub(super) struct State {
    /// `srcu_gp_seq`: four times the grace periods that are over, plus the state of the present one.
    pub(super) seq: u64,
    /// `srcu_gp_seq_needed`
    pub(super) needed: u64,
    /// `srcu_gp_seq_needed_exp`
    pub(super) needed_exp: u64,
    /// `srcu_gp_start`, in jiffies.
    pub(super) start: u64,
    /// `srcu_last_gp_end`
    pub(super) last_end: Instant,
    /// `srcu_n_exp_nodelay`
    pub(super) nodelay: u64,
    /// `reschedule_jiffies` and `reschedule_count`
    pub(super) rescheduled: (u64, u64),
    /// The grace period of the engine that looks at the readers for the present one.
    pub(super) scan: Option<u64>,
    /// When the work item is armed for.
    pub(super) work: Due,
    /// When callback invocation is due.
    pub(super) invoke: Due,
    /// When the timer fires that makes callback invocation due.
    pub(super) invoke_timer: Due,
    /// Callbacks in order of arrival, each with the sequence number it waits for.
    pub(super) queue: Queue,
}

/// When a work item is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    Now,
    /// At the beginning of this jiffy.
    Jiffy(u64),
    Unarmed,
}

impl LinuxPace {
    /// A pace at `hz` jiffies a second, from `now` on.
    pub(crate) fn new(hz: u32, now: Instant) -> Self {
        Self {
            hz: u64::from(hz),
            state: Lock::new(State {
                seq: 0,
                needed: 0,
                needed_exp: 0,
                start: 0,
                last_end: now,
                nodelay: 0,
                rescheduled: (0, 0),
                scan: None,
                work: Due::Unarmed,
                invoke: Due::Unarmed,
                invoke_timer: Due::Unarmed,
                queue: Queue::new(),
            }),
        }
    }
}

impl State {
    /// `srcu_gp_start`
    pub(super) fn start(&mut self, jiffies: u64) {
        self.start = jiffies;
        self.nodelay = 0;
        self.seq += SCAN1;
    }

    /// `srcu_get_delay`, in jiffies.
    pub(super) fn delay(&mut self, hz: u64, jiffies: u64) -> u64 {
        let mut delay = if self.seq < self.needed_exp { 0 } else { INTERVAL };
        if self.seq & STATE != IDLE {
            delay += jiffies.saturating_sub(1).saturating_sub(self.start);
            if delay == 0 {
                self.nodelay += 1;
                if self.nodelay > max_nodelay_phase(hz) {
                    delay = 1;
                }
            }
        }
        delay.min(MAX_INTERVAL)
    }

    /// `srcu_reschedule`
    pub(super) fn reschedule(&mut self, jiffies: u64, delay: u64) {
        if self.seq >= self.needed && self.seq & STATE == IDLE {
            return;
        }
        if self.seq & STATE == IDLE {
            self.start(jiffies);
        }
        self.arm_work(jiffies, delay);
    }

    /// `queue_delayed_work`: an item that is armed stays armed for when it was.
    pub(super) fn arm_work(&mut self, jiffies: u64, delay: u64) {
        if self.work == Due::Unarmed {
            self.work = Due::after(jiffies, delay);
        }
    }

    /// `srcu_queue_delayed_work_on`, whose timer is reduced (`timer_reduce`): the earlier moment counts.
    pub(super) fn arm_invoke(&mut self, jiffies: u64, delay: u64) {
        match Due::after(jiffies, delay) {
            Due::Now => self.invoke = Due::Now,
            due => self.invoke_timer = self.invoke_timer.min(due),
        }
    }

    /// When something is due next.
    pub(super) fn next(&self) -> Due {
        self.work.min(self.invoke).min(self.invoke_timer)
    }
}

impl Due {
    fn after(jiffies: u64, delay: u64) -> Self {
        match delay {
            0 => Self::Now,
            // A whole jiffy more than asked for, so that a timer armed just before a tick does not fire early.
            delay => Self::Jiffy(jiffies + delay + 1),
        }
    }

    pub(super) fn is_due(self, jiffies: u64) -> bool {
        match self {
            Self::Unarmed => false,
            Self::Now => true,
            Self::Jiffy(jiffy) => jiffies >= jiffy,
        }
    }
}

/// `rcu_seq_snap`: the number that the first grace period that has not begun ends with.
pub(super) fn snap(seq: u64) -> u64 {
    (seq + 2 * STATE + 1) & !STATE
}

/// `SRCU_DEFAULT_MAX_NODELAY_PHASE`: the steps without delay that fit into a jiffy; 3 to 1000.
fn max_nodelay_phase(hz: u64) -> u64 {
    (2 * (NANOS_PER_SECOND / hz) / RETRY_DELAY).clamp(3, 1000)
}

/// `SRCU_DEFAULT_MAX_NODELAY`
pub(super) fn max_nodelay(hz: u64) -> u64 {
    max_nodelay_phase(hz).max(100)
}
