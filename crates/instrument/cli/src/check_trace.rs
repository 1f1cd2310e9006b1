//! `mayfly check-trace`.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use mayfly_hwtrace::{Checker, Lines, Malformed};

use crate::args::CheckTrace;
use crate::failure::Failure;
use crate::output::Stream;

/// Violations that are printed, one a line; of more, their number.
const SHOWN: usize = 50;

/// Says which rules a trace breaks, and where.
pub(crate) fn check_trace(options: &CheckTrace) -> Result<(), Failure> {
    let path = &options.file;
    if path == Path::new("-") {
        return check(io::stdin().lock(), path);
    }
    let file = File::open(path);
    let file =
        file.map_err(|error| Failure::usage(format!("cannot open {}: {error}", path.display())))?;
    check(BufReader::new(file), path)
}

fn check(from: impl BufRead, path: &Path) -> Result<(), Failure> {
    let path = path.display();
    let refused = |Malformed { line, what }| Failure::usage(format!("{path}, line {line}: {what}"));
    let (mut lines, options) = Lines::new(from).map_err(refused)?;
    let (mut checker, mut events) = (Checker::new(options), 0u64);
    while let Some((line, record)) = lines.next_record().map_err(refused)? {
        checker.take(line, &record);
        events += 1;
    }
    let dropped = checker.dropped();
    // What seems wrong at the end of what is there may be explained by what is not.
    let found = if dropped > 0 { checker.found() } else { checker.finish() };
    let Some(first) = found.first() else {
        if dropped > 0 {
            let what = format!("{path} is incomplete: {dropped} events are missing");
            return Err(Failure::runtime(what));
        }
        return Stream::Out.write(&format!("{path}: {events} events, and no rule is broken\n"));
    };
    for violation in found.iter().take(SHOWN) {
        Stream::Out.write(&format!("{path}: {violation}\n"))?;
    }
    if found.len() > SHOWN {
        Stream::Out.write(&format!("{path}: and {} more\n", found.len() - SHOWN))?;
    }
    let (line, rule) = (first.line, first.rule.name());
    Err(Failure::runtime(format!("{path} breaks {rule} at line {line}, of {} in all", found.len())))
}
