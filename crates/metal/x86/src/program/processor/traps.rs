//! Exceptions and interrupts of the processor. An exception ends the program, and says what it was.

use alloc::boxed::Box;
use core::ptr::addr_of;
use core::sync::atomic::{AtomicU64, Ordering};

use x86_64::VirtAddr;
use x86_64::instructions::tables::load_tss;
use x86_64::registers::control::Cr2;
use x86_64::structures::gdt::{Descriptor, GlobalDescriptorTable};
use x86_64::structures::idt::InterruptDescriptorTable;
use x86_64::structures::tss::TaskStateSegment;

use super::console::say;
use super::ending::{Ending, end};
use super::{interrupts, timer};

core::arch::global_asm!(include_str!("traps.S"), options(att_syntax));

const NMI: u64 = 2;
const DOUBLE_FAULT: u64 = 8;
const PAGE_FAULT: u64 = 14;
const MACHINE_CHECK: u64 = 18;
/// How many vectors `traps.S` has, and how far apart they are.
const VECTORS: u64 = 48;
const STRIDE: u64 = 16;
/// A stack of their own for the exceptions that come where no stack may be.
const STACK: usize = 0x4000;

const NAMES: [&str; 22] = [
    "division",
    "debug",
    "non-maskable interrupt",
    "breakpoint",
    "overflow",
    "bounds",
    "invalid opcode",
    "no coprocessor",
    "double fault",
    "9",
    "invalid TSS",
    "no segment",
    "stack",
    "general protection",
    "page fault",
    "15",
    "floating point",
    "alignment",
    "machine check",
    "SIMD",
    "20",
    "control protection",
];

/// What `traps.S` has on the stack.
#[repr(C)]
struct Frame {
    general: [u64; 15],
    vector: u64,
    code: u64,
    rip: u64,
    cs: u64,
    flags: u64,
    rsp: u64,
    ss: u64,
}

unsafe extern "C" {
    /// The first of `traps.S`'s vectors.
    static vectors: u8;
}

/// Non-maskable interrupts that have come.
static NMIS: AtomicU64 = AtomicU64::new(0);

/// Has exceptions and interrupts come here.
pub(crate) fn prepare() {
    let stack = || {
        let stack = Box::leak(Box::new([0_u8; STACK]));
        VirtAddr::from_ptr(stack.as_ptr()).align_down(16_u64) + STACK as u64
    };
    let mut state = TaskStateSegment::new();
    state.interrupt_stack_table[0] = stack();
    state.interrupt_stack_table[1] = stack();
    let mut descriptors = GlobalDescriptorTable::new();
    // As those that `start.S` has made, and that are in the segment registers.
    descriptors.append(Descriptor::kernel_code_segment());
    descriptors.append(Descriptor::kernel_data_segment());
    let selector = descriptors.append(Descriptor::tss_segment(Box::leak(Box::new(state))));
    Box::leak(Box::new(descriptors)).load();
    let mut table = Box::new(InterruptDescriptorTable::new());
    let first = addr_of!(vectors) as u64;
    for vector in 0..VECTORS {
        let handler = VirtAddr::new(first + vector * STRIDE);
        // SAFETY: the code of `traps.S` for this vector, which leaves all registers as they were. The two stacks are there.
        unsafe {
            match vector {
                NMI => {
                    table.non_maskable_interrupt.set_handler_addr(handler).set_stack_index(0);
                }
                DOUBLE_FAULT => {
                    table.double_fault.set_handler_addr(handler).set_stack_index(1);
                }
                MACHINE_CHECK => {
                    table.machine_check.set_handler_addr(handler).set_stack_index(1);
                }
                _ => set(&mut table, vector, handler),
            }
        }
    }
    Box::leak(table).load();
    // SAFETY: the selector of the segment that was just made.
    unsafe { load_tss(selector) }
}

/// Sets a vector that has no stack of its own. What the manual reserves is not raised, and stays as it is.
///
/// # Safety
///
/// The handler is one for this vector.
unsafe fn set(table: &mut InterruptDescriptorTable, vector: u64, handler: VirtAddr) {
    // SAFETY: the caller's promise.
    unsafe {
        match vector {
            0 => table.divide_error.set_handler_addr(handler),
            1 => table.debug.set_handler_addr(handler),
            3 => table.breakpoint.set_handler_addr(handler),
            4 => table.overflow.set_handler_addr(handler),
            5 => table.bound_range_exceeded.set_handler_addr(handler),
            6 => table.invalid_opcode.set_handler_addr(handler),
            7 => table.device_not_available.set_handler_addr(handler),
            10 => table.invalid_tss.set_handler_addr(handler),
            11 => table.segment_not_present.set_handler_addr(handler),
            12 => table.stack_segment_fault.set_handler_addr(handler),
            13 => table.general_protection_fault.set_handler_addr(handler),
            PAGE_FAULT => table.page_fault.set_handler_addr(handler),
            16 => table.x87_floating_point.set_handler_addr(handler),
            17 => table.alignment_check.set_handler_addr(handler),
            19 => table.simd_floating_point.set_handler_addr(handler),
            32..VECTORS => table[vector as u8].set_handler_addr(handler),
            _ => return,
        };
    }
}

/// From `traps.S`.
#[unsafe(no_mangle)]
extern "C" fn trap(frame: &Frame) {
    const TIMER: u64 = interrupts::TIMER as u64;
    const SPURIOUS: u64 = interrupts::SPURIOUS as u64;
    match frame.vector {
        TIMER => {
            timer::alarmed();
            interrupts::end();
        }
        SPURIOUS => {}
        NMI => {
            NMIS.fetch_add(1, Ordering::Relaxed);
        }
        _ => fatal(frame),
    }
}

fn fatal(frame: &Frame) -> ! {
    let name = NAMES.get(frame.vector as usize).copied().unwrap_or("interrupt");
    let Frame { vector, code, rip, cs, flags, rsp, .. } = frame;
    say!(
        "exception {vector} ({name}), code {code:#x}, at {cs:#x}:{rip:#x}, flags {flags:#x}, stack {rsp:#x}"
    );
    if *vector == PAGE_FAULT {
        say!("the access was to {:#x}", Cr2::read_raw());
    }
    for (number, values) in frame.general.chunks(4).enumerate() {
        say!("registers {number}: {values:#x?}");
    }
    end(Ending::Failed)
}

/// The library's exceptions, which this program does not use.
#[unsafe(no_mangle)]
extern "C" fn mayfly_x86_lost(_trap: &mayfly_x86::bare::traps::Trap) -> ! {
    end(Ending::Failed)
}
