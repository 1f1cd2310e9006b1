//! What the processor and the firmware tell.

use std::fs;

use super::file::line;

/// The CPU model: its name on x86, implementer and part on arm64.
pub(super) fn model() -> Option<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").ok()?;
    field(&cpuinfo, "model name").map(str::to_owned).or_else(|| arm_part(&cpuinfo))
}

fn arm_part(cpuinfo: &str) -> Option<String> {
    let (implementer, part) = (field(cpuinfo, "CPU implementer")?, field(cpuinfo, "CPU part")?);
    Some(format!("implementer {implementer} part {part}"))
}

/// Whether this is a guest: the CPUID bit that hypervisors set for it. Only x86 has one.
pub(super) fn is_guest() -> Option<bool> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").ok()?;
    let flags = field(&cpuinfo, "flags")?;
    Some(flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

/// The revision of the microcode. Only x86 says.
pub(super) fn microcode() -> Option<String> {
    field(&fs::read_to_string("/proc/cpuinfo").ok()?, "microcode").map(str::to_owned)
}

/// The CPUs that this process may run on.
pub(super) fn allowed() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    field(&status, "Cpus_allowed_list").map(str::to_owned)
}

/// Vendor and product of the system, where the firmware says.
pub(super) fn product() -> Option<String> {
    let facts =
        ["sys_vendor", "product_name"].map(|fact| line(format!("/sys/class/dmi/id/{fact}")));
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    (!facts.is_empty()).then(|| facts.join(" "))
}

/// The value of the first `key : value` line of `/proc/cpuinfo`.
fn field<'a>(cpuinfo: &'a str, key: &str) -> Option<&'a str> {
    cpuinfo.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim_end() == key).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_cpu_is_named_by_its_implementer_and_part() {
        let cpuinfo =
            "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n";
        assert_eq!(arm_part(cpuinfo).as_deref(), Some("implementer 0x41 part 0xd0c"));
        assert_eq!(arm_part("processor\t: 0\n"), None);
    }

    #[test]
    fn a_field_is_the_first_of_exactly_that_name() {
        let cpuinfo =
            "cpu family : 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC: one\nmodel name\t: two\n";
        assert_eq!(field(cpuinfo, "model name"), Some("AMD EPYC: one"));
        assert_eq!(field(cpuinfo, "flags"), None);
    }
}
