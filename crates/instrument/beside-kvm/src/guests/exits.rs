//! The exits of guests, by reason and by device, in the names of Mayfly's `vm stat`.

use std::collections::BTreeMap;

use anyhow::{Context, bail};

/// Counts of exits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exits {
    /// By reason. A fault at stage 2 for which a device answers is a `memory-fault`, and a `device` too.
    pub reasons: BTreeMap<String, u64>,
    /// Those of `device`, by device.
    pub devices: BTreeMap<String, u64>,
}

impl Exits {
    /// Those of accesses that a device has answered.
    pub fn to_devices(&self) -> u64 {
        self.devices.values().sum()
    }

    /// All: those of devices are among the faults.
    pub fn all(&self) -> u64 {
        let reasons = self.reasons.iter().filter(|(reason, _)| *reason != DEVICE);
        reasons.map(|(_, count)| count).sum()
    }

    fn count(&mut self, reason: &str, count: u64) {
        *self.reasons.entry(reason.to_owned()).or_default() += count;
    }

    /// What Mayfly's `vm stat` says of a VM.
    pub(crate) fn of_mayfly(said: &str, vm: &str) -> anyhow::Result<Self> {
        let mut exits = Self::default();
        for line in said.lines() {
            let Some(rest) = line.trim_end().strip_prefix(vm).and_then(|l| l.strip_prefix(": "))
            else {
                continue;
            };
            if let Some((count, reason)) = rest.split_once(" exits: ") {
                exits.count(reason, count.parse().with_context(|| rest.to_owned())?);
            } else if let Some(devices) = rest.strip_prefix("of the exits to devices, ") {
                for each in devices.split(", ") {
                    let (count, device) = each.split_once(' ').with_context(|| rest.to_owned())?;
                    let count: u64 = count.parse().with_context(|| rest.to_owned())?;
                    *exits.devices.entry(device.to_owned()).or_default() += count;
                }
            }
        }
        if exits.devices.is_empty() {
            bail!("the exits of {vm} were not printed");
        }
        Ok(exits)
    }

    /// What the kernel's histograms say: of `kvm_exit` by `ret` and `esr_ec`, of `kvm_handle_sys_reg` by `hsr`, of
    /// `kvm_mmio` by `gpa`.
    pub(crate) fn of_kvm(said: &str) -> anyhow::Result<Self> {
        let mut exits = Self::default();
        for line in said.lines().filter(|line| line.contains(" hitcount: ")) {
            let bucket = Bucket::read(line).with_context(|| format!("malformed: {line}"))?;
            let count = bucket.hits;
            if let Some(gpa) = bucket.hex("gpa") {
                *exits.devices.entry(device_at(gpa).to_owned()).or_default() += count;
                exits.count(DEVICE, count);
            } else if let Some(hsr) = bucket.hex("hsr") {
                exits.count(register(hsr), count);
            } else if let (Some(ret), Some(class)) = (bucket.number("ret"), bucket.number("esr_ec"))
            {
                // Trapped registers are counted by their own histogram.
                if let Some(reason) = reason(ret, class) {
                    exits.count(reason, count);
                }
            } else {
                bail!("malformed: {line}");
            }
        }
        if exits.devices.is_empty() || exits.reasons.len() < 3 {
            bail!("KVM's exits were not printed");
        }
        Ok(exits)
    }
}

const DEVICE: &str = "device";

/// A line of a histogram of the kernel's: `{ gpa: 9000018, type: 2 } hitcount: 7`.
struct Bucket<'a> {
    keys: &'a str,
    hits: u64,
}

impl<'a> Bucket<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let (keys, hits) = line.trim().strip_prefix('{')?.split_once("} hitcount:")?;
        Some(Self { keys, hits: hits.trim().parse().ok()? })
    }

    fn key(&self, name: &str) -> Option<&'a str> {
        let mut keys = self.keys.split(',').filter_map(|key| key.split_once(':'));
        keys.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.key(name)?.parse().ok()
    }

    fn hex(&self, name: &str) -> Option<u64> {
        u64::from_str_radix(self.key(name)?, 16).ok()
    }
}

/// Why KVM's guest has left, by what its entry returns (`ARM_EXCEPTION_*`, Linux, `kvm_asm.h`) and the class of its
/// exception. `None` for trapped registers, which another histogram has.
fn reason(ret: u64, class: u64) -> Option<&'static str> {
    const IRQ: u64 = 0;
    const TRAP: u64 = 2;
    Some(match (ret, class) {
        (IRQ, _) => "interrupt",
        (TRAP, 0x01) => "wfi",
        (TRAP, 0x16) => "hvc",
        (TRAP, 0x17) => "smc",
        (TRAP, 0x18) => return None,
        (TRAP, 0x20 | 0x24) => "memory-fault",
        (TRAP, _) => "undefined",
        _ => "system-error",
    })
}

