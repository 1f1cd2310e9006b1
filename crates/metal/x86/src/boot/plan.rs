//! What a VM is to be like, in words.

/// A VM: `vcpus=COUNT memory=SIZEM -- ARGUMENTS`, in which the arguments are its kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan<'a> {
    /// How many vCPUs it has.
    pub vcpus: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Whether its processor has an x2APIC mode (`apic=x2apic`, which is the default, or `apic=xapic`).
    pub x2apic: bool,
    /// The arguments of its kernel.
    pub arguments: &'a str,
}

/// Most vCPUs of a VM.
pub const MOST_VCPUS: u32 = 64;
const MIB: u64 = 1 << 20;
/// The least and the most memory of a VM, which lies below the devices.
pub const MEMORY: core::ops::RangeInclusive<u64> = 64 * MIB..=3072 * MIB;

/// What is wrong with a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong<'a> {
    /// It is not known.
    #[error(
        "there is no parameter {0:?}: a VM has vcpus=, memory= and apic=, and arguments of its kernel behind --"
    )]
    Unknown(&'a str),
    /// Its number is none, or out of bounds.
    #[error("vcpus= is a number from 1 to {MOST_VCPUS}, and not {0:?}")]
    Vcpus(&'a str),
    /// The same.
    #[error("memory= is a number from 64M to 3072M, and not {0:?}")]
    Memory(&'a str),
    /// It is neither.
    #[error("apic= is x2apic or xapic, and not {0:?}")]
    Apic(&'a str),
}

impl<'a> Plan<'a> {
    /// The plan that a line describes.
    ///
    /// # Errors
    ///
    /// [`Wrong`] names the word.
    pub fn parse(line: &'a str) -> Result<Self, Wrong<'a>> {
        let (words, arguments) = match line.split_once("--") {
            Some((words, arguments)) => (words, arguments.trim()),
            None => (line, ""),
        };
        let mut plan = Self { vcpus: 1, memory: 256 * MIB, x2apic: true, arguments };
        for word in words.split_ascii_whitespace() {
            match word.split_once('=') {
                Some(("vcpus", count)) => {
                    let given = count.parse().ok().filter(|count| (1..=MOST_VCPUS).contains(count));
                    plan.vcpus = given.ok_or(Wrong::Vcpus(count))?;
                }
                Some(("memory", size)) => {
                    let mib = size.strip_suffix('M').and_then(|mib| mib.parse::<u64>().ok());
                    let bytes = mib.and_then(|mib| mib.checked_mul(MIB));
                    let bytes = bytes.filter(|bytes| MEMORY.contains(bytes));
                    plan.memory = bytes.ok_or(Wrong::Memory(size))?;
                }
                Some(("apic", "x2apic")) => plan.x2apic = true,
                Some(("apic", "xapic")) => plan.x2apic = false,
                Some(("apic", other)) => return Err(Wrong::Apic(other)),
                _ => return Err(Wrong::Unknown(word)),
            }
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn words_before_the_dashes_are_the_vms_and_those_behind_its_kernels() {
        let plan = Plan::parse(" vcpus=4 memory=512M  -- console=ttyS0 -- x ").unwrap();
        assert_eq!((plan.vcpus, plan.memory), (4, 512 * MIB));
        assert_eq!(plan.arguments, "console=ttyS0 -- x");
        assert_eq!(Plan::parse("").unwrap().vcpus, 1);
        assert!(!Plan::parse("apic=xapic").unwrap().x2apic);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = |line| Plan::parse(line).unwrap_err();
        assert_eq!(wrong("vcpus=0"), Wrong::Vcpus("0"));
        assert_eq!(wrong("vcpus=65"), Wrong::Vcpus("65"));
        assert_eq!(wrong("memory=1G"), Wrong::Memory("1G"));
        assert_eq!(wrong("memory=63M"), Wrong::Memory("63M"));
        assert_eq!(wrong("memory=18446744073709551615M"), Wrong::Memory("18446744073709551615M"));
        assert_eq!(wrong("apic=none"), Wrong::Apic("none"));
        assert_eq!(
            wrong("quiet").to_string().split(':').next(),
            Some("there is no parameter \"quiet\"")
        );
    }
}
