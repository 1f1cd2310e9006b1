//! The experiment `fork`: what it costs to have a guest go on as a snapshot was.

mod answer;
mod kvm;
mod names;
mod needs;
mod template;
#[cfg(test)]
mod tests;

use anyhow::Context;
use mayfly_kvm::Error;
use mayfly_record::{Backend, Host, ResultRow};

use crate::answers::Answer;
use crate::experiment::{Experiment, Metric, Param, Request, Variant};
use crate::needs::Needs;
use crate::params::{Bound, Size};
use crate::progress::Progress;
use crate::turns::{SEED, seed, turns};

use kvm::Measured;
use names::{
    AT_ONCE, COPY, DESTROY, FIRST_EXIT, FORK, FORKS_AT_ONCE, MAP_PRIVATE, NAME, OWN_IDLE, PREFETCH,
    REGISTERS, REQUESTS, USERFAULT, forks, rounds,
};
use template::Template;

/// The experiment `fork`.
pub(crate) struct Fork;

impl Experiment for Fork {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "a guest goes on as a snapshot was: until it runs, until it has answered"
    }

    fn about(&self) -> &'static str {
        "A VMM that starts guests from a snapshot has the guest's memory in a file. How
the guest gets it decides what a start costs, and what the guest's first
accesses cost. The fork of a VM is the same with a snapshot that is in memory.

A guest has written all of its memory, and becomes a snapshot in a memfd. Each
fork gets memory, a VM, a memslot and a vCPU with the guest's registers. It
then answers a request, which writes to 50, 500 or 5,000 pages, each for the
first time. Afterwards its memory is reset: it is the snapshot's again. The
designs differ in the memory. copy copies all of it. map-private maps the file
(MAP_PRIVATE), as restores of snapshots do: the kernel copies a page when it is
first written. userfault has a thread of this process serve each fault of the
guest (userfaultfd). prefetch is map-private, and has the pages that an earlier
fork wrote written ahead (MADV_POPULATE_WRITE).

In addition, so many forks as --vms says are there at once, and each answers
the smallest request; of copy, not more than have 1 GiB together. No fork may
find what another has written, a fork that was reset has to find the snapshot,
and the snapshot must not change: that is looked at without a clock.

