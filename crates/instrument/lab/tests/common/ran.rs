use mayfly_lab::{Course, Plan, Selection, Silent, experiments};
use mayfly_record::{Host, ResultRow};

/// The rows of a selection that runs to its end.
pub(crate) fn ran(selection: &Selection, host: &Host) -> Vec<ResultRow> {
    let course = Course::default();
    Plan::new(experiments(), selection, host).unwrap().run(&course, &mut Silent);
    let outcome = course.outcome();
    assert_eq!(outcome.partial(), None);
    outcome.rows
}
