//! What a vCPU's write waits for, without the time in which the host had no processor for its thread.
//!
//! A stall is the CPU time of the vCPU's thread, from the fault until the write is made, plus what the thread waited for
//! others. A wait is told by what is waited for: [`waited`]. So a host with fewer processors than threads does not count
//! as a stall.

use std::cell::Cell;

use crate::work::cpu_here;

thread_local! {
    static WAITED: Cell<u64> = const { Cell::new(0) };
}

/// The calling thread has waited for others, for so many nanoseconds.
pub(crate) fn waited(nanoseconds: u64) {
    WAITED.with(|waited| waited.set(waited.get() + nanoseconds));
}

/// What the calling thread has had of its processor, and waited, at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    cpu: u64,
    waited: u64,
}

impl Begun {
    pub(crate) fn now() -> Self {
        Self { cpu: cpu_here(), waited: WAITED.with(Cell::get) }
    }

    /// Nanoseconds since.
    pub(crate) fn elapsed(self) -> u64 {
        let now = Self::now();
        now.cpu.saturating_sub(self.cpu) + (now.waited - self.waited)
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_stall_is_work_and_waits_that_were_told_and_no_sleep_beside() {
        let begun = Begun::now();
        sleep(Duration::from_millis(20));
        assert!(begun.elapsed() < 10_000_000, "asleep for no reason that counts");
        waited(50_000_000);
        assert!((50_000_000..60_000_000).contains(&begun.elapsed()));
        let before = Begun::now();
        let end = cpu_here() + 2_000_000;
        while cpu_here() < end {}
        assert!(before.elapsed() >= 2_000_000);
    }
}
