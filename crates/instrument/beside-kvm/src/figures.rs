//! From samples to figures: what does not belong to a step is subtracted, and what was done several times is divided.
//!
//! A sample until the caller has control back contains one reading of the counters. The median of [`Row::Nothing`] is
//! subtracted for it. If the guest asks for an order in a sample, the median of such an exit is subtracted, too. A
//! sample until all is done also contains what the machine executes while the caller sleeps. From that, the median of
//! an idle machine in the same time is subtracted, and the rest is added to what the caller took. So it is never less
//! than that. On x86-64, where an idle machine executes [much](Idle), what it does in the waits of a step is subtracted, too.

use std::collections::BTreeMap;

use mayfly_lifecycle_steps::{Architecture, Line, Row, Spent, Until};

/// What one step took, at each level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figure {
    /// Instructions at EL0, EL1 and EL2.
    pub(crate) levels: [u64; 3],
    /// Virtual time.
    pub(crate) nanoseconds: u64,
}

impl Figure {
    /// Instructions of all levels.
    pub(crate) fn all(self) -> u64 {
        self.levels.iter().sum()
    }

    fn of(spent: Spent) -> Self {
        Self { levels: spent.levels, nanoseconds: spent.nanoseconds }
    }

    /// The time in which nothing was counted: each instruction takes 1 ns.
    fn waited(self) -> u64 {
        self.nanoseconds.saturating_sub(self.all())
    }

    fn more(self, other: Self) -> Self {
        let levels = [0, 1, 2].map(|level| self.levels[level] + other.levels[level]);
        Self { levels, nanoseconds: self.nanoseconds + other.nanoseconds }
    }

    fn less(self, other: Self) -> Self {
        let levels = [0, 1, 2].map(|level| self.levels[level].saturating_sub(other.levels[level]));
        Self { levels, nanoseconds: self.nanoseconds.saturating_sub(other.nanoseconds) }
    }

    fn times(self, times: u64) -> Self {
        Self {
            levels: self.levels.map(|level| level * times),
            nanoseconds: self.nanoseconds * times,
        }
    }

    /// A share, to the nearest.
    fn shared(self, times: u64) -> Self {
        let share = |number: u64| (number + times / 2) / times;
        Self { levels: self.levels.map(share), nanoseconds: share(self.nanoseconds) }
    }
}

/// What an idle machine executes, which is no step's.
struct Idle {
    /// While the caller sleeps: the median of the sleeps behind empty steps.
    asleep: Figure,
    /// Three of four such sleeps differ from that by no more than this.
    error: u64,
    /// Whether a machine executes that in the waits of a step, too.
    in_waits: bool,
}

impl Idle {
    /// That of a machine of this architecture. On x86-64 no processor halts while it is counted, so the kernel's ticks come while
    /// it waits as while it works, and what they do differs from one sleep to the next. On arm64 it halts, and they stop.
    fn of(sleeps: &[Figure], architecture: Architecture) -> Self {
        let in_waits = architecture == Architecture::X86;
        let asleep = median(sleeps.to_vec());
        let differs = |sleep: &Figure| sleep.all().abs_diff(asleep.all());
        let mut errors: Vec<_> = sleeps.iter().map(differs).filter(|_| in_waits).collect();
        errors.sort_unstable();
        let error = errors.get((errors.len() * 3).div_ceil(4).saturating_sub(1));
        Self { asleep, error: error.copied().unwrap_or(0), in_waits }
    }

    /// A figure without what the machine has executed while it waited: for as long as nothing was counted.
    fn without_waits(&self, figure: Figure) -> Figure {
        let (slept, waited) = (self.asleep.waited(), figure.waited());
        if !self.in_waits || slept == 0 {
            return figure;
        }
        let part = |level| (u128::from(level) * u128::from(waited) / u128::from(slept)) as u64;
        figure.less(Figure { levels: self.asleep.levels.map(part), nanoseconds: 0 })
    }

    /// What a step has left to be done in the sleep behind it: nothing, where that is not more than idle machines differ by.
    fn left(&self, behind: Figure) -> Figure {
        let left = behind.less(self.asleep);
        if left.all() > self.error { left } else { Figure::default() }
    }
}

/// The figures of one side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    all: BTreeMap<(Row, Until), Vec<Figure>>,
    /// Of how many times the figures of a step are one.
    times: BTreeMap<Row, u64>,
}

