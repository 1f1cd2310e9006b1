//! The first lines of a report: what was measured on, and how.

use std::fmt;

use mayfly_record::{Conditions, Host, Record, units};

use crate::noise;
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
    writeln!(f, "{}", style.wrapped(&joined(machine)))?;
    writeln!(f, "{}", style.wrapped(&joined(kernel)))?;
    // To be copied, and so in one piece.
    writeln!(f, "{}", style.faint(&format!("mayfly {}: {}", host.mayfly, host.command)))?;
    if let Some(conditions) = &record.conditions {
        writeln!(f, "{}", style.faint(&style.wrapped(&told(conditions, noise::drift(record)))))?;
    }
    if let Some(bound) = noise::bound(record) {
        let times = units::ratio((bound * 10.0).ceil() / 10.0);
        let line = format!("noisy host: ratios below {times} mean nothing here");
        writeln!(f, "{}", style.alarm(&style.wrapped(&line)))?;
    }
    match &record.partial {
        Some(why) => {
            writeln!(f, "{}", style.alarm(&style.wrapped(&format!("incomplete: {why}"))))
        }
        None => Ok(()),
    }
}

/// How the host was meanwhile.
fn told(conditions: &Conditions, drift: Option<f64>) -> String {
    let Conditions { load_before, load_after, stolen, others, seconds } = conditions;
    let others = others.map(|share| format!("{} others", units::percent(share)));
    let stolen = stolen.map(|share| format!("{} stolen", units::percent(share)));
    let load = load_before.zip(*load_after);
    let load = load.map(|(before, after)| format!("load {before:.1} before, {after:.1} after"));
    let drift = drift.map(|times| format!("halves {} apart", units::ratio(times)));
    joined([Some(format!("{seconds:.0} s")), load, others, stolen, drift])
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
