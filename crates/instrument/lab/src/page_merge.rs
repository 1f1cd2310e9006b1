//! The experiment `page-merge`: what guests fault for while the host merges their pages, and takes them apart again.

mod answer;
#[cfg(test)]
mod deaf;
mod guest;
mod kvm;
mod machine;
mod names;
mod needs;
mod pattern;
mod rig;
mod rounds;
mod scans;
mod shape;
mod watched;
mod window;

use anyhow::Context;
use mayfly_record::{Backend, Host, ResultRow};

use crate::answers::Answer;
use crate::experiment::{Experiment, Metric, Param, Request, Variant};
use crate::needs::Needs;
use crate::params::{Bound, Ksm, Size};
use crate::progress::Progress;

use names::{
    BATCHED, BREAK, CHANGE_PTE, ENTRIES_WRITTEN, FAULT_CPU, FAULTS_REFUSED, FROZEN_WAITS,
    FULL_SCAN, FULL_SCANS, GUEST_FAULTS, INVALIDATE, MERGE, MERGED_WRITE, NAME, NOTIFIER_CPU,
    OWN_WRITE, TABLES_FREED, TABLES_KEPT, TLB_ADDRESSES, TLB_INVALIDATIONS, TLB_REFILLS, VM_CPU,
    WINDOW_FAULTS, WRITE_FAULT, row,
};
use pattern::MOST_VMS;

/// The experiment `page-merge`.
pub(crate) struct PageMerge;

impl Experiment for PageMerge {
    fn name(&self) -> &'static str {
        NAME
    }

    fn summary(&self) -> &'static str {
        "what guests fault for while equal pages are merged and taken apart"
    }

    fn about(&self) -> &'static str {
        "Linux's page merger (KSM) makes equal pages share one read-only frame. A write
gives a page a frame of its own again. Linux tells KVM of each change at its
start and at its end. At the start, KVM removes the page from the guest's
tables. A guest that touches the page meanwhile finds nothing, and takes a full
fault, although the contents of the page are there all the time. A call to
change the entry in place, change_pte, existed, but never found an entry to
change. Linux removed it in v6.10.

Several VMs run at once, as in the tests ksm01 and ksm02 of the Linux Test
Project. In each round their pages become equal in all VMs and are merged. Then
they differ again, each written by its guest. A few pages are written all the
time, and a few are all zeroes. While all pages are merged, the host
write-protects the memory part by part and gives the right back, forks each
VM's memory as fork(2) does, and moves some of it away and back (mremap(2)).
When the pages differ again, the host migrates some of them. vCPUs keep
reading, writing and checking: they must read what was written last. Each round
has VMs of its own, under every variant in turn.

The machine's variants differ in what the VM does when it is told of a change.
invalidate zaps at every start, as Linux does. change-pte, as proposed in 2019
(Jérôme Glisse), ignores the start of a break, and takes only the right to
write at the start of a merge. It replaces in place what stays read-only, and
zaps what becomes writable. mayfly leaves mapped what guests may still read,
replaces entries in place, and frees tables only where memory goes for good.
Each variant runs on EPT and on arm64's format, where entries may have to be
broken before they are made.

