//! The VMs that the modules describe.
//!
//! The device tree says of each module where it is and what it is, but not which modules belong together. So a VM is a
//! kernel and the ramdisks at higher addresses, up to the next kernel. In the kernel's `bootargs`, the VM's own
//! parameters stand before `--`, and the kernel's arguments after it.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::board::{Module, ModuleKind, Region};
use crate::card::Card;
use crate::partition::PartitionUse;
use crate::turns::Share;

/// What a VM is to be made of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a parameter that is yes or no")]
pub struct Plan {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// How many vCPUs.
    pub vcpus: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// It may use memory that it is not guaranteed.
    pub overcommit: bool,
    /// Bytes of memory that it is guaranteed, where that is less than all: see [`Plan::reserved`].
    pub reserve: Option<u64>,
    /// Bytes of its disk in memory; 0 for none.
    pub disk: u64,
    /// The partition of the machine's disk that is its disk. Then it has none in memory.
    pub partition: Option<PartitionUse>,
    /// Its network card.
    pub card: Card,
    /// Its interrupt controller has LPIs, and an ITS.
    pub its: bool,
    /// Its processor has an x2APIC mode, where it has APICs.
    pub x2apic: bool,
    /// It has a virtio console beside its serial port.
    pub hvc: bool,
    /// It has a balloon.
    pub balloon: bool,
    /// The group with whose VMs it shares pages that hold the same, if it does.
    pub merge: Option<String>,
    /// Its weight in the division of processor time.
    pub weight: u32,
    /// The most processor time that it may have, in hundredths of a processor; none for as much as there is.
    pub cap: Option<u32>,
    /// It starts by itself.
    pub starts: bool,
    /// Where its kernel is.
    pub kernel: Region,
    /// Where its ramdisks are.
    pub ramdisks: Vec<Region>,
    /// The kernel's parameters.
    pub arguments: String,
}

/// vCPUs of a VM at most.
pub const MAX_VCPUS: u32 = 64;
/// Bytes of a block of memory. A VM has whole blocks.
pub const BLOCK: u64 = 2 << 20;
/// The least memory of a VM: a kernel, and what it needs to print that it has too little.
const LEAST_MEMORY: u64 = 16 << 20;
/// The most: the reach of its physical addresses above the start of memory.
const MOST_MEMORY: u64 = (1 << 40) - (1 << 30);
/// The smallest disk.
const LEAST_DISK: u64 = 1 << 20;
/// The memory of a VM that has no `memory=`.
const MEMORY: u64 = 512 << 20;

impl Plan {
    /// The VMs of these modules, which are sorted by address; and what is wrong with the others.
    pub fn all(modules: &[Module]) -> (Vec<Self>, Vec<String>) {
        let (mut plans, mut wrong) = (Vec::<Self>::new(), Vec::new());
        // The ramdisks of a VM that has an error belong neither to the VM before it nor to the one after it.
        let mut takes_ramdisks = false;
        for module in modules {
            match module.kind {
                ModuleKind::Kernel => match Self::new(module, plans.len()) {
                    Ok(plan) if plans.iter().any(|other| other.name == plan.name) => {
                        wrong.push(format!("two VMs are named {}", plan.name));
                        takes_ramdisks = false;
                    }
                    Ok(plan) => {
                        plans.push(plan);
                        takes_ramdisks = true;
                    }
                    Err(why) => {
                        wrong.push(format!("the kernel at {:#x}: {why}", module.region.start));
                        takes_ramdisks = false;
                    }
                },
                ModuleKind::Ramdisk => match plans.last_mut().filter(|_| takes_ramdisks) {
                    Some(plan) => plan.ramdisks.push(module.region.clone()),
                    None => {
                        wrong.push(format!(
                            "the ramdisk at {:#x} belongs to no VM: no kernel comes before it",
                            module.region.start
                        ));
                    }
                },
                ModuleKind::Other => {}
            }
        }
        (plans, wrong)
    }

