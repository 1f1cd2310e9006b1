//! This processor: its number, and what it has of its own. A block of memory is its own, which the base of GS names while the
//! program runs.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, CpuidResult};
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU64;

use x86_64::VirtAddr;
use x86_64::registers::model_specific::GsBase;

/// A page that the CPU alone reads and writes.
#[repr(C, align(4096))]
pub struct CpuPage(UnsafeCell<[u8; 4096]>);

// SAFETY: nothing but its address is ever taken.
unsafe impl Sync for CpuPage {}

impl CpuPage {
    /// Zeroes.
    pub const fn new() -> Self {
        Self(UnsafeCell::new([0; 4096]))
    }

    /// Where it is.
    pub fn address(&'static self) -> u64 {
        self.0.get().expose_provenance() as u64
    }
}

impl Default for CpuPage {
    fn default() -> Self {
        Self::new()
    }
}

/// What a processor has of its own.
#[repr(C)]
pub struct Block {
    /// Its number. First: it is read by one instruction.
    number: usize,
    /// Where this is: so the whole is found by one instruction, too.
    this: *const Self,
    /// Vectors that have come and were not taken yet, a bit each.
    pub(super) come: AtomicU64,
    /// When the program's alarm is set for, and the one of the guest that is in the processor.
    pub(super) alarms: [AtomicU64; 2],
    /// Where VMRUN keeps the host's state, and VMSAVE what VMRUN leaves as it is.
    pub(super) host_state: CpuPage,
    pub(super) host_rest: CpuPage,
}

// SAFETY: a processor's own, but for its address.
unsafe impl Sync for Block {}

impl Block {
    /// That of processor `number`.
    pub const fn new(number: usize) -> Self {
        const NEVER: u64 = super::timer::NEVER;
        Self {
            number,
            this: core::ptr::null(),
            come: AtomicU64::new(0),
            alarms: [const { AtomicU64::new(NEVER) }; 2],
            host_state: CpuPage::new(),
            host_rest: CpuPage::new(),
        }
    }
}

/// Gives this processor its block, for good.
///
/// # Safety
///
/// No other has it, nothing asked for it before, and no other reference to it is used any more.
pub unsafe fn adopt(block: &'static mut Block) {
    block.this = core::ptr::from_ref(block);
    GsBase::write(VirtAddr::from_ptr(block.this));
}

/// What [`adopt`] was given.
#[inline]
pub(super) fn block() -> &'static Block {
    let block: *const Block;
    // SAFETY: the base of GS names the block, which stays.
    unsafe {
        asm!("mov {}, gs:[8]", out(reg) block, options(nostack, preserves_flags, pure, readonly));
        &*block
    }
}

/// The number of this processor.
#[inline]
pub fn number() -> usize {
    let number: usize;
    // SAFETY: as above.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) number, options(nostack, preserves_flags, pure, readonly));
    }
    number
}

/// An extended leaf of CPUID, of zeros if the CPU has none of that number.
pub(super) fn extended_leaf(leaf: u32) -> CpuidResult {
    if __cpuid(0x8000_0000).eax < leaf {
        return CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };
    }
    __cpuid(leaf)
}

/// What the processor reads at a leaf of CPUID.
pub fn leaf(leaf: u32, sub: u32) -> [u32; 4] {
    let said = core::arch::x86_64::__cpuid_count(leaf, sub);
    [said.eax, said.ebx, said.ecx, said.edx]
}

/// The ID of its local APIC.
pub fn apic_id() -> u32 {
    __cpuid(1).ebx >> 24
}

/// A number of the processor's own generator (RDRAND), where it has one that has something to give.
pub fn random() -> Option<u64> {
    if __cpuid(1).ecx >> 30 & 1 == 0 {
        return None;
    }
    let (number, given): (u64, u8);
    // SAFETY: the processor has the instruction; the carry says whether it gave anything.
    unsafe {
        asm!("rdrand {}", "setc {}", out(reg) number, out(reg_byte) given, options(nomem, nostack));
    }
    (given == 1).then_some(number)
}
