//! The experiment `dirty-log`: what a dirty log costs the caller, and the guest that goes on writing.

mod answer;
pub(crate) mod design;
pub(crate) mod guest;
pub(crate) mod stall;

mod kvm;
mod machine;
mod mayfly;
mod metrics;
mod names;
mod needs;
mod rounds;
mod waits;

use anyhow::Context;
use mayfly_record::{Backend, Host, ResultRow, units};

use crate::answers::Answer;
use crate::experiment::{Experiment, Metric, Param, Request, Variant};
use crate::idle::has_clock;
use crate::needs::Needs;
use crate::params::{Bound, Size};
use crate::progress::Progress;
use crate::turns::{SEED, seed, turns};
use crate::vms::Vms;

use metrics::METRICS;
use names::{INITIALLY_SET, MANUAL_PROTECT, NAME, RING, WRITE_LOCKED, WRITE_PROTECT};
use needs::{MEMORY, ROUNDS, VCPUS, WRITTEN};
use rounds::Shape;

/// The experiment `dirty-log`.
pub(crate) struct DirtyLog;

impl Experiment for DirtyLog {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "a dirty log: what starting, harvesting and stopping it cost the caller and the guest"
    }

    fn about(&self) -> &'static str {
        "A VMM that copies a guest while the guest runs has a dirty log of its writes:
it starts the log, harvests it several times while the guest writes, and at last
stops it, unless the guest goes on elsewhere. To start it, Linux splits all
blocks of 2 MiB and write-protects every page: milliseconds for each GiB. To
stop it, Linux goes through all of it again. Meanwhile guests' writes fault, and
some of them wait for mmu_lock.

The vCPUs of a VM write to their pages again and again: to 1, 10 or 100 of each
100 pages of the memory, which are scattered over all of it. All of it is mapped
by blocks of 2 MiB. The caller starts the log, harvests it twice while all vCPUs
write, once more while they have stopped, and stops it. After each harvest it
copies what the harvest names. In the end the copy has to be what the guests
have written last, or a write was lost. In each round every variant has a VM of
its own.

Every design runs on the software machine: real tables, real locks, a thread
for each vCPU, and TLBs that other threads invalidate. A stall is a write that
faults, until it is made. It has the CPU time of the vCPU's thread, and what
that waited for others. A wait for a lock counts as long as the thread that has
the lock runs: so a host with fewer processors than vCPUs has no part in it. If
each vCPU, and the caller, has a processor, calls are timed on the clock, too.

