//! The episodes.
//!
//! `entry.rs` and `episode.rs` import each other: see there.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicU64, Ordering};

use mayfly_guests::wild::devices;
use mayfly_guests::wild::random::Random;

use crate::code::{self, RET};
use crate::entry::{descend, execute, secondary};
use crate::its::{self, ITS, ITS_BYTES};
use crate::registers;
use crate::said::{UART, say, say_chains, say_number, say_wrong, write};

const DISTRIBUTOR: u64 = 0x0800_0000;
const REDISTRIBUTORS: u64 = 0x080a_0000;
const REDISTRIBUTOR_BYTES: u64 = 0x2_0000;
/// Where the registers of virtio devices begin.
const VIRTIO: u64 = 0x0a00_0000;
/// Memory that nothing of its own lies in.
const FREE: u64 = 0x4040_0000;
const FREE_BYTES: u64 = 48 << 20;
const MAX_VCPUS: usize = 8;
const PSCI: u64 = 0x8400_0000;

/// What a vCPU has of its own.
#[repr(C, align(4096))]
struct Own {
    code: [u32; 64],
    table: Table,
    random: Random,
    episodes: u64,
    /// Registers whose answers it has checked.
    checked: u64,
}

#[repr(C, align(4096))]
struct Table([u64; 512]);

struct All(UnsafeCell<[Own; MAX_VCPUS]>);

// SAFETY: each vCPU has one for itself.
unsafe impl Sync for All {}

static ALL: All = All(UnsafeCell::new(
    [const {
        Own {
            code: [0; 64],
            table: Table([0; 512]),
            random: Random::new(0),
            episodes: 0,
            checked: 0,
        }
    }; MAX_VCPUS],
));

fn number() -> usize {
    let number: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, mpidr_el1", out(reg) number, options(nomem, nostack)) };
    number % MAX_VCPUS
}

fn now() -> u64 {
    let now;
    // SAFETY: reads a register.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", out(reg) now, options(nomem, nostack)) };
    now
}

/// What the command line says, for all vCPUs.
static SEED: AtomicU64 = AtomicU64::new(0);
/// A bit for each kind of episode that is drawn.
static KINDS: AtomicU64 = AtomicU64::new(u64::MAX);

/// The sum of this guest's code and constants, as they were loaded.
static SUM: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    static image_start: u64;
    static constants_end: u64;
}

/// The sum of this guest's code and constants.
fn sum() -> u64 {
    let (mut at, end) = (&raw const image_start, &raw const constants_end);
    let mut sum: u64 = 0;
    while at < end {
        // SAFETY: within the image, which is mapped one to one whenever the MMU is on; nothing here writes to it on
        // purpose.
        sum = sum.rotate_left(7).wrapping_add(unsafe { at.read_volatile() });
        at = at.wrapping_add(1);
    }
    sum
}

/// The first vCPU begins, with the device tree at `tree`.
pub(crate) extern "C" fn first(tree: u64) -> ! {
    SEED.store(argument(tree, b"seed=").unwrap_or(0), Ordering::Relaxed);
    KINDS.store(argument(tree, b"kinds=").unwrap_or(u64::MAX), Ordering::Relaxed);
    SUM.store(sum(), Ordering::Relaxed);
    begin()
}

/// A vCPU begins.
pub(crate) extern "C" fn begin() -> ! {
    // SAFETY: this vCPU's.
    let own = unsafe { &mut (&mut *ALL.0.get())[number()] };
    own.random = Random::new(SEED.load(Ordering::Relaxed) ^ now() << 8 ^ number() as u64);
    own.episodes = 0;
    again()
}

/// An episode is over.
pub(crate) extern "C" fn again() -> ! {
    // SAFETY: this vCPU's, which has dropped what it was at.
    let own = unsafe { &mut (&mut *ALL.0.get())[number()] };
    loop {
        episode(own);
    }
}

