//! The experiment `fork`: what it costs to have a guest go on as a snapshot was.

mod answer;
mod design;
mod ground;
mod kvm;
mod machine;
mod measured;
mod names;
mod needs;
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

use ground::Ground;
use measured::Measured;
use names::{
    ALL_AT_ONCE, AT_ONCE, COPY, DESTROY, FIRST_EXIT, FORK, FORKS_AT_ONCE, IN_TURN, MAP_PRIVATE,
    NAME, OWN_IDLE, PARENT, PREFETCH, REGISTERS, REQUESTS, USERFAULT, forks, most_forks, rounds,
};

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

A guest has written all of its memory, and becomes a snapshot. Each fork gets
memory, a VM, a memslot and a vCPU. It then answers a request, which writes to
50, 500 or 5,000 pages, each for the first time. Afterwards its memory is reset:
it is the snapshot's again. A parent is a guest that goes on when it has been
forked: it stands still for the snapshot, and then writes 1,000 pages again.

The designs differ in the memory. On KVM, copy copies all of it. map-private
maps the snapshot's file, a memfd (MAP_PRIVATE), as restores of snapshots do:
the kernel copies a page when it is first written. userfault has a thread of
this process serve each fault of the guest (userfaultfd). prefetch is
map-private, and has the pages that an earlier fork wrote written ahead
(MADV_POPULATE_WRITE). The vCPU gets its registers, which are timed apart. A
snapshot is taken by copying, whatever the design is.

On the software machine, each fork has an address space of its own, as a process
has. copy copies all pages. mayfly begins as an image, whose frames forks share:
a page that is written gets its copy in place, and a reset takes from stage 2
exactly the pages that were written. map-private has the same image, and tells
the VM as Linux tells KVM: what is copied is zapped before, so the guest faults
for it again, and a reset zaps all of the memory. A parent is write-protected,
and its frames become the image's. Guests have no registers there.

In addition, so many forks as --forks says answer the smallest request, one
after the other, and then all at once; of copy, not more than have 1 GiB
together, and of any design not more than have half of the available memory. No
fork may find what another has written, a fork that was reset has to find the
snapshot, and the snapshot must not change: that is looked at without a clock.

With --backend metal, Mayfly's forks on bare metal are beside those of KVM on
arm64, counted in instructions: the page about forks has these steps."
    }

    fn variants(&self) -> &'static [Variant] {
        &[
            Variant { backend: Backend::Machine, name: COPY, summary: "all pages are copied" },
            Variant {
                backend: Backend::Machine,
                name: MAP_PRIVATE,
                summary: "an image is shared; the VM is told of copies and resets as Linux tells KVM",
            },
            Variant {
                backend: Backend::Machine,
                name: Variant::BASELINE,
                summary: "an image is shared; copies come in place, resets take what was written",
            },
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
                name: PARENT,
                summary: "of a guest that is forked and goes on: for the fork, until it has written 1,000 pages again, less the same without a fork",
            },
            Metric {
                name: IN_TURN,
                summary: "of many forks of 50 pages, one after the other: from the beginning of each until it is destroyed",
            },
            Metric {
                name: AT_ONCE,
                summary: "from a fork's beginning until it has answered, while all earlier ones stay",
            },
            Metric { name: ALL_AT_ONCE, summary: "until all of them have answered" },
        ]
    }

    fn headlines(&self) -> &'static [&'static str] {
        &[
            FIRST_EXIT,
            REQUESTS[1].answer,
            REQUESTS[1].request,
            REQUESTS[0].reset,
            DESTROY,
            IN_TURN,
            AT_ONCE,
        ]
    }

    fn levels(&self) -> &'static [&'static str] {
        &[
            FORKS_AT_ONCE,
            OWN_IDLE,
            REQUESTS[0].own,
            REQUESTS[1].own,
            REQUESTS[2].own,
            REQUESTS[0].faults,
            REQUESTS[1].faults,
            REQUESTS[2].faults,
            REQUESTS[0].faults_again,
            REQUESTS[1].faults_again,
            REQUESTS[2].faults_again,
        ]
    }

    fn answer(&self, rows: &[ResultRow], _host: &Host) -> Answer {
        answer::answer(rows)
    }

    fn params(&self) -> &'static [Param] {
        &[
            Param {
                name: Bound::FORKS.name,
                default: "100",
                summary: "forks in turn and at once: one number after another, beside one alone",
            },
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
        let most = most_forks(request);
        let mut rows = Vec::new();
        for size in needs::memory(request) {
            let bytes = usize::try_from(size.bytes())?;
            let on_machine = || machine::Template::new(bytes, most);
            rows.extend(of_size(size, on_machine, request, progress)?);
            let on_kvm = || kvm::Template::new(bytes);
            rows.extend(of_size(size, on_kvm, request, progress).context("on KVM")?);
        }
        Ok(rows)
    }

    fn left_out(&self, request: &Request<'_>) -> Vec<String> {
        let sizes = needs::memory(request).into_iter();
        sizes.filter_map(|size| needs::why_not(Backend::Kvm, size)).collect()
    }
}

fn row(
    backend: Backend,
    variant: &str,
    size: Size,
    forks: u32,
    request: &Request<'_>,
) -> ResultRow {
    ResultRow::new(NAME, backend, variant)
        .param(Size::PARAM, size.bytes())
        .param(Bound::FORKS.name, forks)
        .param(Bound::ROUNDS.name, rounds(request))
        .param(SEED, seed(request))
}

/// The rows of one size on one backend: all designs, in turn.
fn of_size<G: Ground>(
    size: Size,
    ground: impl FnOnce() -> anyhow::Result<G>,
    request: &Request<'_>,
    progress: &mut dyn Progress,
) -> anyhow::Result<Vec<ResultRow>> {
    let row = |variant: &str, forks| row(G::BACKEND, variant, size, forks, request);
    let variants: Vec<_> = request.variants_on(G::BACKEND).collect();
    if variants.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(why) = needs::why_not(G::BACKEND, size) {
        return Ok(variants.iter().map(|variant| row(variant, 1).skipped(why.clone())).collect());
    }
    let ground = ground()?;
    let (mut designs, mut done) = (Vec::new(), Vec::new());
    for variant in variants {
        match Measured::new(&ground, variant) {
            Ok(design) => designs.push(design),
            Err(why) => match why.downcast_ref::<Error>() {
                Some(Error::Call { call: "userfaultfd" | "UFFDIO_API", .. }) => {
                    done.push(row(variant, 1).skipped(why.to_string()));
                }
                _ => return Err(why),
            },
        }
    }
    let (rounds, many) = (rounds(request), forks(request));
    let steps = (rounds as usize + 1 + many.len()) * designs.len();
    progress.begin(&format!("{NAME}, {size}"), steps as u64);
    for index in turns(rounds, designs.len(), seed(request)) {
        designs[index].round(&ground)?;
        progress.step();
    }
    for design in &mut designs {
        design.look(&ground)?;
        done.push(design.report(row(design.variant, 1), &ground)?);
        progress.step();
    }
    for forks in many {
        for design in &designs {
            let many = design.many(&ground, forks, size)?;
            done.push(many.report(row(design.variant, forks)));
            progress.step();
        }
    }
    progress.finish();
    Ok(done)
}
