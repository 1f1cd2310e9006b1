//! Reading laws back.

use std::path::Path;

use mayfly_record::ReadError;

use crate::document::Document;
use crate::series::Series;

/// The schema's name, without its version, and the version that this code writes and reads.
const NAME: &str = "mayfly.laws";
const VERSION: u32 = 1;

/// No time is longer, in nanoseconds: a hundred years. So sums of a few are still numbers.
const LONGEST: u64 = 100 * 366 * 86_400 * 1_000_000_000;

impl Document {
    /// Whether a file's document is one of laws, of any version.
    pub fn is_in(document: &mayfly_record::Document) -> bool {
        document.is_of(NAME)
    }

    /// The laws that a file's document is; `path` is what errors call it.
    ///
    /// # Errors
    /// It is none of a version known here, or is damaged.
    pub fn of(document: mayfly_record::Document, path: &Path) -> Result<Self, ReadError> {
        let read: Self = document.shaped(NAME, VERSION)?;
        for entry in &read.laws {
            if let Some(what) = damage(&entry.series) {
                let what = format!("{}: {what}", entry.pair.name());
                return Err(ReadError::Damaged { path: path.into(), what });
            }
        }
        Ok(read)
    }
}

/// What is wrong with samples, by which laws are fitted again where two documents are compared.
fn damage(series: &Series) -> Option<&'static str> {
    let points = &series.points;
    let rounds = series.rounds();
    let all = |point: &crate::series::Point| {
        [&point.wall_ns, &point.cpu_ns, &point.queued_ns].map(Vec::len) == [rounds; 3]
    };
    let mut times =
        points.iter().flat_map(|one| one.wall_ns.iter().chain(&one.cpu_ns).chain(&one.queued_ns));
    if !points.iter().all(all) {
        return Some("its points have not as many samples each");
    }
    if points.first().is_some_and(|first| first.n == 0)
        || !points.is_sorted_by(|one, next| one.n < next.n)
    {
        return Some("the numbers of its points do not grow from 1 on");
    }
    times.any(|time| *time > LONGEST).then_some("a time in it is longer than a hundred years")
}

#[cfg(test)]
mod tests {
    use mayfly_record::{Document as File, Host};
    use serde_json::{Value, json};

    use super::*;
    use crate::document::SCHEMA;

    fn point(n: u64) -> Value {
        json!({"n": n, "held_out": false, "wall_ns": [5, 6], "cpu_ns": [1, 2], "queued_ns": [0, 0]})
    }

    fn read(points: &[Value]) -> Result<Document, String> {
        let law = json!({"call": "exit", "dimension": "slots", "points": points});
        let document = json!({"schema": SCHEMA, "host": Host::default(), "rounds": 2, "seed": 1,
            "settled_ns": 0, "laws": [law]});
        let path = Path::new("laws.json");
        let file = File::parse(document.to_string().as_bytes(), path).unwrap();
        assert!(Document::is_in(&file));
        Document::of(file, path).map_err(|error| error.to_string())
    }

    #[test]
    fn samples_that_do_not_fit_to_each_other_are_refused_in_a_line() {
        assert_eq!(read(&[point(1), point(7)]).unwrap().laws[0].series.points[1].n, 7);
        assert!(read(&[]).is_ok());
        let with = |field: &str, value: Value| {
            let mut wrong = point(7);
            wrong[field] = value;
            let said = read(&[point(1), wrong]).unwrap_err();
            assert!(said.starts_with("laws.json is a damaged record: exit/slots: "), "{said}");
            assert!(!said.contains('\n'), "{said}");
            said
        };
        assert!(with("cpu_ns", json!([1])).contains("as many samples"));
        assert!(with("wall_ns", json!([1, 2, 3])).contains("as many samples"));
        assert!(with("n", json!(1)).contains("do not grow"));
        assert!(with("wall_ns", json!([1, u64::MAX])).contains("hundred years"));
        assert!(read(&[point(0)]).unwrap_err().contains("do not grow"));
    }
}
