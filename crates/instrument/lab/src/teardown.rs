//! The experiment `teardown`: what it costs to destroy a VM.

mod answer;
mod kvm;
mod machine;
mod maintenance;
mod names;
mod needs;
mod rows;

use mayfly_record::{Backend, Host, ResultRow};

use crate::answers::Answer;
use crate::experiment::{Experiment, Metric, Param, Request, Variant};
use crate::mapping::Mapping;
use crate::needs::Needs;
use crate::params::{Bound, Size};
use crate::progress::Progress;
use crate::turns::{SEED, seed, turns};
use crate::work;

use kvm::Lives;
use machine::{Design, Ground};
use names::{GIB, NAME, SIZES, rounds};
use rows::Row;

/// What `per-page` cleans at most: the first GiB.
const SAMPLE: Size = Size::blocks(GIB);

/// The experiment `teardown`.
pub(crate) struct Teardown;

impl Experiment for Teardown {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "a VM's end: what is walked, cleaned and invalidated meanwhile"
    }

    fn about(&self) -> &'static str {
        "On arm64, Linux removed a VM's memory page by page when the VM ended: it
cleared the entry, invalidated the page in every TLB, and cleaned the page's
cache lines to memory. The cleaning is of use only to a device that reads
memory past the caches, such as one that a page is swapped out to. For a VM of
64 GiB all this took seconds.

A VM of each size is mapped throughout, in pages of 4 KiB or in blocks of 2
MiB. It runs its guest, and is destroyed. Two times are taken: until the call
returns, and until every frame of its tables is free. The frames that it maps
are mostly untouched (the arena is sparse), but all entries are there: 16.7
million for 64 GiB in pages. The tables are in arm64's format. The guest's own
faults map the last 16 MiB. The rest is mapped as by faults, but many pages at
once.

The machine's variants: per-page does what arm64 did up to 2019. elided, as
proposed then (Marc Zyngier), leaves out what the end of a VM does not need,
but still walks every entry before it returns. arm64-v6.18 and tdp-mmu-v6.18 do
what Linux does today on arm64 and on x86. mayfly detaches the root and
returns, and frees tables in the background without looking at their leaves.
Its reclaimer is scheduled so that it preempts no other thread (SCHED_BATCH).
mayfly-preempting has no such scheduling, and so shows what it gains and costs.
per-page walks and invalidates all of a VM, but really cleans only the first
GiB. If there is more, modelled_clean is the time of one line times the number
of lines, and modelled_destroy has that in place of the real cleaning.

On KVM, the guest writes to every page, the vCPU and the VM are closed, and
then the memory is unmapped. x86's kernel cleans no caches at a VM's end.
Memory is in blocks if the host gives huge pages: madvise(2), MADV_HUGEPAGE.
Sizes above half of the host's available memory are left out."
    }

    fn variants(&self) -> &'static [Variant] {
        &[
            Variant {
                backend: Backend::Machine,
                name: "per-page",
                summary: "each entry cleared, invalidated in the TLBs, its lines cleaned (arm64 to 2019)",
            },
            Variant {
                backend: Backend::Machine,
                name: "elided",
                summary: "each entry cleared; one invalidation of all, no line cleaned (2019's series)",
            },
            Variant {
                backend: Backend::Machine,
                name: "arm64-v6.18",
                summary: "a reference dropped for each entry, which stays; nothing invalidated (Linux v6.18)",
            },
            Variant {
                backend: Backend::Machine,
                name: "tdp-mmu-v6.18",
                summary: "each entry exchanged for an empty one, level by level (x86's TDP MMU, Linux v6.18)",
            },
            Variant {
                backend: Backend::Machine,
                name: Variant::BASELINE,
                summary: "the root is detached; its tables are freed in the background",
            },
            Variant {
                backend: Backend::Machine,
                name: "mayfly-preempting",
                summary: "as mayfly, but its reclaimer may preempt the thread that wakes it (SCHED_OTHER, not SCHED_BATCH)",
            },
            Variant::KERNEL,
        ]
    }

    fn metrics(&self) -> &'static [Metric] {
        &[
            Metric { name: "destroy", summary: "destroying the VM and its vCPU, until it returns" },
            Metric {
                name: "modelled_destroy",
                summary: "the same, as if all lines were cleaned, where a part was",
            },
            Metric {
                name: "walk",
                summary: "of that, the caller's way through the tables, with its invalidations",
            },
            Metric { name: "clean", summary: "of that, cleaning; of the part that was cleaned" },
            Metric {
                name: "modelled_clean",
                summary: "what all lines would have taken, at what one of that part took",
            },
            Metric {
                name: "woken",
                summary: "until the reclaimer's thread is at work; none where the caller frees the tables",
            },
            Metric {
                name: "reclaimed",
                summary: "from the same beginning until all table frames are free",
            },
            Metric {
                name: "fault",
                summary: "on KVM, the guest's first write to its memory, for each 4 KiB of it",
            },
            Metric { name: "munmap", summary: "unmapping the guest's memory after that" },
        ]
    }

    fn headlines(&self) -> &'static [&'static str] {
        &["destroy", "modelled_destroy", "reclaimed", work::TOTAL]
    }

    fn answer(&self, rows: &[ResultRow], _host: &Host) -> Answer {
        answer::answer(rows)
    }

    fn params(&self) -> &'static [Param] {
        &[
            Param {
                name: Size::PARAM,
                default: "1GiB,16GiB; 1GiB on KVM",
                summary: "sizes of a VM's memory, one after another",
            },
            Param {
                name: Bound::ROUNDS.name,
                default: "10",
                summary: "VMs of each variant and size",
            },
        ]
    }

    fn needs(&self, request: &Request<'_>) -> Needs {
        needs::of(request, SAMPLE)
    }

    fn run(
        &self,
        request: &Request<'_>,
        progress: &mut dyn Progress,
    ) -> anyhow::Result<Vec<ResultRow>> {
        let sizes = request.params.memory_or(&SIZES);
        let designs: Vec<_> = request.variants_on(Backend::Machine).map(design).collect();
        let largest = sizes.iter().copied().max().filter(|_| !designs.is_empty());
        let mut ground = largest.map(|largest| Ground::new(largest, SAMPLE.bytes())).transpose()?;
        let mut rows = Vec::new();
        for size in sizes {
            for mapping in Mapping::ALL {
                rows.extend(in_turn(&mut ground, &designs, size, mapping, request, progress)?);
            }
        }
        Ok(rows)
    }

    fn left_out(&self, request: &Request<'_>) -> Vec<String> {
        let sizes = request.params.memory_or(&SIZES);
        let all = sizes.into_iter().flat_map(|size| Mapping::ALL.map(|mapping| (size, mapping)));
        all.filter_map(|(size, mapping)| kvm::why_not(size, mapping, request)).collect()
    }
}

