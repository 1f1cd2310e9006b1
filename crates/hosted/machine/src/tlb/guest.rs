//! A CPU in the guest: how it comes in, what it translates there, and how it leaves.

use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use mayfly_hwtrace::Event;
use mayfly_platform::address::{Gfn, Gpa, Hpa, PAGE_SHIFT, Pfn};
use mayfly_platform::tlb::{Tlb, Vmid};
use mayfly_stage2::{Format, Leaf, Level, Permissions};
use mayfly_vm::{Base, Translation};

use super::cache::Known;
use super::counts::count_own;
use super::cpu::{CpuTlb, WALKED};
use super::late::Late;
use super::rigour::{
    LeftOut, Rigour, drops_what_faulted, may_keep_absent, may_walk_late, tells_vcpus_apart,
};
use super::shared::Register;
use crate::Arena;
use crate::lock::lock;
use crate::walk::{Cause, WalkFault, Walked, walk_on};

impl CpuTlb {
    /// Goes into the guest of a vCPU that was told this CPU's [number](CpuTlb::number): loads the translation, and
    /// forgets what another vCPU has left, where the format's TLBs do not tell them apart. A thread that completes an
    /// invalidation waits for this CPU until it polls or leaves. So in the guest a thread neither waits for others nor
    /// completes invalidations.
    ///
    /// # Panics
    ///
    /// If the vCPU is one of another machine, or the core was told another CPU. If another vCPU has left something, and the core has not said so, or it is [left out](LeftOut::Flush).
    pub fn enter<F: Format>(
        &mut self,
        arena: &Arena,
        translation: &Translation<'_, F>,
    ) -> InGuest<'_> {
        assert_eq!(translation.tlbs(), self.tlbs.tlbs(), "the vCPU is one of another machine");
        assert_eq!(translation.cpu(), self.number(), "the guest was told another CPU");
        self.walk_outside::<F>(arena);
        // SAFETY: the vCPU has this CPU of its machine to itself, which is the one that was named.
        let Base { top, vmid, flush } = unsafe { translation.load() };
        let vcpu = translation.vcpu();
        self.forget_posted(vmid);
        let owner = self.owners.insert(vmid, vcpu);
        if !tells_vcpus_apart::<F>() {
            if flush && !self.tlbs.leaves_out(LeftOut::Flush) {
                self.cache.forget_vmid(vmid);
                if let Some(oracle) = arena.oracle() {
                    oracle.forget_own_instructions(self.number());
                }
                count_own(&self.shared.counts.flushed);
            } else if owner.is_some_and(|owner| owner != vcpu) {
                panic!("another vCPU's translations under {vmid:?} met unflushed");
            }
        }
        self.enter_guest(top, vmid)
    }

    /// Goes into a guest, whose root is in frame `top` and has `vmid`, of the one vCPU that ever runs under it here.
    pub fn enter_guest(&mut self, top: Pfn, vmid: Vmid) -> InGuest<'_> {
        if let Some(from) = self.tlbs.order_walks(LeftOut::EntryBarrier, Late::enter) {
            self.walks_from = from;
        }
        if let Some(recorder) = self.tlbs.recorder() {
            recorder.note(Event::Enter { tlb: self.number, top: top.get(), vmid: vmid.0 });
        }
        {
            let mut register = lock(&self.shared.register);
            *register = Register { named: Some((top, vmid)), in_guest: Some(top) };
        }
        self.shared.mailbox.enter(vmid, self.seen);
        count_own(&self.shared.counts.entries);
        if let Some(gfn) = self.stale.take() {
            self.cache.forget_leaf(vmid, gfn);
            count_own(&self.shared.counts.stale_forgotten);
        }
        let rigour = self.tlbs.rigour();
        let mut guest = InGuest { cpu: self, top, vmid, rigour };
        guest.poll();
        guest
    }
}

/// A CPU in the guest; it leaves when this is dropped.
#[derive(Debug)]
pub struct InGuest<'a> {
    cpu: &'a mut CpuTlb,
    top: Pfn,
    vmid: Vmid,
    rigour: Rigour,
}

/// A translation, to be used at once: the CPU can neither poll nor leave while it is there.
#[derive(Clone, Copy, Debug)]
pub struct Translated<'a> {
    /// The frame.
    pub pfn: Pfn,
    /// The size of the page or block that maps it.
    pub level: Level,
    /// What maps it; its frame is the first of the block.
    pub leaf: Leaf,
    in_guest: PhantomData<&'a ()>,
}

impl Translated<'_> {
    /// The address of `gpa`, which is in the guest frame that was translated.
    pub fn hpa(&self, gpa: Gpa) -> Hpa {
        Hpa::new((self.pfn.get() << PAGE_SHIFT) + gpa.page_offset())
    }
}

