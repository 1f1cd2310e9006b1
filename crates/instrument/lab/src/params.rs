//! What an experiment can be told.

mod ksm;
mod named;
mod size;
mod zap;

use std::fmt;
use std::str::FromStr;

pub use ksm::Ksm;
use named::by_name;
pub use size::Size;
pub use zap::Zap;

/// What the user set; a parameter left out takes the experiment's own default.
///
/// The command line is one flat list of options, so this is one flat struct: experiments that share a
/// parameter (vCPUs, say) share its field. Which of them an experiment reads is what its
/// [`Experiment::params`](crate::Experiment::params) says; setting one that no selected experiment
/// reads is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    /// How many VMs there are, one after another or all at once; see [`Bound::VMS`].
    pub vms: Option<u32>,
    /// Devices registered in each VM; see [`Bound::DEVICES`].
    pub devices: Option<u32>,
    /// Numbers of vCPUs to go through, of each VM; none means the experiment's; see [`Bound::VCPUS`].
    pub vcpus: Vec<u32>,
    /// Ticks a second of the kernel that the software machine stands for; see [`Bound::HZ`].
    /// KVM runs at the host's, whatever is set here.
    pub hz: Option<u32>,
    /// Orders to go through; none means all of them.
    pub orders: Vec<Order>,
    /// How often each variant goes through what is measured; see [`Bound::ROUNDS`].
    pub rounds: Option<u32>,
    /// Sizes of a VM's memory to go through; none means the experiment's.
    pub memory: Vec<Size>,
    /// What deleting a slot zaps, to go through; none means all of them.
    pub zaps: Vec<Zap>,
    /// Pages that a merger merges together, at most; see [`Bound::PAGES_A_CHANGE`].
    pub pages_a_change: Option<u32>,
    /// Shares of a guest's memory that it writes to, in percent, to go through; none means the experiment's; see
    /// [`Bound::WRITTEN`].
    pub written: Vec<u32>,
    /// Numbers of forks to go through, of each design; none means the experiment's; see [`Bound::FORKS`].
    pub forks: Vec<u32>,
    /// Whether the host's page merger may run; it is left alone otherwise.
    pub ksm: Option<Ksm>,
}

impl Params {
    /// The names of the parameters that were set, as on the command line without the dashes.
    pub fn named(&self) -> impl Iterator<Item = &'static str> {
        [
            (self.vms.is_some(), Bound::VMS.name),
            (self.devices.is_some(), Bound::DEVICES.name),
            (!self.vcpus.is_empty(), Bound::VCPUS.name),
            (self.hz.is_some(), Bound::HZ.name),
            (!self.orders.is_empty(), Order::PARAM),
            (self.rounds.is_some(), Bound::ROUNDS.name),
            (!self.memory.is_empty(), Size::PARAM),
            (!self.zaps.is_empty(), Zap::PARAM),
            (self.pages_a_change.is_some(), Bound::PAGES_A_CHANGE.name),
            (!self.written.is_empty(), Bound::WRITTEN.name),
            (!self.forks.is_empty(), Bound::FORKS.name),
            (self.ksm.is_some(), Ksm::PARAM),
        ]
        .into_iter()
        .filter_map(|(set, name)| set.then_some(name))
    }

    /// The orders to go through, each once, in the order of [`Order::ALL`].
    pub fn orders_or_all(&self) -> impl Iterator<Item = Order> {
        Order::ALL.into_iter().filter(|order| self.orders.is_empty() || self.orders.contains(order))
    }

    /// What deleting a slot zaps, to go through, each once, in the order of [`Zap::ALL`].
    pub fn zaps_or_all(&self) -> impl Iterator<Item = Zap> {
        Zap::ALL.into_iter().filter(|zap| self.zaps.is_empty() || self.zaps.contains(zap))
    }

    /// The numbers of vCPUs to go through, each once, as given; `default` where none was.
    pub fn vcpus_or(&self, default: &[u32]) -> Vec<u32> {
        each_once(&self.vcpus, default)
    }

    /// The shares that are written to go through, each once, as given; `default` where none was.
    pub fn written_or(&self, default: &[u32]) -> Vec<u32> {
        each_once(&self.written, default)
    }

    /// The numbers of forks to go through, each once, as given; `default` where none was.
    pub fn forks_or(&self, default: &[u32]) -> Vec<u32> {
        each_once(&self.forks, default)
    }

    /// The sizes of memory to go through, each once, as given; `default` where none was.
    pub fn memory_or(&self, default: &[Size]) -> Vec<Size> {
        each_once(&self.memory, default)
    }
}

fn each_once<T: Copy + PartialEq>(given: &[T], default: &[T]) -> Vec<T> {
    let mut values = Vec::new();
    for value in if given.is_empty() { default } else { given } {
        if !values.contains(value) {
            values.push(*value);
        }
    }
    values
}

/// The accepted values of a numeric parameter, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The parameter's name on the command line, without the dashes.
    pub name: &'static str,
    /// The smallest accepted value.
    pub min: u32,
    /// The largest accepted value.
    pub max: u32,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.min, self.max)
    }
}

