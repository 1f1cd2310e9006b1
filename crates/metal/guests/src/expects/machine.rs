//! The machine: its console, its registers, its time, calls of its firmware, and the count of what held.

use core::arch::asm;
use core::fmt::{self, Write};
use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicU32, Ordering};

pub(crate) const UART: usize = 0x0900_0000;
const SYSTEM_OFF: u64 = 0x8400_0008;

/// Reads a system register.
macro_rules! get {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: reads a register.
        unsafe { core::arch::asm!("isb", concat!("mrs {}, ", $name), out(reg) value, options(nostack)) };
        value
    }};
}
pub(crate) use get;

/// Writes a system register.
macro_rules! set {
    ($name:literal, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: a register of the interrupt controller, a timer, a counter or of debug: this program expects their interrupts.
        unsafe { core::arch::asm!(concat!("msr ", $name, ", {}"), "isb", in(reg) value, options(nostack)) }
    }};
}
pub(crate) use set;

struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| write32(UART, byte.into()));
        Ok(())
    }
}

/// Prints a line.
macro_rules! say {
    ($($text:tt)*) => { $crate::machine::line(format_args!($($text)*)) };
}
pub(crate) use say;

pub(crate) fn line(text: fmt::Arguments<'_>) {
    let _ = Console.write_fmt(text).and_then(|()| Console.write_str("\r\n"));
}

pub(crate) fn read32(at: usize) -> u32 {
    // SAFETY: a register of a device.
    unsafe { with_exposed_provenance::<u32>(at).read_volatile() }
}

pub(crate) fn write32(at: usize, value: u32) {
    // SAFETY: as above.
    unsafe { with_exposed_provenance_mut::<u32>(at).write_volatile(value) };
}

pub(crate) fn read64(at: usize) -> u64 {
    // SAFETY: as above.
    unsafe { with_exposed_provenance::<u64>(at).read_volatile() }
}

pub(crate) fn write64(at: usize, value: u64) {
    // SAFETY: as above.
    unsafe { with_exposed_provenance_mut::<u64>(at).write_volatile(value) };
}

pub(crate) fn read8(at: usize) -> u8 {
    // SAFETY: as above.
    unsafe { with_exposed_provenance::<u8>(at).read_volatile() }
}

pub(crate) fn write8(at: usize, value: u8) {
    // SAFETY: as above.
    unsafe { with_exposed_provenance_mut::<u8>(at).write_volatile(value) };
}

/// Whether something was typed at the console. What it was is read.
pub(crate) fn is_typed() -> bool {
    const FLAGS: usize = UART + 0x18;
    const NOTHING: u32 = 1 << 4;
    let is_typed = read32(FLAGS) & NOTHING == 0;
    if is_typed {
        read32(UART);
    }
    is_typed
}

/// The number of this vCPU.
pub(crate) fn vcpu() -> usize {
    (get!("mpidr_el1") & 0xff) as usize
}

/// Ticks in so many milliseconds.
pub(crate) fn ticks(milliseconds: u64) -> u64 {
    get!("cntfrq_el0") * milliseconds / 1000
}

/// Spins until `is` holds, for a second at most; whether it does.
pub(crate) fn soon(is: impl Fn() -> bool) -> bool {
    let end = get!("cntvct_el0") + ticks(1000);
    while !is() {
        if get!("cntvct_el0") > end {
            return false;
        }
    }
    true
}

/// Spins for so many milliseconds.
pub(crate) fn pass(milliseconds: u64) {
    let end = get!("cntvct_el0") + ticks(milliseconds);
    while get!("cntvct_el0") < end {}
}

pub(crate) fn wait_for_interrupt() {
    // SAFETY: waits.
    unsafe { asm!("wfi", options(nostack)) };
}

/// Takes interrupts while it does `work`.
pub(crate) fn open(work: impl FnOnce()) {
    // SAFETY: this program expects its interrupts.
    unsafe { asm!("msr daifclr, #3", "isb", options(nostack)) };
    work();
    // SAFETY: as above.
    unsafe { asm!("msr daifset, #3", "isb", options(nostack)) };
}

/// Calls the firmware.
pub(crate) fn call(function: u64, arguments: [u64; 3]) -> u64 {
    let [a, b, c] = arguments;
    let mut result = function;
    // SAFETY: a call of PSCI, which changes registers that calls may change.
    unsafe {
        asm!("hvc #0", inout("x0") result, inout("x1") a => _, inout("x2") b => _, inout("x3") c => _, options(nostack));
    }
    result
}

/// Whether the device tree has that word somewhere.
pub(crate) fn has_word(tree: usize, word: &[u8]) -> bool {
    // SAFETY: the device tree is where the boot protocol says, and its second word is how long it is.
    let tree = unsafe {
        let bytes = u32::from_be(with_exposed_provenance::<u32>(tree + 4).read());
        core::slice::from_raw_parts(with_exposed_provenance::<u8>(tree), bytes as usize)
    };
    tree.windows(word.len()).any(|window| window == word)
}

static HELD: AtomicU32 = AtomicU32::new(0);
static FAILED: AtomicU32 = AtomicU32::new(0);

/// Prints whether an expectation holds. Called by the first vCPU alone.
pub(crate) fn expect(holds: bool, what: fmt::Arguments<'_>) {
    let (count, word) = if holds { (&HELD, "holds") } else { (&FAILED, "FAILED") };
    // No read-modify-write: the MMU is off.
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    say!("guest: {word}: {what}");
}

/// Prints whether an expectation holds.
macro_rules! holds {
    ($holds:expr, $($what:tt)*) => { $crate::machine::expect($holds, format_args!($($what)*)) };
}
pub(crate) use holds;

/// Prints how many held, and powers off.
pub(crate) fn end() -> ! {
    let (held, failed) = (HELD.load(Ordering::Relaxed), FAILED.load(Ordering::Relaxed));
    say!("guest: {held} expectations hold, and {failed} do not");
    call(SYSTEM_OFF, [0; 3]);
    loop {
        wait_for_interrupt();
    }
}

pub(crate) extern "C" fn unexpected() -> ! {
    say!(
        "guest: FAILED: an exception on vCPU {}: ESR {:#x} at {:#x}, FAR {:#x}",
        vcpu(),
        get!("esr_el1"),
        get!("elr_el1"),
        get!("far_el1")
    );
    end()
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say!("guest: FAILED: {info}");
    end()
}
