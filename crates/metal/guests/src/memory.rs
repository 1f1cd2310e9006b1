//! A guest that uses memory, with its MMU off, so past the caches. A word of its parameters selects what it does, up to
//! MIB:
//!
//! - `guest=fills:MIB` writes a pattern to all of its memory, and powers off;
//! - `guest=holds:MIB` writes the same pattern, and waits to be killed;
//! - `guest=later:MIB` sleeps for ten seconds, and then does the same;
//! - `guest=seeks:MIB` checks that all of its memory is zero, and powers off;
//! - `guest=parts:MIB` writes the same as its siblings to each page, and then something else to one page in eight, to another eighth each
//!   time; checks all of it, for good;
//! - `guest=lives:MIB` writes to its memory page by page, on up to two vCPUs, and then waits to be killed.

#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!(
        "mayfly-memory-guest is a guest, not a process: `make metal-test` builds and starts it"
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

    // The other vCPU, with where it is to begin in x0.
    .global second
second:
    adrp x1, stacks_end
    sub sp, x1, #0x4000
    bl {touch_downwards}
    "#,
    main = sym bare::main,
    touch_downwards = sym bare::touch_downwards,
);

#[cfg(target_os = "none")]
mod bare {
    use core::fmt::{self, Write};
    use core::ops::Range;
    use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

    const MEMORY: usize = 0x4000_0000;
    const UART: usize = 0x0900_0000;
    const PAGE: usize = 4096;
    const PATTERN: u64 = 0x5ec2_e75e_c2e7_5ec2;
    const CPU_ON: u64 = 0xc400_0003;
    const SYSTEM_OFF: u64 = 0x8400_0008;

    unsafe extern "C" {
        static image_end: u8;
        fn second();
    }

    struct Console;

