//! The answer of `cache-enable`: whether this host is affected, what each design flushes, and what to do.

use mayfly_record::{BASELINE, Host, ResultRow, units};

use crate::answers::Answer;
use crate::mapping::Mapping;
use crate::params::{Bound, Size};
use crate::rows::Rows;

use super::rows::{BRING_UP, MODELLED_BRING_UP};

/// What vCPUs wait for that turn their caches on, here and in Mayfly, and what to do.
pub(super) fn answer(rows: &[ResultRow], host: &Host) -> Answer {
    let rows = Rows::of(rows);
    // In pages, which take most; in blocks, where nothing was run in pages.
    let sizes = |mapping: Mapping| {
        let of = rows.with(Mapping::PARAM, mapping.name());
        let on_machine = ["every-vcpu", BASELINE].map(|name| of.machine(name).largest(Size::PARAM));
        (of.kvm().largest(Size::PARAM), on_machine.into_iter().flatten().max())
    };
    let is_any = |mapping: &Mapping| sizes(*mapping) != (None, None);
    let mapping = Mapping::ALL.into_iter().find(is_any).unwrap_or(Mapping::Pages);
    let of = rows.with(Mapping::PARAM, mapping.name());
    let (kvm, on_kvm) = of.kvm().most(Size::PARAM);
    let (kvm, vcpus_on_kvm) = kvm.most(Bound::VCPUS.name);
    // The machine's of KVM's size, where it has run that.
    let same = of.machine("every-vcpu").with(Size::PARAM, on_kvm).largest(Size::PARAM);
    let bytes = same.or(sizes(mapping).1).unwrap_or_default();
    let of_size = of.with(Size::PARAM, bytes);
    let (every, vcpus) = of_size.machine("every-vcpu").most(Bound::VCPUS.name);
    let (mayfly, _) = of_size.mayfly().most(Bound::VCPUS.name);
    let bring_up = |rows: &Rows<'_>| {
        let (metric, how) =
            [(BRING_UP, ""), (MODELLED_BRING_UP, " (its lines are counted, not flushed)")]
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
        let vcpus = units::things(vcpus_on_kvm, "vCPU");
        Some(format!(
            "{verdict}On this host's KVM {vcpus} of a VM of {size} have their caches on after {time}."
        ))
    };
    let not_here = || {
        (host.arch == "x86_64").then(|| {
            "This host is not affected: guests on x86 cannot bypass the caches. The run measures the designs of arm64 \
             without FEAT_S2FWB.".to_owned()
        })
    };
    let waits = || {
        let (time, how) = bring_up(&every)?;
        let size = units::bytes(bytes);
        let vcpus = units::things(vcpus, "vCPU");
        Some(format!(
            "What waits: every vCPU that turns its caches on. KVM flushes all mapped memory each time: {time} for \
             {vcpus} and {size}{how}."
        ))
    };
    let wrong = || {
        let stale = |variant| rows.machine(variant).counter("scenarios_stale");
        let of = rows.machine("vcpu0-only").counter("scenarios")?;
        let (zero, first) = (stale("vcpu0-only")?, stale("first-vcpu")?);
        Some(format!(
            "To flush for vCPU 0 alone, or for the first vCPU alone, is quick and wrong: guests read stale data in \
             {zero} and {first} of {of} scenarios."
        ))
    };
    let instead = || {
        let (time, _) = bring_up(&mayfly)?;
        let stale = rows.mayfly().counter("scenarios_stale");
        let stale = stale.map(|stale| format!(" Guests read stale data in {stale} scenarios."));
        Some(format!(
            "Mayfly flushes only what vCPUs wrote past the caches: {time}.{}",
            stale.unwrap_or_default()
        ))
    };
    let advice = || {
        kvm.p50(BRING_UP)?;
        let advice = match host.kvm_fwb {
            Some(true) => "nothing. This KVM flushes nothing when a vCPU turns its caches on.",
            _ => {
                "start secondary vCPUs before the guest touches its memory, or use processors with FEAT_S2FWB."
            }
        };
        Some(format!("What to do: {advice}"))
    };
    let designs = [waits(), wrong(), instead()];
    // KVM's, of which is said first, and else the machine's.
    let (size, vcpus) = if on_kvm > 0 { (on_kvm, vcpus_on_kvm) } else { (bytes, vcpus) };
    let answer = Answer::of(here().or_else(not_here), designs, advice());
    // What was not run is not named, so that the first rows that there are stand below.
    let by = [(Size::PARAM, size), (Bound::VCPUS.name, vcpus)].into_iter();
    let answer = answer.by(Mapping::PARAM, mapping.name());
    by.filter(|(_, value)| *value > 0).fold(answer, |answer, (name, value)| answer.by(name, value))
}
