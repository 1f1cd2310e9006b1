//! Exceptions and interrupts of the processor. An interrupt is noted, and taken later. An exception ends the program: the
//! embedder says what it was.

use alloc::boxed::Box;
use core::fmt;
use core::ptr::{addr_of, with_exposed_provenance};
use core::sync::atomic::{AtomicU64, Ordering};

use x86_64::VirtAddr;
use x86_64::instructions::tables::load_tss;
use x86_64::registers::control::Cr2;
use x86_64::structures::gdt::{Descriptor, GlobalDescriptorTable};
use x86_64::structures::idt::InterruptDescriptorTable;
use x86_64::structures::tss::TaskStateSegment;

use super::apic;
use super::cpu::block;

core::arch::global_asm!(include_str!("traps.S"), options(att_syntax));

const NMI: u64 = 2;
const DOUBLE_FAULT: u64 = 8;
const PAGE_FAULT: u64 = 14;
const MACHINE_CHECK: u64 = 18;
/// How many vectors `traps.S` has, and how far apart they are.
const VECTORS: u64 = 88;
/// The first vector of an interrupt.
pub const FIRST: u8 = 32;
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

/// What has come, and where: as `traps.S` has it on the stack.
#[repr(C)]
pub struct Trap {
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
    static mayfly_x86_vectors: u8;

    /// The embedder's: an exception of the program's own, which is a defect. It may be on a stack of its own, since the
    /// program's may be lost.
    fn mayfly_x86_lost(trap: &Trap) -> !;
}

/// What all processors use.
static TABLE: AtomicU64 = AtomicU64::new(0);

/// Has exceptions and interrupts of this processor come here.
pub fn prepare() {
    let stack = || {
        let stack = Box::leak(Box::new([0_u8; STACK]));
        VirtAddr::from_ptr(stack.as_ptr()).align_down(16_u64) + STACK as u64
    };
    let mut state = TaskStateSegment::new();
    state.interrupt_stack_table[0] = stack();
    state.interrupt_stack_table[1] = stack();
    let mut descriptors = GlobalDescriptorTable::new();
    // As those that the first instructions have made, and that are in the segment registers.
    descriptors.append(Descriptor::kernel_code_segment());
    descriptors.append(Descriptor::kernel_data_segment());
    let selector = descriptors.append(Descriptor::tss_segment(Box::leak(Box::new(state))));
    Box::leak(Box::new(descriptors)).load();
    if TABLE.load(Ordering::Relaxed) == 0 {
        // The first processor, before there is another.
        let table = Box::leak(Box::new(InterruptDescriptorTable::new()));
        fill(table);
        TABLE.store(core::ptr::from_ref(table).expose_provenance() as u64, Ordering::Relaxed);
    }
    let table =
        with_exposed_provenance::<InterruptDescriptorTable>(TABLE.load(Ordering::Relaxed) as usize);
    // SAFETY: it was made above, and stays; and the selector of the segment that was just made.
    unsafe {
        (*table).load();
        load_tss(selector);
    }
}

fn fill(table: &mut InterruptDescriptorTable) {
    let first = addr_of!(mayfly_x86_vectors) as u64;
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
                _ => set(table, vector, handler),
            }
        }
    }
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
extern "C" fn mayfly_x86_trap(trap: &Trap) {
    const INTERRUPTS: u64 = FIRST as u64;
    const SPURIOUS: u64 = apic::SPURIOUS as u64;
    match trap.vector {
        NMI | SPURIOUS => {}
        INTERRUPTS.. => {
            let come = &block().come;
            // Interrupts are masked: nothing comes in between.
            let bit = 1 << (trap.vector - INTERRUPTS);
            come.store(come.load(Ordering::Relaxed) | bit, Ordering::Relaxed);
        }
        // SAFETY: the embedder has it.
        _ => unsafe { mayfly_x86_lost(trap) },
    }
}

impl Trap {
    /// The address of the access that has failed, if it is that; also where no stack was there for the exception itself.
    pub fn address(&self) -> Option<u64> {
        matches!(self.vector, PAGE_FAULT | DOUBLE_FAULT).then(Cr2::read_raw)
    }

    /// The stack pointer.
    pub fn stack(&self) -> u64 {
        self.rsp
    }
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.get(self.vector as usize).copied().unwrap_or("interrupt");
        let Self { vector, code, rip, cs, flags, rsp, ss, general } = self;
        write!(
            f,
            "exception {vector} ({name}), code {code:#x}, at {cs:#x}:{rip:#x}, flags {flags:#x}, stack {ss:#x}:{rsp:#x}"
        )?;
        if let Some(address) = self.address() {
            write!(f, ", an access to {address:#x}")?;
        }
        write!(f, ", registers {general:x?}")
    }
}
