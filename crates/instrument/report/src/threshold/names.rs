//! The left side of a threshold: names joined by dots, and what they may stand for.

/// What may be asked of a metric, beside the default, which is `p50`.
pub(super) const STATISTICS: [&str; 8] = ["p50", "min", "max", "mean", "p90", "p99", "n", "ratio"];

/// What of a metric is meant.
pub(super) struct Named {
    pub(super) statistic: &'static str,
    /// Whether the metric is named, and not just any.
    pub(super) is_metric: bool,
}

/// The names of a threshold, as they stand there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Names(String);

impl Names {
    pub(super) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the last of them is a statistic.
    pub(super) fn end_in_a_statistic(&self) -> bool {
        let last = self.0.rsplit('.').next().unwrap_or_default();
        STATISTICS.contains(&last)
    }

    /// Whether a metric of the variant that `names` lead to is named; `default` is the statistic where none is.
    pub(super) fn of_metric(
        &self,
        names: &[&str; 3],
        metric: &str,
        default: &'static str,
    ) -> Option<Named> {
        let is_whole = |one: &&str| self.are(names, &format!("{metric}.{one}"));
        let statistic = |is_it: &dyn Fn(&&str) -> bool| STATISTICS.into_iter().find(|s| is_it(s));
        let of_metric = statistic(&is_whole).or(self.are(names, metric).then_some(default));
        let of_any = || statistic(&|statistic| self.are(names, statistic));
        let left_out = || self.is_some_of(names).then_some(default);
        let found = |is_metric| move |statistic| Named { statistic, is_metric };
        of_metric.map(found(true)).or_else(|| of_any().or_else(left_out).map(found(false)))
    }

    /// Whether the names on the left are some of `names`, in order, and then `end`.
    pub(super) fn are(&self, names: &[&str; 3], end: &str) -> bool {
        self.is_path(names, Some(end))
    }

    /// Whether they are some of `names`, in order, and nothing else.
    fn is_some_of(&self, names: &[&str; 3]) -> bool {
        self.is_path(names, None)
    }

    fn is_path(&self, names: &[&str; 3], end: Option<&str>) -> bool {
        (0..1 << names.len()).any(|taken: u32| {
            let some = names.iter().enumerate().filter(|(number, _)| taken & 1 << number != 0);
            let path: Vec<&str> = some.map(|(_, name)| *name).chain(end).collect();
            path.join(".") == self.0
        })
    }
}