fn design(variant: &'static str) -> (&'static str, Design) {
    let design = match variant {
        "per-page" => Design::PerPage,
        "elided" => Design::Elided,
        "arm64-v6.18" => Design::Arm64,
        "tdp-mmu-v6.18" => Design::TdpMmu,
        "mayfly-preempting" => Design::Preempting,
        _ => Design::Mayfly,
    };
    (variant, design)
}

fn row(backend: Backend, variant: &str, size: Size, mapping: Mapping, rounds: u32) -> ResultRow {
    ResultRow::new(NAME, backend, variant)
        .param(Size::PARAM, size.bytes())
        .param(Mapping::PARAM, mapping.name())
        .param(Bound::ROUNDS.name, rounds)
}

/// The rows of one size and mapping: all designs and KVM, in turn.
fn in_turn(
    ground: &mut Option<Ground>,
    designs: &[(&'static str, Design)],
    size: Size,
    mapping: Mapping,
    request: &Request<'_>,
    progress: &mut dyn Progress,
) -> anyhow::Result<Vec<ResultRow>> {
    let (rounds, seed) = (rounds(request), seed(request));
    let variants: Vec<_> = request.variants_on(Backend::Kvm).collect();
    let why_not = kvm::why_not(size, mapping, request).filter(|_| !variants.is_empty());
    let mut on_kvm = match why_not {
        None => variants.iter().map(|_| Lives::new(size, mapping)).collect::<Result<_, _>>()?,
        Some(_) => Vec::new(),
    };
    let mut rows: Vec<_> = designs.iter().map(|_| Row::default()).collect();
    let count = rows.len() + on_kvm.len();
    progress
        .begin(&format!("{NAME}, {size} in {}", mapping.name()), u64::from(rounds) * count as u64);
    if let Some(ground) = ground {
        for (_, design) in designs {
            // So that no design pays for code that has not been run for a while.
            let built = ground.build(Size::UNIT, mapping)?;
            ground.tear_down(built, *design)?;
        }
    }
    for index in turns(rounds, count, seed) {
        match (designs.get(index), &mut *ground) {
            (Some((_, design)), Some(ground)) => {
                let built = ground.build(size, mapping)?;
                let counts = built.counts;
                rows[index].began(built.start);
                let torn = ground.tear_down(built, *design)?;
                let times = size.bytes() as f64 / SAMPLE.bytes().min(size.bytes()) as f64;
                rows[index].note(counts, torn, times);
            }
            _ => on_kvm[index - rows.len()].live()?,
        }
        progress.step();
    }
    progress.finish();
    let row =
        |backend, variant: &str| row(backend, variant, size, mapping, rounds).param(SEED, seed);
    let mut done = Vec::new();
    for ((variant, design), measured) in designs.iter().zip(rows) {
        let mut row = measured.report(row(Backend::Machine, variant), *design, mapping, SAMPLE);
        if let (Design::Mayfly, Some(ground)) = (*design, &mut *ground) {
            row = rows::report_maintenance(row, maintenance::observe(&ground.machine, mapping)?);
        }
        done.push(row);
    }
    let mut lives = on_kvm.into_iter();
    done.extend(variants.into_iter().map(|variant| {
        let row = row(Backend::Kvm, variant);
        match (lives.next(), &why_not) {
            (Some(lives), _) => lives.report(row),
            (None, why) => row.skipped(why.clone().unwrap_or_default()),
        }
    }));
    Ok(done)
}

#[cfg(test)]
mod tests;