impl Bound {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::VMS,
        Self::DEVICES,
        Self::VCPUS,
        Self::HZ,
        Self::ROUNDS,
        Self::PAGES_A_CHANGE,
        Self::WRITTEN,
        Self::FORKS,
    ];

    /// Enough VMs for a p99.99, few enough that all samples fit in memory.
    pub const VMS: Self = Self { name: "vms", min: 1, max: 100_000 };
    /// KVM's limit of devices on one I/O bus is 1000 (`NR_IOBUS_DEVS`, `include/linux/kvm_host.h`).
    pub const DEVICES: Self = Self { name: "devices", min: 1, max: 1000 };
    /// Each runs on a thread of its own, and all of them at once: far more than processors would measure the scheduler.
    pub const VCPUS: Self = Self { name: "vcpus", min: 1, max: 256 };
    /// Wide around every `CONFIG_HZ` there is: 24 (`arch/mips/Kconfig`) to 1200 (`arch/alpha/Kconfig`).
    pub const HZ: Self = Self { name: "hz", min: 1, max: 10_000 };
    /// Enough for a p99.9, few enough that a run comes to its end.
    pub const ROUNDS: Self = Self { name: "rounds", min: 1, max: 10_000 };
    /// Up to 2 MiB at a time: a change has faults wait that meet it.
    pub const PAGES_A_CHANGE: Self = Self { name: "pages-a-change", min: 1, max: 512 };
    /// In percent.
    pub const WRITTEN: Self = Self { name: "written", min: 1, max: 100 };

    /// Each has memory and descriptors of its own, and all are there at once.
    pub const FORKS: Self = Self { name: "forks", min: 1, max: 10_000 };

    /// Reads a value of this parameter.
    ///
    /// # Errors
    ///
    /// Anything but a decimal number within the bound; the message names the accepted ones.
    pub fn parse(self, text: &str) -> Result<u32, String> {
        text.parse()
            .ok()
            .filter(|value| (self.min..=self.max).contains(value))
            .ok_or_else(|| format!("accepted are {self}"))
    }
}

/// In which order a VM gets its devices, its memory and its vCPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// Interrupt controller and devices, then memory, then vCPUs: as x86 VMMs do.
    DevicesFirst,
    /// vCPUs, then devices, then memory: as arm64 VMMs do.
    VcpusFirst,
    /// Memory, then devices, then vCPUs, whose creation adds an internal slot as VMX and AVIC do.
    MemoryFirst,
}

impl Order {
    /// Every order, as reports list them.
    pub const ALL: [Self; 3] = [Self::DevicesFirst, Self::VcpusFirst, Self::MemoryFirst];

    /// The parameter's name on the command line, without the dashes, and in records.
    pub const PARAM: &'static str = "order";

    /// The name used on the command line and in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DevicesFirst => "devices-first",
            Self::VcpusFirst => "vcpus-first",
            Self::MemoryFirst => "memory-first",
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        by_name(&Self::ALL, Self::name, text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_number_is_accepted_exactly_when_it_is_within_the_bound(value in any::<u32>()) {
            for bound in [Bound::VMS, Bound::DEVICES, Bound::VCPUS, Bound::HZ, Bound::ROUNDS] {
                let within = value >= bound.min && value <= bound.max;
                prop_assert_eq!(bound.parse(&value.to_string()).ok(), within.then_some(value));
            }
        }

        #[test]
        fn text_that_is_no_number_is_refused_and_never_panics(text in "\\PC*") {
            prop_assume!(text.parse::<u32>().is_err());
            prop_assert!(Bound::VMS.parse(&text).is_err());
            prop_assert_eq!(Bound::HZ.parse(&text), Err("accepted are 1 to 10000".to_owned()));
        }
    }

    #[test]
    fn every_order_reads_back_from_its_name() {
        for order in Order::ALL {
            assert_eq!(order.name().parse(), Ok(order));
        }
        assert!("Devices-First".parse::<Order>().is_err());
    }

    #[test]
    fn orders_given_twice_or_in_disorder_run_once_and_in_the_order_of_reports() {
        let orders = vec![Order::MemoryFirst, Order::DevicesFirst, Order::MemoryFirst];
        let params = Params { orders, ..Params::default() };
        let run: Vec<_> = params.orders_or_all().collect();
        assert_eq!(run, [Order::DevicesFirst, Order::MemoryFirst]);
        assert_eq!(Params::default().orders_or_all().count(), 3);
    }

    #[test]
    fn numbers_and_sizes_given_twice_are_gone_through_once_and_in_the_order_given() {
        let size = |text: &str| text.parse::<Size>().unwrap();
        let memory = vec![size("16GiB"), size("1GiB"), size("1024MiB")];
        let params = Params { vcpus: vec![16, 4, 16], memory, ..Params::default() };
        assert_eq!(params.vcpus_or(&[2]), [16, 4]);
        assert_eq!(params.memory_or(&[]), [size("16GiB"), size("1GiB")]);
        assert_eq!(Params::default().vcpus_or(&[2, 3]), [2, 3]);
        assert_eq!(Params::default().memory_or(&[size("2G")]), [size("2GiB")]);
    }

    #[test]
    fn what_was_set_is_named_as_on_the_command_line() {
        let memory = vec!["1GiB".parse().unwrap()];
        let params = Params { vcpus: vec![4], rounds: Some(1), memory, ..Params::default() };
        assert_eq!(params.named().collect::<Vec<_>>(), ["vcpus", "rounds", "memory"]);
        let params = Params { zaps: vec![Zap::Range, Zap::Range], ..Params::default() };
        assert_eq!(params.named().collect::<Vec<_>>(), ["zap"]);
        assert_eq!(params.zaps_or_all().collect::<Vec<_>>(), [Zap::Range]);
        let params = Params { forks: vec![100, 1, 100], ..Params::default() };
        assert_eq!(params.named().collect::<Vec<_>>(), ["forks"]);
        assert_eq!(
            (params.forks_or(&[]), Params::default().forks_or(&[7])),
            (vec![100, 1], vec![7])
        );
        assert_eq!(Params::default().zaps_or_all().count(), 2);
        assert_eq!(Params::default().named().count(), 0);
    }
}
