//! What VMs and the program execute in a phase, from one `count` to the next.

use mayfly_lifecycle_steps::{Executed, Phase, REGISTERS};

use super::arch::{Count, Identity, Retired, begin_by_level, between};
use super::one_cpu;
use crate::bare::processor::timer;
use crate::bare::threads::console::say;

/// Counts phases, as long as it exists.
pub(crate) struct Phases {
    retired: Retired,
    /// At the last look.
    last: Count,
    /// At EL0, EL1 and EL2, from the beginning of the phase to the last look.
    sums: [u64; 3],
    /// When the phase began.
    begun: u64,
}

impl Phases {
    /// Says which processor this is, begins to count, and begins the first phase.
    ///
    /// # Errors
    ///
    /// Why this machine does not count.
    pub(crate) fn begin() -> Result<Self, &'static str> {
        one_cpu()?;
        let retired = begin_by_level()?;
        say!("{REGISTERS}{}", Identity::read());
        let last = retired.read();
        Ok(Self { retired, last, sums: [0; 3], begun: timer::ticks() })
    }

    /// Takes over what the counters show. They have 32 bits, so this is done before each has counted as much.
    pub(crate) fn look(&mut self) {
        let now = self.retired.read();
        for (sum, more) in self.sums.iter_mut().zip(now.since(self.last)) {
            *sum += more;
        }
        self.last = now;
    }

    /// Ends the phase, prints it by this name, and begins the next: the line belongs to neither.
    pub(crate) fn end(&mut self, name: &str) {
        self.look();
        let nanoseconds = between(self.begun, timer::ticks());
        // EL2 is all that the program has, so what is executed at the other levels is the guests'.
        let [user, kernel, el2] = self.sums;
        let executed = Executed { vmm: 0, el1: 0, el2, guest: user + kernel };
        say!("{}", Phase { name, executed, nanoseconds });
        self.last = self.retired.read();
        (self.sums, self.begun) = ([0; 3], timer::ticks());
    }
}
