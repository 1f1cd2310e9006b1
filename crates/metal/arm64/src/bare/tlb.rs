//! TLBs, as [`Tlb`](mayfly_vm::platform::tlb::Tlb) asks for them.
//!
//! An invalidation by VMID takes the VMID from `VTTBR_EL2`. So the invalidation borrows the register, unless it has the
//! VMID already: it writes the VMID beside the *empty root*, a table without an entry, and then restores the old value.
//! Interrupts are masked at EL2, so nothing comes between. Meanwhile the processor can walk only the empty root,
//! speculatively, which leaves nothing in the TLB.
//!
//! The register still names a root after the exit of its guest, so that the next entry costs nothing. Some processors
//! walk from it then, though the architecture forbids that ([`walks_out_of_guests`]: errata 1530923 of Cortex-A55, 1319537
//! of A57, 1319367 of A72, 1165522 of A76, Neoverse-N1). They are told to name the empty root before the named root gets
//! another use ([`EmptyRoot::replace`]), and when the registers of another vCPU are loaded.

use core::arch::asm;

use mayfly_vm::platform::address::{Gfn, PAGE_SHIFT, Pfn};
use mayfly_vm::platform::tlb::{Entries, Scope, Vmid};

use super::common;
use crate::errata::Errata;

const VMID_SHIFT: u32 = 48;

/// The empty root of a machine.
#[derive(Clone, Copy, Debug)]
pub struct EmptyRoot(u64);

impl EmptyRoot {
    /// The tables from `top` on: as many as a root has, aligned as one, all zero, and never used otherwise.
    pub fn new(top: Pfn) -> Self {
        Self(top.get() << PAGE_SHIFT)
    }

    /// Has `VTTBR_EL2` name it under VMID 0.
    #[inline]
    pub fn load(self) {
        // SAFETY: no guest is entered by it, and a walk finds nothing.
        unsafe {
            crate::write_register!("vttbr_el2", self.0);
            asm!("isb", options(nostack));
        }
    }

    /// Has `VTTBR_EL2` name it, if it names a root under `vmid` now.
    pub fn replace(self, vmid: Vmid) {
        if crate::read_register!("vttbr_el2") >> VMID_SHIFT == u64::from(vmid.0) {
            self.load();
        }
    }

    fn with_vmid(self, vmid: Vmid, work: impl FnOnce()) {
        // SAFETY: a barrier. Stores to tables are seen by walks: a change that was only loaded too.
        unsafe { asm!("dsb ish", options(nostack)) };
        let before = crate::read_register!("vttbr_el2");
        if before >> VMID_SHIFT == u64::from(vmid.0) {
            return work();
        }
        // SAFETY: the VMID says what is invalidated, and no more.
        unsafe {
            crate::write_register!("vttbr_el2", self.0 | u64::from(vmid.0) << VMID_SHIFT);
            asm!("isb", options(nostack));
        }
        work();
        // SAFETY: the register may name the same root again: the caller that wants another root named
        // (`EmptyRoot::replace`) does that on this processor.
        unsafe {
            crate::write_register!("vttbr_el2", before);
            asm!("isb", options(nostack));
        }
    }

    /// Invalidates `scope` of `vmid` on every processor, and returns when that is so.
    pub fn invalidate(self, vmid: Vmid, scope: &Scope) {
        let work = || match scope {
            Scope::Range(span) => {
                let last_level_is_enough = span.entries != Entries::Any;
                for gfn in span.addresses() {
                    invalidate_page(gfn, last_level_is_enough);
                }
                // SAFETY: forgets translations of the guest's, no more: combined entries know no intermediate address.
                unsafe { asm!("dsb ish", "tlbi vmalle1is", "dsb ish", "isb", options(nostack)) };
            }
            // SAFETY: as above.
            Scope::All => unsafe { asm!("tlbi vmalls12e1is", "dsb ish", "isb", options(nostack)) },
        };
        self.with_vmid(vmid, || repeated(work));
    }
}

/// Does `work`, an invalidation on every processor, which is complete when it returns: twice, where a processor has an
/// erratum of [`Errata::REPEATED_INVALIDATION`] (1286807 of Cortex-A76, 2441007 of A55, 2441009 of A510).
fn repeated(work: impl Fn()) {
    work();
    if common::errata().has(Errata::REPEATED_INVALIDATION) {
        work();
    }
}

fn invalidate_page(gfn: Gfn, last_level: bool) {
    // Bits 35:0 are the address from its bit 12 on; no level hint.
    let operand = gfn.get();
    // SAFETY: forgets translations of the guest's, no more.
    unsafe {
        if last_level {
            asm!("tlbi ipas2le1is, {}", in(reg) operand, options(nostack));
        } else {
            asm!("tlbi ipas2e1is, {}", in(reg) operand, options(nostack));
        }
    }
}

/// Has this processor alone forget what it keeps of a page under the VMID that `VTTBR_EL2` names.
pub(super) fn forget_here(gfn: Gfn) {
    let operand = gfn.get();
    // SAFETY: forgets translations of the guest's, no more.
    unsafe {
        asm!("tlbi ipas2e1, {}", "dsb nsh", "tlbi vmalle1", "dsb nsh", "isb", in(reg) operand, options(nostack));
    }
}

/// Has this processor forget what another vCPU left under the VMID that `VTTBR_EL2` names.
pub(super) fn flush_here() {
    // SAFETY: as above, and instructions, which are fetched again.
    unsafe { asm!("tlbi vmalle1", "ic iallu", "dsb nsh", "isb", options(nostack)) };
}

/// Has all processors forget `count` pages of EL2's own from `address` on, whose entries in the tables are invalid now.
pub fn invalidate_own(address: u64, count: u64) {
    // SAFETY: a barrier: the entries are seen by walks.
    unsafe { asm!("dsb ishst", options(nostack)) };
    repeated(|| {
        for page in 0..count {
            let operand = (address >> PAGE_SHIFT) + page;
            // SAFETY: forgets translations that the tables no longer have.
            unsafe { asm!("tlbi vale2is, {}", in(reg) operand, options(nostack)) };
        }
        // SAFETY: a barrier.
        unsafe { asm!("dsb ish", "isb", options(nostack)) };
    });
}

/// Whether a processor may walk from `VTTBR_EL2` out of guests ([`Errata::WALKS_OUT_OF_GUESTS`]).
pub fn walks_out_of_guests() -> bool {
    common::errata().has(Errata::WALKS_OUT_OF_GUESTS)
}

/// Has all processors forget all that is under any VMID.
pub fn invalidate_all_vmids() {
    repeated(|| {
        // SAFETY: forgets translations of guests', and instructions.
        unsafe {
            asm!("dsb ish", "tlbi alle1is", "ic ialluis", "dsb ish", "isb", options(nostack));
        }
    });
}
