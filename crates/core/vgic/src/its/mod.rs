//! The interrupt translation service: by it a device's event becomes an LPI (Arm IHI 0069, chapters 5 and 12.18).
//!
//! # Who does what
//!
//! vCPUs access the registers. A write does a few instructions' work, whatever the guest has queued: it notes that there
//! is work. One thread of the embedder does that work, by [`serve_its`](crate::Vgic::serve_its): it reads commands from the
//! guest's memory, and executes them. Any thread translates an event, by [`send_msi`](crate::Vgic::send_msi).
//!
//! The guest gives the ITS memory for its tables, by `GITS_BASERn` and `MAPD`. The ITS keeps its mappings itself, in
//! arrays that are allocated when it is made, and neither reads that memory nor writes to it: so nothing that a guest
//! writes there can make a mapping that no command made. `GITS_TYPER` says how many devices, events and collections there
//! are. Numbers beyond these are command errors, and a command with an error is ignored.
//!
//! # The protocol
//!
//! *Work*: a vCPU changes a register first, and notes the work next (release). The thread takes the note first
//! (acquire), and looks at the registers next. So what it does not see was noted after, and is noted still.
//!
//! *Commands*: a vCPU stores `GITS_CWRITER` by a release, and the thread loads it by an acquire: so the thread reads the
//! commands that were written before. The thread stores `GITS_CREADR` by a release after a command's effect, and a vCPU
//! loads it by an acquire.
//!
//! *Quiescent*: the thread says that it is busy, takes the note, and looks whether the ITS is on. The guest turns the ITS off,
//! notes that there is work, and looks whether the thread is busy. Both change the note by a read-modify-write, which
//! acquires and releases, so these have one order, and the second one sees what the first has said. So no command begins
//! after the guest has seen `Quiescent`.
//!
//! *Mappings*: each is one word, which the thread stores by a release and which others load by an acquire. An event that is
//! translated while its mapping changes is translated by the old one or the new one.

pub(crate) mod command;
pub(crate) mod control;
pub(crate) mod lpi;
pub(crate) mod saved;
pub(crate) mod tables;
pub(crate) mod work;
