//! The list of roots (`tdp_mmu_roots`).
//!
//! A root's reference count says whether it can be had: a thread that finds it at zero has not found the root
//! (`kvm_tdp_mmu_get_root`). A new root has two references, its maker's and one that the thread gives up that zaps the
//! root when it is invalid. KVM's list is linked, read under RCU; this one is an array, long enough for one experiment.

use std::iter::repeat_with;
use std::sync::OnceLock;

use anyhow::Context;
use mayfly_platform::address::Pfn;
use mayfly_platform::sync::{AtomicBool, AtomicUsize, CacheLine, Ordering};
use mayfly_platform::tlb::Vmid;

pub(crate) struct Roots {
    all: Box<[OnceLock<Root>]>,
    /// How many there are, or were.
    count: AtomicUsize,
}

pub(crate) struct Root {
    pub(super) top: Pfn,
    pub(super) vmid: Vmid,
    references: CacheLine<AtomicUsize>,
    is_invalid: AtomicBool,
}

impl Root {
    pub(super) fn is_invalid(&self) -> bool {
        self.is_invalid.load(Ordering::Acquire)
    }

    pub(super) fn invalidate(&self) {
        self.is_invalid.store(true, Ordering::Release);
    }

    /// Gives a reference up. Returns whether it was the last.
    pub(super) fn put(&self) -> bool {
        self.references.fetch_sub(1, Ordering::AcqRel) == 1
    }

    fn get(&self) -> bool {
        let more = |count: usize| (count > 0).then_some(count + 1);
        self.references.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }
}

impl Roots {
    /// Room for `count` roots, one after the other.
    pub(super) fn with_room_for(count: usize) -> Self {
        Self { all: repeat_with(OnceLock::new).take(count).collect(), count: AtomicUsize::new(0) }
    }

    /// Those that vCPUs may run on. All of them were made for the same role.
    pub(super) fn valid(&self) -> impl Iterator<Item = &Root> {
        let count = self.count.load(Ordering::Acquire);
        // Whoever invalidates one invalidates all, so those before an invalid one are too.
        let latest = self.all[..count].iter().rev().filter_map(OnceLock::get);
        latest.take_while(|root| !root.is_invalid())
    }

    /// How many are invalid, and still there.
    pub(super) fn held(&self) -> u64 {
        let count = self.count.load(Ordering::Acquire);
        let all = self.all[..count].iter().filter_map(OnceLock::get);
        let is_held =
            |root: &&Root| root.is_invalid() && root.references.load(Ordering::Acquire) > 0;
        all.filter(is_held).count() as u64
    }

    /// One that vCPUs may run on, with a reference.
    pub(super) fn find(&self) -> Option<&Root> {
        self.valid().find(|root| root.get())
    }

    /// Adds the root whose table is `top`, with two references. One at a time.
    pub(super) fn add(&self, top: Pfn) -> anyhow::Result<&Root> {
        let index = self.count.load(Ordering::Relaxed);
        let place = self.all.get(index).context("there is no room for another root")?;
        let root = place.get_or_init(|| Root {
            top,
            vmid: Vmid(index as u16 + 1),
            references: CacheLine(AtomicUsize::new(2)),
            is_invalid: AtomicBool::new(false),
        });
        self.count.store(index + 1, Ordering::Release);
        Ok(root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_found_until_it_is_invalid_and_gone_with_its_last_reference() {
        let roots = Roots::with_room_for(2);
        assert!(roots.find().is_none());
        let first = roots.add(Pfn::new(7)).unwrap();
        assert_eq!(roots.find().unwrap().top, Pfn::new(7));
        assert_eq!(roots.held(), 0, "it is not invalid");
        first.invalidate();
        assert!(roots.find().is_none());
        assert_eq!([first.put(), first.put()], [false, false]);
        assert_eq!(roots.held(), 1);
        assert!(first.put());
        assert_eq!(roots.held(), 0);

        let second = roots.add(Pfn::new(8)).unwrap();
        assert_ne!(second.vmid, first.vmid);
        assert_eq!(roots.find().unwrap().top, Pfn::new(8));
        assert!(roots.add(Pfn::new(9)).is_err(), "there was room for two");
    }
}
