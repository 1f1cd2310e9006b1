//! A VM's disk that is a partition of the machine's, as `disk=part:NAME` describes it.

use alloc::string::{String, ToString};

/// What a partition's name stands behind.
const PARTITION: &str = "part:";
/// The most characters of its name, in a GPT.
const PARTITION_NAME: usize = 36;

/// A partition of the machine's disk, as a VM uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionUse {
    /// Its name.
    pub name: String,
    /// It is not written.
    pub is_read_only: bool,
    /// The VM may write all the same, to frames of its own that lie over it.
    pub is_overlaid: bool,
}

impl PartitionUse {
    /// Whether the value of `disk=` is to be a partition.
    pub(crate) fn is_meant(value: &str) -> bool {
        value.starts_with(PARTITION)
    }

    /// Of `part:NAME`, `part:NAME,ro`, or `part:NAME,overlay`.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it.
    pub(crate) fn parse(value: &str) -> Result<Self, &'static str> {
        let rest = value.strip_prefix(PARTITION).unwrap_or(value);
        let (name, is_read_only, is_overlaid) = match rest.split_once(',') {
            None => (rest, false, false),
            Some((name, "ro")) => (name, true, false),
            Some((name, "overlay")) => (name, true, true),
            Some(_) => {
                return Err(
                    "behind the name of a partition there is ',ro', ',overlay', or nothing",
                );
            }
        };
        if !(1..=PARTITION_NAME).contains(&name.chars().count()) {
            return Err("a partition is like part:NAME, and its name has 1 to 36 characters");
        }
        Ok(Self { name: name.to_string(), is_read_only, is_overlaid })
    }
}

#[cfg(test)]
mod tests {
    use std::format;

    use crate::plan::tests::plan;

    #[test]
    fn a_disk_is_in_memory_or_a_partition_and_the_last_that_is_said_counts() {
        let set = |parameters: &str| {
            let plan = plan(parameters);
            assert_eq!(plan.has_disk(), plan.disk != 0 || plan.partition.is_some());
            let partition = plan.partition;
            (plan.disk, partition.map(|part| (part.name, part.is_read_only, part.is_overlaid)))
        };
        assert_eq!(set("disk=part:data"), (0, Some(("data".into(), false, false))));
        let root = |is_overlaid| Some(("Linux-root".into(), true, is_overlaid));
        assert_eq!(set("disk=4M disk=part:Linux-root,ro"), (0, root(false)));
        assert_eq!(set("disk=part:Linux-root,overlay"), (0, root(true)));
        assert_eq!(set("disk=part:data disk=4M"), (4 << 20, None));
        assert_eq!(set("disk=part:data disk=0"), (0, None));
        let long = "x".repeat(37);
        for wrong in [
            "part:",
            "part:a,overlay,ro",
            "part:,ro",
            "part:a,",
            "part:a,rw",
            "part:a,ro,ro",
            "part",
            &long,
        ] {
            assert!(plan("").set(&format!("disk={wrong}")).is_err(), "{wrong}");
        }
        assert!(plan("").set(&format!("disk=part:{long}")).is_err());
    }
}
