//! The root list of KVM's TDP MMU on x86, under `mmu_lock`.
//!
//! It has two forms: the one until Linux v6.8, and the one that Sean Christopherson's series of January 2024 made
//! ([Allow TDP MMU (un)load to run in parallel](https://lore.kernel.org/all/20240111020048.844847-1-seanjc@google.com),
//! v6.9). This code follows `arch/x86/kvm/mmu/mmu.c` and `tdp_mmu.c` of those, on the software machine's memory,
//! tables, TLBs and threads:
//!
//! | | v6.8 ([`Locking::Write`]) | v6.9 ([`Locking::Read`]) |
//! | --- | --- | --- |
//! | a vCPU lets go of its root (`kvm_mmu_free_roots`) | under the lock for write | for read (576a15de8d29) |
//! | a vCPU finds or makes its root (`mmu_alloc_direct_roots`) | for write | for read; made under `tdp_mmu_pages_lock` (f5238c2a60f1, dab285e4ec73) |
//! | a fault maps a page (`direct_page_fault`) | for read | for read |
//! | all roots are invalidated (`kvm_mmu_zap_all_fast`) | for write | for write |
//! | an invalid root is zapped (`tdp_mmu_zap_root`) | for read, by 1 GiB, then by the root's entries | for read, by 4 KiB, 2 MiB, 1 GiB, then by the root's entries (8ca983631f3c) |
//! | a slot's range is zapped (`tdp_mmu_zap_leafs`) | for write, by 4 KiB | for write, by 4 KiB |
//!
//! A thread that zaps gives the lock up for a moment between two pieces if another thread waits for it
//! (`tdp_mmu_iter_cond_resched`, with full preemption). The lock is fair, as `kernel/locking/qrwlock.c` is: [`lock`].
//!
//! Zapping a root invalidates no TLB in either form. A vCPU that loads a root begins with nothing in its TLB, here
//! because no two roots have the same VMID. The series removed the invalidation for *leaves* in invalid roots, and the
//! visit to those roots (fcdffe97f80e, 99b85fda91b1): an operation on a range may find leaves there. That does not happen
//! where a slot is deleted by range alone.
//!
//! Three things are left out, in favour of the earlier designs:
//!
//! - `synchronize_srcu` at each change of the memslots. It is `device-registration`'s subject. Here a fault asks a sequence
//!   under the lock whether the memslots have changed.
//! - The accounting of each page (`handle_changed_spte`).
//! - The wait for vCPUs to leave the guest, with the lock held, when all roots are invalidated. KVM waits there because each
//!   of its vCPUs has a processor. A vCPU here may first have to get one, so the lock is given up before the wait.

mod kick;
mod lock;
mod roots;
mod tables;
mod vm;
mod zap;

pub(crate) use lock::{FairLock, Held, Waiting};
pub(crate) use vm::{Locking, TdpMmu};
