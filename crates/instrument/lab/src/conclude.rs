//! Asks an experiment what its rows mean.

use mayfly_record::{Host, ResultRow};

use crate::answers::Answer;
use crate::experiment::Experiment;

/// What the rows mean that the experiment `name` has made. The answer is empty if there are no such rows, or if none of
/// the `available` experiments has that name.
pub fn answer(
    available: &[&dyn Experiment],
    name: &str,
    rows: &[ResultRow],
    host: &Host,
) -> Answer {
    let own: Vec<ResultRow> = rows.iter().filter(|row| row.experiment == name).cloned().collect();
    let known = available.iter().find(|known| known.name() == name);
    known.filter(|_| !own.is_empty()).map_or(Answer::default(), |known| known.answer(&own, host))
}
