//! How the host was while a run went on: who else used its processors.

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

/// Ticks of all processors since the boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    stolen: u64,
    all: u64,
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
            seconds: self.at.elapsed().as_secs_f64(),
        }
    }
}

impl Ticks {
    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Of the line of all processors: user, nice, system, idle, iowait, irq, softirq, steal. What comes behind is in the
    /// first two as well.
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let fields: Option<Vec<u64>> =
            line.split_whitespace().take(8).map(|field| field.parse().ok()).collect();
        let fields = fields.filter(|fields| fields.len() == 8)?;
        Some(Self { stolen: fields[7], all: fields.iter().sum() })
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

    #[test]
    fn what_is_stolen_is_a_share_of_all_ticks_and_guests_are_not_counted_twice() {
        let before = Ticks::parse("cpu  10 0 10 70 0 0 0 10 5 5\ncpu0 1 2 3 4 5 6 7 8\n").unwrap();
        assert_eq!(before, Ticks { stolen: 10, all: 100 });
        let now = Ticks { stolen: 30, all: 200 };
        assert_eq!(now.stolen_since(before), Some(0.2));
        assert_eq!(before.stolen_since(before), None, "no tick has passed");
        assert_eq!(Ticks::parse("cpu  1 2 3\n"), None);
        assert_eq!(Ticks::parse("intr 1\n"), None);
    }

    #[test]
    fn a_run_has_a_length() {
        let conditions = Begun::now().until_now();
        assert!(conditions.seconds >= 0.0 && conditions.seconds < 60.0, "{conditions:?}");
    }
}
