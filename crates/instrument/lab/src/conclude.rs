//! Asks an experiment, found by its name, what rows come to.

use mayfly_record::{Host, ResultRow};

use crate::answers::Answer;
use crate::experiment::Experiment;

/// What those of `rows` that the experiment named `name` has made come to. The answer is empty where there are none, or
/// where none of the `available` experiments has that name.
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
