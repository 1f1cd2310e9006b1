//! Instructions of the CPU that Rust has not.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, CpuidResult};
use core::cell::UnsafeCell;

use mayfly_x86::svm::vmcb::SVME;

const EFER: u32 = 0xc000_0080;
const VM_CR: u32 = 0xc001_0114;
const VM_HSAVE_PA: u32 = 0xc001_0117;
/// `VM_CR.SVMDIS` (APM volume 2, 15.30.1).
const SVM_DISABLED: u64 = 1 << 4;

/// A page of constants.
#[repr(C, align(4096))]
pub(super) struct Page(pub(super) [u8; 4096]);

/// A page that the CPU alone reads and writes.
#[repr(C, align(4096))]
pub(super) struct CpuPage(UnsafeCell<[u8; 4096]>);

// SAFETY: nothing but its address is ever taken.
unsafe impl Sync for CpuPage {}

impl CpuPage {
    pub(super) const fn new() -> Self {
        Self(UnsafeCell::new([0; 4096]))
    }

    pub(super) fn address(&'static self) -> u64 {
        self.0.get().expose_provenance() as u64
    }
}

/// Where VMRUN keeps the host's state (15.30.4).
static HOST_STATE: CpuPage = CpuPage::new();

/// An extended leaf of CPUID, of zeros if the CPU has none of that number.
pub(super) fn extended_leaf(leaf: u32) -> CpuidResult {
    if __cpuid(0x8000_0000).eax < leaf {
        return CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };
    }
    __cpuid(leaf)
}

pub(super) fn outb(port: u16, byte: u8) {
    // SAFETY: the ports that this program writes are those of the UART, which changes no memory.
    unsafe {
        asm!("out dx, al", in("dx") port, in("al") byte, options(nomem, nostack, preserves_flags));
    }
}

pub(super) fn inb(port: u16) -> u8 {
    let byte;
    // SAFETY: as above.
    unsafe {
        asm!("in al, dx", in("dx") port, out("al") byte, options(nomem, nostack, preserves_flags));
    }
    byte
}

/// # Safety
///
/// The CPU has this MSR.
unsafe fn read_msr(msr: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reading it has no effect, and the caller says that it is there.
    unsafe {
        asm!("rdmsr", in("ecx") msr, out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// # Safety
///
/// The CPU has this MSR, and may have this value of it.
unsafe fn write_msr(msr: u32, value: u64) {
    // SAFETY: the caller says so.
    unsafe {
        asm!("wrmsr", in("ecx") msr, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags));
    }
}

/// Turns SVM on; whether the firmware lets it.
pub(super) fn enable_svm() -> bool {
    // SAFETY: `begin` has seen that the CPU has SVM, and with it these MSRs. The page is the CPU's from here on: it is a
    // static of which nothing else is made.
    unsafe {
        if read_msr(VM_CR) & SVM_DISABLED != 0 {
            return false;
        }
        write_msr(EFER, read_msr(EFER) | SVME);
        write_msr(VM_HSAVE_PA, HOST_STATE.address());
    }
    true
}

/// How the program ends.
#[derive(Clone, Copy)]
pub(super) enum Ending {
    /// Everything was as it is to be.
    Done = 0,
    /// This machine cannot run guests.
    Unable = 1,
    Failed = 2,
}

/// Ends: by QEMU's device for that, if it is there, or by doing nothing any more.
pub(super) fn end(ending: Ending) -> ! {
    // SAFETY: nothing has this port but that device.
    unsafe {
        asm!("out dx, eax", in("dx") 0xf4_u16, in("eax") ending as u32,
            options(nomem, nostack, preserves_flags));
    }
    loop {
        // SAFETY: it waits, with interrupts masked.
        unsafe { asm!("hlt", options(nomem, nostack, preserves_flags)) }
    }
}