Mayfly's own forks run on bare metal: what they cost is on the page about
forks."
    }

    fn variants(&self) -> &'static [Variant] {
        &[
            Variant { backend: Backend::Kvm, name: COPY, summary: "all of the snapshot is copied" },
            Variant {
                backend: Backend::Kvm,
                name: MAP_PRIVATE,
                summary: "its file is mapped privately, as restores of snapshots do",
            },
            Variant {
                backend: Backend::Kvm,
                name: USERFAULT,
                summary: "a thread of the VMM serves each fault (userfaultfd)",
            },
            Variant {
                backend: Backend::Kvm,
                name: PREFETCH,
                summary: "as map-private; what an earlier fork has written is written ahead",
            },
        ]
    }

    fn metrics(&self) -> &'static [Metric] {
        &[
            Metric { name: FORK, summary: "memory, VM, memslot, vCPU and its registers" },
            Metric { name: REGISTERS, summary: "of that, the vCPU's registers" },
            Metric {
                name: FIRST_EXIT,
                summary: "from the beginning of the fork until its guest has run, and come out",
            },
            Metric {
                name: REQUESTS[0].answer,
                summary: "from the beginning of the fork until a request is answered that writes 50 pages",
            },
            Metric { name: REQUESTS[1].answer, summary: "the same of 500 pages" },
            Metric { name: REQUESTS[2].answer, summary: "the same of 5,000 pages" },
            Metric { name: REQUESTS[0].request, summary: "of that, the request of 50 pages" },
            Metric { name: REQUESTS[1].request, summary: "of 500 pages" },
            Metric { name: REQUESTS[2].request, summary: "of 5,000 pages" },
            Metric {
                name: REQUESTS[0].reset,
                summary: "until the fork's memory is the snapshot's again, after 50 pages",
            },
            Metric { name: REQUESTS[1].reset, summary: "after 500 pages" },
            Metric { name: REQUESTS[2].reset, summary: "after 5,000 pages" },
            Metric {
                name: DESTROY,
                summary: "closing vCPU and VM, and unmapping the memory, of a fork that has run",
            },
            Metric {
                name: AT_ONCE,
                summary: "from a fork's beginning until it has answered, while all earlier ones stay",
            },
        ]
    }

    fn headlines(&self) -> &'static [&'static str] {
        &[FIRST_EXIT, REQUESTS[1].answer, REQUESTS[1].request, REQUESTS[0].reset, DESTROY]
    }

    fn levels(&self) -> &'static [&'static str] {
        &[FORKS_AT_ONCE, OWN_IDLE, REQUESTS[0].own, REQUESTS[1].own, REQUESTS[2].own]
    }

    fn answer(&self, rows: &[ResultRow], _host: &Host) -> Answer {
        answer::answer(rows)
    }

    fn params(&self) -> &'static [Param] {
        &[
            Param { name: Bound::VMS.name, default: "100", summary: "forks at once" },
            Param {
                name: Size::PARAM,
                default: "64MiB",
                summary: "sizes of a guest's memory, one after another",
            },
            Param {
                name: Bound::ROUNDS.name,
                default: "10",
                summary: "how often each design goes through all requests",
            },
        ]
    }

    fn needs(&self, request: &Request<'_>) -> Needs {
        needs::of(request)
    }

    fn run(
        &self,
        request: &Request<'_>,
        progress: &mut dyn Progress,
    ) -> anyhow::Result<Vec<ResultRow>> {
        let mut rows = Vec::new();
        for size in needs::memory(request) {
            rows.extend(of_size(size, request, progress).context("on KVM")?);
        }
        Ok(rows)
    }

    fn left_out(&self, request: &Request<'_>) -> Vec<String> {
        needs::memory(request).into_iter().filter_map(needs::why_not).collect()
    }
}

fn row(variant: &str, size: Size, request: &Request<'_>) -> ResultRow {
    ResultRow::new(NAME, Backend::Kvm, variant)
        .param(Size::PARAM, size.bytes())
        .param(Bound::VMS.name, forks(request))
        .param(Bound::ROUNDS.name, rounds(request))
        .param(SEED, seed(request))
}

/// The rows of one size: all designs, in turn.
fn of_size(
    size: Size,
    request: &Request<'_>,
    progress: &mut dyn Progress,
) -> anyhow::Result<Vec<ResultRow>> {
    let variants: Vec<_> = request.variants_on(Backend::Kvm).collect();
    if let Some(why) = needs::why_not(size) {
        let skipped = |variant: &&str| row(variant, size, request).skipped(why.clone());
        return Ok(variants.iter().map(skipped).collect());
    }
    let bytes = usize::try_from(size.bytes())?;
    let template = Template::new(bytes)?;
    let (mut designs, mut done) = (Vec::new(), Vec::new());
    for variant in variants {
        match Measured::new(&template, variant) {
            Ok(design) => designs.push(design),
            Err(why) => match why.downcast_ref::<Error>() {
                Some(Error::Call { call: "userfaultfd" | "UFFDIO_API", .. }) => {
                    done.push(row(variant, size, request).skipped(why.to_string()));
                }
                _ => return Err(why),
            },
        }
    }
    let (rounds, seed) = (rounds(request), seed(request));
    let steps = u64::from(rounds) * designs.len() as u64 + designs.len() as u64;
    progress.begin(&format!("{NAME}, {size}"), steps);
    for index in turns(rounds, designs.len(), seed) {
        designs[index].round(&template)?;
        progress.step();
    }
    for design in &mut designs {
        design.look(&template)?;
        design.all_at_once(&template, forks(request), bytes)?;
        progress.step();
    }
    progress.finish();
    for design in &designs {
        done.push(design.report(row(design.variant, size, request), &template)?);
    }
    Ok(done)
}
