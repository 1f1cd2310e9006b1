//! Stage-2 page tables.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod cell;
mod entry;
mod error;
mod flush;
mod format;
mod graveyard;
mod leaf;
mod level;
mod map;
mod parking;
mod protect;
mod range;
mod reclaim;
mod root;
mod roots;
mod run;
mod sequence;
mod space;
mod stage2;
mod tables;
mod vmid;
mod walk;
mod zap;

pub use entry::{Entry, State};
pub use error::Error;
pub use format::{Arm, Ept, Format, Kind, Npt, Sv39x4, Sv48x4, SvX4};
pub use leaf::{Leaf, MemoryType, Permissions};
pub use level::Level;
pub use map::Mapped;
pub use range::Slice;
pub use reclaim::{Reclaimed, Reclaimer};
pub use root::{Root, RootRef};
pub use roots::Role;
pub use sequence::Seen;
pub use stage2::{Config, Invalidation, Retiring, Stage2};
pub use vmid::{ActiveVmid, AllVmidsActive, VmidTag, Vmids, VmidsError};
pub use zap::Tables;
