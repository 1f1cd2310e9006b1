//! Stage-2 page tables: what translates the physical addresses of a guest, changed by any number of CPUs at once
//! without a lock on any vCPU's way.
//!
//! A [`Stage2`] is a VM's translation: a [`Root`] for each [`Role`], under it tables in an architecture's [`Format`].
//! vCPUs look up ([`Root::translate`]) and map ([`Root::map`]); the host zaps, write-protects and ages ranges; roots
//! are replaced as a whole, and reclaimed in the background ([`Reclaimer`]); [`Vmids`] tag them in the TLBs. What this
//! crate needs of the world is [`Mmu`](mayfly_platform::Mmu): frames, TLBs, waiting.
//!
//! # Use
//!
//! With the `testing` feature, the machine is a Linux process:
//!
//! ```
//! use std::sync::Arc;
//!
//! use mayfly_stage2::platform::address::{Gfn, Pfn};
//! use mayfly_stage2::srcu::{Config as Domain, Srcu};
//! use mayfly_stage2::testing::Process;
//! use mayfly_stage2::{
//!     Config, Ept, Leaf, Level, Mapped, Permissions, Reclaimer, Role, Slice, Stage2, Tables,
//!     Vmids,
//! };
//!
//! let mmu = Arc::new(Process::new(64));
//! let domain = Srcu::try_new(mmu.clone(), Domain::default())?;
//! let tables = Stage2::<Ept>::try_new(
//!     Config {
//!         mmu: mmu.clone(),
//!         vmids: Vmids::try_new(mmu.clone(), 8)?,
//!         reclaimer: Arc::new(Reclaimer::new(mmu, Reclaimer::<Ept>::BOUND)),
//!         max_frames: usize::MAX,
//!     },
//!     &domain,
//! )?;
//!
//! // A vCPU, at a fault: samples the sequence, asks the host for a frame, and maps it if nothing has changed since.
//! let gfn = Gfn::new(0x100);
//! {
//!     let section = domain.read_lock();
//!     let root = tables.root(Role::MAIN, &section)?;
//!     let seen = tables.sample();
//!     let leaf = Leaf::new(Pfn::new(0x5000), Permissions::READ | Permissions::WRITE);
//!     assert_eq!(root.map(gfn, Level::PAGE, &leaf, seen, &section)?, Mapped::Installed);
//!     assert_eq!(root.translate(gfn, &section).unwrap().1.pfn, Pfn::new(0x5000));
//! }
//!
//! // The host takes the frame back: no CPU uses it any more when this returns.
//! let gfns = gfn..Gfn::new(0x101);
//! let invalidation = tables.begin_invalidation(&gfns);
//! tables.zap(&invalidation, gfns, Tables::Free, Slice::default());
//! drop(invalidation);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The protocol
//!
//! **An entry** is one word, and changes by one atomic step. Hardware takes the first three states for absent:
//!
//! - *empty*: an access faults, and the fault may fill it;
//! - *frozen*: somebody is changing it; *awaited* is the same, and somebody sleeps until it is done;
//! - *removed*: its table is out of the tree for good, or being taken out;
//! - *leaf*: a page or a block; *table*: the table below.
//!
//! | from | to | by | how |
//! | --- | --- | --- | --- |
//! | empty | leaf, table | a fault: `put`, `hang` | frozen meanwhile; back to empty, if refused |
//! | leaf | leaf, with more allowed or another frame | a fault: `put` | frozen meanwhile; back, if refused |
//! | leaf | table of the same frames | a fault, or who changes a page of a block, or is asked to: `split` | frozen meanwhile |
//! | table | block | a fault: `put` | frozen meanwhile; back, if refused |
//! | leaf | leaf, with less allowed or not accessed | `write_protect`, `age` | compare-exchange |
//! | leaf | leaf, of the same contents in another frame | `replace`, which may owe the TLBs that (`owed`) | compare-exchange; frozen, if the format asks |
//! | leaf | leaf, writable | `allow_writes` | frozen meanwhile; back, if refused |
//! | leaf marked as written | the leaf, without the mark and with less allowed | `take_written` | compare-exchange |
//! | leaf | leaf, accessed or dirty | hardware | compare-exchange |
//! | leaf | empty | a zap; `replace`, not in place | compare-exchange; frozen meanwhile, if it juts out of the range |
//! | table | empty | a zap of all below | compare-exchange |
//! | frozen | awaited | who waits | compare-exchange |
//! | any but frozen | removed | who has taken its table out: `dismantle` | compare-exchange |
//!
//! Whoever makes a transition by compare-exchange has loaded the entry before, and starts again from what it finds if
//! the entry is another one now. Nobody but who froze an entry thaws it, and removed is final.
//!
//! **A frozen entry** keeps others away from itself alone, and shortly. While it lasts its holder neither allocates,
//! nor waits for a reader or for another entry; so one may have several. It may wait for TLBs, where the format asks
//! for break-before-make: a CPU in a guest answers by itself, and one that waits for the entry has left its guest, so
//! nobody waits for it. What was prepared (a table, filled) was prepared before. Waiting is in `parking`.
//!
//! **What a vCPU waits for.** To look something up: nothing. To map: a frozen entry on its way, and the TLBs where it
//! replaces what they may remember. To load a root: nothing. To run under a VMID: a roll-over, when all numbers are
//! given out. A fault that the host's invalidation has refused returns, and waits outside of its section if its caller
//! wants so ([`Stage2::wait_invalidation`]).
//!
//! **A fault and the host** meet in the notifier sequence: a fault freezes the entry, and then asks whether what it was
//! told is still true; an invalidation announces itself, and then loads the entries. One of them sees the other
//! (`sequence`). Those of other frames are none of a fault's business, but for a few that look alike. It is the same for
//! memslots, which change only while no invalidation is under way.
//!
//! **Where a table goes.** It is taken out of the tree by one exchange of the entry above. Every entry in it that leads
//! further is removed (in a lowest table the first, which owns nothing but the table's place in a list): whoever is
//! inside and meets one starts again at the root, and what is put in beside is found by nobody. When no TLB and no walk
//! cache remembers the table, it is buried; when every section that may have found it is over, it is freed
//! (`graveyard`); where too many are buried, they stay, and are taken out later (`prune`). A root's tables are freed
//! all together, when nobody can lead to the root any more, and no vCPU is in its guest on it (`reclaim`, `hold`).
//!
//! **TLBs.** An operation gathers what it has changed, and has it forgotten once, when it has visited its slice, and
//! before anything is reused that it protects (`flush`). It knows the sizes of what it has changed, and so how far apart
//! invalidations by address may be; under a table that it takes out, the smallest size counts, over all of its span. Two
//! that work on the same entries answer for each other's changes. A leaf from which nothing is taken away is put in place
//! without an invalidation: a TLB that goes on without what was added is the business of the CPU that faults by it, which
//! is told ([`Mapped::Relaxed`], [`Mapped::Already`]).
//!
//! **Out of memory** is found before anything is changed: a table is allocated, and filled, before the entry is frozen.
//!
//! # Which orders what
//!
//! An entry is loaded with acquire and stored with release, so who finds a table finds it filled. Beyond that:
//!
//! | | pairs with | for | in |
//! | --- | --- | --- | --- |
//! | \[install\] fence | \[announce\] fence | freeze, then ask; announce, then load | `sequence` |
//! | \[owe\] release | \[due\] acquire | the frame is another one before somebody invalidates for it | `owed` |
//! | \[paid\] release | its acquires | forgotten by the TLBs before the page is written | `owed` |
//! | \[bury\] release | \[collect\] acquire | out of the tree before the grace period is asked for | `graveyard` |
//! | \[leave\] release | \[sample\] acquire | a root is in one place or the other | `roots` |
//! | \[counted\] | the entry's own | who finds a change finds its author at work, or done | `flush` |
//! | \[enter\] fence | \[look\] fence | hold, then find the root in its place; take it from there, then look for holds | `hold` |
//! | \[issue\] fence | \[enter\] fence | change, then load the VMID; take a VMID, then walk | `vmid` |
//! | \[begin\] release | its acquires | all TLBs have forgotten before a number is given anew | `vmid` |
//! | SRCU's own | SRCU's own | found inside a section, freed after it | `mayfly_srcu` |
//!
//! # Cache lines that vCPUs share
//!
//! | written by | what |
//! | --- | --- |
//! | a fault in a table that exists | the entry's, and no other |
//! | a fault that makes or splits a table | the new table's; the counts of tables, of the root and of the VM |
//! | a fault that replaces what TLBs may remember | the root's count of changes; the graveyard's, if it was a table |
//! | who waits for a frozen entry | the entry's, and a parking word |
//! | who waits for an invalidation | the count of waiters |
//! | the first entry under a root in a generation of VMIDs | the root's tag, a number |
//!
//! A fault reads besides: the entries above, two lines of the sequence, the root and its place. Entering a section, and the
//! guest, which reads the root and its place, writes the vCPU's own lines only.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bell;
mod buried;
mod cell;
mod children;
mod dismantle;
mod entry;
mod error;
mod flush;
mod format;
mod graveyard;
mod hold;
mod invalidation;
mod leaf;
mod level;
mod list;
mod map;
mod owed;
mod own;
mod parking;
mod protect;
mod prune;
mod range;
mod reclaim;
mod replace;
mod retiring;
mod role;
mod root;
mod roots;
mod run;
mod sequence;
mod space;
mod split;
mod stage2;
mod tables;
#[cfg(all(feature = "testing", not(any(mayfly_loom, mayfly_shuttle))))]
pub mod testing;
mod vmid;
mod walk;
mod written;
mod zap;

/// What this crate asks of the world, and what its users meet by, so that who uses it needs to name no other crate.
pub use {mayfly_platform as platform, mayfly_srcu as srcu};

pub use entry::{Entry, State};
pub use error::Error;
pub use format::{
    Arm, ArmChoice, ArmFeatures, ArmFwb, ArmIpa, ArmUnsupported, Ept, Format, Kind, Npt, Sv39x4,
    Sv48x4, SvX4, WithArm,
};
pub use hold::{Held, Hold, Holder, Resident};
pub use invalidation::Invalidation;
pub use leaf::{Leaf, MemoryType, Permissions};
pub use level::Level;
pub use map::Mapped;
pub use owed::Owed;
pub use range::Slice;
pub use reclaim::{Reclaimed, Reclaimer};
pub use replace::Replacement;
pub use retiring::Retiring;
pub use role::Role;
pub use root::{Root, RootRef};
pub use sequence::{Announcement, InvalidationWaiters, Seen};
pub use stage2::{Config, Stage2};
pub use vmid::{Activated, VcpuMark, VmidTag, Vmids, VmidsError};
pub use zap::Tables;
