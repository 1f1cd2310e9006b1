//! `mayfly laws`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use mayfly_kvm::Kvm;
use mayfly_lab::Bar;
use mayfly_laws::{
    Call, Dimension, Document, FEWEST_ROUNDS, Failed, Figure, KvmKernel, Options, Pair, Text,
};
use mayfly_record::Sink;
use mayfly_report::Threshold;

use crate::failure::{Failure, and_more};
use crate::measured::{document, entry};
use crate::output::Stream;
use crate::run::progress;

/// Say how the calls of this host's KVM grow: with mappings, VMs, vCPUs, memslots, pages, devices, and age
///
/// Each call of a VM's life is timed at up to 15 numbers of the one thing that grows, over at least two decades, in random
/// order. All else stays as it is. A law is fitted to four of five of these numbers, and has to predict the others within
/// 25 %. The command creates VMs of its own for some minutes. It keeps to the limits of the process and to half of the
/// memory that is available, and changes nothing on the host.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Laws {
    /// The calls to measure [default: all]
    #[arg(value_name = "CALL", value_parser = calls())]
    calls: Vec<String>,

    /// What is to grow [default: all that is measured for the call]. The option may be repeated
    #[arg(long, value_name = "WHAT", value_parser = dimensions())]
    against: Vec<String>,

    /// How many samples to take of each point
    #[arg(long, value_name = "N", default_value_t = 9, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(i64::from(FEWEST_ROUNDS)..=1000))]
    rounds: u32,

    /// Measure no more than N of what grows, where time is short. Two decades have to be left
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true, allow_negative_numbers = true)]
    up_to: u64,

    /// The seed of the order in which points are measured
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,

    /// Write the laws and all samples to FILE as JSON. With - or /dev/stdout, they go to standard output, and the text to
    /// standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Exit with 1 if this holds for a law, as in 'create-vm/mappings.exponent > 1.2' or 'create-vm/mappings.at(10000) > 4ms':
    /// CALL/WHAT, and `at(NUMBER)`, `exponent` or `growth`. The number has to be within what was measured. The option may be
    /// repeated
    #[arg(long = "fail-if", value_name = "THRESHOLD")]
    fail_if: Vec<Threshold>,

    /// Print which calls would be measured against what, and measure nothing
    #[arg(long, conflicts_with_all = ["json", "full", "fail_if"])]
    list: bool,

    /// Also show the median of each point
    #[arg(long, conflicts_with = "quiet")]
    full: bool,

    /// Print no text and show no progress; for --json
    #[arg(long, short, requires = "json")]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  mayfly laws
  mayfly laws create-vm --against mappings --full
  mayfly laws close-vm --rounds 15 --json laws.json
  mayfly laws create-vm --fail-if 'create-vm/mappings.at(10000) > 4ms'

Exit codes:
  0  at least one call was measured, whatever was found
  1  a --fail-if holds, or the file or standard output could not be written
  2  a name or a value is not accepted
  3  nothing could be measured; one line says why
  4  a --fail-if is about a law that was not found, or about a number that
     was not measured, and none holds";

fn calls() -> PossibleValuesParser {
    PossibleValuesParser::new(Call::ALL.map(Call::name))
}

fn dimensions() -> PossibleValuesParser {
    PossibleValuesParser::new(Dimension::ALL.map(Dimension::name))
}

/// Measures what was asked for, and tells of it.
pub(crate) fn laws(options: &Laws) -> Result<(), Failure> {
    let pairs = pairs(options)?;
    if options.list {
        let lines = pairs.iter().map(|pair| format!("{}\n", pair.name()));
        return Stream::Out.write(&lines.collect::<String>());
    }
    let bounds = bounds(options, &pairs)?;
    // Before anything else is opened: the number of a stream is then that of a stream.
    let json = options.json.as_deref().map(Sink::open).transpose().map_err(Failure::runtime)?;
    let mut kernel = KvmKernel::new(Kvm::open().map_err(Failure::nothing_ran)?);
    let how = Options { rounds: options.rounds, seed: options.seed };
    let mut document = document(how);
    let mut progress = progress(options.quiet, &Bar::new());
    let stream = if json.as_ref().is_some_and(Sink::is_stdout) { Stream::Err } else { Stream::Out };
    // Each law is told when it is known: a user who has seen enough ends the command.
    let tell = |text: String| if options.quiet { Ok(()) } else { stream.write(&text) };
    tell(text(options, &document, stream).head(pairs.len()))?;
    for (which, pair) in (1..).zip(&pairs) {
        let measured = (*pair, options.up_to);
        let entry = entry(&mut kernel, measured, how, (which, pairs.len()), &mut *progress);
        tell(text(options, &document, stream).of(&entry))?;
        document.laws.push(entry);
    }
    tell(text(options, &document, stream).end())?;
    json.map_or(Ok(()), |sink| sink.write(&document.to_json())).map_err(Failure::runtime)?;
    let is_measured = document.laws.iter().any(|entry| entry.law.is_some());
    match document.laws.iter().find_map(|entry| entry.skipped.as_ref()) {
        Some(why) if !is_measured => Err(Failure::nothing_ran(why)),
        _ => verdict(&bounds, &document),
    }
}

