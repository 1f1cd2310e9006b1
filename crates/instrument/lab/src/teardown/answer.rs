//! The answer of `teardown`: what destroying a VM costs, and what to do.

use mayfly_record::{BASELINE, ResultRow, units};

use crate::answers::Answer;
use crate::mapping::Mapping;
use crate::params::Size;
use crate::rows::{Rows, times};

/// What a VM's end costs, here and in Mayfly, and what to do.
pub(super) fn answer(rows: &[ResultRow]) -> Answer {
    let rows = Rows::of(rows);
    let (kvm, kvm_bytes) = rows.kvm().most(Size::PARAM);
    let mapped = |mapping: Mapping| kvm.with(Mapping::PARAM, mapping.name());
    let (pages, blocks) = (mapped(Mapping::Pages), mapped(Mapping::Blocks));
    let in_pages = rows.with(Mapping::PARAM, Mapping::Pages.name());
    let [(mayfly, _), (before, bytes), (elided, _)] =
        [BASELINE, "per-page", "elided"].map(|variant| in_pages.machine(variant).most(Size::PARAM));
    let (size, on_kvm) = (units::bytes(bytes), units::bytes(kvm_bytes));

    let here = || {
        let (destroy, munmap) = (pages.time("destroy")?, pages.time("munmap")?);
        Some(format!(
            "On this host's KVM, destroying a VM of {on_kvm} in pages of 4 KiB takes {destroy}, and unmapping its \
             memory takes another {munmap}."
        ))
    };
    let in_blocks = || {
        let (destroy, munmap) = (blocks.time("destroy")?, blocks.time("munmap")?);
        let gain = times(pages.p50("munmap"), blocks.p50("munmap"))?;
        Some(format!(
            "The same in huge pages: {destroy} and {munmap}. Unmapping takes {gain} less."
        ))
    };
    let waits = || {
        let (name, time) = ["destroy", "modelled_destroy"]
            .into_iter()
            .find_map(|name| Some((name, before.time(name)?)))?;
        let how = if name == "destroy" { "" } else { " (modelled from a part)" };
        let elided = elided.time("destroy")?;
        Some(format!(
            "What waits: the caller that destroys the VM. Up to 2019, arm64 invalidated TLBs and cleaned caches page \
             by page: for {size} {time}{how}. Without the work that has no effect at a VM's end: {elided}."
        ))
    };
    let instead = || {
        let (destroy, freed) = (mayfly.time("destroy")?, mayfly.time("reclaimed")?);
        Some(format!(
            "Mayfly returns to the caller after {destroy}. All tables are free after {freed}."
        ))
    };
    let advice = || {
        pages.p50("munmap")?;
        Some("What to do: back guests with huge pages. Let another thread or process unmap the memory. Close the VM's \
        file descriptors on a thread that no user waits for.".to_owned())
    };
    let bytes = if bytes > 0 { bytes } else { kvm_bytes };
    Answer::of(
        here().or_else(|| rows.kvm_not_measured()),
        [in_blocks(), waits(), instead()],
        advice(),
    )
    .by(Size::PARAM, bytes)
    .by(Mapping::PARAM, Mapping::Pages.name())
}
