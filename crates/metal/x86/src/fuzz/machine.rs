//! Tables of descriptors, gates and tasks, as the vCPUs find them after each exception.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::ptr::addr_of;

core::arch::global_asm!(include_str!("machine.S"), options(att_syntax));

unsafe extern "C" {
    fn fuzz_back();
    fn fuzz_execute(registers: *const [u64; 16], code: *const u8);
    static fuzz_stacks: u8;
}

/// vCPUs.
pub(super) const VCPUS: usize = 2;
/// Descriptors: code and data of 64 bits are 0x10 and 0x18.
const DESCRIPTORS: usize = 12;
/// The task of each vCPU in 64 bits, of two descriptors each.
const TASK: usize = 4;
/// Code of 32 bits.
pub(super) const CODE_32: u64 = 0x40;
/// The two tasks of 32 bits.
pub(super) const TASKS_32: [usize; 2] = [10, 11];
const STACK: u64 = 0x8000;

#[repr(C, align(4096))]
pub(super) struct Shared<T>(pub(super) UnsafeCell<T>);

// SAFETY: what both vCPUs write at once is as random as the rest.
unsafe impl<T> Sync for Shared<T> {}

#[unsafe(export_name = "fuzz_descriptors")]
static TABLE: Shared<[u64; DESCRIPTORS]> = Shared(UnsafeCell::new([0; DESCRIPTORS]));
#[unsafe(export_name = "fuzz_gates")]
static GATES: Shared<[[u64; 2]; 256]> = Shared(UnsafeCell::new([[0; 2]; 256]));
static TASK_STATES: Shared<[[u32; 32]; VCPUS]> = Shared(UnsafeCell::new([[0; 32]; VCPUS]));

/// Writes one of the descriptors.
pub(super) fn describe(number: usize, descriptor: u64) {
    // SAFETY: within the table.
    unsafe { TABLE.0.get().cast::<u64>().add(number).write_volatile(descriptor) }
}

/// The descriptor of a task's state.
pub(super) fn task(base: u64, limit: u64) -> u64 {
    let (low, high) = (base & 0xff_ffff, base >> 24 & 0xff);
    limit & 0xffff | low << 16 | 0x89 << 40 | high << 56
}

/// Makes all of it.
pub(super) fn prepare() {
    for (number, descriptor) in [
        (2, 0x00af_9b00_0000_ffff),
        (3, 0x00cf_9300_0000_ffff),
        (CODE_32 as usize / 8, 0x00cf_9b00_0000_ffff),
        (9, 0x0000_9b00_0000_ffff),
    ] {
        describe(number, descriptor);
    }
    let handler = fuzz_back as *const () as u64;
    // All by the first stack of their own, so that they come whatever RSP is.
    let gate = [
        handler & 0xffff | 0x10 << 16 | 1 << 32 | 0x8e << 40 | (handler >> 16 & 0xffff) << 48,
        handler >> 32,
    ];
    // SAFETY: nothing else has them yet.
    unsafe { (&mut *GATES.0.get()).fill(gate) };
    for number in 0..VCPUS {
        let stack = addr_of!(fuzz_stacks) as u64 + STACK * (number as u64 + 1);
        // SAFETY: as above. The first stack is at the byte 36.
        let state = unsafe { &mut (&mut *TASK_STATES.0.get())[number] };
        (state[9], state[10]) = (stack as u32, (stack >> 32) as u32);
    }
}

/// Has this vCPU have its task, with the stack for exceptions.
pub(super) fn take_task(number: usize) {
    let state = TASK_STATES.0.get().cast::<[u32; 32]>().wrapping_add(number) as u64;
    describe(TASK + 2 * number, task(state, 0x67));
    describe(TASK + 2 * number + 1, state >> 32);
    // SAFETY: the descriptor of a task that is not in use.
    unsafe { asm!("ltr {:x}", in(reg) 8 * (TASK + 2 * number), options(nostack)) }
}

/// Goes to that code with these registers. What it does, it does to this VM; mostly an exception leads to the next episode.
pub(super) fn execute(registers: &[u64; 16], code: *const u8) {
    // SAFETY: the bytes are there for this.
    unsafe { fuzz_execute(registers, code) }
}

/// Has the vCPU of that number go on with the next episode.
pub(super) fn settle(number: usize) -> ! {
    // SAFETY: `machine.S`'s, with the number in RBX.
    unsafe { asm!("mov rbx, {}", "jmp fuzz_settle", in(reg) number, options(noreturn)) }
}