    fn new(kernel: &Module, number: usize) -> Result<Self, String> {
        let (own, arguments) = match kernel.arguments.split_once("--") {
            Some((own, arguments)) => (own, arguments),
            None => ("", kernel.arguments.as_str()),
        };
        let mut plan = Self {
            name: format!("vm{number}"),
            vcpus: 1,
            memory: MEMORY,
            overcommit: false,
            reserve: None,
            disk: 0,
            partition: None,
            card: Card::default(),
            its: false,
            x2apic: true,
            hvc: false,
            balloon: false,
            merge: None,
            weight: Share::WEIGHT,
            cap: None,
            starts: true,
            kernel: kernel.region.clone(),
            ramdisks: Vec::new(),
            arguments: arguments.trim().to_string(),
        };
        for parameter in own.split_whitespace() {
            plan.set(parameter)?;
        }
        plan.check()?;
        Ok(plan)
    }

    /// Whether it has a disk.
    pub fn has_disk(&self) -> bool {
        self.disk != 0 || self.partition.is_some()
    }

    /// Bytes of its memory that it is guaranteed.
    pub fn reserved(&self) -> u64 {
        if self.overcommit { self.reserve.unwrap_or(0) } else { self.memory }
    }

    /// Checks what its parameters say together.
    ///
    /// # Errors
    ///
    /// Says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let wrong = |what: &str| Err(what.to_string());
        match self.reserve {
            Some(reserve) if reserve > self.memory => {
                wrong("'reserve=': more than the VM's memory cannot be reserved for it")
            }
            Some(reserve) if !self.overcommit && reserve != self.memory => {
                wrong("'reserve=': all memory of a VM is reserved for it without overcommit=yes")
            }
            _ if self.merge.is_some() && self.reserved() == self.memory => wrong(
                "'merge=': a VM that is guaranteed all of its memory frees none for others: overcommit=yes, and less than that by reserve=",
            ),
            _ => Ok(()),
        }
    }

    /// The plan of a VM like this one, with another name, and with these parameters and arguments.
    ///
    /// # Errors
    ///
    /// What is wrong with the parameters. `name=` is none of them: whoever says the name has checked it.
    pub fn changed(
        &self,
        name: &str,
        parameters: &[String],
        arguments: Option<String>,
    ) -> Result<Self, String> {
        let mut plan = Self { name: name.to_string(), ..self.clone() };
        if let Some(arguments) = arguments {
            plan.arguments = arguments;
        }
        for parameter in parameters {
            if parameter.split('=').next() == Some("name") {
                return Err(format!("'{parameter}': the VM is named {name}"));
            }
            plan.set(parameter)?;
        }
        plan.check()?;
        Ok(plan)
    }

    /// Why a VM like this one cannot be frozen, if it cannot.
    pub fn has_no_forks(&self) -> Option<&'static str> {
        self.partition.is_some().then_some("its disk is a partition, which one VM alone may have")
    }

    /// The plan of a VM that begins as this one was, with another name, and with these parameters.
    ///
    /// # Errors
    ///
    /// What is wrong with the parameters, or which of them a fork cannot change.
    pub fn forked(&self, name: &str, parameters: &[String]) -> Result<Self, String> {
        let mut plan = self.changed(name, parameters, None)?;
        let same = |plan: &Self| {
            let Self { vcpus, memory, disk, partition, card, its, x2apic, hvc, balloon, .. } = plan;
            let devices = (partition.clone(), card.clone(), *its, *x2apic, *hvc, *balloon);
            (*vcpus, *memory, *disk, devices)
        };
        if same(&plan) != same(self) {
            return Err(
                "a fork has the vCPUs, memory and devices of the VM that it begins as".to_string()
            );
        }
        plan.card.keep(&self.name);
        Ok(plan)
    }

    /// Sets one of its own parameters.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it.
    pub fn set(&mut self, parameter: &str) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("'{parameter}': {what}"));
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match name {
            "name" if is_name(value) => self.name = value.to_string(),
            "name" => return wrong("a name has 1 to 32 letters, digits, '-' and '_'"),
            "vcpus" => match value.parse() {
                Ok(vcpus) if (1..=MAX_VCPUS).contains(&vcpus) => self.vcpus = vcpus,
                _ => return wrong(&format!("a VM has 1 to {MAX_VCPUS} vCPUs")),
            },
            "memory" => match bytes(value) {
                Some(memory) if (LEAST_MEMORY..=MOST_MEMORY).contains(&memory) => {
                    self.memory = memory.next_multiple_of(BLOCK);
                }
                _ => return wrong("a VM has at least 16M of memory and at most 1023G"),
            },
            "reserve" => match bytes(value) {
                Some(reserve) if reserve <= MOST_MEMORY => {
                    self.reserve = Some(reserve.next_multiple_of(BLOCK));
                }
                _ => return wrong("a VM can have at most 1023G reserved for it"),
            },
            "overcommit" | "its" | "hvc" | "balloon" | "start" => {
                let flag = match name {
                    "overcommit" => &mut self.overcommit,
                    "its" => &mut self.its,
                    "hvc" => &mut self.hvc,
                    "balloon" => &mut self.balloon,
                    _ => &mut self.starts,
                };
                *flag = match value {
                    "yes" => true,
                    "no" => false,
                    _ => return wrong(&format!("{name} is yes or no")),
                };
            }
            "disk" if PartitionUse::is_meant(value) => match PartitionUse::parse(value) {
                Ok(partition) => (self.disk, self.partition) = (0, Some(partition)),
                Err(what) => return wrong(what),
            },
            "disk" => match bytes(value) {
                Some(disk) if disk == 0 || (LEAST_DISK..=MOST_MEMORY).contains(&disk) => {
                    self.disk = disk.next_multiple_of(BLOCK);
                    self.partition = None;
                }
                _ => {
                    return wrong(
                        "a disk has at least 1M and at most 1023G, or is a partition: part:NAME; 0 is no disk",
                    );
                }
            },
            "apic" => {
                self.x2apic = match value {
                    "x2apic" => true,
                    "xapic" => false,
                    _ => return wrong("apic is x2apic or xapic"),
                };
            }
            "weight" | "cap" | "merge" => {
                return self.set_shared(name, value).or_else(|what| wrong(&what));
            }
            _ => match self.card.set(name, value) {
                Ok(true) => {}
                Ok(false) => {
                    return wrong(
                        "there is no such parameter; there are name=, vcpus=, memory=, reserve=, overcommit=, disk=, net=, mac=, isolated=, rate=, its=, apic=, hvc=, balloon=, merge=, weight=, cap= and start=",
                    );
                }
                Err(what) => return wrong(what),
            },
        }
        Ok(())
    }
}

