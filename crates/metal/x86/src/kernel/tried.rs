//! An instruction that is tried.

use core::cell::UnsafeCell;
use core::ptr::addr_of;

use x86_64::VirtAddr;
use x86_64::structures::idt::InterruptDescriptorTable;

use super::console::say;
use super::power::stop;

core::arch::global_asm!(include_str!("tried.S"), options(att_syntax));

unsafe extern "C" {
    static vectors: u8;
    static debug: u8;
    static nmi: u8;
    fn try_code(code: u64, rax: u64, rcx: u64, rdx: u64, left: *mut [u64; 2]) -> i64;
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It left this in RAX, and in RDX.
    Done(u64, u64),
    /// It raised this exception.
    Raised(u8),
}

/// Bytes that are executed.
#[repr(align(4096))]
struct Code(UnsafeCell<[u8; 64]>);

// SAFETY: there is one flow of control.
unsafe impl Sync for Code {}

static CODE: Code = Code(UnsafeCell::new([0; 64]));

struct Table(UnsafeCell<InterruptDescriptorTable>);

// SAFETY: as above.
unsafe impl Sync for Table {}

static TABLE: Table = Table(UnsafeCell::new(InterruptDescriptorTable::new()));

/// Has exceptions come to where they are told of.
pub(crate) fn prepare() {
    let first = addr_of!(vectors) as u64;
    // SAFETY: nothing else has the table.
    let table = unsafe { &mut *TABLE.0.get() };
    let at = |vector: u64| VirtAddr::new(first + vector * 16);
    // SAFETY: the code for each vector, which does not return.
    unsafe {
        table.divide_error.set_handler_addr(at(0));
        table.debug.set_handler_addr(VirtAddr::new(addr_of!(debug) as u64));
        table.non_maskable_interrupt.set_handler_addr(VirtAddr::new(addr_of!(nmi) as u64));
        table.breakpoint.set_handler_addr(at(3));
        table.overflow.set_handler_addr(at(4));
        table.bound_range_exceeded.set_handler_addr(at(5));
        table.invalid_opcode.set_handler_addr(at(6));
        table.device_not_available.set_handler_addr(at(7));
        table.double_fault.set_handler_addr(at(8));
        table.invalid_tss.set_handler_addr(at(10));
        table.segment_not_present.set_handler_addr(at(11));
        table.stack_segment_fault.set_handler_addr(at(12));
        table.general_protection_fault.set_handler_addr(at(13));
        table.page_fault.set_handler_addr(at(14));
        table.x87_floating_point.set_handler_addr(at(16));
        table.alignment_check.set_handler_addr(at(17));
        table.machine_check.set_handler_addr(at(18));
        table.load_unsafe();
    }
}

/// Where code is executed.
pub(crate) fn place() -> *mut [u8; 64] {
    CODE.0.get()
}

/// Executes `code`, which changes RAX, RCX, RDX, R9, R10 and flags alone, with these registers.
pub(crate) fn with(code: &[u8], rax: u64, rcx: u64, rdx: u64) -> Outcome {
    let mut left = [0; 2];
    // SAFETY: the bytes are there for this. What they may do to this program is said above; and where they go elsewhere, it
    // is a VM of its own that is lost.
    let raised = unsafe {
        let at = place().cast::<u8>();
        for (offset, byte) in code.iter().chain(&[0xc3]).enumerate() {
            // Written code has the CPU read it anew, which takes it long.
            if at.add(offset).read_volatile() != *byte {
                at.add(offset).write_volatile(*byte);
            }
        }
        try_code(at as u64, rax, rcx, rdx, &raw mut left)
    };
    match u8::try_from(raised) {
        Ok(number) => Outcome::Raised(number),
        Err(_) => Outcome::Done(left[0], left[1]),
    }
}

/// The same, without registers.
pub(crate) fn bare(code: &[u8]) -> Outcome {
    with(code, 0, 0, 0)
}

/// From `tried.S`: an exception that nobody has tried.
#[unsafe(no_mangle)]
extern "C" fn unexpected() -> ! {
    say!("FAILED: an exception");
    stop()
}
