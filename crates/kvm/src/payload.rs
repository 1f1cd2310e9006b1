//! What the guest runs: 64-bit code of a few instructions that writes to memory and exits, pass
//! after pass.
//!
//! It runs in ring 3. Some hosts (those without VMX or SVM to offer, where KVM switches in
//! software) emulate ring 0 at about a microsecond an instruction, and run ring 3 natively;
//! elsewhere the ring makes no difference. It never halts: with the in-kernel interrupt controller
//! a HLT waits in the kernel and never exits.

use std::ops::Range;

use crate::{Error, GuestMemory, long_mode};

/// Parameters of the guest's code.
///
/// Each pass writes the pass's number, from 1, as 8 bytes at the start of each 4096 bytes of
/// `touch`; then, with a `doorbell`, as 4 bytes to that address; then, as 4 bytes, to `port`.
///
/// The guest's virtual addresses are its physical ones. They end with the memory that the code was installed in,
/// rounded up to whole GiB; at 4 GiB at least, and at [`Payload::REACH`] at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The guest physical range to write to. May be empty.
    pub touch: Range<u64>,
    /// A guest physical address without memory behind it: an MMIO exit
    /// ([`crate::Exit::MmioWrite`]), unless an ioeventfd takes it.
    pub doorbell: Option<u64>,
    /// The I/O port that ends the pass ([`crate::Exit::PortWrite`]). Not one of the in-kernel
    /// PIC's: 0x20, 0x21, 0xa0, 0xa1, 0x4d0, 0x4d1.
    pub port: u16,
}

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

impl Payload {
    /// The first guest physical address that page tables and code leave free: `touch` starts here
    /// or above.
    pub const FREE: u64 = CODE + 0x1000;

    /// The first address that no guest reaches: 64 GiB.
    pub const REACH: u64 = long_mode::REACH;

    /// Writes the page tables and the code into `memory`, which is to be the guest's memory at gpa
    /// 0, and has at least [`Payload::FREE`] bytes. Once for all vCPUs: they differ in registers
    /// alone.
    ///
    /// # Errors
    /// [`Error::Memory`] if the memory is too small.
    pub fn install(memory: &GuestMemory) -> Result<(), Error> {
        long_mode::write_tables(memory)?;
        memory.write(CODE as usize, &TOUCH_THEN_OUT)?;
        memory.write(CODE as usize + TOUCH_THEN_OUT.len(), &TOUCH_STORE_THEN_OUT)
    }

    /// The address of this payload's first instruction.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn entry(&self) -> u64 {
        match self.doorbell {
            None => CODE,
            Some(_) => CODE + TOUCH_THEN_OUT.len() as u64,
        }
    }
}
