//! Which sizes of VMs the host has room for, on KVM.

use std::fs;

use mayfly_platform::address::PAGE_SIZE;
use mayfly_record::Limits;

use crate::mapping::Mapping;
use crate::params::Size;

/// What the host has for guests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    limits: Limits,
    /// Whether memory comes in huge pages where a process asks for it.
    huge_pages: bool,
}

impl Room {
    pub(crate) fn gather() -> Self {
        // The mode in force stands in brackets. Under `never`, asking for huge pages succeeds all the same; where the
        // kernel knows none it fails, whether a sysfs is mounted or not.
        let modes = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        let is_never = modes.is_ok_and(|modes| modes.contains("[never]"));
        let huge_pages = !is_never && Mapping::Blocks.guest_memory(PAGE_SIZE as usize).is_ok();
        Self { limits: Limits::gather(), huge_pages }
    }

    #[cfg(test)]
    pub(crate) fn unlimited() -> Self {
        Self { limits: Limits::default(), huge_pages: true }
    }

    /// Why a VM of `size`, mapped by `mapping`, is not run, if it is not. Its guest's code reaches the addresses below
    /// `reach`.
    pub(crate) fn why_not(self, size: Size, mapping: Mapping, reach: u64) -> Option<String> {
        if size.bytes() > reach {
            return Some(format!("{size} is beyond the guest's reach"));
        }
        if let Some(why) = self.limits.why_not(2 * size.bytes(), 0, &format!("a guest of {size}")) {
            return Some(format!("{why}, of which a guest may have half"));
        }
        if let Some(why) = self.limits.why_not(0, size.bytes(), "guest memory") {
            return Some(why);
        }
        (mapping == Mapping::Blocks && !self.huge_pages)
            .then(|| "the host has no huge pages".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(available: u64) -> Room {
        let limits = Limits { host: Some(available), ..Limits::default() };
        Room { limits, ..Room::unlimited() }
    }

    fn why(size: &str, mapping: Mapping, room: Room) -> Option<String> {
        room.why_not(size.parse().unwrap(), mapping, 64 << 30)
    }

    #[test]
    fn no_vm_takes_more_than_half_of_what_the_host_has_available() {
        assert_eq!(why("20GiB", Mapping::Pages, room(40 << 30)), None);
        assert!(why("20482MiB", Mapping::Pages, room(40 << 30)).unwrap().contains("half"));
        let small = room(1 << 30);
        let said = "2 GiB of memory for a guest of 1 GiB, 1 GiB available on the host, of which a guest may \
                    have half";
        assert_eq!(why("1GiB", Mapping::Pages, small).as_deref(), Some(said));
        let unknown = Room::unlimited();
        assert_eq!(why("64GiB", Mapping::Pages, unknown), None);
        assert!(why("66GiB", Mapping::Pages, unknown).unwrap().contains("reach"));
    }

    #[test]
    fn blocks_need_a_host_that_has_huge_pages() {
        let small_pages = Room { huge_pages: false, ..room(40 << 30) };
        assert!(why("1GiB", Mapping::Blocks, small_pages).unwrap().contains("huge pages"));
        assert_eq!(why("1GiB", Mapping::Pages, small_pages), None);
        assert_eq!(why("1GiB", Mapping::Blocks, room(40 << 30)), None);
    }
}
