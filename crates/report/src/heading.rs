//! The first lines of a report: what was measured on, and how.

use std::fmt;

use mayfly_record::{Host, Record};

use crate::text::Style;

/// Writes the host in one or two lines, the command, and whether the run came to its end.
pub(crate) fn write(f: &mut fmt::Formatter<'_>, record: &Record, style: Style) -> fmt::Result {
    let host = &record.host;
    let cpu = host.cpu.as_deref().unwrap_or(&host.arch);
    let machine = [
        Some(format!("Linux {} {}", host.kernel, host.arch)),
        Some(format!("{} x {cpu}", host.cpus)),
        host.product.clone(),
        host.guest.map(|guest| if guest { "in a VM" } else { "bare metal" }.to_owned()),
    ];
    let kernel = [
        Some(host.hz.map_or("HZ unknown".to_owned(), |hz| format!("HZ={hz}"))),
        host.preemption.clone(),
        host.clocksource.as_ref().map(|source| format!("clocksource {source}")),
        host.governor.as_ref().map(|governor| format!("governor {governor}")),
        Some(kvm(host)),
    ];
    writeln!(f, "{}", joined(machine))?;
    writeln!(f, "{}", joined(kernel))?;
    writeln!(f, "{}", style.faint(&format!("mayfly {}: {}", host.mayfly, host.command)))?;
    match &record.partial {
        Some(why) => writeln!(f, "{}", style.alarm(&format!("not all of it: {why}"))),
        None => Ok(()),
    }
}

fn kvm(host: &Host) -> String {
    if !host.kvm {
        return "no KVM".to_owned();
    }
    let adds_memslot = (host.kvm_vcpu_adds_memslot == Some(true))
        .then(|| "a memslot with the first vCPU".to_owned());
    let no_tdp_mmu = (host.kvm_tdp_mmu == Some(false)).then(|| "no TDP MMU".to_owned());
    let fwb = host.kvm_fwb.map(|fwb| if fwb { "FWB" } else { "no FWB" }.to_owned());
    match joined([host.kvm_module.clone(), adds_memslot, no_tdp_mmu, fwb]).as_str() {
        "" => "KVM".to_owned(),
        facts => format!("KVM ({facts})"),
    }
}

fn joined(facts: impl IntoIterator<Item = Option<String>>) -> String {
    facts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
