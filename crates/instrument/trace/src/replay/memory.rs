//! Memory for a VM that is replayed: mapped, and touched only by a guest of a few instructions.

use std::collections::BTreeMap;

use mayfly_kvm::GuestMemory;
use mayfly_record::Limits;
use mayfly_record::units::bytes;

use super::script::{Act, Script};

/// What has to be there for a page of a memslot, in bytes: four times what KVM may keep for it, in reverse maps and dirty
/// logs, where it has them. It takes that at once, and a cgroup at its limit kills a process in it without notice.
const KEPT: u64 = 4 * 16;
/// The same for a vCPU.
const KEPT_FOR_VCPU: u64 = 4 * (64 << 10);
/// Address space beside the guest's memory: a replay's threads, and what these allocate.
const SPARE: u64 = 128 << 20;

/// The memory of a life's memslots, each of a number and a size.
pub(super) struct Memory(BTreeMap<(u32, u64), GuestMemory>);

impl Memory {
    /// Maps what the slots have, and touches none of it.
    ///
    /// # Errors
    /// A clause: there is too much of it for this host, or for what is left of it to this process.
    pub(super) fn of(script: &Script, limits: Limits) -> Result<Self, String> {
        let mut mapped = BTreeMap::new();
        let sizes = script.steps.iter().filter_map(|step| match step.act {
            Act::Slot { slot, size, .. } => Some((slot, size)),
            _ => None,
        });
        let mut sizes: Vec<(u32, u64)> = sizes.collect();
        sizes.sort_unstable();
        sizes.dedup();
        let whole = sizes.iter().fold(0u64, |sum, (_, size)| sum.saturating_add(*size));
        let vcpus = script.steps.iter().filter(|step| matches!(step.act, Act::Vcpu(_))).count();
        let kept = (whole >> 12).saturating_mul(KEPT).saturating_add(KEPT_FOR_VCPU * vcpus as u64);
        let what = format!("replaying a VM of {}", bytes(whole));
        if let Some(why) = limits.why_not(kept, whole.saturating_add(SPARE), &what) {
            return Err(why);
        }
        for (slot, size) in sizes {
            let memory =
                usize::try_from(size).map_err(|_| "it is larger than an address".to_owned());
            let memory =
                memory.and_then(|size| GuestMemory::map(size).map_err(|why| why.to_string()));
            let memory = memory.map_err(|why| format!("{} of guest memory: {why}", bytes(size)))?;
            mapped.insert((slot, size), memory);
        }
        Ok(Self(mapped))
    }

    /// That of a slot's while it has this size.
    pub(super) fn of_slot(&self, slot: u32, size: u64) -> Option<&GuestMemory> {
        self.0.get(&(slot, size))
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::{Part, Step};
    use super::*;

    const GIB: u64 = 1 << 30;

    fn script(slots: &[(u32, u64)], vcpus: u32) -> Script {
        let slot =
            |(slot, size): &(u32, u64)| Act::Slot { slot: *slot, guest: 0, size: *size, flags: 0 };
        let acts = slots.iter().map(slot).chain((0..vcpus).map(Act::Vcpu));
        let step = |act| Step { act, pause: 0, part: Part::Start, call: 0 };
        Script { steps: acts.map(step).collect(), ..Script::default() }
    }

    fn refused(script: &Script, limits: Limits) -> String {
        Memory::of(script, limits).err().expect("there is no room for it")
    }

    #[test]
    fn what_a_vm_takes_is_held_against_every_limit_before_any_of_it_is_mapped() {
        let large = script(&[(0, 3 * GIB), (1, 61 * GIB)], 2);
        let cgroup = Limits { host: Some(256 * GIB), cgroup: Some(GIB / 2), space: None };
        assert_eq!(
            refused(&large, cgroup),
            "1.00 GiB of memory for replaying a VM of 64 GiB, 512 MiB left by the cgroup's limit"
        );
        let host = Limits { host: Some(GIB), ..Limits::default() };
        assert!(refused(&large, host).ends_with("1 GiB available on the host"));
        let space = Limits { space: Some(64 * GIB), ..Limits::default() };
        assert!(
            refused(&large, space).contains("64.1 GiB of address space"),
            "{}",
            refused(&large, space)
        );
        // Nor is what nobody has.
        assert!(
            refused(&script(&[(0, u64::MAX), (1, u64::MAX)], 0), space).contains("address space")
        );
    }

    #[test]
    fn what_there_is_room_for_is_mapped_once_however_often_it_is_set() {
        let twice = script(&[(0, 2 << 20), (1, 2 << 20), (0, 2 << 20), (0, 4 << 20)], 1);
        let room =
            Limits { cgroup: Some(1 << 20), space: Some(SPARE + (8 << 20)), ..Limits::default() };
        let memory = Memory::of(&twice, room).unwrap();
        let sizes: Vec<_> = memory.0.iter().map(|(name, memory)| (*name, memory.size())).collect();
        assert_eq!(
            sizes,
            [((0, 2 << 20), 2 << 20), ((0, 4 << 20), 4 << 20), ((1, 2 << 20), 2 << 20)]
        );
        let less = Limits { space: room.space.map(|space| space - 1), ..room };
        assert!(refused(&twice, less).contains("address space"));
        // vCPUs take memory, too.
        assert!(refused(&script(&[(0, 2 << 20)], 16), room).contains("cgroup"));
    }
}
