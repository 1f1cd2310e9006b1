//! What the rows come to.

use mayfly_record::{Host, ResultRow, units};

use crate::answer::{Answer, Rows};
use crate::mapping::Mapping;
use crate::params::{Bound, Size};

use super::rows::{BRING_UP, MODELLED_BRING_UP};

/// What vCPUs wait for that turn their caches on, here and in Mayfly, and what to do.
pub(super) fn answer(rows: &[ResultRow], host: &Host) -> Answer {
    let rows = Rows::of(rows);
    let in_pages = rows.with(Mapping::PARAM, Mapping::Pages.name());
    let (kvm, on_kvm) = in_pages.kvm().most(Size::PARAM);
    let (every, bytes) = in_pages.machine("every-vcpu").most(Size::PARAM);
    let mayfly = in_pages.mayfly().with(Size::PARAM, bytes);
    let bring_up = |rows: &Rows<'_>| {
        let (metric, how) =
            [(BRING_UP, ""), (MODELLED_BRING_UP, ", its lines counted and not flushed")]
                .into_iter()
                .find(|(metric, _)| rows.p50(metric).is_some())?;
        Some((rows.time(metric)?, how))
    };

    let here = || {
        let time = kvm.time(BRING_UP)?;
        let size = units::bytes(on_kvm);
        let verdict = match host.kvm_fwb {
            Some(true) => "This host is not affected: its processors have FEAT_S2FWB. ",
            Some(false) => "This host is affected: its processors do not have FEAT_S2FWB. ",
            None => "",
        };
        Some(format!(
            "{verdict}On this host's KVM all vCPUs of a VM of {size} have their caches on after {time}."
        ))
    };
    let not_here = || {
        (host.arch == "x86_64").then(|| {
            "This host is not affected: x86's guests cannot get past the caches. What is measured is arm64's \
             without FEAT_S2FWB.".to_owned()
        })
    };
    let waits = || {
        let (time, how) = bring_up(&every)?;
        let size = units::bytes(bytes);
        let vcpus = units::things(every.largest(Bound::VCPUS.name)?, "vCPU");
        Some(format!(
            "What waits: KVM flushes all that is mapped for every vCPU that turns its caches on: {time} for {vcpus} \
             and {size}{how}."
        ))
    };
    let wrong = || {
        let stale = |variant| rows.machine(variant).counter("scenarios_stale");
        let of = rows.machine("vcpu0-only").counter("scenarios")?;
        let (vcpu0, first) = (stale("vcpu0-only")?, stale("first-vcpu")?);
        Some(format!(
            "Flushing for vCPU 0, or for the first, alone is quick and wrong: guests read stale data in {vcpu0} and \
             {first} of {of} scenarios."
        ))
    };
    let instead = || {
        let (time, _) = bring_up(&mayfly)?;
        let stale = rows.mayfly().counter("scenarios_stale");
        let stale = stale.map(|stale| format!(" Stale data is read in {stale} scenarios."));
        Some(format!(
            "Mayfly flushes what was written past the caches: {time}.{}",
            stale.unwrap_or_default()
        ))
    };
    let advice = || {
        kvm.p50(BRING_UP)?;
        let advice = match host.kvm_fwb {
            Some(true) => "nothing; this KVM flushes nothing when a vCPU turns its caches on.",
            _ => {
                "start secondary vCPUs before memory is touched, or take processors with FEAT_S2FWB."
            }
        };
        Some(format!("What to do: {advice}"))
    };
    let designs = [waits(), wrong(), instead()];
    let size = if bytes > 0 { bytes } else { on_kvm };
    Answer::of(here().or_else(not_here), designs, advice())
        .by(Size::PARAM, size)
        .by(Mapping::PARAM, Mapping::Pages.name())
}