impl Plan {
    /// Sets what it has together with others: what it is of the machine's processors, or with whom it shares frames.
    fn set_shared(&mut self, name: &str, value: &str) -> Result<(), String> {
        match (name, value.parse()) {
            ("weight", Ok(weight)) if (1..=Share::MOST_WEIGHT).contains(&weight) => {
                self.weight = weight;
            }
            ("weight", _) => return Err(format!("a weight is 1 to {}", Share::MOST_WEIGHT)),
            ("cap", Ok(0)) => self.cap = None,
            ("cap", Ok(cap)) if cap <= Share::MOST_CAP => self.cap = Some(cap),
            ("cap", _) => {
                let what = "a cap is a number of hundredths of a CPU: 150 is one CPU and a half; 0 is no cap";
                return Err(what.to_string());
            }
            _ if value == "no" => self.merge = None,
            _ if is_name(value) => self.merge = Some(value.to_string()),
            _ => {
                let what = "a group has 1 to 32 letters, digits, '-' and '_'; no is none";
                return Err(what.to_string());
            }
        }
        Ok(())
    }
}

/// Whether a VM can be named so.
pub fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (1..=32).contains(&name.len()) && name.chars().all(allowed)
}

/// A number of bytes: digits, and K, M or G.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.char_indices().last()? {
        (at, 'K' | 'k') => (&text[..at], 10),
        (at, 'M' | 'm') => (&text[..at], 20),
        (at, 'G' | 'g') => (&text[..at], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
pub(crate) mod tests;
