//! An exception that EL2 itself has taken, which is a defect: the program says what has happened, and powers the machine
//! off.
//!
//! The stack may be what is lost: a thread that overflows its stack comes here with a stack pointer at which there is no
//! memory. So the rest runs on a stack of its own, one for each processor. An exception of this code powers the machine
//! off without another word.

use core::arch::global_asm;
use core::cell::UnsafeCell;

use super::map;
use crate::bare::processor::cpus;
use crate::bare::threads::{self, ThisThread};

const STACK_SHIFT: u32 = 12;
/// PSCI's `SYSTEM_OFF`.
const SYSTEM_OFF: u32 = 0x8400_0008;
/// `ESR_EL2.EC` of a data abort at EL2.
const DATA_ABORT: u64 = 0x25;

#[repr(C, align(16))]
struct Stacks(UnsafeCell<[[u8; 1 << STACK_SHIFT]; cpus::MAX]>);

// SAFETY: each processor's is its own.
unsafe impl Sync for Stacks {}

static STACKS: Stacks = Stacks(UnsafeCell::new([[0; 1 << STACK_SHIFT]; cpus::MAX]));

global_asm!(
    r#"
    .section .text.arm64_lost, "ax"
    .global arm64_lost
arm64_lost:
    mov x1, sp
    adrp x2, {stacks}
    add x2, x2, :lo12:{stacks}
    sub x3, x1, x2
    mov x4, #{bytes}
    cmp x3, x4
    b.ls 1f
    mrs x3, tpidr_el2
    add x3, x3, #1
    add x2, x2, x3, lsl #{shift}
    mov sp, x2
    mov x29, #0
    mov x30, #0
    b {report}
1:  ldr w0, ={system_off}
    smc #0
2:  wfe
    b 2b
    .ltorg
    "#,
    stacks = sym STACKS,
    bytes = const size_of::<Stacks>(),
    shift = const STACK_SHIFT,
    report = sym report,
    system_off = const SYSTEM_OFF,
);

extern "C" fn report(vector: u64, stack: u64) -> ! {
    let syndrome = mayfly_arm64::read_register!("esr_el2");
    let at = mayfly_arm64::read_register!("elr_el2").wrapping_sub(map::image().start);
    let address = mayfly_arm64::read_register!("far_el2");
    if syndrome >> 26 == DATA_ABORT
        && (threads::is_in_slot(address) || map::guard().contains(&address))
    {
        panic!(
            "the stack of {ThisThread} has overflowed: at image + {at:#x}, stack pointer {stack:#x}"
        )
    }
    panic!(
        "exception by vector {vector} in {ThisThread}: ESR {syndrome:#x} at image + {at:#x}, FAR {address:#x}, stack pointer {stack:#x}"
    )
}
