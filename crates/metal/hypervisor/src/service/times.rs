//! How long a fork of a service takes, by phase.

/// What a fork comes to, in order, after its SYN has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It is begun to be made.
    Made,
    /// Its card is there, and is given the SYN.
    Seated,
    /// It has sent its first frame.
    Answers,
    /// Its flow is over.
    Over,
    /// Everything that it had is free.
    Gone,
}

impl Phase {
    /// All of them, in order.
    pub const ALL: [Self; 5] = [Self::Made, Self::Seated, Self::Answers, Self::Over, Self::Gone];
}

/// When a fork came to its phases.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    begun: u64,
    came: [Option<u64>; 4],
}

impl Clock {
    /// Its SYN has come.
    pub(super) const fn begin(now: u64) -> Self {
        Self { begun: now, came: [None; 4] }
    }

    /// It comes to a phase, unless it was there before.
    pub(super) fn comes_to(&mut self, phase: Phase, now: u64) {
        if let Some(came) = self.came.get_mut(phase as usize) {
            came.get_or_insert(now);
        }
    }
}

/// The times of all forks that went through all phases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    count: u64,
    sums: [u64; 5],
}

/// What a phase took on average, in nanoseconds.
pub type Mean = (Phase, u64);

impl Times {
    /// Everything that a fork had is free at `now`.
    pub(super) fn add(&mut self, clock: &Clock, now: u64) {
        let [Some(made), Some(seated), Some(answers), Some(over)] = clock.came else { return };
        let moments = [clock.begun, made, seated, answers, over, now];
        self.count += 1;
        for (sum, pair) in self.sums.iter_mut().zip(moments.windows(2)) {
            *sum += pair[1].saturating_sub(pair[0]);
        }
    }

    /// How long it took to come to each phase from the one before, on average, if any fork went through all of them.
    pub fn means(&self) -> Option<impl Iterator<Item = Mean>> {
        let (count, sums) = (self.count, self.sums);
        let mean = move |(phase, sum): (Phase, u64)| (phase, sum / count);
        (count > 0).then(|| Phase::ALL.into_iter().zip(sums).map(mean))
    }

    /// Of how many forks these are.
    pub const fn count(&self) -> u64 {
        self.count
    }
}
