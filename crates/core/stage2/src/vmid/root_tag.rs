//! A root's [`Tag`], and which vCPU was last under it on each CPU.

use alloc::vec::Vec;
use core::fmt;

use mayfly_platform::memory::OutOfMemory;
use mayfly_platform::sync::{AtomicU64, Ordering};
use mayfly_platform::tlb::Vmid;

use super::line::Line;
use super::tag::Tag;
use super::{VcpuMark, Vmids};

/// The VMID of a root, as far as it has one. Each root has one such tag, made with it ([`Vmids::tag`]) and retired with
/// it ([`Vmids::retire`]).
pub struct VmidTag {
    vmids: Vmids,
    tag: AtomicU64,
    /// The mark of the vCPU that was on the root last, by CPU; 0 where none was. Each is its CPU's own.
    last: Vec<AtomicU64>,
}

/// What a CPU is to run a vCPU under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the next activation does not say again what is to be forgotten"]
pub struct Activated {
    /// The number.
    pub vmid: Vmid,
    /// This CPU may remember what another vCPU of the VM made of its own tables under the same number, and is to forget
    /// all that it has under the number before the guest's next instruction, or before anything else runs there. No
    /// other CPU is concerned.
    pub flush: bool,
}

impl VmidTag {
    pub(super) fn try_new(vmids: Vmids, cpus: usize) -> Result<Self, OutOfMemory> {
        let mut last = Vec::new();
        last.try_reserve_exact(cpus)?;
        last.resize_with(cpus, || AtomicU64::new(0));
        vmids.shared.roots.fetch_add(1, Ordering::Relaxed);
        Ok(Self { vmids, tag: AtomicU64::new(Tag::UNASSIGNED.0), last })
    }

    /// Which TLBs its VMIDs are of: [`Tlb::tlbs`](mayfly_platform::tlb::Tlb::tlbs).
    #[inline]
    pub fn tlbs(&self) -> usize {
        self.vmids.shared.tlbs
    }

    /// The VMID that `cpu`, on which this is called, is to run `vcpu` under on this root: each time before a guest is
    /// entered, where nothing preempts or migrates until it is left. The root is not retired meanwhile. The CPU keeps
    /// the VMID until it activates another root, or the root is retired.
    ///
    /// Reads three cache lines, two of the root's and this CPU's, and writes only the latter, where it does not show
    /// this root yet; and one of the root's where another vCPU was on the root last. A root that has no VMID of this
    /// generation gets one; in a roll-over, that waits until all TLBs are invalidated, so the caller is not in a guest,
    /// and not waited for by invalidations ([`Tlb::complete`]). Allocates nothing.
    ///
    /// Walks that the CPU makes afterwards find every change to the root's tables whose author saw no VMID to
    /// invalidate ([`Vmids::assigned`]).
    ///
    /// # Panics
    ///
    /// If the platform has no such CPU.
    ///
    /// # Safety
    ///
    /// The caller runs on `cpu`, and stays there until its guest is left; no other vCPU is in a guest there meanwhile.
    /// Otherwise the number of that other vCPU's root leaves the line of a CPU that goes on under it, and a roll-over
    /// gives it to another root. (Where no CPU keeps translations by VMID, anything may be said.)
    ///
    /// ```compile_fail,E0133
    /// #![forbid(unsafe_code)]
    /// use mayfly_stage2::{Activated, VcpuMark, VmidTag};
    ///
    /// fn elsewhere(tag: &VmidTag, vcpu: VcpuMark) -> Activated {
    ///     tag.activate(3, vcpu)
    /// }
    /// ```
    ///
    /// [`Tlb::complete`]: mayfly_platform::tlb::Tlb::complete
    #[inline]
    pub unsafe fn activate(&self, cpu: u32, vcpu: VcpuMark) -> Activated {
        let line = self.vmids.shared.lines.of(cpu);
        let tag = self.load();
        let vmid = match tag.number() {
            Some(number) if line.load() == tag => number,
            _ => self.activate_anew(cpu, line),
        };
        // Relaxed: the CPU's own. There is a place for each line.
        let (last, mark) = (&self.last[cpu as usize], vcpu.0.get());
        let before = last.load(Ordering::Relaxed);
        if before != mark {
            last.store(mark, Ordering::Relaxed);
        }
        Activated { vmid, flush: before != mark && before != 0 }
    }

    #[cold]
    fn activate_anew(&self, cpu: u32, line: &Line) -> Vmid {
        // What the CPU comes from goes from its line first, so that it keeps nothing in a roll-over of its own making.
        loop {
            let seen = line.load();
            let Some(number) = seen.number() else { break };
            // [vacate]
            self.vmids.shared.mmu.vacate(cpu, number);
            if line.clear(seen) {
                break;
            }
        }
        loop {
            let (seen, tag) = (line.load(), self.load());
            match tag.number() {
                Some(number) if seen.generation() == tag.generation() => {
                    if line.activate(seen, tag) {
                        return number;
                    }
                }
                _ => self.vmids.renew(seen.generation(), self, tag),
            }
        }
    }

    /// Acquire, pairing with the release in `replace`: the number was claimed before, in a generation that had begun.
    #[inline]
    pub(super) fn load(&self) -> Tag {
        Tag(self.tag.load(Ordering::Acquire))
    }

    /// Whether it was still `old`, and is `new` now.
    pub(super) fn replace(&self, old: Tag, new: Tag) -> bool {
        self.tag.compare_exchange(old.0, new.0, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Takes the tag out.
    pub(super) fn take(&self) -> Tag {
        Tag(self.tag.swap(Tag::UNASSIGNED.0, Ordering::Acquire))
    }
}

impl Drop for VmidTag {
    fn drop(&mut self) {
        self.vmids.shared.roots.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for VmidTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tag = self.load();
        f.debug_struct("VmidTag")
            .field("number", &tag.number())
            .field("generation", &tag.generation())
            .finish_non_exhaustive()
    }
}
