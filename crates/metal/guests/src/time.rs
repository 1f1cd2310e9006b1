//! A guest that uses time. A word of its parameters selects how:
//!
//! - `guest=spins`: all its vCPUs work without an end;
//! - `guest=counts:FROM-TO`: the same, and they count the loops that they do between two moments, in milliseconds of the
//!   machine's counter, which all VMs share. It prints the count;
//! - `guest=disturbs`: all its vCPUs make exits and faults, and sleep for 250 us at a time;
//! - `guest=storms:COUNT`: all its vCPUs wake at once, so often, by one software interrupt to all and by timers that are
//!   due at the same moment, and the groups of its interrupt controller are turned off and on;
//! - `guest=gaps:COUNT`: for so many milliseconds all its CPUs read the counter over and over, with a timer that is
//!   due every 5 ms. It prints the longest time between two reads of one CPU;
//! - `guest=times:COUNT`: one vCPU sleeps for 1 ms by its virtual timer, so often, and prints how late it went on. It
//!   does so where it has no device tree, too.
//!
//! It runs without a hypervisor, too, as a kernel at EL1: so it measures what QEMU itself does.
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

    // Counts loops in the word at x0, from one moment to another.
    .global counts
counts:
    adrp x1, {window}
    add x1, x1, :lo12:{window}
    ldp x2, x3, [x1]
    mov x4, #0
1:  mrs x5, cntpct_el0
    cmp x5, x2
    b.lo 1b
    cmp x5, x3
    b.hs 2f
    add x4, x4, #1
    str x4, [x0]
    b 1b
2:  ret
    .global counts_and_spins
counts_and_spins:
    bl counts
    b spins

    // Keeps the longest time between two reads of the counter in the word at x0. Its timer is due every 5 ms, as that of
    // a CPU of Mayfly's is: it ends QEMU's turn.
    .global gaps
gaps:
    adrp x1, {window}
    add x1, x1, :lo12:{window}
    ldp x2, x3, [x1]
    mrs x8, cntfrq_el0
    mov x4, #200
    udiv x8, x8, x4
    mov x4, #0
    mrs x5, cntvct_el0
    mov x9, x5
1:  isb
    mrs x6, cntvct_el0
    cmp x6, x9
    b.lo 3f
    add x9, x6, x8
    msr cntv_cval_el0, x9
    mov x7, #1
    msr cntv_ctl_el0, x7
3:  sub x7, x6, x5
    mov x5, x6
    cmp x7, x4
    b.ls 2f
    mov x4, x7
    str x4, [x0]
2:  cmp x6, x3
    b.lo 1b
    ret
    .global gaps_and_spins
gaps_and_spins:
    bl gaps
    b spins

    // Has the timer's interrupt, and software interrupt 5, come to vCPU x0, which masks them.
