//! The guest's machine: its memory, its console, its timer, and its firmware.

use core::arch::asm;
use core::fmt::{self, Write};
use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

const UART: u64 = 0x0900_0000;
/// The register that says, with this bit, that nothing was typed.
const FLAGS: u64 = UART + 0x18;
const NOTHING: u32 = 1 << 4;
/// Which fork it is; 0, if it is none.
const IDENTITY: u64 = 0x0902_0000;
const SYSTEM_OFF: u64 = 0x8400_0008;

pub(crate) fn load<T: Copy>(at: u64) -> T {
    // SAFETY: memory that nothing else is in, or a register of a device.
    unsafe { with_exposed_provenance::<T>(at as usize).read_volatile() }
}

pub(crate) fn store<T>(at: u64, value: T) {
    // SAFETY: as above.
    unsafe { with_exposed_provenance_mut::<T>(at as usize).write_volatile(value) };
}

pub(crate) struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| store(UART, u32::from(byte)));
        Ok(())
    }
}

macro_rules! say {
    ($($text:tt)*) => {{
        use core::fmt::Write;
        let console = &mut $crate::machine::Console;
        let _ = console.write_fmt(format_args!($($text)*)).and_then(|()| console.write_str("\r\n"));
    }};
}
pub(crate) use say;

/// The next byte that is typed.
pub(crate) fn typed() -> u8 {
    while load::<u32>(FLAGS) & NOTHING != 0 {
        sleep(1000);
    }
    load::<u32>(UART) as u8
}

pub(crate) fn is_fork() -> bool {
    load::<u64>(IDENTITY) != 0
}

/// Sleeps for some microseconds, by the virtual timer, whose interrupt is masked, and ends a `wfi` all the same.
pub(crate) fn sleep(microseconds: u64) {
    let (mut now, frequency): (u64, u64);
    // SAFETY: reads and writes registers of the timer, and waits.
    unsafe {
        asm!("mrs {}, cntfrq_el0", "isb", "mrs {}, cntvct_el0", out(reg) frequency, out(reg) now);
        let end = now + microseconds * frequency / 1_000_000;
        asm!("msr cntv_cval_el0, {}", "msr cntv_ctl_el0, {}", "isb", in(reg) end, in(reg) 1_u64);
        while now < end {
            asm!("wfi", "isb", "mrs {}, cntvct_el0", out(reg) now);
        }
        asm!("msr cntv_ctl_el0, xzr", "isb");
    }
}

pub(crate) fn power_off() -> ! {
    // SAFETY: a call of PSCI, which does not return.
    unsafe { asm!("hvc #0", "b .", in("x0") SYSTEM_OFF, options(noreturn)) }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say!("guest: FAILED: {info}");
    power_off()
}