impl Figures {
    /// Of samples of a machine of this architecture.
    pub(crate) fn of(samples: &[Line], architecture: Architecture) -> Self {
        let raw = |row: Row, until: Until| -> Vec<Figure> {
            let is_it = |line: &&Line| (line.row, line.until) == (row, until);
            samples.iter().filter(is_it).map(|line| Figure::of(line.spent)).collect()
        };
        // What comes behind each sample: between when the caller has control back and when all is done.
        let behind = |row: Row| -> Vec<Figure> {
            let (callers, all) = (raw(row, Until::Caller), raw(row, Until::All));
            callers.into_iter().zip(all).map(|(caller, all)| all.less(caller)).collect()
        };
        let nothing = median(raw(Row::Nothing, Until::Caller));
        let idle = Idle::of(&behind(Row::Nothing), architecture);
        let asking = raw(Row::MmioUser, Until::Caller).into_iter();
        let asking = median(asking.map(|figure| figure.less(nothing)).collect());
        let (mut all_figures, mut all_times) = (BTreeMap::new(), BTreeMap::new());
        for &row in Row::ALL {
            let times = samples.iter().find(|line| line.row == row).map_or(1, |line| line.times);
            let times = u64::from(times).max(1);
            let callers: Vec<_> = raw(row, Until::Caller)
                .into_iter()
                .map(|figure| match row {
                    Row::Nothing => figure,
                    _ => idle.without_waits(figure).less(nothing).less(asking.times(row.asks())),
                })
                .collect();
            let all = callers.iter().zip(behind(row)).map(|(caller, behind)| match row {
                Row::Nothing => caller.more(behind),
                _ => caller.more(idle.left(behind)).shared(times),
            });
            all_figures.insert((row, Until::All), all.collect());
            let callers = callers.iter().map(|caller| caller.shared(times)).collect();
            all_figures.insert((row, Until::Caller), callers);
            all_times.insert(row, times);
        }
        Self { all: all_figures, times: all_times }
    }

    /// The instructions of all steps until all is done, each as often as it was done, without what is subtracted from
    /// others.
    pub(crate) fn whole(&self) -> u64 {
        let steps =
            self.times.iter().filter(|(row, _)| !matches!(row, Row::Nothing | Row::MmioUser));
        let of = |row| self.median(row, Until::All).map_or(0, Figure::all);
        steps.map(|(&row, times)| times * of(row)).sum()
    }

    /// The median of a step's.
    pub(crate) fn median(&self, row: Row, until: Until) -> Option<Figure> {
        let figures = self.of_row(row, until);
        (!figures.is_empty()).then(|| median(figures.to_vec()))
    }

    /// Those of a step, in the order in which they were measured.
    pub(crate) fn of_row(&self, row: Row, until: Until) -> &[Figure] {
        self.all.get(&(row, until)).map_or(&[], Vec::as_slice)
    }
}

