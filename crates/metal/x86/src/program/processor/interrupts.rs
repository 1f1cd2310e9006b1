//! The processor's local APIC, in xAPIC mode; and the two interrupt controllers of a PC, which are masked.

use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

use x86_64::instructions::interrupts;
use x86_64::instructions::port::Port;
use x86_64::registers::model_specific::ApicBase;

/// The vector of the timer.
pub(crate) const TIMER: u8 = 0x20;
/// The vector of an interrupt that was none.
pub(crate) const SPURIOUS: u8 = 0x2f;

const TASK_PRIORITY: usize = 0x080;
const END: usize = 0x0b0;
const SPURIOUS_VECTOR: usize = 0x0f0;
const TIMER_ENTRY: usize = 0x320;
const LINT0: usize = 0x350;
const INITIAL_COUNT: usize = 0x380;
const CURRENT_COUNT: usize = 0x390;
const DIVIDE: usize = 0x3e0;

const ENABLED: u32 = 1 << 8;
const MASKED: u32 = 1 << 16;
/// By one.
const UNDIVIDED: u32 = 0xb;

/// Where its registers are.
static BASE: AtomicUsize = AtomicUsize::new(0);

fn register(offset: usize) -> *mut u32 {
    with_exposed_provenance_mut(BASE.load(Ordering::Relaxed) + offset)
}

fn read(offset: usize) -> u32 {
    // SAFETY: a register of the local APIC, which is mapped uncached.
    unsafe { register(offset).read_volatile() }
}

fn write(offset: usize, value: u32) {
    // SAFETY: as above; it changes no memory.
    unsafe { register(offset).write_volatile(value) }
}

/// The page of its registers.
pub(crate) fn page() -> u64 {
    ApicBase::read().0.start_address().as_u64()
}

/// Turns it on, with its timer stopped. All else is masked.
pub(crate) fn prepare() {
    for port in [0x21, 0xa1] {
        // SAFETY: the masks of the two controllers that a PC has, or nothing.
        unsafe { Port::<u8>::new(port).write(0xff) }
    }
    BASE.store(page() as usize, Ordering::Relaxed);
    write(SPURIOUS_VECTOR, ENABLED | u32::from(SPURIOUS));
    write(TASK_PRIORITY, 0);
    write(LINT0, MASKED);
    write(DIVIDE, UNDIVIDED);
    write(TIMER_ENTRY, MASKED);
}

/// Has its timer count down from `count`, and then interrupt if that is [turned on](interrupt_by_timer); zero stops it.
pub(crate) fn count_down(count: u32) {
    write(INITIAL_COUNT, count);
}

/// Has its timer, which is stopped, interrupt from now on.
pub(crate) fn interrupt_by_timer() {
    write(TIMER_ENTRY, TIMER.into());
}

/// What is left to count.
pub(crate) fn count() -> u32 {
    read(CURRENT_COUNT)
}

/// The interrupt that is being served is over.
pub(crate) fn end() {
    write(END, 0);
}

/// Takes the interrupts that wait.
pub(crate) fn look() {
    interrupts::enable();
    // The instruction behind STI is still before them.
    x86_64::instructions::nop();
    interrupts::disable();
}

/// Halts until an interrupt has been taken.
pub(crate) fn wait() {
    interrupts::enable_and_hlt();
    interrupts::disable();
}
