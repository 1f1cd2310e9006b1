//! What the tests share: a machine and VMs on it, a guest of one access, and a device that keeps what it is asked.

// Each test binary uses a part of it.
#![allow(dead_code, unused_imports)]

pub(crate) mod frames;

pub(crate) mod changes;
mod devices;
mod guest;
mod hardware;
mod interrupts;
mod memory;
mod setup;
mod stop;

pub(crate) use devices::{AnyDevice, Call, Log, Recorder, same};
pub(crate) use guest::{
    Once, Outcome, Sleeper, Toggle, mmio_exit, perform, port_exit, read, read_port, top,
    translation, write, write_port,
};
pub(crate) use hardware::Hardware;
pub(crate) use interrupts::Deaf;
pub(crate) use mayfly_platform::testing::threads::{Over, ends, joined, soon, until};
pub(crate) use memory::{Caches, Kept, Memory, PIECE};
pub(crate) use setup::{Kinds, Setup, TestFormat, TestVcpu, TestVm, vm};
pub(crate) use stop::{Order, Stop, Stopped, Stopping};

use std::sync::Arc;

use mayfly_iobus::{IoRange, Ioeventfd};
use mayfly_memslot::{Flags, Gpa, Hva, PAGE_SIZE, Region, SlotId};
use mayfly_platform::{Host, Platform};

pub(crate) fn platform() -> Arc<dyn Platform> {
    Arc::new(Host::new())
}

/// Slot `index`, of `pages` pages from guest frame `gfn` on, with host memory of its own: see [`hva`].
pub(crate) fn region(index: u16, gfn: u64, pages: u64) -> Region<Hva> {
    Region {
        slot: SlotId::main(index),
        flags: Flags::empty(),
        gpa: Gpa::new(gfn * PAGE_SIZE),
        size: pages * PAGE_SIZE,
        backing: hva(index, 0),
    }
}

/// The same region, to delete it.
pub(crate) fn deleted(region: Region<Hva>) -> Region<Hva> {
    Region { size: 0, ..region }
}

/// The host address of byte `offset` of slot `index`.
pub(crate) fn hva(index: u16, offset: u64) -> Hva {
    Hva::new(((u64::from(index) + 1) << 32) + offset)
}

pub(crate) fn range(start: u64, len: u64) -> IoRange {
    IoRange { start, len }
}

pub(crate) fn eventfd(address: u64, len: u32, datamatch: Option<u64>) -> Ioeventfd {
    Ioeventfd { address, len, datamatch }
}
