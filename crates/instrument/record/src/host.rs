//! What was measured on.

mod config;
mod file;
mod kernel;
pub(crate) mod memory;
mod processor;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use mayfly_kvm::{Facts, Kvm};
use serde::{Deserialize, Serialize};

use file::line;

/// The host of a run: what has to be said beside a number for it to mean something.
///
/// A fact that this host does not tell is absent rather than guessed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Kernel release, as `uname -r` gives it.
    pub kernel: String,
    /// Machine architecture, as `uname -m` gives it.
    pub arch: String,
    /// CPUs that this process may use: affinity and cgroup quota are taken off.
    pub cpus: usize,
    /// Timer ticks a second (`CONFIG_HZ`).
    #[serde(default)]
    pub hz: Option<u32>,
    /// Whether `/dev/kvm` could be opened, and can do what the experiments need.
    pub kvm: bool,
    /// Why it could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kvm_missing: Option<String>,
    /// KVM's vendor modules with the parameters that the next field is made of, such as `kvm_amd avic=N`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kvm_module: Option<String>,
    /// Whether KVM adds a memslot of its own when a VM gets its first vCPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kvm_vcpu_adds_memslot: Option<bool>,
    /// Whether x86's KVM maps guests by its TDP MMU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kvm_tdp_mmu: Option<bool>,
    /// Whether arm64's KVM makes guests' accesses write-back whatever they ask for (`FEAT_S2FWB`): what is flushed when
    /// caches are turned on, or a VM ends, hangs on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kvm_fwb: Option<bool>,
    /// CPU model; on arm64 the implementer and part numbers of `MIDR_EL1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// System vendor and product, from DMI: the cloud instance, or the board.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// Whether the host is itself a guest. Only x86 says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<bool>,
    /// Preemption model, as far as `uname -v` tells it: `PREEMPT_DYNAMIC`, `PREEMPT_RT`; with the mode
    /// in force where debugfs may be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemption: Option<String>,
    /// The clocksource behind `CLOCK_MONOTONIC`: one that needs a system call costs microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocksource: Option<String>,
    /// CPU frequency governor of CPU 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// The kernel's boot options that bear on timing (RCU, tick, isolation, idle, mitigations, KVM);
    /// all others stay out of the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_options: Option<String>,
    /// What the kernel was configured with that bears on timing, each as `NAME=value` (of `CONFIG_NAME`): what it
    /// preempts, how it ticks, its RCU, its KVM, and the debug options that make it slow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_options: Vec<String>,
    /// How control groups are mounted: with `favordynmods`, say, moving a thread waits for a grace period less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup_options: Option<String>,
    /// Revision of the processor's microcode. Only x86 says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub microcode: Option<String>,
    /// Bytes of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// When the kernel gives huge pages: `always`, `madvise` or `never`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_pages: Option<String>,
    /// What the page merger does: `run` of `/sys/kernel/mm/ksm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_merger: Option<String>,
    /// The CPUs that the process may run on, as in `0-3,8`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_cpus: Option<String>,
    /// Parameters of KVM's modules, such as `kvm.tdp_mmu`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kvm_parameters: BTreeMap<String, String>,
    /// Version of Mayfly.
    #[serde(default)]
    pub mayfly: String,
    /// What Mayfly was built from and by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
    /// The command that made the record, quoted for a shell.
    #[serde(default)]
    pub command: String,
    /// The same, argument by argument, without the program's name.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// When the run started, in seconds since 1970 (UTC).
    #[serde(default)]
    pub time: u64,
}

/// What a program was built from and by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// The commit, if it was built in a repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Whether the sources were not as committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<bool>,
    /// The compiler, as `rustc --version` has it.
    #[serde(default)]
    pub rustc: String,
    /// The profile: `debug` or `release`.
    #[serde(default)]
    pub profile: String,
}

impl Host {
    /// Gathers the facts of this host, for a run that `command` (the program's arguments, its name first)
    /// started.
    pub fn gather(command: impl IntoIterator<Item = String>) -> Self {
        let command: Vec<String> = command.into_iter().collect();
        let uname = rustix::system::uname();
        let (kvm, facts) = (Kvm::open(), Facts::of_host());
        Self {
            kernel: uname.release().to_string_lossy().into_owned(),
            arch: uname.machine().to_string_lossy().into_owned(),
            cpus: std::thread::available_parallelism().map_or(1, Into::into),
            hz: mayfly_kvm::hz(),
            kvm: kvm.is_ok(),
            kvm_fwb: kvm.as_ref().ok().and_then(Kvm::forces_write_back),
            kvm_missing: kvm.err().map(|error| error.to_string()),
            kvm_module: facts.modules,
            kvm_vcpu_adds_memslot: facts.vcpu_adds_memslot,
            kvm_tdp_mmu: facts.tdp_mmu,
            cpu: processor::model(),
            product: processor::product(),
            guest: processor::is_guest(),
            preemption: kernel::preemption(&uname.version().to_string_lossy()),
            clocksource: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            boot_options: line("/proc/cmdline").as_deref().and_then(kernel::boot_options),
            kernel_options: config::options(&uname.release().to_string_lossy()),
            cgroup_options: kernel::cgroup_options(
                &fs::read_to_string("/proc/mounts").unwrap_or_default(),
            ),
            microcode: processor::microcode(),
            memory: memory::total(),
            huge_pages: line("/sys/kernel/mm/transparent_hugepage/enabled")
                .as_deref()
                .and_then(memory::selected)
                .map(str::to_owned),
            page_merger: line("/sys/kernel/mm/ksm/run"),
            allowed_cpus: processor::allowed(),
            kvm_parameters: kernel::kvm_parameters(Path::new("/sys/module")),
            mayfly: env!("CARGO_PKG_VERSION").to_owned(),
            build: None,
            arguments: command.iter().skip(1).cloned().collect(),
            command: command.into_iter().map(quoted).collect::<Vec<_>>().join(" "),
            time: std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()),
        }
    }
}

impl Host {
    /// What differs of another that figures hang on, each in a few words.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let show = |fact: &Option<String>| fact.clone().unwrap_or_else(|| "unknown".to_owned());
        [
            ("kernel", self.kernel.clone(), other.kernel.clone()),
            ("processor", show(&self.cpu), show(&other.cpu)),
            ("CPUs", self.cpus.to_string(), other.cpus.to_string()),
            ("HZ", format!("{:?}", self.hz), format!("{:?}", other.hz)),
            ("KVM", show(&self.kvm_module), show(&other.kvm_module)),
            ("governor", show(&self.governor), show(&other.governor)),
        ]
        .into_iter()
        .filter(|(_, one, other)| one != other)
        .map(|(fact, one, other)| format!("{fact}: {one} and {other}"))
        .collect()
    }
}

/// An argument as one would type it to a POSIX shell.
fn quoted(argument: String) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+,./:@%".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument;
    }
    format!("'{}'", argument.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_names_its_kernel_and_how_it_was_asked() {
        let host = Host::gather(["mayfly", "run", "a b", "it's", ""].map(str::to_owned));
        assert!(!host.kernel.is_empty() && !host.arch.is_empty() && host.cpus > 0);
        assert_eq!(host.kvm, host.kvm_missing.is_none());
        assert_eq!(host.command, r"mayfly run 'a b' 'it'\''s' ''");
        assert_eq!(host.arguments, ["run", "a b", "it's", ""]);
        assert!(host.memory.is_some_and(|bytes| bytes > 1 << 20));
        assert!(host.allowed_cpus.is_some());
    }
}
