//! `mayfly laws`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use mayfly_kvm::Kvm;
use mayfly_lab::{Bar, Progress};
use mayfly_laws::{
    Call, Dimension, Document, Entry, FEWEST_ROUNDS, Failed, Kernel, KvmKernel, Options, Pair,
    SCHEMA, Series, Text, measure, points,
};
use mayfly_record::{Sink, nanoseconds};

use crate::built::host;
use crate::failure::Failure;
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
    #[arg(long, value_name = "N", default_value_t = 9,
          value_parser = clap::value_parser!(u32).range(i64::from(FEWEST_ROUNDS)..=1000))]
    rounds: u32,

    /// The seed of the order in which points are measured
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Write the laws and all samples to FILE as JSON. With - or /dev/stdout, they go to standard output, and the text to
    /// standard error
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Print which calls would be measured against what, and measure nothing
    #[arg(long, conflicts_with_all = ["json", "full"])]
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

Exit codes:
  0  at least one call was measured, whatever was found
  1  the file, or standard output, could not be written
  2  a name or a value is not accepted
  3  nothing could be measured; one line says why";

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
    // Before anything else is opened: the number of a stream is then that of a stream.
    let json = options.json.as_deref().map(Sink::open).transpose().map_err(Failure::runtime)?;
    let mut kernel = KvmKernel::new(Kvm::open().map_err(Failure::nothing_ran)?);
    let host = host();
    let mut document = Document {
        schema: SCHEMA.to_owned(),
        tick_ns: host.hz.map(|hz| 1_000_000_000 / u64::from(hz.max(1))),
        host,
        rounds: options.rounds,
        seed: options.seed,
        settled_ns: nanoseconds(KvmKernel::SETTLED),
        laws: Vec::new(),
    };
    let mut progress = progress(options.quiet, &Bar::new());
    let stream = if json.as_ref().is_some_and(Sink::is_stdout) { Stream::Err } else { Stream::Out };
    // Each law is told when it is known: a user who has seen enough ends the command.
    let tell = |text: String| if options.quiet { Ok(()) } else { stream.write(&text) };
    tell(text(options, &document, stream).head(pairs.len()))?;
    for (which, pair) in (1..).zip(&pairs) {
        let entry = entry(&mut kernel, *pair, options, (which, pairs.len()), &mut *progress);
        tell(text(options, &document, stream).of(&entry))?;
        document.laws.push(entry);
    }
    tell(text(options, &document, stream).end())?;
    json.map_or(Ok(()), |sink| sink.write(&document.to_json())).map_err(Failure::runtime)?;
    let is_measured = document.laws.iter().any(|entry| entry.law.is_some());
    match document.laws.iter().find_map(|entry| entry.skipped.as_ref()) {
        Some(why) if !is_measured => Err(Failure::nothing_ran(why)),
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

/// One pair, with a bar of its own.
fn entry(
    kernel: &mut KvmKernel,
    pair: Pair,
    options: &Laws,
    (which, of): (usize, usize),
    progress: &mut dyn Progress,
) -> Entry {
    let name = pair.name();
    let range = kernel.range(pair.dimension).ok();
    let points = range.and_then(|range| points(&range)).map_or(0, |points| points.len() as u64);
    let samples = points * u64::from(options.rounds);
    progress.experiment(&name, which, of, KvmKernel::SETTLED * samples as u32);
    progress.begin(&name, samples);
    let how = Options { rounds: options.rounds, seed: options.seed };
    let measured = measure(kernel, pair, how, || progress.step());
    progress.finish();
    match measured {
        Ok(measured) => Entry {
            pair,
            series: measured.series,
            law: Some(measured.law),
            work: Some(measured.work),
            skipped: None,
        },
        Err(Failed(why)) => {
            Entry { pair, series: Series::default(), law: None, work: None, skipped: Some(why) }
        }
    }
}

fn text<'a>(options: &Laws, document: &'a Document, stream: Stream) -> Text<'a> {
    Text::new(document, stream.width()).full(options.full)
}
