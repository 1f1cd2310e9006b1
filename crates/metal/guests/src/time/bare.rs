//! What the first CPU does.

use core::arch::asm;
use core::ptr::with_exposed_provenance;
use core::sync::atomic::{AtomicU64, Ordering};

use super::devices::{say, say_number, set};
use super::entry::{
    counts, counts_and_spins, disturbs, gaps, gaps_and_spins, measures, overfills, spins, wakes,
};
use super::{card, disk};

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
    let mut numbers =
        word.split(|byte| !byte.is_ascii_digit()).filter(|digits| !digits.is_empty()).map(
            |digits| digits.iter().fold(0, |number, &digit| number * 10 + u64::from(digit - b'0')),
        );
    let mut next = || numbers.next().unwrap_or(0);
    match word.first() {
        Some(b's') if word.starts_with(b"storms") => storm(next()),
        Some(b's') => {
            turn_on(spins, |_| 0);
            spin()
        }
        Some(b'd') => disturb(),
        Some(b'r') => disk::read(),
        Some(b'f') => card::flood(),
        Some(b'c') => count(next(), next()),
        Some(b'g') => find_gaps(next()),
        Some(b'b') => times_at_work(next(), next() as usize),
        Some(b'o') => {
            // SAFETY: its memory has so many pages, which nothing else uses.
            let pages = unsafe { overfills() };
            say("guest: has touched ");
            say_number(pages);
            say(" pages with its last interrupt\r\n");
        }
        _ => {
            let count = next();
            times(if count == 0 { TIMES } else { count }, 0, true);
        }
    }
    call(SYSTEM_OFF, [0; 3]);
    spin()
}

fn spin() -> ! {
    // SAFETY: it does not return.
    unsafe { asm!("b spins", options(noreturn)) }
}

fn affinity(number: usize) -> u64 {
    ((number % 16) | (number / 16) << 8) as u64
}

/// Turns CPU `number` on, at `entry`. Returns whether there is one.
fn turn_on_one(number: usize, entry: unsafe extern "C" fn(), context: u64) -> bool {
    call(CPU_ON, [affinity(number), entry as *const () as u64, context]) == 0
}

/// Turns all other CPUs on, at `entry`, with what `context` has for each.
fn turn_on(entry: unsafe extern "C" fn(), context: impl Fn(usize) -> u64) {
    let _ = (1..MOST_CPUS).all(|number| turn_on_one(number, entry, context(number)));
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

/// Has the virtual timer's interrupt come, to CPU `cpu`, which it is, and which masks it.
fn take_interrupts(cpu: usize) {
    let redistributor = REDISTRIBUTOR + (cpu << 17);
    set(redistributor + 0x14, 0);
    set(redistributor + 0x1_0080, u32::MAX);
    set(redistributor + 0x1_0100, 1 << VIRTUAL_TIMER);
    set(DISTRIBUTOR, 0x12);
    write!("icc_sre_el1", 7);
    write!("icc_pmr_el1", 0xf0);
    write!("icc_igrpen1_el1", 1);
}

/// Waits for so many ticks, by the virtual timer: it sleeps, or works meanwhile. Returns when it was due.
fn wait(ticks: u64, sleeps: bool) -> u64 {
    let due = read!("cntvct_el0") + ticks;
    write!("cntv_cval_el0", due);
    write!("cntv_ctl_el0", 1);
    loop {
        if sleeps {
            // SAFETY: waits for the timer.
            unsafe { asm!("wfi", options(nostack)) };
        }
        if read!("icc_iar1_el1") == VIRTUAL_TIMER {
            return due;
        }
    }
}

/// The timer's interrupt has been taken.
fn end_wait() {
    write!("cntv_ctl_el0", 0);
    write!("icc_eoir1_el1", VIRTUAL_TIMER);
}

/// Each shared interrupt is an edge, and for a vCPU of its own: 32 to 63.
fn share_out() {
    set(DISTRIBUTOR + 0x84, u32::MAX);
    for trigger in [0xc08, 0xc0c] {
        set(DISTRIBUTOR + trigger, 0xaaaa_aaaa);
    }
    for number in 0..32 {
        let vcpu = 32 + number;
        set(DISTRIBUTOR + 0x6100 + 8 * number, ((vcpu % 16) | ((vcpu / 16) << 8)) as u32);
    }
    set(DISTRIBUTOR + 0x104, u32::MAX);
}

/// Has all other CPUs wake at once, again and again.
fn storm(count: u64) {
    /// To all others: software interrupt 5.
    const ALL: u64 = 1 << 40 | 5 << 24;
    let period = read!("cntfrq_el0") / 100;
    take_interrupts(0);
    share_out();
    turn_on(wakes, |number| number as u64);
    for _ in 0..count {
        wait(period, true);
        end_wait();
        write!("icc_sgi1r_el1", ALL);
        set(DISTRIBUTOR + 0x204, u32::MAX);
        for groups in [0, 2, 0, 2] {
            set(DISTRIBUTOR, 0x10 | groups);
        }
    }
    say("guest: all others were woken ");
    say_number(count);
    say(" times\r\n");
}

/// Has CPU `cpu` measure, as [`times`], while all CPUs work: the other ones read the counter without an end.
fn times_at_work(count: u64, cpu: usize) {
    set_window(0, u64::MAX);
    MEASURES.store(cpu as u64, Ordering::Relaxed);
    let _ = (1..MOST_CPUS).all(|number| {
        let its_word = word(number).addr() as u64;
        let (entry, context): (unsafe extern "C" fn(), _) =
            if number == cpu { (measures, count) } else { (gaps_and_spins, its_word) };
        turn_on_one(number, entry, context)
    });
    if cpu == 0 {
        return times(count, 0, false);
    }
    // SAFETY: this CPU's own word.
    unsafe { gaps(word(0)) };
}

/// The CPU that measures.
static MEASURES: AtomicU64 = AtomicU64::new(0);

/// What it does, with a stack of its own.
pub(super) extern "C" fn measure(count: u64) -> ! {
    times(count, MEASURES.load(Ordering::Relaxed) as usize, false);
    call(SYSTEM_OFF, [0; 3]);
    spin()
}

/// Waits for 1 ms so often, on CPU `cpu`, which it is, and prints how late it has gone on.
fn times(count: u64, cpu: usize, sleeps: bool) {
    static mut LATE: [u32; MOST + 1] = [0; MOST + 1];
    let late = (&raw mut LATE).cast::<u32>();
    let frequency = read!("cntfrq_el0");
    take_interrupts(cpu);
    for _ in 0..count {
        let due = wait(frequency / 1000, sleeps);
        let ticks = read!("cntvct_el0") - due;
        end_wait();
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
