//! Measuring laws, for the commands that tell of them.

use mayfly_lab::Progress;
use mayfly_laws::{
    Document, Entry, Failed, KvmKernel, Measured, Options, Pair, Plan, SCHEMA, Series, measure,
};
use mayfly_record::nanoseconds;

use crate::built::host;

/// A document of this host in which nothing is measured yet.
pub(crate) fn document(how: Options) -> Document {
    let host = host();
    Document {
        schema: SCHEMA.to_owned(),
        tick_ns: host.hz.map(|hz| 1_000_000_000 / u64::from(hz.max(1))),
        host,
        rounds: how.rounds,
        seed: how.seed,
        settled_ns: nanoseconds(KvmKernel::SETTLED),
        laws: Vec::new(),
    }
}

/// One pair, at no number beyond `most`, with a bar of its own: which of how many, from 1 on.
pub(crate) fn entry(
    kernel: &mut KvmKernel,
    (pair, most): (Pair, u64),
    how: Options,
    (which, of): (usize, usize),
    progress: &mut dyn Progress,
) -> Entry {
    let name = pair.name();
    let measured = Plan::up_to(most, kernel, pair).and_then(|plan| {
        let samples = plan.samples(how.rounds);
        progress.experiment(&name, which, of, KvmKernel::SETTLED * samples as u32);
        progress.begin(&name, samples);
        let measured = measure(kernel, &plan, how, || progress.step());
        progress.finish();
        measured
    });
    match measured {
        Ok(Measured { series, law, work }) => {
            Entry { pair, series, law: Some(law), work: Some(work), skipped: None }
        }
        Err(Failed(why)) => {
            Entry { pair, series: Series::default(), law: None, work: None, skipped: Some(why) }
        }
    }
}
