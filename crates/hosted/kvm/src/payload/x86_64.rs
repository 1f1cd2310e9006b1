//! On x86-64 the guest runs in ring 3. Some hosts (those without VMX or SVM to offer, where KVM switches in software)
//! emulate ring 0 at about a microsecond an instruction, and run ring 3 natively; elsewhere the ring makes no difference.

use kvm_ioctls::{VcpuFd, VmFd};

use crate::{Error, Exit, GuestMemory, Payload, long_mode};

/// Where [`TOUCH_THEN_OUT`] and [`TOUCH_STORE_THEN_OUT`] go.
const CODE: u64 = long_mode::TABLES.end;

/// Registers: rdi..rsi the range to touch, edx the port, r8 the pass.
const TOUCH_THEN_OUT: [u8; 0x1d] = [
    // pass:
    0x49, 0xff, 0xc0, //                         inc  r8
    0x48, 0x89, 0xfb, //                         mov  rbx, rdi
    // touch:
    0x48, 0x39, 0xf3, //                         cmp  rbx, rsi
    0x73, 0x0c, //                               jae  done
    0x4c, 0x89, 0x03, //                         mov  [rbx], r8
    0x48, 0x81, 0xc3, 0x00, 0x10, 0x00, 0x00, // add  rbx, 0x1000
    0xeb, 0xef, //                               jmp  touch
    // done:
    0x44, 0x89, 0xc0, //                         mov  eax, r8d
    0xef, //                                     out  dx, eax
    0xeb, 0xe3, //                               jmp  pass
];

/// Registers: as for [`TOUCH_THEN_OUT`], and r9 the doorbell.
const TOUCH_STORE_THEN_OUT: [u8; 0x20] = [
    // pass:
    0x49, 0xff, 0xc0, //                         inc  r8
    0x48, 0x89, 0xfb, //                         mov  rbx, rdi
    // touch:
    0x48, 0x39, 0xf3, //                         cmp  rbx, rsi
    0x73, 0x0c, //                               jae  done
    0x4c, 0x89, 0x03, //                         mov  [rbx], r8
    0x48, 0x81, 0xc3, 0x00, 0x10, 0x00, 0x00, // add  rbx, 0x1000
    0xeb, 0xef, //                               jmp  touch
    // done:
    0x44, 0x89, 0xc0, //                         mov  eax, r8d
    0x41, 0x89, 0x01, //                         mov  [r9], eax
    0xef, //                                     out  dx, eax
    0xeb, 0xe0, //                               jmp  pass
];

/// The first guest physical address that is left free.
pub(super) const FREE: u64 = CODE + 0x1000;

/// The first address that no guest reaches.
pub(super) const REACH: u64 = long_mode::REACH;

pub(super) fn install(memory: &GuestMemory) -> Result<(), Error> {
    long_mode::write_tables(memory)?;
    memory.write(CODE as usize, &TOUCH_THEN_OUT)?;
    memory.write(CODE as usize + TOUCH_THEN_OUT.len(), &TOUCH_STORE_THEN_OUT)
}

#[cfg(target_arch = "x86_64")]
pub(super) fn enter(vcpu: &VcpuFd, _vm: &VmFd, payload: &Payload) -> Result<(), Error> {
    let entry = match payload.doorbell {
        None => CODE,
        Some(_) => CODE + TOUCH_THEN_OUT.len() as u64,
    };
    long_mode::enter(vcpu, payload, entry)
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn enter(_vcpu: &VcpuFd, _vm: &VmFd, _payload: &Payload) -> Result<(), Error> {
    Err(Error::UnsupportedArch("x86-64 and arm64"))
}

/// What a write of four bytes is that nothing in the kernel has taken.
#[expect(clippy::unnecessary_wraps, reason = "as on arm64")]
pub(super) fn written(gpa: u64, value: u32) -> Result<Exit, Error> {
    Ok(Exit::MmioWrite { gpa, value })
}