/// The number that stands behind `name` on the command line, which is somewhere in the device tree.
fn argument(tree: u64, name: &[u8]) -> Option<u64> {
    // SAFETY: a tree has 2 MiB.
    let at = |offset: u64| unsafe {
        with_exposed_provenance::<u8>((tree + offset) as usize).read_volatile()
    };
    let stands = |start: &u64| (*start..).zip(name).all(|(place, byte)| at(place) == *byte);
    let start = (0..0x1_0000).find(stands)? + name.len() as u64;
    let digits = (start..start + 20).map(at).take_while(u8::is_ascii_digit);
    Some(digits.fold(0, |number: u64, digit| {
        number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'))
    }))
}

/// Reads a register, writes it, and reads it again, and checks that the answers are those of the table.
///
/// Made-up code may have overwritten this guest, or have returned to it at EL0. Then answers mean nothing. So they count
/// only if the guest's code is as it was, a register that is always there gives its own value, and one that is never
/// there an exception.
fn check(own: &mut Own) {
    let register = registers::answered(&mut own.random);
    let written = own.random.next();
    let mut access = |word| {
        fill(&mut own.code, 1, || word);
        let (registers, left): ([u64; 16], u64) = ([written; 16], 2);
        // SAFETY: one exception that the handler returns from is expected, and nothing else comes between.
        unsafe {
            asm!("msr daifset, #15", "msr tpidr_el1, {}", in(reg) left, options(nostack));
            let value = execute(registers.as_ptr(), own.code.as_ptr());
            let (after, syndrome): (u64, u64);
            asm!("mrs {}, tpidr_el1", "mrs {}, esr_el1", out(reg) after, out(reg) syndrome, options(nostack));
            if after == left { Ok(value) } else { Err(syndrome) }
        }
    };
    let words = [register.read_word(0), register.write_word(1), register.read_word(0)];
    own.checked += 1;
    let answers = words.map(&mut access);
    if !registers::is_right(register, answers.map(Result::ok))
        && access(registers::ALWAYS.read_word(0)).is_ok_and(|value| value != written)
        && access(registers::NEVER.read_word(0)).is_err()
        && words.map(&mut access) == answers
        && sum() == SUM.load(Ordering::Relaxed)
    {
        // The log keeps what is printed last.
        loop {
            say_wrong(register, answers);
            (0..1 << 20).for_each(|_| core::hint::spin_loop());
        }
    }
}

/// Interrupts come in: all of them, and now and then with the end in two steps.
fn set_up(random: &mut Random, number: usize) {
    write(DISTRIBUTOR, 0x12);
    write(DISTRIBUTOR + 0x104, u32::MAX);
    let own = REDISTRIBUTORS + REDISTRIBUTOR_BYTES * number as u64;
    write(own + 0x14, 0);
    write(own + 0x1_0080, u32::MAX);
    write(own + 0x1_0100, u32::MAX);
    for word in (0..32).step_by(4) {
        write(own + 0x1_0400 + word, 0xa0a0_a0a0);
    }
    // SAFETY: registers of the interrupt controller's.
    unsafe {
        asm!("msr icc_sre_el1, {}", "isb", in(reg) 7_u64, options(nostack));
        asm!("msr icc_pmr_el1, {}", in(reg) 0xf0_u64, options(nostack));
        asm!("msr icc_ctlr_el1, {}", in(reg) random.below(2) << 1, options(nostack));
        asm!("msr icc_igrpen1_el1, {}", "isb", in(reg) 1_u64, options(nostack));
    }
}

/// An address that is worth a try: of devices, of nothing, of memory; mostly aligned.
fn address(random: &mut Random) -> u64 {
    let address = match random.below(9) {
        0 | 1 => DISTRIBUTOR + random.below(0x1_0010),
        8 => ITS + its_offset(random),
        2 | 3 => REDISTRIBUTORS + random.below(REDISTRIBUTOR_BYTES * MAX_VCPUS as u64),
        4 => UART + random.below(0x1100),
        5 => FREE + random.below(FREE_BYTES),
        6 => random.next() >> random.below(64),
        _ => {
            let edges =
                [0, 0x0a00_0000, 0x3fff_fff8, UART - 8, 1 << 39, (1 << 40) - 8, 1 << 47, !7];
            random.one_of(&edges)
        }
    };
    if random.once_in(4) { address } else { address & !7 }
}

