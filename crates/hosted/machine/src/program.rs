//! What a guest on the software machine does.

use std::sync::Arc;

use mayfly_memslot::Gpa;

use crate::GuestBarrier;

/// One step of a guest program.
#[derive(Clone, Debug)]
pub enum Instruction {
    /// Writes `value` to the first eight bytes of every page of the range.
    Touch {
        /// The first byte. Eight bytes from there on may lie in two pages; they are written at once where it is a
        /// multiple of eight.
        gpa: Gpa,
        /// Its length in bytes.
        len: u64,
        /// What is written.
        value: u64,
    },
    /// Reads the first eight bytes of every page of the range, and counts those that are not `value`.
    Verify {
        /// The first byte, as in [`Instruction::Touch`].
        gpa: Gpa,
        /// Its length in bytes.
        len: u64,
        /// What should be there.
        value: u64,
    },
    /// Writes `value` to the first eight bytes of every 64 of every page that the range has a part of.
    TouchLines {
        /// The first byte. What lies before its offset in a page is left, in the other pages too.
        gpa: Gpa,
        /// Its length in bytes.
        len: u64,
        /// What is written.
        value: u64,
    },
    /// Reads what [`Instruction::TouchLines`] writes, and counts the words that are not `value`.
    VerifyLines {
        /// The first byte. What lies before its offset in a page is left, in the other pages too.
        gpa: Gpa,
        /// Its length in bytes.
        len: u64,
        /// What should be there.
        value: u64,
    },
    /// Waits, in the guest, until the eight bytes at `gpa` are `value`.
    WaitFor {
        /// A multiple of eight.
        gpa: Gpa,
        /// What is waited for.
        value: u64,
    },
    /// Writes the low `len` bytes of `value` to a device.
    WriteMmio {
        /// Where.
        gpa: Gpa,
        /// 1 to 8.
        len: u8,
        /// What.
        value: u64,
    },
    /// Reads `len` bytes from a device; see [`Cpu::last_read`](crate::Cpu::last_read).
    ReadMmio {
        /// Where.
        gpa: Gpa,
        /// 1 to 8.
        len: u8,
    },
    /// Fetches an instruction, and what it does is nothing; see [`Cpu::last_read`](crate::Cpu::last_read).
    Fetch {
        /// Where; a multiple of eight.
        gpa: Gpa,
    },
    /// Computes for `loops` rounds without leaving the guest.
    Spin {
        /// How many.
        loops: u32,
    },
    /// Waits until as many vCPUs as the barrier is for have come here.
    Barrier(Arc<GuestBarrier>),
    /// Turns the vCPU's caches on or off (Arm: writes `SCTLR_EL1`, as a guest does that turns its MMU on or off). Comes
    /// out if that is trapped.
    Caches(bool),
    /// Maintains caches by set and way, as a guest does that believes to have the machine to itself. Comes out if that
    /// is trapped.
    SetWay,
    /// Goes on with the instruction of this index.
    Jump(usize),
    /// Ends the program.
    Halt,
}

/// A list of [`Instruction`]s; past its end the guest halts.
pub type Program = Vec<Instruction>;
