//! What the running kernel was configured with, as far as it bears on timing.

use std::fs::{self, File};
use std::io::{self, Read};

use flate2::read::GzDecoder;

/// Prefixes of the options that are kept: how the kernel preempts, ticks, and waits for grace periods; what it does with
/// memory; its KVM; and the debug options that make it slow.
const PREFIXES: [&str; 22] = [
    "CGROUP_FAVOR_DYNMODS",
    "DEBUG_ATOMIC_SLEEP",
    "DEBUG_LOCK_ALLOC",
    "DEBUG_VM",
    "HIGH_RES_TIMERS",
    "HZ",
    "INIT_ON_",
    "KASAN",
    "KCSAN",
    "KSM",
    "KVM",
    "LOCKDEP",
    "LOCK_STAT",
    "LRU_GEN",
    "MITIGATION",
    "NO_HZ",
    "PAGE_POISONING",
    "PREEMPT",
    "PROVE_",
    "RCU_",
    "SLUB_DEBUG_ON",
    "TRANSPARENT_HUGEPAGE",
];

/// More than any kernel's configuration has, unpacked.
const MOST: u64 = 8 << 20;

/// The options that are set and bear on timing, each as `NAME=value`; none where the kernel, here called `release`, does
/// not tell.
pub(super) fn options(release: &str) -> Vec<String> {
    let own = unpacked("/proc/config.gz");
    let text = own.or_else(|_| fs::read_to_string(format!("/boot/config-{release}")));
    text.map_or(Vec::new(), |text| chosen(&text))
}

fn unpacked(path: &str) -> io::Result<String> {
    let mut text = String::new();
    GzDecoder::new(File::open(path)?).take(MOST).read_to_string(&mut text)?;
    Ok(text)
}

fn chosen(config: &str) -> Vec<String> {
    let set = config.lines().filter_map(|line| line.strip_prefix("CONFIG_"));
    set.filter(|option| PREFIXES.iter().any(|prefix| option.starts_with(prefix)))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_and_bears_on_timing_is_kept() {
        let config =
            "# Linux\nCONFIG_HZ=250\n# CONFIG_KSM is not set\nCONFIG_USB=y\nCONFIG_KVM_AMD=m\n";
        assert_eq!(chosen(config), ["HZ=250", "KVM_AMD=m"]);
        assert!(chosen("").is_empty());
    }

    #[test]
    fn a_kernel_that_does_not_tell_is_left_in_peace() {
        assert!(unpacked("/nonexistent").is_err());
        assert!(
            unpacked("/dev/null").is_err_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
        );
    }
}
