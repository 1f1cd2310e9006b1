//! The state of the host during a run: how loaded it was, and how much of its processors' time others used.

use std::fs;
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// How the host was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// The load average over the minute before the run (`proc_loadavg(5)`).
    #[serde(default)]
    pub load_before: Option<f64>,
    /// The same at its end, with the run's own threads in it.
    #[serde(default)]
    pub load_after: Option<f64>,
    /// The share of all processors' time that the host of this host gave to others meanwhile (`proc_stat(5)`, `steal`).
    #[serde(default)]
    pub stolen: Option<f64>,
    /// The share of all processors' time that went to other processes of this host, and to its kernel on its own account.
    /// The run's own threads, and KVM's guests on them, are not in it, as they are in the load average.
    #[serde(default)]
    pub others: Option<f64>,
    /// How long the run took, in seconds.
    pub seconds: f64,
}

/// A run that has begun.
#[derive(Clone, Debug)]
pub struct Begun {
    at: Instant,
    load: Option<f64>,
    ticks: Option<Ticks>,
}

/// Ticks of all processors since the boot, and of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    stolen: u64,
    /// In which no processor was idle, nor stolen.
    busy: u64,
    all: u64,
    /// In which this process ran, or those that it has started and waited for.
    own: u64,
}

impl Begun {
    /// Now.
    pub fn now() -> Self {
        Self { at: Instant::now(), load: load(), ticks: Ticks::now() }
    }

    /// How the host was from then until now.
    pub fn until_now(&self) -> Conditions {
        let ticks = self.ticks.zip(Ticks::now());
        Conditions {
            load_before: self.load,
            load_after: load(),
            stolen: ticks.and_then(|(before, now)| now.stolen_since(before)),
            others: ticks.and_then(|(before, now)| now.of_others_since(before)),
            seconds: self.at.elapsed().as_secs_f64(),
        }
    }
}

impl Ticks {
    fn now() -> Option<Self> {
        let read = |path| fs::read_to_string(path).ok();
        Self::parse(&read("/proc/stat")?, &read("/proc/self/stat")?)
    }

    /// Of the line of all processors: user, nice, system, idle, iowait, irq, softirq, steal. What comes behind is in the
    /// first two as well. Of the process (`proc_pid_stat(5)`) fields 14 to 17; the name before may have blanks.
    fn parse(stat: &str, process: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let fields: Option<Vec<u64>> =
            line.split_whitespace().take(8).map(|field| field.parse().ok()).collect();
        let fields = fields.filter(|fields| fields.len() == 8)?;
        let all: u64 = fields.iter().sum();
        let own: Option<Vec<u64>> = process
            .rsplit_once(')')?
            .1
            .split_whitespace()
            .skip(11)
            .take(4)
            .map(|field| field.parse().ok())
            .collect();
        let own = own.filter(|own| own.len() == 4)?.iter().sum();
        let busy = all - fields[3] - fields[4] - fields[7];
        Some(Self { stolen: fields[7], busy, all, own })
    }

    /// Ticks are sampled, and those of the process are not: it may seem to have had more than there were.
    fn of_others_since(self, before: Self) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        let busy = self.busy.checked_sub(before.busy)?;
        Some(busy.saturating_sub(self.own.checked_sub(before.own)?) as f64 / all as f64)
    }

    fn stolen_since(self, before: Self) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        Some(self.stolen.checked_sub(before.stolen)? as f64 / all as f64)
    }
}

fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: &str = "42 (a (b) c) R 1 1 1 0 -1 4194304 99 0 0 0 3 4 1 2 20 0 1 0 100 0 0";

    #[test]
    fn what_is_stolen_is_a_share_of_all_ticks_and_guests_are_not_counted_twice() {
        let stat = "cpu  10 0 10 70 0 0 0 10 5 5\ncpu0 1 2 3 4 5 6 7 8\n";
        let before = Ticks::parse(stat, PROCESS).unwrap();
        assert_eq!(before, Ticks { stolen: 10, busy: 20, all: 100, own: 10 });
        let now = Ticks { stolen: 30, all: 200, ..before };
        assert_eq!(now.stolen_since(before), Some(0.2));
        assert_eq!(before.stolen_since(before), None, "no tick has passed");
        assert_eq!(Ticks::parse("cpu  1 2 3\n", PROCESS), None);
        assert_eq!(Ticks::parse("intr 1\n", PROCESS), None);
        assert_eq!(Ticks::parse(stat, "42 (cut off) R 1 1"), None);
    }

    #[test]
    fn what_others_took_is_what_was_busy_and_not_with_the_run() {
        let before = Ticks { stolen: 0, busy: 100, all: 1000, own: 50 };
        let now = |busy, own| Ticks { stolen: 0, busy, all: 1200, own };
        assert_eq!(now(190, 100).of_others_since(before), Some(0.2));
        assert_eq!(now(150, 101).of_others_since(before), Some(0.0));
        assert_eq!(before.of_others_since(before), None, "no tick has passed");
    }

    #[test]
    fn a_run_does_not_count_as_its_own_noise() {
        // Busy until the kernel says so, whatever else runs: ticks come a hundred times a second.
        let begun = Ticks::now().unwrap();
        let patience = Instant::now();
        let mut now = begun;
        while now.own < begun.own + 10 && patience.elapsed().as_secs() < 60 {
            now = Ticks::now().unwrap();
        }
        assert!(now.own >= begun.own + 10, "{begun:?} {now:?}");
        let others = now.of_others_since(begun).unwrap();
        assert!((0.0..=1.0).contains(&others), "{others}");
    }

    #[test]
    fn a_run_has_a_length() {
        let conditions = Begun::now().until_now();
        assert!(conditions.seconds >= 0.0 && conditions.seconds < 60.0, "{conditions:?}");
    }
}