    impl Write for Console {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for byte in text.bytes() {
                // SAFETY: the data register of the PL011 that every guest has.
                unsafe { with_exposed_provenance_mut::<u32>(UART).write_volatile(byte.into()) };
            }
            Ok(())
        }
    }

    macro_rules! say {
        ($($text:tt)*) => {{
            let _ = Console.write_fmt(format_args!($($text)*)).and_then(|()| Console.write_str("\r\n"));
        }};
    }

    fn call(function: u64, arguments: [u64; 3]) -> u64 {
        let [a, b, c] = arguments;
        let mut result = function;
        // SAFETY: a call of PSCI, which changes registers that calls may change.
        unsafe {
            core::arch::asm!("hvc #0", inout("x0") result, inout("x1") a => _, inout("x2") b => _, inout("x3") c => _, options(nostack));
        }
        result
    }

    fn wait() -> ! {
        loop {
            // SAFETY: waits; there is no interrupt that would come.
            unsafe { core::arch::asm!("wfi", options(nostack, nomem)) };
        }
    }

    /// Sleeps by the virtual timer, whose interrupt is masked, and ends a `wfi` all the same.
    fn sleep(seconds: u64) {
        let (mut now, frequency): (u64, u64);
        // SAFETY: reads and writes registers of the timer.
        unsafe {
            core::arch::asm!("mrs {}, cntfrq_el0", "mrs {}, cntvct_el0", out(reg) frequency, out(reg) now);
        }
        let end = now + seconds * frequency;
        // SAFETY: as above.
        unsafe {
            core::arch::asm!("msr cntv_cval_el0, {}", "msr cntv_ctl_el0, {}", "isb", in(reg) end, in(reg) 1_u64);
        };
        while now < end {
            // SAFETY: waits, and reads the counter.
            unsafe { core::arch::asm!("wfi", "isb", "mrs {}, cntvct_el0", out(reg) now) };
        }
        // SAFETY: as above.
        unsafe { core::arch::asm!("msr cntv_ctl_el0, xzr", "isb") };
    }

    /// What is to be done, and up to where: the tree is searched for it as for any text.
    fn asked(tree: &'static [u8]) -> Option<(&'static [u8], usize)> {
        const WORD: &[u8] = b"guest=";
        let at = tree.windows(WORD.len()).position(|window| window == WORD)? + WORD.len();
        let rest = &tree[at..];
        let colon = rest.iter().position(|&byte| byte == b':')?;
        let digits = rest[colon + 1..].iter().take_while(|byte| byte.is_ascii_digit());
        let number = digits.fold(0, |number, &digit| number * 10 + usize::from(digit - b'0'));
        Some((&rest[..colon], MEMORY + (number << 20)))
    }

    /// Memory below `end` that is neither the image nor the tree, nor the last two pages: there the hypervisor has written the
    /// registers of virtio devices, and the number of the generation.
    fn free(tree: &[u8], end: usize) -> [Range<usize>; 2] {
        let end = end - 2 * PAGE;
        let image = (&raw const image_end).addr();
        let tree = tree.as_ptr().addr()..(tree.as_ptr().addr() + tree.len()).next_multiple_of(8);
        [image..tree.start.min(end), tree.end.min(end)..end]
    }

    pub(super) extern "C" fn main(tree: usize) -> ! {
        // SAFETY: a device tree is where the boot protocol says, and its second word is how long it is.
        let tree = unsafe {
            let bytes = with_exposed_provenance::<u32>(tree + 4).read();
            core::slice::from_raw_parts(with_exposed_provenance(tree), u32::from_be(bytes) as usize)
        };
        match asked(tree) {
            Some((b"fills", end)) => fill(tree, end),
            Some((b"holds", end)) => {
                fill(tree, end);
                wait()
            }
            Some((b"later", end)) => {
                sleep(10);
                fill(tree, end);
                wait()
            }
            Some((b"seeks", end)) => seek(tree, end),
            Some((b"parts", end)) => part(tree, end),
            Some((b"lives", end)) => live(tree, end),
            _ => say!("guest: FAILED: nothing is asked"),
        }
        call(SYSTEM_OFF, [0; 3]);
        wait()
    }

    fn fill(tree: &[u8], end: usize) {
        for at in free(tree, end).into_iter().flat_map(|range| range.step_by(8)) {
            // SAFETY: memory of the guest's that nothing else is in.
            unsafe { with_exposed_provenance_mut::<u64>(at).write_volatile(PATTERN) };
        }
        say!("guest: has filled {} MiB", (end - MEMORY) >> 20);
    }

    fn seek(tree: &[u8], end: usize) {
        for at in free(tree, end).into_iter().flat_map(|range| range.step_by(8)) {
            // SAFETY: as above.
            let found = unsafe { with_exposed_provenance::<u64>(at).read_volatile() };
            if found != 0 {
                return say!("guest: FOUND {found:#x} at {at:#x}");
            }
        }
        say!("guest: has found nothing in {} MiB", (end - MEMORY) >> 20);
    }

    /// What a page has in all of its words but one, and what it has in that in a round: siblings have other salts.
    fn values(page: usize, salt: u64, round: u64) -> (u64, u64) {
        let common = PATTERN ^ page as u64;
        let differs = round > 0 && page as u64 % 8 == round % 8;
        (common, if differs { common ^ salt ^ round << 32 } else { common })
    }

    fn part(tree: &[u8], end: usize) -> ! {
        let pages = || {
            let ranges = free(tree, end).into_iter();
            ranges.flat_map(|range| range.start.div_ceil(PAGE)..range.end / PAGE)
        };
        // The word of a page that changes.
        let word = |page: usize| page * PAGE + page % 512 * 8;
        let salt: u64;
        // SAFETY: reads a register.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) salt) };
        let write = |at: usize, value: u64| {
            // SAFETY: memory of the guest's that nothing else is in.
            unsafe { with_exposed_provenance_mut::<u64>(at).write_volatile(value) };
        };
        for page in pages() {
            let (common, _) = values(page, salt, 0);
            (page * PAGE..page * PAGE + PAGE).step_by(8).for_each(|at| write(at, common));
        }
        say!("guest: may be merged");
        for round in 1_u64.. {
            sleep(4);
            for page in pages() {
                let (common, changed) = values(page, salt, round - 1);
                for (at, expected) in
                    [(word(page), changed), (word(page) ^ 8, common), (word(page) ^ 2048, common)]
                {
                    // SAFETY: as above.
                    let found = unsafe { with_exposed_provenance::<u64>(at).read_volatile() };
                    if found != expected {
                        say!("guest: FOUND {found:#x} at {at:#x}, and not {expected:#x}");
                    }
                }
                let (_, next) = values(page, salt, round);
                if next != changed {
                    write(word(page), next);
                }
            }
            say!("guest: all is as it was written, {round} times");
        }
        wait()
    }

    fn touch(at: usize) {
        // SAFETY: as above.
        unsafe { with_exposed_provenance_mut::<u64>(at).write_volatile(PATTERN) };
    }

    fn live(tree: &[u8], end: usize) -> ! {
        // There may be no other.
        call(CPU_ON, [1, second as *const () as u64, end as u64]);
        let [first, _] = free(tree, end);
        first.step_by(PAGE).for_each(touch);
        wait()
    }

    pub(super) extern "C" fn touch_downwards(end: usize) -> ! {
        // Above the tree, which is at the image's end, in blocks of 2 MiB.
        let start = MEMORY + (8 << 20);
        (start..end).step_by(PAGE).rev().for_each(touch);
        wait()
    }

    #[panic_handler]
    fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
        say!("guest: FAILED: {info}");
        call(SYSTEM_OFF, [0; 3]);
        wait()
    }
}
