//! A guest for arm64 that writes with its caches off, turns them on, and reads.

use std::ops::Range;

use kvm_ioctls::{VcpuFd, VmFd};

use crate::{Error, GuestMemory, el1};

/// Parameters of that guest's code, which runs at EL1.
///
/// With MMU and caches off it writes to the start of each 4096 bytes of `early`; turns both on, which KVM traps; and
/// reads what it wrote. It leaves with [`crate::Exit::MmioWrite`] at [`CacheSwitch::doorbell`]: the value is the number
/// of pages that read as written. Run again, it writes to each 4096 bytes of `later`, and leaves the same way.
///
/// An exception, which is none of that, is the value `u32::MAX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSwitch {
    /// The guest physical range to write with caches off. Starts on a page.
    pub early: Range<u64>,
    /// The guest physical range to write when they are on. Starts on a page, may be empty.
    pub later: Range<u64>,
    /// [`CacheSwitch::doorbell`] of the guest's memory.
    pub doorbell: u64,
}

/// Registers: x0..x1 the range to write early, x2 the doorbell, x3..x4 the range to write later.
const SWITCH: [u32; 32] = [
    0xaa00_03e5, //        mov  x5, x0
    // write:
    0xeb01_00bf, //        cmp  x5, x1
    0x5400_0082, //        b.hs written
    0xf900_00a5, //        str  x5, [x5]
    0x9140_04a5, //        add  x5, x5, #0x1000
    0x17ff_fffc, //        b    write
    // written:
    0xd503_3f9f, //        dsb  sy
    0xd508_871f, //        tlbi vmalle1
    0xd503_379f, //        dsb  nsh
    0xd503_3fdf, //        isb
    0xd538_1006, //        mrs  x6, sctlr_el1
    0xb240_00c6, //        orr  x6, x6, #1          the MMU
    0xb27e_00c6, //        orr  x6, x6, #4          the caches
    0xd518_1006, //        msr  sctlr_el1, x6
    0xd503_3fdf, //        isb
    0xaa00_03e5, //        mov  x5, x0
    0x2a1f_03e7, //        mov  w7, wzr
    // read:
    0xeb01_00bf, //        cmp  x5, x1
    0x5400_00c2, //        b.hs done
    0xf940_00a8, //        ldr  x8, [x5]
    0xeb05_011f, //        cmp  x8, x5
    0x1a87_14e7, //        cinc w7, w7, eq
    0x9140_04a5, //        add  x5, x5, #0x1000
    0x17ff_fffa, //        b    read
    // done:
    0xb900_0047, //        str  w7, [x2]
    // touch:
    0xeb04_007f, //        cmp  x3, x4
    0x5400_0082, //        b.hs touched
    0xf900_0063, //        str  x3, [x3]
    0x9140_0463, //        add  x3, x3, #0x1000
    0x17ff_fffc, //        b    touch
    // touched:
    0xb900_0047, //        str  w7, [x2]
    0x17ff_ffff, //        b    touched
];

/// What an exception taken at EL1 runs.
const FAULT: [u32; 3] = [
    0x1280_0007, //        mov  w7, #-1
    // again:
    0xb900_0047, //        str  w7, [x2]
    0x17ff_ffff, //        b    again
];

impl CacheSwitch {
    /// The first guest physical address that the table and the code leave free: `early` and `later` start here or
    /// above.
    pub const FREE: u64 = el1::FREE;

    /// The first address that no guest's memory reaches: 511 GiB. The last of what a table translates is for the
    /// doorbell.
    pub const REACH: u64 = (el1::GIBS - 1) * el1::GIB;

    /// Where a guest with `memory` at gpa 0 writes to leave: the first address past the GiB that it begins, mapped as a
    /// device's, without memory behind it.
    pub fn doorbell(memory: &GuestMemory) -> u64 {
        (memory.size() as u64).next_multiple_of(el1::GIB)
    }

    /// Writes the table and the code into `memory`, which is to be the guest's memory at gpa 0. Once for all vCPUs:
    /// they differ in registers alone.
    ///
    /// # Errors
    /// [`Error::Memory`] below [`CacheSwitch::FREE`] bytes, [`Error::OutOfReach`] above [`CacheSwitch::REACH`].
    pub fn install(memory: &GuestMemory) -> Result<(), Error> {
        let doorbell = Self::doorbell(memory);
        if doorbell > Self::REACH {
            return Err(Error::OutOfReach { size: memory.size(), reach: Self::REACH });
        }
        el1::install(memory, doorbell / el1::GIB, doorbell, &SWITCH, &FAULT)
    }

    /// Puts the vCPU at this guest's first instruction, its caches off.
    #[cfg(target_arch = "aarch64")]
    pub(crate) fn enter(&self, vcpu: &VcpuFd, vm: &VmFd) -> Result<(), Error> {
        let Self { early, later, doorbell } = self;
        let arguments = [early.start, early.end, *doorbell, later.start, later.end];
        el1::enter(vcpu, vm, &arguments, el1::Caches::Off)
    }

    #[cfg(not(target_arch = "aarch64"))]
    #[expect(clippy::unused_self, reason = "as on arm64")]
    pub(crate) fn enter(&self, _vcpu: &VcpuFd, _vm: &VmFd) -> Result<(), Error> {
        Err(Error::UnsupportedArch("arm64"))
    }
}