takes:
    msr daifset, #15
    adr x1, skips
    msr vbar_el1, x1
    ldr x10, =0x080a0000
    add x10, x10, x0, lsl #17
    str wzr, [x10, #0x14]
    add x10, x10, #0x10000
    mov w1, #-1
    str w1, [x10, #0x80]
    ldr w1, =(1 << 27 | 1 << 5)
    str w1, [x10, #0x100]
    ldr x10, =0x08000000
    mov w1, #0x12
    str w1, [x10]
    mov x1, #7
    msr icc_sre_el1, x1
    mov x1, #0xf0
    msr icc_pmr_el1, x1
    mov x1, #1
    msr icc_igrpen1_el1, x1
    isb
    ret

    // Makes exits and faults, and sleeps: vCPU x0.
    .global disturbs
disturbs:
    bl takes
    mrs x11, cntfrq_el0
    lsr x11, x11, #12
    // Nothing is there.
    mov x12, #0x1000
1:  ldr w0, =0x84000000
    hvc #0
    ldr w1, [x10]
    ldr w1, [x12]
    mrs x1, mdscr_el1
    msr cntv_tval_el0, x11
    mov x1, #1
    msr cntv_ctl_el0, x1
    isb
    wfi
    mrs x1, icc_iar1_el1
    msr cntv_ctl_el0, xzr
    isb
    msr icc_eoir1_el1, x1
    b 1b

    // Sleeps until the next hundredth of a second, which is the same for all, over and over: vCPU x0.
    .global wakes
wakes:
    bl takes
    mrs x11, cntfrq_el0
    mov x1, #100
    udiv x11, x11, x1
1:  mrs x1, cntvct_el0
    udiv x1, x1, x11
    madd x1, x1, x11, x11
    msr cntv_cval_el0, x1
    mov x1, #1
    msr cntv_ctl_el0, x1
2:  isb
    wfi
    mrs x1, icc_iar1_el1
    cmp x1, #1020
    b.hs 2b
    cmp x1, #27
    b.eq 3f
    msr icc_eoir1_el1, x1
    b 2b
3:  msr cntv_ctl_el0, xzr
    isb
    msr icc_eoir1_el1, x1
    b 1b
    .ltorg

    // An exception is of the instruction that has made it, which is left out.
    .balign 2048
skips:
    .rept 16
    .balign 128
    mrs x13, elr_el1
    add x13, x13, #4
    msr elr_el1, x13
    eret
    .endr
    "#,
    main = sym bare::main,
    window = sym bare::WINDOW,
);

#[cfg(target_os = "none")]
mod bare {
    use core::arch::asm;
    use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
    use core::sync::atomic::{AtomicU64, Ordering};

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

    const MOST_CPUS: usize = 64;

    unsafe extern "C" {
        fn spins();
        fn counts(word: *mut u64);
        fn counts_and_spins();
        fn gaps(word: *mut u64);
        fn gaps_and_spins();
        fn disturbs();
        fn wakes();
    }

    /// From when to when the CPUs count, or read the counter, in ticks.
    #[repr(align(16))]
    pub(super) struct Window([AtomicU64; 2]);
    pub(super) static WINDOW: Window = Window([const { AtomicU64::new(0) }; 2]);
    /// What each CPU has counted, or found.
    static WORDS: [AtomicU64; MOST_CPUS] = [const { AtomicU64::new(0) }; MOST_CPUS];

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
        let mut numbers = word
            .split(|byte| !byte.is_ascii_digit())
            .filter(|digits| !digits.is_empty())
            .map(|digits| {
                digits.iter().fold(0, |number, &digit| number * 10 + u64::from(digit - b'0'))
            });
        let mut next = || numbers.next().unwrap_or(0);
        match word.first() {
            Some(b's') if word.starts_with(b"storms") => storm(next()),
            Some(b's') => {
                turn_on(spins, |_| 0);
                spin()
            }
            Some(b'd') => disturb(),
            Some(b'c') => count(next(), next()),
            Some(b'g') => find_gaps(next()),
            _ => {
                let count = next();
                times(if count == 0 { TIMES } else { count });
            }
        }
        call(SYSTEM_OFF, [0; 3]);
        spin()
    }

    fn spin() -> ! {
        // SAFETY: it does not return.
        unsafe { asm!("b spins", options(noreturn)) }
    }

    /// Turns all other CPUs on, at `entry`, with what `context` has for each.
    fn turn_on(entry: unsafe extern "C" fn(), context: impl Fn(usize) -> u64) {
        for number in 1..MOST_CPUS {
            let affinity = (number % 16) | (number / 16) << 8;
            if call(CPU_ON, [affinity as u64, entry as *const () as u64, context(number)]) != 0 {
                break;
            }
        }
    }

    /// Has all CPUs make exits and faults.
    fn disturb() -> ! {
        turn_on(disturbs, |number| number as u64);
        // SAFETY: it uses no memory.
        unsafe { asm!("mov x0, #0", "b disturbs", options(noreturn)) }
    }

    fn word(number: usize) -> *mut u64 {
        WORDS[number].as_ptr()
    }

    /// What all CPUs have done.
    fn words() -> impl Iterator<Item = u64> {
        WORDS.iter().map(|word| word.load(Ordering::Relaxed))
    }

    fn set_window(from: u64, to: u64) {
        WINDOW.0[0].store(from, Ordering::Relaxed);
        WINDOW.0[1].store(to, Ordering::Relaxed);
    }

    /// Has all CPUs work without an end, and count loops between two moments.
    fn count(from: u64, to: u64) {
        let ticks = read!("cntfrq_el0") / 1000;
        set_window(from * ticks, to * ticks);
        turn_on(counts_and_spins, |number| word(number).addr() as u64);
        if read!("cntpct_el0") > from * ticks {
            say("guest: FAILED: it has begun too late\r\n");
        }
        // SAFETY: this CPU's own word.
        unsafe { counts(word(0)) };
        say("guest: ");
        say_number(words().sum());
        say(" loops\r\n");
        spin()
    }

    /// Finds the longest time that a CPU is not executed.
    fn find_gaps(milliseconds: u64) {
        let frequency = read!("cntfrq_el0");
        let now = read!("cntvct_el0");
        set_window(now, now + frequency * milliseconds / 1000);
        turn_on(gaps_and_spins, |number| word(number).addr() as u64);
        // SAFETY: this CPU's own word.
        unsafe { gaps(word(0)) };
        let longest = words().max().unwrap_or(0);
        say("guest: a CPU was not executed for up to ");
        say_number(longest * 1_000_000 / frequency);
        say(" us\r\n");
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

    /// Sleeps for so many ticks, by the virtual timer. Returns when it was due.
    fn sleep(ticks: u64) -> u64 {
        let due = read!("cntvct_el0") + ticks;
        write!("cntv_cval_el0", due);
        write!("cntv_ctl_el0", 1);
        loop {
            // SAFETY: waits for the timer.
            unsafe { asm!("wfi", options(nostack)) };
            if read!("icc_iar1_el1") == VIRTUAL_TIMER {
                return due;
            }
        }
    }

    /// The timer's interrupt has been taken.
    fn end_sleep() {
        write!("cntv_ctl_el0", 0);
        write!("icc_eoir1_el1", VIRTUAL_TIMER);
    }

    /// Has all other CPUs wake at once, again and again.
    fn storm(count: u64) {
        /// To all others: software interrupt 5.
        const ALL: u64 = 1 << 40 | 5 << 24;
        let period = read!("cntfrq_el0") / 100;
        take_interrupts();
        turn_on(wakes, |number| number as u64);
        for _ in 0..count {
            sleep(period);
            end_sleep();
            write!("icc_sgi1r_el1", ALL);
            for groups in [0, 2, 0, 2] {
                set(DISTRIBUTOR, 0x10 | groups);
            }
        }
        say("guest: all others were woken ");
        say_number(count);
        say(" times\r\n");
    }

    fn times(count: u64) {
        static mut LATE: [u32; MOST + 1] = [0; MOST + 1];
        let late = (&raw mut LATE).cast::<u32>();
        let frequency = read!("cntfrq_el0");
        take_interrupts();
        for _ in 0..count {
            let due = sleep(frequency / 1000);
            let ticks = read!("cntvct_el0") - due;
            end_sleep();
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