/// Anywhere in the frames of the ITS, or a register of theirs.
fn its_offset(random: &mut Random) -> u64 {
    const REGISTERS: [u64; 8] = [0, 8, 0x80, 0x88, 0x90, 0x100, 0x108, 0x1_0040];
    if random.once_in(2) { random.below(ITS_BYTES + 8) } else { random.one_of(&REGISTERS) }
}

/// One episode: what ends it is an exception, or its own end.
fn episode(own: &mut Own) {
    let number = number();
    if own.episodes % 256 == 255 {
        say(b"guest: vCPU ");
        say_number(number as u64);
        say(b" is done with ");
        say_number(own.episodes + 1);
        say(b" episodes, and has checked the answers of ");
        say_number(own.checked);
        say(b" registers\r\n");
    }
    let random = &mut own.random;
    if own.episodes.is_multiple_of(64) {
        set_up(random, number);
    }
    own.episodes += 1;
    let (exceptions, moment) = (random.below(32) + 1, random.below(100_000));
    // SAFETY: how many exceptions it may have, and how long it may take, whatever the last one has masked.
    unsafe {
        asm!("msr icc_pmr_el1, {}", in(reg) 0xf0_u64, options(nostack));
        asm!("msr icc_igrpen1_el1, {}", "isb", in(reg) 1_u64, options(nostack));
        asm!("msr tpidr_el1, {}", in(reg) exceptions, options(nostack));
        asm!("msr cntv_tval_el0, {}", in(reg) moment, options(nostack));
        asm!("msr cntv_ctl_el0, {}", "isb", "msr daifclr, #6", in(reg) 1_u64, options(nostack));
    }

    let mut registers = [0; 16];
    registers.fill_with(|| address(random));
    let kind = loop {
        let kind = random.below(21);
        if KINDS.load(Ordering::Relaxed) >> kind & 1 == 1 {
            break kind;
        }
    };
    let words = 1 + random.below(24) as usize;
    let mut at_el0 = false;
    match kind {
        0..=3 => fill(&mut own.code, words, || code::system(random).unwrap_or(RET)),
        4..=6 => fill(&mut own.code, words, || code::transfer(random)),
        7 | 8 => {
            fill(&mut own.code, 1, || code::call(random));
            registers[0] = function(random, number);
        }
        9 => {
            storm(random, number, &mut registers);
            fill(&mut own.code, 1, || 0xd400_0002);
        }
        10 => {
            // To all vCPUs, and to many that do not exist.
            registers[2] = random.next() & 0x00ff_01ff_0fff_ffff;
            fill(&mut own.code, words, || random.one_of(&[0xd518_cba2, 0xd518_cbc2, 0xd518_cbe2]));
        }
        11 => fill(&mut own.code, words.min(3), || code::hint(random)),
        12 => {
            own_tables(random, &mut own.table.0);
            registers[1] = random.below(512) << 30 | random.below(1 << 30) & !7;
            fill(&mut own.code, words, || code::transfer(random));
        }
        13 => fill(&mut own.code, words, || code::any(random)),
        14 => {
            at_el0 = true;
            let mut any = || match random.below(3) {
                0 => code::system(random).unwrap_or(RET),
                1 => code::transfer(random),
                _ => code::any(random),
            };
            fill(&mut own.code, words, &mut any);
        }
        15 => {
            let page = FREE + (random.below(FREE_BYTES) & !0xfff);
            // SAFETY: memory that nothing is in.
            unsafe { with_exposed_provenance_mut::<u64>(page as usize).write_volatile(page) };
            fill(&mut own.code, words, || code::transfer(random));
            registers[1] = page;
        }
        16 | 17 => return check(own),
        // Mostly by one of them: where several drive it, it hardly ever works.
        _ if number == 0 || random.once_in(16) => {
            // The timer does not end this one.
            // SAFETY: the guest's own timer.
            unsafe { asm!("msr cntv_ctl_el0, xzr", "isb", options(nostack)) };
            if kind != 19 {
                // SAFETY: memory that nothing of its own lies in.
                let news = unsafe { devices::drive(random, VIRTIO, FREE, FREE_BYTES) };
                return news.map_or((), |(name, used)| say_chains(name, used));
            }
            // Nor do the LPIs that it sends.
            // SAFETY: how many exceptions it may have.
            unsafe { asm!("msr tpidr_el1, {}", in(reg) 0x100_u64, options(nostack)) };
            let code = own.code.as_ptr() as u64;
            (0..8).for_each(|_| its::drive(random, FREE, code));
            return its::tell();
        }
        _ => return,
    }
    let code = own.code.as_ptr();
    if at_el0 {
        // EL0 of 64 bits, of 32, and Thumb; everything else as it falls.
        let state = random.one_of(&[0, 0, 0x10, 0x30]) | random.next() & 0xf000_0000;
        // SAFETY: whatever happens ends in an exception.
        unsafe { descend(registers.as_ptr(), code, state) };
    }
    // SAFETY: whatever happens ends here, or in an exception.
    unsafe { execute(registers.as_ptr(), code) };
}