/// What the register of a trapped access is, by the syndrome (DDI 0487, `ESR_ELx`, "ISS encoding for an exception from
/// MSR, MRS, or System instruction execution").
fn register(syndrome: u64) -> &'static str {
    let field = |shift: u32, bits: u32| syndrome >> shift & ((1 << bits) - 1);
    let (op0, op2, op1, crn, crm) =
        (field(20, 2), field(17, 3), field(14, 3), field(10, 4), field(1, 4));
    match (op0, op1, crn, crm, op2) {
        (2, ..) => "debug-register",
        (3, 0, 0, 1..=7, _) => "id-register",
        (3, 0, 12, 11, 5..=7) => "sgi",
        // Cache maintenance by set and way; the registers that turn caches on; those that describe them.
        (1, _, 7, ..)
        | (3, 0, 1 | 2 | 5 | 6 | 10 | 13, ..)
        | (3, 1 | 2, 0, 0, _)
        | (3, 3, 0, 0, 1) => "cache-register",
        _ => "other-register",
    }
}

/// The device of QEMU's machine `virt` that has registers at an address (QEMU, `hw/arm/virt.c`). The windows of PCI have
/// the registers of all of its devices.
fn device_at(address: u64) -> &'static str {
    match address {
        0x0800_0000..0x0801_0000 => "gicd",
        0x0808_0000..0x080a_0000 => "its",
        0x080a_0000..0x0900_0000 => "gicr",
        0x0900_0000..0x0900_1000 => "pl011",
        0x0901_0000..0x0901_1000 => "pl031",
        0x0902_0000..0x0902_1000 => "fw-cfg",
        0x0903_0000..0x0903_1000 => "pl061",
        0x0a00_0000..0x0a00_4000 => "virtio-mmio",
        0x1000_0000..0x4000_0000 | 0x80_0000_0000..0x100_0000_0000 => "pci-device",
        0x40_1000_0000..0x40_2000_0000 => "pci-configuration",
        _ => "elsewhere",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &BTreeMap<String, u64>) -> Vec<(&str, u64)> {
        of.iter().map(|(name, count)| (&**name, *count)).collect()
    }

    #[test]
    fn those_of_mayfly_are_of_the_vm_that_is_meant() {
        let said = "b: 9 exits: hvc\r\na: stopped\r\na: 24 exits: hvc\r\na: 501 exits: memory-fault\r\n\
                    a: 459 exits: device\r\na: of the exits to devices, 71 gicd, 388 pl011\r\n";
        let exits = Exits::of_mayfly(said, "a").unwrap();
        assert_eq!(counts(&exits.reasons), [("device", 459), ("hvc", 24), ("memory-fault", 501)]);
        assert_eq!(counts(&exits.devices), [("gicd", 71), ("pl011", 388)]);
        assert_eq!((exits.to_devices(), exits.all()), (459, 525));
        assert!(Exits::of_mayfly(said, "b").is_err());
        assert!(Exits::of_mayfly("a: x exits: hvc", "a").is_err());
    }

    #[test]
    fn those_of_kvm_are_named_as_mayfly_names_them() {
        let said = "# event histogram\r\n\
            { ret:          0, esr_ec:          0 } hitcount:          7\r\n\
            { ret:          2, esr_ec:          1 } hitcount:          5\r\n\
            { ret:          2, esr_ec:         22 } hitcount:          3\r\n\
            { ret:          2, esr_ec:         24 } hitcount:        100\r\n\
            { ret:          2, esr_ec:         36 } hitcount:         50\r\n\
            { ret:          2, esr_ec:         32 } hitcount:          1\r\n\
            Totals:\r\n    Hits: 166\r\n\
            { hsr: 62300001 } hitcount:          4\r\n\
            { hsr: 623c0003 } hitcount:          2\r\n\
            { gpa: 9000018, type:          0 } hitcount:         20\r\n\
            { gpa: 4010000000, type:          0 } hitcount:         9\r\n\
            { gpa: 8000004000, type:          2 } hitcount:         1\r\n";
        let exits = Exits::of_kvm(said).unwrap();
        let reasons = [
            ("device", 30),
            ("hvc", 3),
            ("id-register", 2),
            ("interrupt", 7),
            ("memory-fault", 51),
            ("other-register", 4),
            ("wfi", 5),
        ];
        assert_eq!(counts(&exits.reasons), reasons);
        let devices = [("pci-configuration", 9), ("pci-device", 1), ("pl011", 20)];
        assert_eq!(counts(&exits.devices), devices);
        assert!(Exits::of_kvm("").is_err());
        assert!(Exits::of_kvm(&said.replace("gpa", "gpb")).is_err());
        assert!(Exits::of_kvm(&said.replace("hitcount:          7", "hitcount: x")).is_err());
    }

    /// The syndrome of an access.
    fn access(op0: u64, op1: u64, crn: u64, crm: u64, op2: u64) -> u64 {
        0x18 << 26 | 1 << 25 | op0 << 20 | op2 << 17 | op1 << 14 | crn << 10 | 3 << 5 | crm << 1 | 1
    }

    #[test]
    fn registers_are_told_apart_by_their_encoding() {
        for (encoding, kind) in [
            ((3, 0, 0, 4, 0), "id-register"),
            ((2, 0, 1, 0, 4), "debug-register"),
            ((3, 0, 12, 11, 5), "sgi"),
            ((1, 0, 7, 14, 2), "cache-register"),
            ((3, 0, 1, 0, 0), "cache-register"),
            ((3, 1, 0, 0, 1), "cache-register"),
            ((3, 3, 9, 12, 0), "other-register"),
            ((3, 0, 12, 12, 5), "other-register"),
        ] {
            let (op0, op1, crn, crm, op2) = encoding;
            assert_eq!(register(access(op0, op1, crn, crm, op2)), kind, "{encoding:?}");
        }
    }
}
