//! What a line of a trace says.

use core::fmt;

/// A line: an event, when, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// A ticket drawn before the event's atomic step.
    pub begin: u64,
    /// A ticket drawn after it. Lines are in the order of these.
    pub end: u64,
    /// The CPU whose instruction it was.
    pub cpu: u32,
    /// What happened.
    pub event: Event,
}

#[cfg(not(target_os = "none"))]
impl Record {
    /// The middle of its tickets: when it took place, for want of better.
    pub(crate) fn middle(&self) -> u64 {
        self.begin / 2 + self.end / 2
    }
}

/// The format of a root's entries, as far as rules differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Arm's stage 2, `HCR_EL2.FWB` clear.
    Arm,
    /// Arm's stage 2, `HCR_EL2.FWB` set.
    ArmFwb,
    /// Intel's extended page tables.
    Ept,
    /// AMD's nested page tables.
    Npt,
    /// RISC-V's G-stage, by whatever levels.
    RiscV,
}

/// What an invalidation by address is to reach; as `Entries` of Mayfly's platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Leaves of exactly the stride.
    Leaves,
    /// Leaves of the stride or more.
    Sizes,
    /// Those, and tables.
    Any,
}

/// What is invalidated of a VMID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    All,
    /// What lies at addresses of some guest frames.
    Range {
        /// The first frame.
        first: u64,
        /// The first after them.
        end: u64,
        /// Frames from one address to the next.
        stride: u64,
        /// What is reached there.
        reach: Reach,
    },
}

/// What a barrier orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// Accesses of this CPU (Arm: `DMB ISH`).
    Memory,
    /// This CPU's writes of entries, and those that it has seen, before the walks of all (Arm: `DSB ISH`).
    Walks,
}

/// What happened. Frames, tables and roots go by frame number; guest frames likewise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the fields are those of the format, and mean the same in all events"
)]
pub enum Event {
    /// There is a root of `1 << order` tables side by side.
    Root { top: u64, order: u32, levels: u32, family: Family },
    /// No CPU runs on the root any more, or will.
    RootGone { top: u64 },
    /// An entry was written.
    Entry { table: u64, index: u32, old: u64, new: u64 },
    /// `count` entries of a table that no entry leads to, from `index` on: the first is `value`, each the one before and
    /// `step`, modulo 2^64.
    Fill { table: u64, index: u32, count: u32, value: u64, step: u64 },
    /// A CPU's walk marked an entry as accessed or dirty.
    Mark { table: u64, index: u32, old: u64, new: u64 },
    /// A VMID came to belong to a root, in a generation of VMIDs.
    VmidTake { vmid: u16, generation: u64 },
    /// It belongs to none any more.
    VmidGive { vmid: u16 },
    /// It goes on belonging to its root in the generation that is next.
    VmidKeep { vmid: u16, generation: u64 },
    /// A generation has begun.
    Generation { generation: u64 },
    /// A CPU, which has TLB `tlb`, goes into the guest.
    Enter { tlb: u32, top: u64, vmid: u16 },
    /// It has come out.
    Leave { tlb: u32, vmid: u16 },
    /// A barrier.
    Barrier { kind: Barrier },
    /// An invalidation was issued.
    Tlbi { id: u64, vmid: u16, scope: Scope },
    /// One of everything, under all VMIDs.
    TlbiEverything { id: u64 },
    /// All invalidations that this CPU has issued, up to `id`, have taken effect on all CPUs.
    Sync { id: u64 },
    /// Frames were given out.
    Give { frame: u64, order: u32 },
    /// They may be given out again.
    Free { frame: u64, order: u32 },
    /// Caches were cleaned to memory.
    Clean { frame: u64, count: u64 },
    /// They were cleaned, and the lines dropped.
    Flush { frame: u64, count: u64 },
    /// Instruction caches dropped what they had.
    Fetch { frame: u64, count: u64 },
    /// A guest read or wrote a frame, by whatever its TLB had.
    Access { tlb: u32, vmid: u16, gfn: u64, frame: u64, write: bool },
    /// So many events that came next are missing, for there was no room for them.
    Dropped { count: u64 },
}

