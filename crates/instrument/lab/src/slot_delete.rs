//! The experiment `slot-delete`: what running vCPUs wait for while a memslot is deleted.

mod answer;
pub(crate) mod design;
pub(crate) mod guest;
pub(crate) mod watch;

mod refault;

mod kvm;
mod machine;
mod mayfly;
mod metrics;
mod names;
mod needs;
mod rounds;

use anyhow::Context;
use mayfly_record::{Backend, Host, ResultRow, units};

use crate::answers::Answer;
use crate::experiment::{Experiment, Metric, Param, Request, Variant};
use crate::idle::has_clock;
use crate::needs::Needs;
use crate::params::{Bound, Size, Zap};
use crate::progress::Progress;
use crate::turns::{SEED, seed, turns};
use crate::vms::Vms;

use metrics::METRICS;
use names::{NAME, READ_LOCKED, WRITE_LOCKED};
use needs::{DELETIONS, MEMORY, ROUNDS, VCPUS};
use rounds::Shape;

/// The experiment `slot-delete`.
pub(crate) struct SlotDelete;

impl Experiment for SlotDelete {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "what keeps vCPUs from their new root while a memslot is deleted"
    }

    fn about(&self) -> &'static str {
        "On x86, deleting a memslot invalidates every root table of the VM by default.
All vCPUs drop the old root and load a new one, and KVM zaps the old tables. On
arm64 (and on x86, on request, since v6.12) KVM zaps only what the slot had
mapped.

Until v6.8, KVM's TDP MMU took mmu_lock for write to drop a root, and again to
load one (write-locked). The lock is fair: all vCPUs queue for it, one after
the other, behind a zap that gives it up every 1 GiB. Since v6.9 vCPUs take it
for read, and the zap looks for waiters at every entry (read-locked). Mayfly
finds, makes and releases roots by atomics, and frees zapped tables in the
background.

The vCPUs of a VM go over their memory, and read what they wrote before. All of
the memory is mapped by 4 KiB. They also go over another slot, a fourth of that
size. This slot is deleted and created again: twice while all vCPUs run, and
once while every other one is parked outside the guest. In each round every
variant has a VM of its own. Every design runs on the software machine: real
tables, real locks, a thread for each vCPU, and TLBs that other threads
invalidate.

If there are fewer processors than the vCPUs and two more, vCPUs are idle
between two short stays in the guest, and wall-clock time is the scheduler's.
Then calls have no wall-clock time, only CPU time of the caller (delete_cpu). A
root load then counts the vCPUs that had the lock or queued for it when it came
(root_load_ahead), and its own CPU time (root_load_cpu). A vCPU that waits for
a lock sleeps then; if there are enough processors it spins, as in Linux.

On KVM, guests in ring 3 write to their pages, and each to one page of a slot
of 2 MiB that is deleted: sparse_delete. Roots cannot be seen from outside."
    }

    fn variants(&self) -> &'static [Variant] {
        &[
            Variant {
                backend: Backend::Machine,
                name: WRITE_LOCKED,
                summary: "roots under mmu_lock for write, zapped by 1 GiB (Linux until v6.8)",
            },
            Variant {
                backend: Backend::Machine,
                name: READ_LOCKED,
                summary: "roots under mmu_lock for read, zapped by 4 KiB (Linux since v6.9)",
            },
            Variant {
                backend: Backend::Machine,
                name: Variant::BASELINE,
                summary: "roots without a lock, freed in slices in the background",
            },
            Variant::KERNEL,
        ]
    }

    fn metrics(&self) -> &'static [Metric] {
        &METRICS
    }

    fn headlines(&self) -> &'static [&'static str] {
        &[
            metrics::ROOT_LOAD_AHEAD,
            metrics::DELETE_CPU,
            metrics::DELETION_CPU,
            metrics::DELETE,
            metrics::UNTIL_FREED,
            metrics::SPARSE_DELETE_CPU,
            metrics::SPARSE_DELETE,
        ]
    }

    fn answer(&self, rows: &[ResultRow], host: &Host) -> Answer {
        answer::answer(rows, host)
    }

    fn params(&self) -> &'static [Param] {
        &[
            Param {
                name: Bound::VCPUS.name,
                default: "4,16,64,128",
                summary: "vCPUs of the VM: one number after another",
            },
            Param {
                name: Bound::ROUNDS.name,
                default: "12",
                summary: "VMs of each variant, which take turns; each deletes the slot three times",
            },
            Param {
                name: Size::PARAM,
                default: "1GiB",
                summary: "the guest's memory; the slot that is deleted adds a fourth",
            },
            Param { name: Zap::PARAM, default: "both", summary: "what deleting the slot zaps" },
        ]
    }

    fn counts(&self) -> &'static [&'static str] {
        &[
            metrics::ROOT_LOAD_AHEAD,
            metrics::PEAK_TABLES,
            metrics::PEAK_TABLES_PARKED,
            metrics::HELD_PARKED,
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
        let params = request.params;
        let rounds = params.rounds.unwrap_or(ROUNDS);
        let mut rows = Vec::new();
        for vcpus in params.vcpus_or(&VCPUS) {
            for zap in params.zaps_or_all() {
                for memory in params.memory_or(&[MEMORY]) {
                    let has_clock = has_clock(vcpus, request.host.cpus);
                    let shape = Shape { vcpus, deletions: DELETIONS, has_clock, memory };
                    rows.extend(variants(request, zap, shape, rounds, progress)?);
                }
            }
        }
        Ok(rows)
    }
}

/// The rows of one set of parameters. In each round each variant has a VM.
fn variants(
    request: &Request<'_>,
    zap: Zap,
    shape: Shape,
    rounds: u32,
    progress: &mut dyn Progress,
) -> anyhow::Result<Vec<ResultRow>> {
    let (variants, vcpus) = (request.variants, shape.vcpus);
    let title = format!("{NAME}, {}, {zap}", units::things(vcpus.into(), "vCPU"));
    progress.begin(&title, u64::from(rounds) * variants.len() as u64);
    let vms = variants.iter().map(|one| Vms::on(one.backend, || kvm::why_not(zap, shape)));
    let mut vms = vms.collect::<anyhow::Result<Vec<_>>>()?;
    for index in turns(rounds, variants.len(), seed(request)) {
        let name = variants[index].name;
        vms[index]
            .run(|| machine::run(name, zap, shape), || kvm::run(zap, shape))
            .with_context(|| format!("{name}: {title}"))?;
        progress.step();
    }
    progress.finish();
    let rows = variants.iter().zip(vms).map(|(Variant { backend, name, .. }, vms)| {
        let row = ResultRow::new(NAME, *backend, name)
            .param(Bound::VCPUS.name, vcpus)
            .param(Zap::PARAM, zap.name())
            .param(Bound::ROUNDS.name, rounds)
            .param(SEED, seed(request));
        let row = match vms {
            // KVM's guests are the same whatever the machine's have.
            Vms::Kvm(vms) => kvm::report(row, &vms),
            Vms::Skipped(why) => row.skipped(why),
            Vms::Machine(vms) => {
                let row = row.param(Size::PARAM, shape.memory.bytes());
                machine::row(row, name, &vms)
            }
        };
        if shape.has_clock { row } else { metrics::without_clock(row) }
    });
    Ok(rows.collect())
}

#[cfg(test)]
mod tests;
