//! KVM's dirty logs on x86, under `mmu_lock`.
//!
//! They follow Linux's code on the software machine's memory, tables, TLBs and threads:
//!
//! | | [`Logging::WriteProtect`] | [`Logging::InitiallySet`] | [`Logging::Ring`] | [`WriteLocked`] |
//! | --- | --- | --- | --- | --- |
//! | code | TDP MMU, v6.18 | the same | the same | v5.9, before the TDP MMU |
//! | start (`kvm_mmu_slot_apply_flags`) | splits all blocks, and write-protects all pages, under the lock for read | sets all bits | as the first | write-protects what the reverse map has, under the lock |
//! | a write to a page that is there (`fast_page_fault`) | no lock | no lock | no lock | no lock |
//! | a write to a block | (none is left) | splits it, under the lock for read | (none is left) | drops it, and maps the one page, under the lock |
//! | harvest | `KVM_GET_DIRTY_LOG`: under the lock for write | copies the bitmap | reads the rings | under the lock |
//! | clear | by the harvest | `KVM_CLEAR_DIRTY_LOG`, for 64 MiB at a time: splits and write-protects, under the lock for write | `KVM_RESET_DIRTY_RINGS`: under the lock for write, for 64 pages at a time | by the harvest |
//! | stop | each table becomes a block in its place, and its entries are removed (`kvm_tdp_mmu_recover_huge_pages`), under the lock for read | the same | the same | zaps each page (`kvm_mmu_zap_collapsible_sptes`), under the lock |
//!
//! The lock is fair, as `kernel/locking/qrwlock.c` is. Where Linux gives it up for others that wait, so do these.
//!
//! Left out, in favour of these designs: `synchronize_srcu` where flags of a slot change; the accounting of each page; the
//! grace period by which tables are freed; what a vCPU waits for until TLBs have forgotten a block that it drops. Rings
//! have the most entries that KVM allows. If one is full all the same, its vCPU collects and resets all of them, as QEMU
//! has it do.

mod lock;
mod log;
mod sections;
mod tables;
mod tdp;
mod write_locked;

pub(crate) use tdp::{Logging, TdpLog};
pub(crate) use write_locked::WriteLocked;
