//! What guests do, and the steps in which that is counted.

use mayfly_lifecycle_steps::Executed;

use super::guest::Guest;

/// What the guests of a machine do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// One boots, and powers itself off.
    Boot,
    /// One accesses its disk and asks another, which answers.
    Traffic,
}

/// A phase in which a guest does nothing but start the program that does the rest.
pub(super) const NOTHING: &str = "nothing";

/// The TCP port at which one guest answers.
const PORT: u32 = 7;

impl Job {
    /// All of them.
    pub(super) const ALL: [Self; 2] = [Self::Boot, Self::Traffic];

    /// The guests. The first says when phases end, and its end is that of the last phase.
    pub(super) fn guests(self) -> Vec<Guest> {
        let guest = |name, card: u8, vcpus, memory, does: &str| Guest {
            name,
            vcpus,
            memory,
            disk: 16,
            card,
            arguments: format!("console=hvc0 quiet{does}"),
        };
        match self {
            Self::Boot => vec![guest("linux", 1, 4, 512, "")],
            Self::Traffic => {
                let addresses = "mayfly.address=10.0.0";
                let asks = format!(" {addresses}.1 mayfly.asks=10.0.0.2:{PORT}");
                let answers = format!(" {addresses}.2 mayfly.answers={PORT}");
                vec![guest("asks", 1, 1, 256, &asks), guest("answers", 2, 1, 256, &answers)]
            }
        }
    }

    /// The names of the phases that the first guest ends by saying so, in that order.
    pub(super) fn phases(self) -> Vec<&'static str> {
        match self {
            Self::Boot => Vec::new(),
            Self::Traffic => {
                let steps = Step::ALL.iter().copied().filter(|step| step.job() == Self::Traffic);
                ["ready", NOTHING].into_iter().chain(steps.map(Step::name)).collect()
            }
        }
    }

    /// The name of the phase that ends with the first guest.
    pub(super) const fn last(self) -> &'static str {
        match self {
            Self::Boot => Step::Boot.name(),
            Self::Traffic => "off",
        }
    }
}

macro_rules! steps {
    ($($(#[$doc:meta])* $step:ident $name:literal $job:ident $times:literal $summary:literal,)*) => {
        /// What is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Step { $(#[doc = $summary] $step,)* }

        impl Step {
            /// All of them, in the order in which they are done.
            pub const ALL: &'static [Self] = &[$(Self::$step,)*];

            /// The name in records, and of the phase.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$step => $name,)* }
            }

            /// What is done, in one line.
            pub const fn summary(self) -> &'static str {
                match self { $(Self::$step => $summary,)* }
            }

            /// How often it is done in its phase.
            pub const fn times(self) -> u64 {
                match self { $(Self::$step => $times,)* }
            }

            /// What guests do when it is counted.
            pub(super) const fn job(self) -> Job {
                match self { $(Self::$step => Job::$job,)* }
            }
        }
    };
}

steps! {
    Boot "boot" Boot 1 "a VM of 4 vCPUs with a disk, a card and a virtio console is made, boots, powers itself off, and is gone",
    Write "disk-write-4k" Traffic 1000 "a guest writes 4 KiB to its disk, past its page cache",
    Read "disk-read-4k" Traffic 1000 "a guest reads 4 KiB of its disk, past its page cache",
    Request1 "request-1" Traffic 1000 "a guest sends 1 byte to another by TCP, and gets 1 byte back",
    Request1500 "request-1500" Traffic 1000 "a guest sends 1,500 bytes to another by TCP, and gets 1,500 bytes back",
    Bulk "bulk-64m" Traffic 1 "a guest sends 64 MiB to another by TCP, which takes all of it",
}

/// What one of several is, of which each took what `all` took beyond `nothing`; to the nearest.
pub(super) fn one_of(all: Executed, nothing: Executed, times: u64) -> Executed {
    let one = |all: u64, nothing: u64| (all.saturating_sub(nothing) + times / 2) / times;
    Executed {
        vmm: one(all.vmm, nothing.vmm),
        el1: one(all.el1, nothing.el1),
        el2: one(all.el2, nothing.el2),
        guest: one(all.guest, nothing.guest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_takes_is_taken_off_each_before_the_rest_is_divided() {
        let all = Executed { vmm: 1500, el1: 9, el2: 12_345, guest: 100 };
        let nothing = Executed { vmm: 500, el1: 10, el2: 2_345, guest: 0 };
        let one = Executed { vmm: 1, el1: 0, el2: 10, guest: 0 };
        assert_eq!(one_of(all, nothing, 1000), one);
        assert_eq!(one_of(all, Executed::default(), 1), all);
    }

    #[test]
    fn the_guest_does_as_often_what_a_step_has_in_its_name() {
        let init = include_str!("init");
        let ended = init.lines().filter_map(|line| line.trim().strip_prefix("phase "));
        let ended: Vec<_> = ended.map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(ended, Job::Traffic.phases());
        let line = |step: Step| {
            let phase = format!("phase {} ", step.name());
            init.lines().find(|line| line.trim().starts_with(&phase)).unwrap()
        };
        for step in [Step::Write, Step::Read, Step::Request1, Step::Request1500] {
            assert!(line(step).ends_with(&format!(" {}", step.times())), "{}", line(step));
        }
        assert!(
            line(Step::Request1).contains("\" 1 ") && line(Step::Request1500).contains("\" 1500 ")
        );
        assert!(line(Step::Bulk).ends_with(&format!(" {}", 64 << 20)));
    }
}