On KVM, guests write to as many pages, from the first of a slot on. A row says
which MMU it shows: shadow paging and the TDP MMU are different code. Stalls
cannot be seen from outside; a vCPU's longest pass over its pages can."
    }

    fn variants(&self) -> &'static [Variant] {
        &[
            Variant {
                backend: Backend::Machine,
                name: WRITE_PROTECT,
                summary: "all blocks split and all pages write-protected at the start (Linux v6.18)",
            },
            Variant {
                backend: Backend::Machine,
                name: INITIALLY_SET,
                summary: "all bits set at the start; pages write-protected as they are cleared (Linux v6.18)",
            },
            Variant {
                backend: Backend::Machine,
                name: RING,
                summary: "a ring of written pages for each vCPU; otherwise as write-protect (Linux v6.18)",
            },
            Variant {
                backend: Backend::Machine,
                name: WRITE_LOCKED,
                summary: "one lock for all faults and calls; blocks split by writes (Linux v5.9)",
            },
            Variant {
                backend: Backend::Machine,
                name: Variant::BASELINE,
                summary: "no lock that a vCPU takes; blocks write-protected, and split by writes",
            },
            Variant {
                backend: Backend::Kvm,
                name: Variant::KERNEL.name,
                summary: "KVM_MEM_LOG_DIRTY_PAGES, which KVM_GET_DIRTY_LOG reads and clears",
            },
            Variant {
                backend: Backend::Kvm,
                name: MANUAL_PROTECT,
                summary: "with KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2: cleared by KVM_CLEAR_DIRTY_LOG",
            },
            Variant {
                backend: Backend::Kvm,
                name: INITIALLY_SET,
                summary: "the same with KVM_DIRTY_LOG_INITIALLY_SET",
            },
            Variant {
                backend: Backend::Kvm,
                name: RING,
                summary: "with KVM_CAP_DIRTY_LOG_RING: a ring for each vCPU",
            },
        ]
    }

    fn metrics(&self) -> &'static [Metric] {
        &METRICS
    }

    fn headlines(&self) -> &'static [&'static str] {
        &[
            metrics::CYCLE_CPU,
            metrics::START_CPU,
            metrics::HARVEST_CPU,
            metrics::CLEAR_CPU,
            metrics::STOP_CPU,
            metrics::STALL_P50,
            metrics::STALL_P999,
            metrics::STALL_LONGEST,
            metrics::CALLED_STALL_P999,
            metrics::CALLED_STALL_LONGEST,
        ]
    }

    fn answer(&self, rows: &[ResultRow], _host: &Host) -> Answer {
        answer::answer(rows)
    }

    fn params(&self) -> &'static [Param] {
        &[
            Param {
                name: Bound::VCPUS.name,
                default: "1",
                summary: "vCPUs of the VM: one number after another",
            },
            Param {
                name: Bound::ROUNDS.name,
                default: "10",
                summary: "VMs of each variant, which take turns; each goes through one cycle",
            },
            Param { name: Size::PARAM, default: "256MiB", summary: "the guest's memory" },
            Param {
                name: Bound::WRITTEN.name,
                default: "10",
                summary: "of 100 pages of the memory, how many the guest writes to",
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
        let (params, seed) = (request.params, seed(request));
        let mut rows = Vec::new();
        for memory in params.memory_or(&[MEMORY]) {
            for vcpus in params.vcpus_or(&VCPUS) {
                for written in params.written_or(&WRITTEN) {
                    let shape = Shape { vcpus, memory, written, seed };
                    rows.extend(variants(request, shape, progress)?);
                }
            }
        }
        Ok(rows)
    }
}

/// The rows of one set of parameters. In each round each variant has a VM.
fn variants(
    request: &Request<'_>,
    shape: Shape,
    progress: &mut dyn Progress,
) -> anyhow::Result<Vec<ResultRow>> {
    let Shape { vcpus, memory, written, seed } = shape;
    let (variants, rounds) = (request.variants, request.params.rounds.unwrap_or(ROUNDS));
    let has_clock = has_clock(vcpus, request.host.cpus);
    let title = format!("{NAME}, {memory}, {}, {written} %", units::things(vcpus.into(), "vCPU"));
    progress.begin(&title, u64::from(rounds) * variants.len() as u64);
    let vms = variants.iter().map(|one| Vms::on(one.backend, || kvm::why_not(one.name, shape)));
    let mut vms = vms.collect::<anyhow::Result<Vec<_>>>()?;
    for index in turns(rounds, variants.len(), seed) {
        let name = variants[index].name;
        vms[index]
            .run(|| machine::run(name, shape, has_clock), || kvm::run(name, shape))
            .with_context(|| format!("{name}: {title}"))?;
        progress.step();
    }
    progress.finish();
    let rows = variants.iter().zip(vms).map(|(variant, vms)| {
        let row = ResultRow::new(NAME, variant.backend, variant.name)
            .param(Size::PARAM, memory.bytes())
            .param(Bound::VCPUS.name, vcpus)
            .param(Bound::WRITTEN.name, written)
            .param(Bound::ROUNDS.name, rounds)
            .param(SEED, seed);
        match vms {
            Vms::Machine(vms) => machine::row(row, &vms, has_clock),
            Vms::Kvm(vms) => kvm::row(row, &vms, has_clock, request.host),
            Vms::Skipped(why) => row.skipped(why),
        }
    });
    Ok(rows.collect())
}

#[cfg(test)]
mod tests;
