//! The machine that the program runs on, as far as it is the same on every architecture: its memory, and what was loaded.

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

/// Addresses.
pub type Region = Range<u64>;

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Board {
    /// Its memory, as far as it may be used.
    pub memory: Vec<Region>,
    /// What of it is not to be touched: reservations, and the modules.
    pub reserved: Vec<Region>,
    /// The commands that the monitor begins with.
    pub arguments: String,
    /// What was loaded for guests: each kernel is followed by the ramdisks of its VM.
    pub modules: Vec<Module>,
    /// Random bytes that the firmware has left.
    pub seed: Vec<u8>,
}

/// Something that was loaded for a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Where it is.
    pub region: Region,
    /// What it is.
    pub kind: ModuleKind,
    /// Of a kernel: the parameters of its VM, `--`, and its own arguments.
    pub arguments: String,
}

/// What a module is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleKind {
    /// A kernel.
    Kernel,
    /// A ramdisk.
    Ramdisk,
    /// Another kind, which is not used.
    Other,
}

/// A line of the interrupt controller, which is shared by all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The number of its interrupt.
    pub number: u32,
    /// It interrupts by an edge, and not by a level.
    pub is_edge: bool,
}