/// The exit code if a bound is about what is not known.
const UNKNOWN: u8 = 4;

/// The bounds, each with what it is about. One that nothing can be meant by is refused before minutes are spent.
fn bounds<'a>(options: &'a Laws, pairs: &[Pair]) -> Result<Vec<(&'a Threshold, Figure)>, Failure> {
    let bound = |threshold: &'a Threshold| {
        let figure: Figure = threshold.names().parse().map_err(Failure::usage)?;
        if !pairs.contains(&figure.pair()) {
            let pair = figure.pair().name();
            return Err(Failure::usage(format!(
                "'{threshold}': {pair} is not among what is to be measured"
            )));
        }
        is_wrong(threshold, &figure, 1.0)?;
        Ok((threshold, figure))
    };
    options.fail_if.iter().map(bound).collect()
}

fn is_wrong(threshold: &Threshold, figure: &Figure, value: f64) -> Result<bool, Failure> {
    let wrong = threshold.is_wrong(&figure.to_string(), shown(figure, value));
    wrong.map_err(|error| Failure::usage(error.to_string()))
}

fn shown(figure: &Figure, value: f64) -> mayfly_report::Figure {
    if figure.is_time() {
        mayfly_report::Figure::Time(value)
    } else {
        mayfly_report::Figure::Number(value)
    }
}

/// Whether every law is on the right side of every bound. What is wrong is said before what is not known.
fn verdict(bounds: &[(&Threshold, Figure)], document: &Document) -> Result<(), Failure> {
    let (mut wrong, mut unknown) = (Vec::new(), Vec::new());
    for (threshold, figure) in bounds {
        match figure.of(document) {
            Ok(value) if is_wrong(threshold, figure, value)? => {
                wrong.push(format!("{threshold}: {figure} is {}", shown(figure, value)));
            }
            Ok(_) => {}
            Err(Failed(why)) => unknown.push(format!("'{threshold}' cannot be judged: {why}")),
        }
    }
    let said = |all: &[String]| Some(format!("{}{}", all.first()?, and_more(all.len() - 1)));
    match (said(&wrong), said(&unknown)) {
        (Some(wrong), _) => Err(Failure::runtime(wrong)),
        (_, Some(unknown)) => Err(Failure::with_code(UNKNOWN, unknown)),
        _ => Ok(()),
    }
}

/// The pairs that the command line names.
fn pairs(options: &Laws) -> Result<Vec<Pair>, Failure> {
    let is_meant = |names: &[String], name: &str| {
        names.is_empty() || names.iter().any(|wanted| wanted == name)
    };
    let all = Pair::all().filter(|pair| {
        is_meant(&options.calls, pair.call.name())
            && is_meant(&options.against, pair.dimension.name())
    });
    let all: Vec<Pair> = all.collect();
    if !all.is_empty() {
        return Ok(all);
    }
    let (calls, against) = (options.calls.join(", "), options.against.join(", "));
    let has = Pair::all().filter(|pair| is_meant(&options.calls, pair.call.name()));
    let has: Vec<String> = has.map(Pair::name).collect();
    Err(Failure::usage(format!(
        "{calls} is not measured against {against}; there are {}",
        has.join(", ")
    )))
}

fn text<'a>(options: &Laws, document: &'a Document, stream: Stream) -> Text<'a> {
    Text::new(document, stream.width()).full(options.full)
}
