//! A guest that uses time. A word of its parameters selects how:
//!
//! - `guest=spins`: all its vCPUs work without an end;
//! - `guest=times:COUNT`: one vCPU sleeps for 1 ms by its virtual timer, so often, and prints how late it went on. It
//!   does so where it has no device tree, too: as a kernel at EL1 of a machine without a hypervisor.
//!
//! It lies anywhere in memory, with its MMU off.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!(
        "mayfly-time-guest is a guest, not a process: `make metal-test` builds and starts it"
    );
    std::process::exit(1);
}

#[cfg(target_os = "none")]
core::arch::global_asm!(
    include_str!("header.S"),
    r#"
first:
    adrp x1, stacks_end
    mov sp, x1
    bl {main}

    .global spins
spins:
    b spins
    "#,
    main = sym bare::main,
);

#[cfg(target_os = "none")]
mod bare {
    use core::arch::asm;
    use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

    const UART: usize = 0x0900_0000;
    const DISTRIBUTOR: usize = 0x0800_0000;
    const REDISTRIBUTOR: usize = 0x080a_0000;
    const CPU_ON: u64 = 0xc400_0003;
    const SYSTEM_OFF: u64 = 0x8400_0008;
    const VIRTUAL_TIMER: u64 = 27;
    /// How often it sleeps where nothing is asked.
    const TIMES: u64 = 2000;
    /// Up to how many microseconds a delay is counted as it is.
    const MOST: usize = 100_000;

    unsafe extern "C" {
        fn spins();
    }

    macro_rules! read {
        ($register:literal) => {{
            let value: u64;
            // SAFETY: reads a register that EL1 has.
            unsafe { asm!(concat!("isb; mrs {}, ", $register), out(reg) value, options(nostack)) };
            value
        }};
    }

    macro_rules! write {
        ($register:literal, $value:expr) => {{
            let value: u64 = $value;
            // SAFETY: the timer and the interrupts of this guest, which nothing else uses.
            unsafe { asm!(concat!("msr ", $register, ", {}; isb"), in(reg) value, options(nostack)) };
        }};
    }

    fn call(function: u64, arguments: [u64; 3]) -> u64 {
        let [a, b, c] = arguments;
        let mut result = function;
        // SAFETY: a call of PSCI, which changes registers that calls may change.
        unsafe {
            asm!("hvc #0", inout("x0") result, inout("x1") a => _, inout("x2") b => _, inout("x3") c => _, options(nostack));
        }
        result
    }

    fn set(address: usize, value: u32) {
        // SAFETY: a register of a device that every guest has.
        unsafe { with_exposed_provenance_mut::<u32>(address).write_volatile(value) };
    }

    fn say(text: &str) {
        text.bytes().for_each(|byte| set(UART, byte.into()));
    }

    fn say_number(number: u64) {
        if number >= 10 {
            say_number(number / 10);
        }
        set(UART, u32::from(b'0') + (number % 10) as u32);
    }

    /// Where the word begins in the tree that says what is asked.
    fn asked(tree: usize) -> Option<&'static [u8]> {
        const WORD: &[u8] = b"guest=";
        const MAGIC: u32 = 0xd00d_feed;
        if tree == 0 {
            return None;
        }
        // SAFETY: a device tree is where the boot protocol says, and its second word is how long it is.
        let tree = unsafe {
            let words = with_exposed_provenance::<u32>(tree);
            if u32::from_be(words.read()) != MAGIC {
                return None;
            }
            let bytes = u32::from_be(words.add(1).read()) as usize;
            core::slice::from_raw_parts(with_exposed_provenance::<u8>(tree), bytes)
        };
        let at = tree.windows(WORD.len()).position(|window| window == WORD)?;
        tree.get(at + WORD.len()..)
    }

    pub(super) extern "C" fn main(tree: usize) -> ! {
        let word = asked(tree).unwrap_or_default();
        if word.first() == Some(&b's') {
            spin();
        }
        let digits = word.iter().skip_while(|byte| !byte.is_ascii_digit());
        let digits = digits.take_while(|byte| byte.is_ascii_digit());
        let count = digits.fold(0, |number, &digit| number * 10 + u64::from(digit - b'0'));
        times(if count == 0 { TIMES } else { count });
        call(SYSTEM_OFF, [0; 3]);
        spin()
    }

    /// Has all vCPUs work without an end.
    fn spin() -> ! {
        let mut number = 1;
        while call(CPU_ON, [(number % 16) | ((number / 16) << 8), spins as *const () as u64, 0])
            == 0
        {
            number += 1;
        }
        // SAFETY: it does not return.
        unsafe { asm!("b spins", options(noreturn)) }
    }

    /// Has the virtual timer's interrupt come, to a vCPU that masks it.
    fn take_interrupts() {
        set(REDISTRIBUTOR + 0x14, 0);
        set(REDISTRIBUTOR + 0x1_0080, u32::MAX);
        set(REDISTRIBUTOR + 0x1_0100, 1 << VIRTUAL_TIMER);
        set(DISTRIBUTOR, 0x12);
        write!("icc_sre_el1", 7);
        write!("icc_pmr_el1", 0xf0);
        write!("icc_igrpen1_el1", 1);
    }

    fn times(count: u64) {
        static mut LATE: [u32; MOST + 1] = [0; MOST + 1];
        let late = (&raw mut LATE).cast::<u32>();
        let frequency = read!("cntfrq_el0");
        take_interrupts();
        for _ in 0..count {
            let due = read!("cntvct_el0") + frequency / 1000;
            write!("cntv_cval_el0", due);
            write!("cntv_ctl_el0", 1);
            loop {
                // SAFETY: waits for the timer.
                unsafe { asm!("wfi", options(nostack)) };
                if read!("icc_iar1_el1") == VIRTUAL_TIMER {
                    break;
                }
            }
            let ticks = read!("cntvct_el0") - due;
            write!("cntv_ctl_el0", 0);
            write!("icc_eoir1_el1", VIRTUAL_TIMER);
            let microseconds = (ticks * 1_000_000 / frequency).min(MOST as u64) as usize;
            // SAFETY: one vCPU has this, and the number is bounded.
            unsafe { *late.add(microseconds) += 1 };
        }
        // The least delay that all but one in a thousand do not exceed, and the longest.
        let (mut seen, mut usual, mut longest) = (0, None, 0);
        for microseconds in 0..=MOST {
            // SAFETY: as above.
            let found = u64::from(unsafe { *late.add(microseconds) });
            seen += found;
            if found > 0 {
                longest = microseconds as u64;
            }
            if usual.is_none() && seen * 1000 >= count * 999 {
                usual = Some(microseconds as u64);
            }
        }
        say("guest: timers of 1 ms were late by ");
        say_number(usual.unwrap_or(longest));
        say(" us at p99.9 and ");
        say_number(longest);
        say(" us at most, of ");
        say_number(count);
        say("\r\n");
    }

    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
        say("guest: FAILED\r\n");
        call(SYSTEM_OFF, [0; 3]);
        loop {
            core::hint::spin_loop();
        }
    }
}