/// Writes code, and has it be seen.
fn fill(code: &mut [u32; 64], words: usize, mut word: impl FnMut() -> u32) {
    for place in &mut code[..words] {
        *place = word();
    }
    code[words] = RET;
    for line in code.chunks(4) {
        // SAFETY: cleans and invalidates what was written.
        unsafe {
            asm!("dc cvau, {0}", "dsb ish", "ic ivau, {0}", in(reg) line.as_ptr(), options(nostack));
        };
    }
    // SAFETY: a barrier.
    unsafe { asm!("dsb ish", "isb", options(nostack)) };
}

/// A function to call: not the end of this VM, hardly its reset, and not that of the first vCPU, which keeps it going.
fn function(random: &mut Random, number: usize) -> u64 {
    let function = match random.below(4) {
        0 | 1 => PSCI | random.below(2) << 30 | random.below(0x20),
        2 => 0x8000_0000 | random.below(0x80) << 24 | random.below(0x10),
        _ => random.next(),
    };
    match function & !(1 << 30) {
        0x8400_0002 if number == 0 => PSCI,
        0x8400_0008 => PSCI,
        0x8400_0009 | 0x8400_0012 if !random.once_in(100) => PSCI,
        _ => function,
    }
}

/// Turns vCPUs on and off.
fn storm(random: &mut Random, number: usize, registers: &mut [u64; 16]) {
    if number != 0 && random.once_in(8) {
        registers[0] = PSCI | 2;
        return;
    }
    registers[0] = random.one_of(&[0xc400_0003, 0xc400_0003, 0xc400_0004]);
    registers[1] = if random.once_in(16) { random.next() } else { random.below(MAX_VCPUS as u64) };
    registers[2] =
        if random.once_in(128) { address(random) } else { secondary as *const () as u64 };
    registers[3] = 0;
}

/// Tables of its own: the first two GiB as they are, all else by entries of any kind, with tables in devices and
/// nowhere.
fn own_tables(random: &mut Random, table: &mut [u64; 512]) {
    table[0] = 0x405;
    table[1] = 0x4000_0701;
    // The MMU may be on by it since the last episode: where this runs is not touched.
    for entry in &mut table[2..] {
        let attributes = random.next() & 0xffe0_0000_0000_0ffc;
        *entry = attributes | random.below(4) | address(random) & 0xff_ffff_f000;
    }
    let control = 0x19 | random.below(16) << 8 | random.below(4) << 12 | 1 << 23 | 2 << 32;
    let caches = 0x30d0_0801 | random.below(2) << 2 | random.below(2) << 12;
    // SAFETY: where this runs stays as it is.
    unsafe {
        asm!(
            "msr mair_el1, {mair}", "msr tcr_el1, {tcr}", "msr ttbr0_el1, {table}", "isb",
            "tlbi vmalle1", "dsb sy", "msr sctlr_el1, {caches}", "isb",
            mair = in(reg) 0x04ff_u64, tcr = in(reg) control, table = in(reg) table.as_ptr(),
            caches = in(reg) caches, options(nostack),
        );
    }
}
