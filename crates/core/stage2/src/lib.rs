//! Stage-2 page tables: they translate the physical addresses of a guest, and any number of CPUs change them at once,
//! without a lock on any vCPU's path.
//!
//! A [`Stage2`] is a VM's translation. It has a [`Root`] for each [`Role`], and under each root tables in an
//! architecture's [`Format`]. vCPUs look up ([`Root::translate`]) and map ([`Grant::map`]). The host zaps,
//! write-protects and ages ranges. Roots are replaced as a whole, and the [`Reclaimer`] frees the old ones in the
//! background. [`Vmids`] tag the roots in the TLBs. The embedder supplies an [`Mmu`](mayfly_platform::Mmu): frames,
//! TLBs, waiting.
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
//!         // SAFETY: the machine's only ones.
//!         vmids: unsafe { Vmids::try_new(mmu.clone(), 8) }?,
//!         reclaimer: Arc::new(Reclaimer::new(mmu, Reclaimer::<Ept>::BOUND)),
//!         max_frames: usize::MAX,
//!     },
//!     &domain,
//! )?;
//!
//! // A vCPU's fault samples the sequence, asks the host for a frame, and maps it if nothing has changed since.
//! let gfn = Gfn::new(0x100);
//! {
//!     let section = domain.read_lock();
//!     let root = tables.root(Role::MAIN, &section)?;
//!     let seen = tables.sample();
//!     let leaf = Leaf::new(Pfn::new(0x5000), Permissions::READ | Permissions::WRITE);
//!     // SAFETY: frame 0x5000 is no table, and no memory that this program uses.
//!     let grant = unsafe { root.grant(gfn, Level::PAGE, leaf, seen, &section) };
//!     assert_eq!(grant.map()?, Mapped::Installed);
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
//! - *empty*: an access faults, and the fault may fill the entry;
//! - *frozen*: a CPU, its holder, is changing the entry; *awaited* is the same state while another CPU sleeps until the
//!   change is done;
//! - *removed*: the entry's table is out of the tree for good, or is being taken out;
//! - *leaf*: a page or a block; *table*: the table below.
//!
//! | from | to | by | how |
//! | --- | --- | --- | --- |
//! | empty | leaf, table | a fault: `put`, `hang` | frozen meanwhile; back to empty, if refused |
//! | leaf | leaf, with more allowed or another frame | a fault: `put` | frozen meanwhile; back, if refused |
//! | leaf | table of the same frames | a fault, a change of one page of a block, or a request: `split` | frozen meanwhile |
//! | table | block | a fault: `put`; a request: `collapse` | frozen meanwhile; back, if refused |
//! | leaf | leaf, with less allowed or not accessed | `write_protect`, `age` | compare-exchange |
//! | leaf | leaf, of the same contents in another frame | `replace`, which may owe the TLBs that (`owed`) | compare-exchange; frozen, if the format asks |
//! | leaf | leaf, writable | `allow_writes` | frozen meanwhile; back, if refused |
//! | leaf marked as written | the leaf, without the mark and with less allowed | `take_written` | compare-exchange |
//! | leaf | leaf, accessed or dirty | hardware | compare-exchange |
//! | leaf | empty | a zap; `replace`, not in place | compare-exchange; frozen meanwhile, if it extends beyond the range |
//! | table | empty | a zap of all below | compare-exchange |
//! | frozen | awaited | a CPU that waits | compare-exchange |
//! | any but frozen | removed | the CPU that has taken its table out: `dismantle` | compare-exchange |
//!
//! A CPU that makes a transition by compare-exchange has loaded the entry before. If the entry has changed since, the
//! CPU starts again from the new value. Only the CPU that froze an entry thaws it. Removed is final.
//!
//! **A frozen entry** keeps other CPUs away from that entry alone, and for a short time. Its holder neither allocates,
//! nor waits for a reader, nor waits for another entry; so a holder may have several. The holder may wait for TLBs,
//! where the format requires break-before-make: a CPU in a guest answers an invalidation by itself, and a CPU that
//! waits for the entry has left its guest, so no invalidation waits for it. What the holder needs (a table, filled) it
//! prepared before. Waiting is in `parking`.
//!
//! **What a vCPU waits for.** To look something up: nothing. To map: a frozen entry on its way, and the TLBs where it
//! replaces what they may remember. To load a root: nothing. To run under a VMID: a roll-over, when all numbers are
//! given out. A fault that the host's invalidation has refused returns. If its caller wants to wait, it does so outside
//! its section ([`Stage2::wait_invalidation`]).
//!
//! **A fault and the host** meet in the notifier sequence. A fault freezes the entry, and then checks whether what it
//! was told is still true. An invalidation announces itself, and then loads the entries. One of the two sees the other
//! (`sequence`). Invalidations of other frames do not concern a fault, except for a few that look alike. Memslots
//! follow the same rule; they change only while no invalidation is under way.
//!
//! **Where a table goes.** One exchange of the entry above takes a table out of the tree. Then every entry in the table
//! that leads further is removed (in a lowest table the first entry, which owns only the table's place in a list). A
//! CPU that is inside and meets a removed entry starts again at the root; and no CPU finds what is put in beside it.
//! When no TLB and no walk cache remembers the table, it is buried. When every section that may have found it is over,
//! it is freed (`graveyard`). Where too many are buried, tables stay in the tree, and are taken out later (`prune`). A
//! root's tables are freed all together, when nothing can lead to the root any more, and no vCPU is in its guest on it
//! (`reclaim`, `hold`).
//!
//! **TLBs.** An operation gathers what it has changed. It has the TLBs forget that once, when it has visited its slice,
//! and before anything is reused that the invalidation protects (`flush`). It knows the sizes of what it has changed,
//! and so how far apart invalidations by address may be; under a table that it takes out, the smallest size counts,
//! over all of the table's span. Two operations that work on the same entries answer for each other's changes. A leaf
//! from which nothing is taken away is put in place without an invalidation. If a TLB goes on without the added right,
//! the CPU that faults by it is told ([`Mapped::Relaxed`], [`Mapped::Already`]).
//!
//! **Out of memory** is found before anything is changed: a table is allocated, and filled, before the entry is frozen.
//!
//! # Which orders what
//!
//! Loads of an entry acquire, and stores release, so a CPU that finds a table finds it filled. Beyond that:
//!
//! | | pairs with | for | in |
//! | --- | --- | --- | --- |
//! | \[install\] fence | \[announce\] fence | freeze, then ask; announce, then load | `sequence` |
//! | \[owe\] release | \[due\] acquire | the frame is another one before a CPU invalidates for it | `owed` |
//! | \[paid\] release | its acquires | forgotten by the TLBs before the page is written | `owed` |
//! | \[bury\] release | \[collect\] acquire | out of the tree before the grace period is asked for | `graveyard` |
//! | \[leave\] release | \[sample\] acquire | a root is in one place or the other | `roots` |
//! | \[counted\] | the entry's own | a CPU that finds a change finds its author at work, or done | `flush` |
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
//! | a vCPU that waits for a frozen entry | the entry's, and a parking word |
//! | a vCPU that waits for an invalidation | the count of waiters |
//! | the first entry under a root in a generation of VMIDs | the root's tag, a number |
//!
//! A fault also reads: the entries above, two lines of the sequence, the root and its place. Entering a section writes
//! only the vCPU's own lines. So does entering the guest, which reads the root and its place.
//!
//! # Where to read on
//!
//! | floor | files |
//! | --- | --- |
//! | values | `level`, `leaf`, `entry`, `format`, `error` |
//! | tables and their entries | `cell`, `tables`, `parking`, `graveyard`, `children` |
//! | what the roots of a VM share | `space`: `sequence`, `vmid`, `owed/ledger`, `hold/holds`, `roots/leaving`, `bell` |
//! | a root and the walks on it | `root`, `walk`, `range`, `flush`, `dismantle`, `grant`, `map`, `run`, `collapse` |
//! | a VM's roots and their end | `roots`, `list`, `reclaim`, `prune`, `buried` |
//! | a VM's translation, and one file an operation | `stage2`, `invalidation`, `zap`, `protect`, `replace`, `owed`, `written`, `split`, `hold`, `retiring` |

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bell;
mod buried;
mod cell;
mod children;
mod collapse;
mod dismantle;
mod entry;
mod error;
mod flush;
mod format;
mod grant;
mod graveyard;
mod hold;
mod invalidation;
mod leaf;
mod level;
mod list;
mod map;
mod marked;
mod owed;
mod own;
mod parking;
mod picked;
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

/// What this crate requires of its platform, and the domains of its readers. A user of this crate names no other crate.
pub use {mayfly_platform as platform, mayfly_srcu as srcu};

pub use entry::{Entry, State};
pub use error::Error;
pub use format::{
    Arm, ArmChoice, ArmFeatures, ArmFwb, ArmIpa, ArmUnsupported, Ept, Format, Kind, Npt, Sv39x4,
    Sv48x4, SvX4, WithArm,
};
pub use grant::Grant;
pub use hold::{Held, Hold, Holder, Resident};
pub use invalidation::Invalidation;
pub use leaf::{Leaf, MemoryType, Permissions};
pub use level::Level;
pub use map::Mapped;
pub use marked::any_marked;
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