/// The figure of which half of them are not above: one that there is.
fn median(mut figures: Vec<Figure>) -> Figure {
    figures.sort_by_key(|figure| figure.all());
    figures.get(figures.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use mayfly_lifecycle_steps::Spent;

    use super::*;

    fn line(row: Row, until: Until, times: u32, levels: [u64; 3]) -> Line {
        let nanoseconds = levels.iter().sum();
        Line { row, until, times, spent: Spent { levels, nanoseconds } }
    }

    fn of(samples: &[Line]) -> Figures {
        Figures::of(samples, Architecture::Arm64)
    }

    #[test]
    fn what_nothing_takes_is_taken_off_each_level() {
        let (caller, all) = (Until::Caller, Until::All);
        let samples = [
            line(Row::Nothing, caller, 1, [10, 0, 100]),
            line(Row::Nothing, all, 1, [10, 0, 1100]),
            line(Row::VmCreated, caller, 1, [30, 3, 500]),
            line(Row::VmCreated, all, 1, [30, 3, 1700]),
        ];
        let figures = of(&samples);
        assert_eq!(figures.of_row(Row::VmCreated, caller)[0].levels, [20, 3, 400]);
        assert_eq!(figures.of_row(Row::VmCreated, all)[0].levels, [20, 3, 400 + 200]);
        assert_eq!(figures.of_row(Row::VmCreated, caller)[0].all(), 423);
        assert_eq!(figures.of_row(Row::Nothing, all)[0].levels, [10, 0, 1100], "shown as it is");
        assert!(figures.of_row(Row::Hvc, caller).is_empty());
    }

    #[test]
    fn all_is_never_less_than_what_the_caller_took() {
        let (caller, all) = (Until::Caller, Until::All);
        let samples = [
            line(Row::Nothing, caller, 1, [0, 0, 100]),
            line(Row::Nothing, all, 1, [0, 0, 9100]),
            line(Row::VmCreated, caller, 1, [0, 0, 500]),
            line(Row::VmCreated, all, 1, [0, 0, 600]),
        ];
        let figures = of(&samples);
        assert_eq!(figures.of_row(Row::VmCreated, all)[0].levels, [0, 0, 400]);
    }

    #[test]
    fn the_exit_by_which_the_guest_asks_is_taken_off_before_the_rest_is_divided() {
        let caller = Until::Caller;
        let samples = [
            line(Row::Nothing, caller, 1, [0, 0, 10]),
            line(Row::MmioUser, caller, 1, [0, 10, 110]),
            line(Row::MmioUser, caller, 1, [0, 10, 9999]),
            line(Row::MmioUser, caller, 1, [0, 10, 100]),
            line(Row::Hvc, caller, 64, [0, 74, 110 + 6400]),
            line(Row::CachesOn, caller, 1, [0, 40, 410 + 1000]),
        ];
        let figures = of(&samples);
        assert_eq!(figures.of_row(Row::Hvc, caller)[0].levels, [0, 1, 100]);
        assert_eq!(figures.of_row(Row::CachesOn, caller)[0].levels, [0, 0, 1000]);
        assert_eq!(figures.of_row(Row::MmioUser, caller)[0].levels, [0, 10, 100]);
    }

    #[test]
    fn a_whole_course_has_each_step_as_often_as_it_was_done() {
        let samples = [
            line(Row::Nothing, Until::All, 1, [0, 0, 5]),
            line(Row::LogStarted4k, Until::Caller, 1, [1, 2, 1000]),
            line(Row::LogStarted4k, Until::All, 1, [1, 2, 1000]),
            line(Row::Logged1Of4k, Until::Caller, 10, [0, 0, 200]),
            line(Row::Logged1Of4k, Until::All, 10, [0, 0, 200]),
        ];
        assert_eq!(of(&samples).whole(), 1003 + 200);
    }

    #[test]
    fn less_than_nothing_is_nothing() {
        let samples = [
            line(Row::Nothing, Until::Caller, 1, [5, 5, 5]),
            line(Row::Hvc, Until::Caller, 64, [1, 1, 1]),
        ];
        let figure = of(&samples).of_row(Row::Hvc, Until::Caller)[0];
        assert_eq!((figure.levels, figure.nanoseconds), ([0; 3], 0));
        assert_eq!(of(&[]).median(Row::Hvc, Until::All), None);
    }

    /// A sample of so many instructions in so much time.
    fn timed(row: Row, until: Until, times: u32, instructions: u64, nanoseconds: u64) -> Line {
        Line { row, until, times, spent: Spent { levels: [0, 0, instructions], nanoseconds } }
    }

    /// Empty steps, behind each of which a machine sleeps for 1,000 ns, and executes so many instructions.
    fn idle(instructions: &[u64]) -> Vec<Line> {
        let nothing =
            |until, executed, nanoseconds| timed(Row::Nothing, until, 1, executed, nanoseconds);
        let each =
            |&executed: &u64| [nothing(Until::Caller, 0, 0), nothing(Until::All, executed, 1000)];
        instructions.iter().flat_map(each).collect()
    }

    #[test]
    fn of_a_wait_what_an_idle_machine_executes_in_that_time_is_no_steps() {
        // It executes 100 instructions in 900 ns in which nothing is counted.
        let mut samples = idle(&[100]);
        samples.push(timed(Row::HltTimer, Until::Caller, 10, 1000, 10_000));
        samples.push(timed(Row::Cpuid, Until::Caller, 1, 5000, 5000));
        let of = |architecture, row| {
            let figures = Figures::of(&samples, architecture);
            figures.median(row, Until::Caller).map(|figure| (figure.all(), figure.nanoseconds))
        };
        let (arm64, x86) = (Architecture::Arm64, Architecture::X86);
        assert_eq!(of(arm64, Row::HltTimer), Some((100, 1000)));
        assert_eq!(of(x86, Row::HltTimer), Some((0, 1000)));
        samples[2].spent.levels[2] = 2800;
        let figures = Figures::of(&samples, x86);
        assert_eq!(figures.of_row(Row::HltTimer, Until::Caller)[0].all(), (2800 - 800) / 10);
        assert_eq!(figures.of_row(Row::Cpuid, Until::Caller)[0].all(), 5000, "it does not wait");
    }

    #[test]
    fn what_is_behind_a_step_is_its_own_if_it_is_more_than_idle_machines_differ_by() {
        let mut samples = idle(&[100, 90, 105, 400]);
        let step =
            |until, instructions| timed(Row::VmCreated, until, 1, instructions, instructions);
        samples.extend([step(Until::Caller, 50), step(Until::All, 160)]);
        let all = |samples: &[Line]| {
            Figures::of(samples, Architecture::X86).of_row(Row::VmCreated, Until::All)[0].all()
        };
        // Three of the four are within 10 of the median.
        assert_eq!(all(&samples), 50, "10 more than an idle machine");
        samples[9].spent.levels[2] += 1;
        assert_eq!(all(&samples), 61);
        samples[9].spent.levels[2] = 50;
        assert_eq!(all(&samples), 50, "less than an idle machine");
        samples[9].spent.levels[2] = 51 + 100;
        let figures = Figures::of(&samples, Architecture::Arm64);
        assert_eq!(figures.of_row(Row::VmCreated, Until::All)[0].all(), 51);
    }
}
