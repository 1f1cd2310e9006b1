//! What the kernel tells of itself.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry};
use std::path::Path;

use super::file::line;

/// The preemption model in the version line of `uname -v`, with the mode in force for a kernel that
/// chooses at boot and whose debugfs may be read.
pub(super) fn preemption(version: &str) -> Option<String> {
    let model = version.split_whitespace().find(|word| word.starts_with("PREEMPT"))?;
    let mode = line("/sys/kernel/debug/sched/preempt");
    Some(match mode.as_deref().and_then(chosen_mode) {
        Some(mode) => format!("{model} ({mode})"),
        None => model.to_owned(),
    })
}

/// The mode in parentheses of a line such as `none voluntary (full) lazy`.
fn chosen_mode(line: &str) -> Option<&str> {
    line.split_once('(')?.1.split_once(')').map(|(mode, _)| mode)
}

/// The parameters of KVM and of its vendor's modules under `sys_module` (`/sys/module`): all that may be read.
pub(super) fn kvm_parameters(sys_module: &Path) -> BTreeMap<String, String> {
    let entries = |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten();
    let name = |entry: &DirEntry| entry.file_name().into_string().unwrap_or_default();
    let is_kvms = |module: &DirEntry| name(module) == "kvm" || name(module).starts_with("kvm_");
    entries(sys_module)
        .filter(is_kvms)
        .flat_map(|module| {
            let parameters: Vec<_> = entries(&module.path().join("parameters"))
                .filter_map(|file| {
                    let named = format!("{}.{}", name(&module), name(&file));
                    Some((named, line(file.path())?))
                })
                .collect();
            parameters
        })
        .collect()
}

/// What the hierarchies of control groups are mounted with, of `mounts` (`/proc/mounts`), each as it stands there: version 2
/// as `cgroup2 OPTIONS`, version 1 as `cgroup OPTIONS`, with its controllers among them.
pub(super) fn cgroup_options(mounts: &str) -> Option<String> {
    let of_groups = |line: &str| {
        let mut words = line.split_whitespace().skip(2);
        let (kind, options) = (words.next()?, words.next()?);
        kind.starts_with("cgroup").then(|| format!("{kind} {options}"))
    };
    let all: Vec<String> = mounts.lines().filter_map(of_groups).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Prefixes of the boot options that change what a timing measurement sees.
const TIMING_OPTIONS: [&str; 25] = [
    "amd_pstate",
    "clocksource",
    "cpufreq",
    "cpuidle",
    "highres",
    "hugepages",
    "idle",
    "intel_idle",
    "intel_pstate",
    "irqaffinity",
    "isolcpus",
    "kvm",
    "maxcpus",
    "mitigations",
    "nohz",
    "nosmt",
    "nr_cpus",
    "preempt",
    "processor.max_cstate",
    "rcu",
    "skew_tick",
    "srcutree",
    "threadirqs",
    "transparent_hugepage",
    "tsc",
];

/// The options of a kernel command line that bear on timing, in their order; what follows ` -- ` is for
/// init.
pub(super) fn boot_options(command_line: &str) -> Option<String> {
    let kept: Vec<&str> = command_line
        .split_whitespace()
        .take_while(|&option| option != "--")
        .filter(|option| TIMING_OPTIONS.iter().any(|prefix| option.starts_with(prefix)))
        .collect();
    (!kept.is_empty()).then(|| kept.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preemption_model_is_found_in_the_version_line() {
        assert!(preemption("#1 SMP PREEMPT_DYNAMIC Mon").unwrap().starts_with("PREEMPT_DYNAMIC"));
        assert_eq!(preemption("#1 SMP Mon"), None);
        assert_eq!(chosen_mode("none voluntary (full) lazy"), Some("full"));
        assert_eq!(chosen_mode("none"), None);
    }

    #[test]
    fn parameters_of_kvms_modules_are_named_by_both() {
        let name = format!("mayfly-parameters-{}", std::process::id());
        let modules = std::env::temp_dir().join(name);
        for (module, parameter) in [("kvm", "tdp_mmu"), ("kvm_amd", "avic"), ("ext4", "other")] {
            let parameters = modules.join(module).join("parameters");
            fs::create_dir_all(&parameters).unwrap();
            fs::write(parameters.join(parameter), "Y\n").unwrap();
        }
        let expected = [("kvm.tdp_mmu", "Y"), ("kvm_amd.avic", "Y")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(kvm_parameters(&modules), BTreeMap::from(expected));
        fs::remove_dir_all(&modules).unwrap();
        assert!(kvm_parameters(&modules).is_empty());
    }

    #[test]
    fn control_groups_are_told_by_how_they_are_mounted() {
        let mounts = "none /sys/fs/cgroup cgroup2 rw,favordynmods 0 0\ntmpfs /tmp tmpfs rw 0 0\n\
                      c /c cgroup rw,cpu 0 0\nshort\n";
        let expected = "cgroup2 rw,favordynmods; cgroup rw,cpu";
        assert_eq!(cgroup_options(mounts).as_deref(), Some(expected));
        assert_eq!(cgroup_options(""), None);
    }

    #[test]
    fn only_boot_options_that_bear_on_timing_are_kept() {
        let line = "root=UUID=1 nohz_full=1-3 quiet kvm.halt_poll_ns=0 -- rcu_of_init";
        assert_eq!(boot_options(line).as_deref(), Some("nohz_full=1-3 kvm.halt_poll_ns=0"));
        assert_eq!(boot_options("root=/dev/vda quiet"), None);
    }
}