impl InGuest<'_> {
    /// The number of its CPU.
    pub(crate) fn cpu(&self) -> u32 {
        self.cpu.number()
    }

    /// The first frame of its root.
    pub fn top(&self) -> Pfn {
        self.top
    }

    /// How far the machine goes, in this guest.
    pub fn rigour(&self) -> Rigour {
        self.rigour
    }

    /// Whether an interrupt is pending, which brings the guest out, and is taken then.
    #[inline]
    pub fn is_interrupted(&self) -> bool {
        self.cpu.shared.interrupted.load(Ordering::Relaxed)
    }

    /// Forgets what it was asked to; to be called between the guest's instructions, and however it waits.
    #[inline]
    pub fn poll(&mut self) {
        if self.cpu.shared.mailbox.has_mail(self.cpu.seen) {
            self.take_mail();
        }
    }

    /// Records that the guest makes an access of a translation that it has, which `make` does.
    #[inline]
    pub(crate) fn record<T>(
        &self,
        gfn: Gfn,
        frame: Pfn,
        write: bool,
        make: impl FnOnce() -> T,
    ) -> T {
        let Some(recorder) = self.cpu.tlbs.recorder() else { return make() };
        let begun = recorder.begin();
        let outcome = make();
        let (tlb, vmid, gfn, frame) = (self.cpu.number, self.vmid.0, gfn.get(), frame.get());
        recorder.end(begun, Event::Access { tlb, vmid, gfn, frame, write });
        outcome
    }

    /// Where the guest finds `gfn` for such an access: as it is remembered, or by a walk of the table in format `F`.
    ///
    /// What is remembered but does not allow the access faults, or is walked again: [`Rigour::TRUSTS_LEAVES`]. What a
    /// store finds not dirty is walked again, so that it becomes so.
    ///
    /// # Errors
    ///
    /// As `walk`.
    #[inline]
    pub fn translate<F: Format>(
        &mut self,
        arena: &Arena,
        gfn: Gfn,
        access: Permissions,
    ) -> Result<Translated<'_>, WalkFault> {
        let counts = &self.cpu.shared.counts;
        let is_clean =
            |leaf: &Leaf| F::SETS_DIRTY && access.contains(Permissions::WRITE) && !leaf.dirty;
        let (level, leaf) = match self.cpu.cache.find(self.vmid, gfn) {
            Some(Known::Leaf(level, leaf))
                if leaf.permissions.contains(access) && !is_clean(&leaf) =>
            {
                count_own(&counts.hits);
                (level, leaf)
            }
            Some(Known::Leaf(level, leaf))
                if self.rigour.contains(Rigour::TRUSTS_LEAVES)
                    && !leaf.permissions.contains(access) =>
            {
                count_own(&counts.faults);
                if drops_what_faulted::<F>() {
                    self.cpu.cache.forget_leaf(self.vmid, gfn);
                }
                return Err(WalkFault { level, cause: Cause::Permission });
            }
            Some(Known::Absent(level)) => {
                count_own(&counts.faults);
                return Err(WalkFault { level, cause: Cause::Absent });
            }
            _ => {
                let found = self.walk::<F>(arena, gfn, access)?;
                (found.level, found.leaf)
            }
        };
        let pfn = Pfn::new(leaf.pfn.get() + gfn.get() % level.pages());
        Ok(Translated { pfn, level, leaf, in_guest: PhantomData })
    }

    /// Walks, and remembers what it finds.
    fn walk<F: Format>(
        &mut self,
        arena: &Arena,
        gfn: Gfn,
        access: Permissions,
    ) -> Result<Walked, WalkFault> {
        let Self { cpu, top, vmid, rigour } = self;
        let (cache, counts) = (&mut cpu.cache, &cpu.shared.counts);
        count_own(&counts.walks);
        let keeps_tables = rigour.contains(Rigour::KEEPS_TABLES);
        let known = if keeps_tables { cache.table(*vmid, gfn) } else { None };
        let met = |level, table| {
            if keeps_tables {
                cache.insert_table(*vmid, gfn, level, table);
            }
        };
        let is_late = rigour.contains(Rigour::WALKS_LATE) && may_walk_late::<F>();
        let (late, walks_from) = (&cpu.tlbs.late, cpu.walks_from);
        let find = |table, index, bits| {
            if is_late { late.find(table, index, bits, walks_from) } else { bits }
        };
        let (sizes, from) = (cpu.tlbs.sizes, known.unwrap_or((F::TOP, *top)));
        let found = walk_on::<F>(arena, sizes, from, gfn, access, find, met);
        match &found {
            Ok(found) => {
                count_own(&counts.fills);
                cpu.walked[cpu.walks % WALKED] = gfn;
                cpu.walks = cpu.walks.wrapping_add(1);
                if cache.insert(*vmid, gfn, found.level, found.leaf) {
                    count_own(&counts.refills);
                }
            }
            Err(fault)
                if rigour.contains(Rigour::KEEPS_ABSENT)
                    && may_keep_absent::<F>()
                    && matches!(fault.cause, Cause::Absent | Cause::Frozen) =>
            {
                cache.insert_absent(*vmid, gfn, fault.level);
            }
            Err(_) => {}
        }
        found
    }

    #[cold]
    fn take_mail(&mut self) {
        self.cpu.take_posted(self.vmid);
        let CpuTlb { tlbs, shared, seen, .. } = &*self.cpu;
        shared.mailbox.acknowledge(*seen, &*tlbs.platform);
    }
}

impl Drop for InGuest<'_> {
    fn drop(&mut self) {
        if let Some(recorder) = self.cpu.tlbs.recorder() {
            recorder.note(Event::Leave { tlb: self.cpu.number, vmid: self.vmid.0 });
        }
        lock(&self.cpu.shared.register).in_guest = None;
        self.cpu.shared.mailbox.leave(self.cpu.seen, &*self.cpu.tlbs.platform);
    }
}
