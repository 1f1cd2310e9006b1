//! On arm64 the guest runs at EL1, MMU and caches on.
//!
//! There are no ports: as behind a PCI bridge, they are a window of addresses without memory.

use kvm_ioctls::{VcpuFd, VmFd};

use crate::el1::{self, Caches, GIB};
use crate::{Error, Exit, GuestMemory, Payload};

/// The first guest physical address that is left free.
pub(super) const FREE: u64 = el1::FREE;

/// The first address that no guest reaches. Some processors have no more than 36 bits of physical address.
pub(super) const REACH: u64 = 63 * GIB;

/// The GiB that are mapped whatever memory there is, since devices are there.
const GIBS_AT_LEAST: u64 = 4;

/// The window of ports, in the GiB past [`REACH`], and behind it where an exception is told.
const PORTS: u64 = REACH + (512 << 20);
const EXCEPTION: u64 = PORTS + (1 << 16);

/// Registers: x0..x1 the range to touch, x2 the port's address, x3 the doorbell, or all ones, w4 the pass.
const PASSES: [u32; 12] = [
    // pass:
    0x9100_0484, //        add  x4, x4, #1
    0xaa00_03e5, //        mov  x5, x0
    // touch:
    0xeb01_00bf, //        cmp  x5, x1
    0x5400_0082, //        b.hs done
    0xf900_00a4, //        str  x4, [x5]
    0x9140_04a5, //        add  x5, x5, #0x1000
    0x17ff_fffc, //        b    touch
    // done:
    0xb100_047f, //        cmn  x3, #1
    0x5400_0040, //        b.eq leave
    0xb900_0064, //        str  w4, [x3]
    // leave:
    0xb900_0044, //        str  w4, [x2]
    0x17ff_fff5, //        b    pass
];

/// What an exception taken at EL1 runs: tells its syndrome to [`EXCEPTION`].
const FAULT: [u32; 5] = [
    0xd538_5207, //        mrs  x7, esr_el1
    0x9270_bc46, //        and  x6, x2, #0xffffffffffff0000
    0x9140_40c6, //        add  x6, x6, #0x10000
    // again:
    0xb900_00c7, //        str  w7, [x6]
    0x17ff_ffff, //        b    again
];

pub(super) fn install(memory: &GuestMemory) -> Result<(), Error> {
    let gibs = (memory.size() as u64).div_ceil(GIB).clamp(GIBS_AT_LEAST, REACH / GIB);
    el1::install(memory, gibs, REACH, &PASSES, &FAULT)
}

pub(super) fn enter(vcpu: &VcpuFd, vm: &VmFd, payload: &Payload) -> Result<(), Error> {
    let Payload { touch, doorbell, port } = payload;
    let doorbell = doorbell.unwrap_or(u64::MAX);
    let arguments = [touch.start, touch.end, PORTS + u64::from(*port), doorbell, 0];
    el1::enter(vcpu, vm, &arguments, Caches::On)
}

/// What a write of four bytes is that nothing in the kernel has taken.
pub(super) fn written(gpa: u64, value: u32) -> Result<Exit, Error> {
    match gpa {
        EXCEPTION => Err(Error::Exit(format!("an exception at EL1, ESR_EL1 {value:#x}"))),
        PORTS..EXCEPTION => Ok(Exit::PortWrite { port: (gpa - PORTS) as u16, value }),
        _ => Ok(Exit::MmioWrite { gpa, value }),
    }
}
