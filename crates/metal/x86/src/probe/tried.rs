//! An instruction that is tried.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::ptr::addr_of;

use x86_64::VirtAddr;
use x86_64::structures::idt::InterruptDescriptorTable;

core::arch::global_asm!(include_str!("start.S"), options(att_syntax));

unsafe extern "C" {
    static vectors: u8;
    static debug: u8;
    static debugged: [u64; 3];
    static nmi: u8;
    static nmis: u32;
    static nmis_nested: u32;
    fn try_code(code: u64, rax: u64, rcx: u64, rdx: u64, left: *mut [u64; 2]) -> i64;
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It left this in RAX, and in RDX.
    Done(u64, u64),
    /// It raised this exception.
    Raised(u8),
}

/// DR6 that says nothing.
const DR6_CLEAR: u64 = 0xffff_0ff0;

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
pub(super) fn prepare() {
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

/// How many non-maskable interrupts have come, and how many of them in the handler of another.
pub(super) fn non_maskable() -> (u32, u32) {
    // SAFETY: `start.S`'s, which the handler alone writes.
    unsafe { (addr_of!(nmis).read_volatile(), addr_of!(nmis_nested).read_volatile()) }
}

/// What a debug exception has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Debugged {
    /// How many bytes of the code are before the place where it goes on.
    pub(super) behind: u64,
    /// RFLAGS, as it goes on with them.
    pub(super) flags: u64,
    /// DR6, which said nothing before.
    pub(super) status: u64,
}

/// Executes `code`, as [`with`] does. `None` if it raises no debug exception.
pub(super) fn debugging(code: &[u8], rax: u64, rcx: u64, rdx: u64) -> Option<Debugged> {
    // SAFETY: the register has what debug exceptions say, and nothing else reads it.
    unsafe {
        asm!("mov dr6, {}", in(reg) DR6_CLEAR, options(nostack, nomem, preserves_flags));
    }
    let is_debug = with(code, rax, rcx, rdx) == Outcome::Raised(1);
    // SAFETY: `start.S`'s, which the handler alone writes.
    let [at, flags, status] = unsafe { addr_of!(debugged).read_volatile() };
    let behind = at.wrapping_sub(CODE.0.get() as u64);
    is_debug.then_some(Debugged { behind, flags, status })
}

/// Executes `code`, which changes RAX, RCX, RDX, R9, R10 and flags alone, with these registers.
pub(super) fn with(code: &[u8], rax: u64, rcx: u64, rdx: u64) -> Outcome {
    let mut left = [0; 2];
    // SAFETY: the bytes are there for this. What they may do to this program is said above; and where they go elsewhere, it
    // is a VM of its own that is lost.
    let raised = unsafe {
        let place = CODE.0.get().cast::<u8>();
        for (offset, byte) in code.iter().chain(&[0xc3]).enumerate() {
            place.add(offset).write_volatile(*byte);
        }
        try_code(place as u64, rax, rcx, rdx, &raw mut left)
    };
    match u8::try_from(raised) {
        Ok(number) => Outcome::Raised(number),
        Err(_) => Outcome::Done(left[0], left[1]),
    }
}

/// The same, without registers.
pub(super) fn bare(code: &[u8]) -> Outcome {
    with(code, 0, 0, 0)
}