On KVM, --ksm, as root, runs the kernel's own KSM. It merges the memory of
every process that allows it. If there is another such process, the run does
nothing, unless with --ksm=shared. KSM's settings are put back as they were: by
this process, by a process of its own that outlives it, or by the next run.
What was merged of this run is taken apart, and nothing else."
    }

    fn variants(&self) -> &'static [Variant] {
        &[
            Variant {
                backend: Backend::Machine,
                name: INVALIDATE,
                summary: "zapped at the start of every change, whatever it is (Linux)",
            },
            Variant {
                backend: Backend::Machine,
                name: CHANGE_PTE,
                summary: "merges replaced in place, breaks zapped (proposed in 2019)",
            },
            Variant {
                backend: Backend::Machine,
                name: Variant::BASELINE,
                summary: "replaced in place where guests may still read; tables kept if needed soon",
            },
            Variant {
                backend: Backend::Machine,
                name: BATCHED,
                summary: "as mayfly, but up to 64 pages one after the other are one change",
            },
            Variant {
                summary: "/dev/kvm and KSM, as the running kernel has them",
                ..Variant::KERNEL
            },
        ]
    }

    fn metrics(&self) -> &'static [Metric] {
        &[
            Metric { name: MERGE, summary: "the VM's part of merging a page, all its calls" },
            Metric { name: BREAK, summary: "the VM's part of giving a page its own frame again" },
            Metric {
                name: WRITE_FAULT,
                summary: "from a guest's write to what it may only read until it goes on",
            },
            Metric {
                name: VM_CPU,
                summary: "CPU time of fault_cpu and notifier_cpu: whether it pays, in a round",
            },
            Metric {
                name: FAULT_CPU,
                summary: "CPU time of all guests' faults until they continue, breaks included",
            },
            Metric {
                name: NOTIFIER_CPU,
                summary: "CPU time of all other notifications of changes to VMs",
            },
            Metric { name: GUEST_FAULTS, summary: "faults of all guests, in a round" },
            Metric {
                name: WINDOW_FAULTS,
                summary: "of them between start and end of a change to pages that were mapped",
            },
            Metric {
                name: FAULTS_REFUSED,
                summary: "of them to be made again: a change was under way",
            },
            Metric {
                name: FROZEN_WAITS,
                summary: "waits for an entry that was frozen, in a round",
            },
            Metric { name: ENTRIES_WRITTEN, summary: "entries of tables written, in a round" },
            Metric {
                name: TABLES_FREED,
                summary: "tables freed with what they mapped, in a round",
            },
            Metric { name: TABLES_KEPT, summary: "tables kept though nothing was left in them" },
            Metric { name: TLB_INVALIDATIONS, summary: "invalidations of TLBs, in a round" },
            Metric { name: TLB_ADDRESSES, summary: "those by address that they come to" },
            Metric {
                name: TLB_REFILLS,
                summary: "walks for what a TLB would have, but for an invalidation, in a round",
            },
            Metric { name: FULL_SCAN, summary: "a pass of the merger over all memory" },
            Metric { name: FULL_SCANS, summary: "such passes a second" },
            Metric {
                name: MERGED_WRITE,
                summary: "a page's share of a guest's pass over merged pages, writing to each (KVM)",
            },
            Metric { name: OWN_WRITE, summary: "the same of the pass after that (KVM)" },
        ]
    }

    fn headlines(&self) -> &'static [&'static str] {
        &[VM_CPU, GUEST_FAULTS, WINDOW_FAULTS, MERGED_WRITE, OWN_WRITE]
    }

    fn levels(&self) -> &'static [&'static str] {
        &[
            "pages_shared",
            "pages_sharing",
            "ksm_zero_pages",
            "own_pages_merged",
            "others_before",
            "others_after",
        ]
    }

    fn answer(&self, rows: &[ResultRow], _host: &Host) -> Answer {
        answer::answer(rows)
    }

    fn params(&self) -> &'static [Param] {
        &[
            Param { name: Bound::VMS.name, default: "8", summary: "VMs at once, at most 256" },
            Param { name: Bound::VCPUS.name, default: "2", summary: "vCPUs of each VM" },
            Param { name: Size::PARAM, default: "4MiB", summary: "memory of each VM" },
            Param {
                name: Bound::ROUNDS.name,
                default: "10",
                summary: "VMs of each variant in turn, whose pages become equal and differ again",
            },
            Param {
                name: Bound::PAGES_A_CHANGE.name,
                default: "1, as KSM does",
                summary: "pages that the machine's merger merges together, at most",
            },
            Param {
                name: Ksm::PARAM,
                default: "the host's page merger is left alone",
                summary: "have the host's page merger run for KVM's row, as root",
            },
        ]
    }

    fn counts(&self) -> &'static [&'static str] {
        &[
            GUEST_FAULTS,
            WINDOW_FAULTS,
            FAULTS_REFUSED,
            FROZEN_WAITS,
            ENTRIES_WRITTEN,
            TABLES_FREED,
            TABLES_KEPT,
            TLB_INVALIDATIONS,
            TLB_ADDRESSES,
            TLB_REFILLS,
            FULL_SCANS,
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
        for shape in needs::shapes(request) {
            if shape.vms > MOST_VMS {
                let why = format!("no more than {MOST_VMS} VMs are run at once");
                let skipped = |variant: &&Variant| {
                    row(variant.backend, variant.name, shape).skipped(why.clone())
                };
                rows.extend(request.variants.iter().map(skipped));
                continue;
            }
            let designs: Vec<_> = request.variants_on(Backend::Machine).collect();
            if !designs.is_empty() {
                rows.extend(machine::rows(&designs, shape, request, progress)?);
            }
            for variant in request.variants_on(Backend::Kvm) {
                let row = row(Backend::Kvm, variant, shape);
                rows.push(kvm::run(row, shape, request, progress).context("on KVM")?);
            }
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests;