impl Family {
    /// All, and the names that they have in a trace.
    pub(crate) const NAMES: [(&'static str, Self); 5] = [
        ("arm", Self::Arm),
        ("arm-fwb", Self::ArmFwb),
        ("ept", Self::Ept),
        ("npt", Self::Npt),
        ("riscv", Self::RiscV),
    ];
}

impl Reach {
    pub(crate) const NAMES: [(&'static str, Self); 3] =
        [("leaves", Self::Leaves), ("sizes", Self::Sizes), ("any", Self::Any)];
}

impl Barrier {
    pub(crate) const NAMES: [(&'static str, Self); 2] =
        [("memory", Self::Memory), ("walks", Self::Walks)];
}

fn name_of<T: PartialEq>(names: &[(&'static str, T)], wanted: &T) -> &'static str {
    names.iter().find(|(_, one)| one == wanted).map_or("?", |(name, _)| name)
}

impl fmt::Display for Record {
    /// The line, without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { begin, end, cpu, event } = self;
        write!(f, "{begin} {end} {cpu} {event}")
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root { top, order, levels, family } => {
                let family = name_of(&Family::NAMES, family);
                write!(f, "root top={top:#x} order={order} levels={levels} format={family}")
            }
            Self::RootGone { top } => write!(f, "root-gone top={top:#x}"),
            Self::Entry { table, index, old, new } => {
                write!(f, "entry table={table:#x} index={index} old={old:#x} new={new:#x}")
            }
            Self::Fill { table, index, count, value, step } => write!(
                f,
                "fill table={table:#x} index={index} count={count} value={value:#x} step={step:#x}"
            ),
            Self::Mark { table, index, old, new } => {
                write!(f, "mark table={table:#x} index={index} old={old:#x} new={new:#x}")
            }
            Self::VmidTake { vmid, generation } => {
                write!(f, "vmid-take vmid={vmid} generation={generation}")
            }
            Self::VmidGive { vmid } => write!(f, "vmid-give vmid={vmid}"),
            Self::VmidKeep { vmid, generation } => {
                write!(f, "vmid-keep vmid={vmid} generation={generation}")
            }
            Self::Generation { generation } => write!(f, "generation generation={generation}"),
            Self::Enter { tlb, top, vmid } => {
                write!(f, "enter tlb={tlb} top={top:#x} vmid={vmid}")
            }
            Self::Leave { tlb, vmid } => write!(f, "leave tlb={tlb} vmid={vmid}"),
            Self::Barrier { kind } => {
                write!(f, "barrier orders={}", name_of(&Barrier::NAMES, kind))
            }
            Self::Tlbi { id, vmid, scope: Scope::All } => write!(f, "tlbi-all id={id} vmid={vmid}"),
            Self::Tlbi { id, vmid, scope: Scope::Range { first, end, stride, reach } } => {
                let reach = name_of(&Reach::NAMES, reach);
                write!(
                    f,
                    "tlbi id={id} vmid={vmid} first={first:#x} end={end:#x} stride={stride} \
                     reach={reach}"
                )
            }
            Self::TlbiEverything { id } => write!(f, "tlbi-everything id={id}"),
            Self::Sync { id } => write!(f, "tlbi-sync id={id}"),
            Self::Give { frame, order } => write!(f, "give frame={frame:#x} order={order}"),
            Self::Free { frame, order } => write!(f, "free frame={frame:#x} order={order}"),
            Self::Clean { frame, count } => write!(f, "clean frame={frame:#x} count={count}"),
            Self::Flush { frame, count } => write!(f, "flush frame={frame:#x} count={count}"),
            Self::Fetch { frame, count } => write!(f, "fetch frame={frame:#x} count={count}"),
            Self::Access { tlb, vmid, gfn, frame, write } => {
                let write = u8::from(*write);
                write!(
                    f,
                    "access tlb={tlb} vmid={vmid} gfn={gfn:#x} frame={frame:#x} write={write}"
                )
            }
            Self::Dropped { count } => write!(f, "dropped count={count}"),
        }
    }
}
