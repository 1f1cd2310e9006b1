//! The processor's local APIC, in xAPIC mode, and what it sends to others; and the two interrupt controllers of a PC, which are
//! masked.

use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

use x86_64::instructions::interrupts;
use x86_64::instructions::port::Port;
use x86_64::registers::model_specific::ApicBase;

use super::counted;
use super::cpu::block;

/// The vector of the timer.
pub const TIMER: u8 = 0x20;
/// The vector by which one processor has another look.
pub const KICK: u8 = 0x21;
/// The vector of an interrupt that was none.
pub const SPURIOUS: u8 = 0x2f;
/// The vector of the first line of the IOAPIC; the others follow.
pub const FIRST_LINE: u8 = 0x30;

const TASK_PRIORITY: usize = 0x080;
const END: usize = 0x0b0;
const SPURIOUS_VECTOR: usize = 0x0f0;
const TIMER_ENTRY: usize = 0x320;
const COMMAND: usize = 0x300;
const COMMAND_TO: usize = 0x310;
const LINT0: usize = 0x350;
const INITIAL_COUNT: usize = 0x380;
const CURRENT_COUNT: usize = 0x390;
const DIVIDE: usize = 0x3e0;

const ENABLED: u32 = 1 << 8;
const MASKED: u32 = 1 << 16;
/// Of a command: it is not sent yet; INIT and start-up; and that a level is asserted.
const PENDING: u32 = 1 << 12;
const INIT: u32 = 5 << 8;
const STARTUP: u32 = 6 << 8;
const ASSERTED: u32 = 1 << 14;
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
pub fn page() -> u64 {
    ApicBase::read().0.start_address().as_u64()
}

/// Masks the two interrupt controllers of a PC. Once.
pub fn prepare() {
    for port in [0x21, 0xa1] {
        // SAFETY: the masks of the two controllers that a PC has, or nothing.
        unsafe { Port::<u8>::new(port).write(0xff) }
    }
    BASE.store(page() as usize, Ordering::Relaxed);
}

/// Turns this processor's on, with its timer stopped. All else is masked.
pub fn enable() {
    write(SPURIOUS_VECTOR, ENABLED | u32::from(SPURIOUS));
    write(TASK_PRIORITY, 0);
    write(LINT0, MASKED);
    write(DIVIDE, UNDIVIDED);
    write(TIMER_ENTRY, MASKED);
}

fn send(to: u32, command: u32) {
    while read(COMMAND) & PENDING != 0 {
        core::hint::spin_loop();
    }
    write(COMMAND_TO, to << 24);
    write(COMMAND, command);
}

/// Interrupts the processor whose APIC has that ID.
pub fn kick(to: u32) {
    send(to, ASSERTED | u32::from(KICK));
}

/// Resets the processor whose APIC has that ID. It then waits for a start-up.
pub fn reset(to: u32) {
    send(to, ASSERTED | INIT);
}

/// Starts that processor in real mode, at the beginning of that page.
pub fn start(to: u32, page: u8) {
    send(to, ASSERTED | STARTUP | u32::from(page));
}

/// Has its timer count down from `count`, and then interrupt if that is [turned on](interrupt_by_timer); zero stops it.
pub fn count_down(count: u32) {
    write(INITIAL_COUNT, count);
}

/// Has its timer, which is stopped, interrupt from now on.
pub fn interrupt_by_timer() {
    write(TIMER_ENTRY, TIMER.into());
}

/// What is left to count.
pub fn count() -> u32 {
    read(CURRENT_COUNT)
}

/// The interrupt that is being served is over.
pub fn end() {
    write(END, 0);
}

/// Takes interrupts that wait: they are [noted](super::traps).
pub fn look() {
    interrupts::enable();
    // The instruction behind STI is still before them.
    x86_64::instructions::nop();
    interrupts::disable();
}

/// Halts until an interrupt is noted, unless one is already.
pub fn wait() {
    let come = &block().come;
    if come.load(Ordering::Relaxed) != 0 {
        return;
    }
    if counted::is_on() {
        return counted::idle(come);
    }
    interrupts::enable_and_hlt();
    interrupts::disable();
}

/// The vector of an interrupt that has come to this processor. It is served when [`end`] is called.
pub fn acknowledge() -> Option<u8> {
    let come = &block().come;
    if come.load(Ordering::Relaxed) == 0 {
        look();
    }
    let vectors = come.load(Ordering::Relaxed);
    if vectors == 0 {
        return None;
    }
    let first = vectors.trailing_zeros();
    // Interrupts are masked: nothing comes in between.
    come.store(vectors & !(1 << first), Ordering::Relaxed);
    Some(super::traps::FIRST + first as u8)
}
