//! The guest side of a vCPU, as the embedder provides it.

use mayfly_memslot::{Backing, Gpa};

use crate::Requests;

/// The largest access to a device, in bytes.
pub const MMIO_MAX: usize = 8;

/// What executes a vCPU's instructions: real hardware behind a world switch, or a program on the software machine.
pub trait Guest<B: Backing> {
    /// Runs the guest until it needs the hypervisor, or `requests` has something for it.
    fn enter(&mut self, requests: &Requests) -> Event;

    /// Performs the memory access that [`Guest::enter`] came out with, at `memory`. Called inside an SRCU section,
    /// which keeps the memory where it is; `memory` must not be used after this returns.
    fn access(&mut self, memory: B);

    /// The bytes of a device access that [`Guest::enter`] came out with: as many as it is long. Those that the guest
    /// writes; or the place for those that it reads.
    fn data(&mut self) -> &mut [u8];
}

/// Why the guest came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It accesses memory, or a device: what is there decides.
    Access(Access),
    /// It accesses an I/O port.
    Port(PortAccess),
    /// It has nothing more to do.
    Halt,
    /// Something was asked of the vCPU.
    Request,
}

/// An access to guest physical memory, within one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Its first byte.
    pub gpa: Gpa,
    /// Its length in bytes, at least 1. One that leaves its page, or is MMIO and longer than [`MMIO_MAX`], comes back
    /// as an exit.
    pub len: u64,
    /// Whether it writes.
    pub write: bool,
}

/// An access to an I/O port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortAccess {
    /// The port.
    pub port: u16,
    /// Its length in bytes: 1, 2 or 4.
    pub len: u8,
    /// Whether it writes.
    pub write: bool,
}
