//! The slots, and what either VM does in them.
//!
//! `entry.rs` and `course.rs` import each other: the first instructions lead here.

use core::cell::UnsafeCell;
use core::ptr::with_exposed_provenance;

use mayfly_arm64_registers::sysreg::{self, SysReg};
use mayfly_arm64_registers::table::{self, Treatment};

use crate::cases::{self, Case};
use crate::clock;
use crate::console::{power_off, say};
use crate::exempt;
use crate::steps::{self, Level, REGISTERS, Wait, nothing, read, turn, write};

const PATTERN: u64 = 0xa5c3_5a3c_c33c_55aa;
const LEVELS: [Level; 2] = [Level::El1, Level::El0];
/// More differences are counted, and not printed.
const PRINTED: usize = 20;
/// In ticks: how long the first VM may take to write to all registers, and the second one to read them.
const FLOOD: u64 = 1 << 26;

/// What each register says at each level before the first slot, where it can be read there.
struct Before(UnsafeCell<[[Option<u64>; REGISTERS]; 2]>);

// SAFETY: the guest has one vCPU.
unsafe impl Sync for Before {}

static BEFORE: Before = Before(UnsafeCell::new([[None; REGISTERS]; 2]));

fn before(level: Level, number: usize) -> Option<u64> {
    // SAFETY: it is written by `probe` alone, which is over.
    unsafe { (&*BEFORE.0.get())[level as usize][number] }
}

/// Reads everything at either level, and compares it with the table.
fn probe() {
    for level in LEVELS {
        for (number, register) in SysReg::all().enumerate() {
            let found = turn(level, (nothing(), 0), Wait::None, (read(number), 0)).read();
            // SAFETY: nothing else has it.
            unsafe { (&mut *BEFORE.0.get())[level as usize][number] = found };
            let wrong = match table::treatment(register) {
                Treatment::Hidden => found.is_some() && !exempt::is_shown(register),
                Treatment::Reads(value) | Treatment::Ignores(value) => {
                    found.is_some_and(|found| found != value)
                }
                _ => false,
            };
            if wrong {
                let (name, found) = (name(register), found.unwrap_or(0));
                say!("guest: FAILED: {name} ({register}) reads as {found:#x} at {level}");
            }
        }
    }
}

/// Instructions of features that are hidden are undefined; breakpoints and watchpoints hit while they are on. The first
/// instruction that uses a key of pointer authentication is there where the key is.
fn check_instructions() {
    let used = turn(Level::El1, (cases::uses_key(), 0), Wait::None, (nothing(), 0));
    let key = turn(Level::El1, (nothing(), 0), Wait::None, (cases::reads_key(), 0)).read();
    match key {
        Some(0) | None if used.first_undefined == key.is_none() => {}
        _ => say!("guest: FAILED: PACGA, undefined: {}; its key: {key:x?}", used.first_undefined),
    }
    for (name, code) in cases::hidden() {
        let outcome = turn(Level::El1, (code, 0), Wait::None, (nothing(), 0));
        if !outcome.first_undefined {
            say!("guest: FAILED: {name} is not undefined");
        }
    }
    for (name, code, class) in cases::watched() {
        // After a switch, too: the guest sleeps in between.
        let sleep = Wait::Asleep(clock::now() + 2 * clock::half(None));
        turn(Level::El1, (cases::watches(), 0), sleep, (nothing(), 0));
        let syndrome = turn(Level::El1, (code, 0), Wait::None, (cases::syndrome(), 0));
        if !syndrome.first_undefined || syndrome.value >> 26 != class {
            say!("guest: FAILED: {name} was not hit: ESR_EL1 {:#x}", syndrome.value);
        }
        turn(Level::El1, (cases::watches_nothing(), 0), Wait::None, (nothing(), 0));
        if turn(Level::El1, (code, 0), Wait::None, (nothing(), 0)).first_undefined {
            say!("guest: FAILED: {name} was hit that is off");
        }
    }
}

fn name(register: SysReg) -> &'static str {
    table::row(register).map_or("a register that the table does not list", |row| row.name)
}

/// What is compared.
#[derive(Clone, Copy)]
enum What {
    Register(SysReg, Level),
    /// After all were written.
    Flooded(SysReg, Level),
    Case(&'static str),
}

impl core::fmt::Display for What {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            Self::Register(register, level) => {
                write!(f, "{} ({register}) at {level}", name(register))
            }
            Self::Flooded(register, level) => {
                write!(f, "{} ({register}) at {level}, after all were written,", name(register))
            }
            Self::Case(name) => f.write_str(name),
        }
    }
}

/// A VM that was not in time, so that the CPU may not have switched between the VMs.
#[derive(Default)]
struct Late {
    first: Option<(What, u64)>,
    ticks: u64,
    count: u64,
}

impl Late {
    fn check(&mut self, what: What, now: u64, bound: u64) {
        if now > bound {
            self.count += 1;
            self.ticks = self.ticks.max(now - bound);
            self.first.get_or_insert((what, now - bound));
        }
    }

    fn say(&self) {
        let Self { ticks, count, .. } = self;
        if let Some((first, by)) = self.first {
            say!(
                "guest: FAILED: it was late {count} times, by up to {ticks} ticks, first for {first} by {by}"
            );
        }
    }
}

/// A slot.
struct Slot {
    level: Level,
    number: usize,
    register: SysReg,
    pattern: u64,
    at: u64,
    half: u64,
}

impl Slot {
    fn end(&self) -> u64 {
        self.at + 2 * self.half
    }
}

/// What either VM does.
trait Side {
    fn slot(&mut self, slot: &Slot);
    fn case(&mut self, case: &Case, pattern: u64, at: u64, half: u64);
    /// From `at` on, for [`FLOOD`], the first VM writes to all registers; for as long, the second one reads them.
    fn flood(&mut self, pattern: u64, at: u64);
    fn ends(&self);
}

/// The first VM.
#[derive(Default)]
struct Writes {
    /// At each level: written, read, undefined, excluded.
    counts: [[u64; 4]; 2],
    /// Registers that could be written, and are hidden. What is printed in a slot would take all of its time.
    shown: [Option<(SysReg, Level)>; PRINTED],
    shown_count: usize,
    late: Late,
}

impl Side for Writes {
    fn slot(&mut self, slot: &Slot) {
        self.late.check(
            What::Register(slot.register, slot.level),
            clock::now(),
            slot.at + slot.half / 2,
        );
        let (level, number) = (slot.level, slot.number);
        let value = slot.pattern & exempt::harmless(slot.register);
        let kept = turn(level, (nothing(), 0), Wait::None, (read(number), 0)).read();
        let back = kept.map_or((nothing(), 0), |kept| (write(number), kept));
        let wait = Wait::until(slot.end(), exempt::is_timer(slot.register));
        let outcome = turn(level, (write(number), value), wait, back);
        if slot.pattern == PATTERN {
            let class = match (outcome.first_undefined, kept) {
                _ if exempt::is_excluded(slot.register) => 3,
                (false, _) => 0,
                (true, Some(_)) => 1,
                (true, None) => 2,
            };
            self.counts[level as usize][class] += 1;
        }
        let hidden = table::treatment(slot.register) == Treatment::Hidden;
        if hidden && !exempt::is_shown(slot.register) && !outcome.first_undefined {
            if let Some(place) = self.shown.get_mut(self.shown_count) {
                *place = Some((slot.register, level));
            }
            self.shown_count += 1;
        }
    }

    fn case(&mut self, case: &Case, pattern: u64, at: u64, half: u64) {
        let wait = Wait::Asleep(at + 2 * half);
        turn(Level::El1, (case.writes, pattern), wait, (nothing(), 0));
    }

    fn flood(&mut self, pattern: u64, at: u64) {
        for (number, register) in
            SysReg::all().enumerate().filter(|(_, register)| !steers(*register))
        {
            let value = pattern & exempt::harmless(register);
            turn(Level::El1, (write(number), value), Wait::None, (nothing(), 0));
        }
        self.late.check(What::Case("the flood"), clock::now(), at + FLOOD);
        turn(Level::El1, (nothing(), 0), Wait::Asleep(at + 2 * FLOOD), (nothing(), 0));
    }

    fn ends(&self) {
        for level in LEVELS {
            let [written, read, undefined, excluded] = self.counts[level as usize];
            let all = written + read + undefined + excluded;
            say!(
                "guest: of {all} registers, {written} were written at {level}, {read} read, {undefined} are undefined, and {excluded} are excluded"
            );
        }
        for (register, level) in self.shown.into_iter().flatten() {
            let name = name(register);
            say!("guest: FAILED: {name} ({register}) can be written at {level}");
        }
        self.late.say();
    }
}

/// What a VM that writes to all registers would not go on from: its vectors, its stack, its masks, its timer.
fn steers(register: SysReg) -> bool {
    const STEERS: [SysReg; 4] = [
        sysreg::SCTLR_EL1,
        SysReg::new(3, 0, 12, 0, 0), // VBAR_EL1
        SysReg::new(3, 0, 4, 2, 0),  // SPSel
        SysReg::new(3, 3, 4, 2, 1),  // DAIF
    ];
    STEERS.contains(&register) || exempt::is_timer(register)
}

/// The second VM.
#[derive(Default)]
struct Reads {
    compared: u64,
    differ: usize,
    differences: [Option<Difference>; PRINTED],
    late: Late,
}

/// A value that is not as before.
struct Difference {
    what: What,
    found: Option<u64>,
    expected: Option<u64>,
}

impl Reads {
    fn compare(&mut self, what: What, found: Option<u64>, expected: Option<u64>) {
        self.compared += 1;
        if found != expected {
            if let Some(place) = self.differences.get_mut(self.differ) {
                *place = Some(Difference { what, found, expected });
            }
            self.differ += 1;
        }
    }
}

impl Side for Reads {
    fn slot(&mut self, slot: &Slot) {
        let wait = Wait::until(slot.at + slot.half, exempt::is_timer(slot.register));
        let outcome = turn(slot.level, (nothing(), 0), wait, (read(slot.number), 0));
        self.late.check(
            What::Register(slot.register, slot.level),
            outcome.ended,
            slot.end() - slot.half / 4,
        );
        if !exempt::is_excluded(slot.register) {
            let what = What::Register(slot.register, slot.level);
            self.compare(what, outcome.read(), before(slot.level, slot.number));
        }
    }

    fn case(&mut self, case: &Case, _: u64, at: u64, half: u64) {
        let expected = case.expected.or_else(|| {
            turn(Level::El1, (nothing(), 0), Wait::None, (case.reads, case.own)).read()
        });
        let (first, second) = ((case.prepares, case.own), (case.reads, case.own));
        let outcome = turn(Level::El1, first, Wait::Asleep(at + half), second);
        turn(Level::El1, (nothing(), 0), Wait::Asleep(at + 2 * half), (nothing(), 0));
        self.late.check(What::Case(case.name), outcome.ended, at + 2 * half - half / 4);
        self.compare(What::Case(case.name), outcome.read(), expected);
    }

    fn flood(&mut self, _: u64, at: u64) {
        turn(Level::El1, (nothing(), 0), Wait::Asleep(at + FLOOD), (nothing(), 0));
        for level in LEVELS {
            for (number, register) in SysReg::all().enumerate() {
                let found = turn(level, (nothing(), 0), Wait::None, (read(number), 0)).read();
                if !exempt::is_excluded(register) {
                    let what = What::Flooded(register, level);
                    self.compare(what, found, before(level, number));
                }
            }
        }
        self.late.check(What::Case("the flood"), clock::now(), at + 2 * FLOOD);
        turn(Level::El1, (nothing(), 0), Wait::Asleep(at + 2 * FLOOD), (nothing(), 0));
    }

    fn ends(&self) {
        let Self { compared, differ, .. } = self;
        for Difference { what, found, expected } in self.differences.iter().flatten() {
            say!("guest: FAILED: {what} is {found:x?}, and was {expected:x?}");
        }
        say!("guest: of {compared} values, {differ} were not as before");
        self.late.say();
    }
}

fn run(side: &mut dyn Side, epoch: u64, readable_alone: bool) {
    turn(Level::El1, (nothing(), 0), Wait::Asleep(epoch), (nothing(), 0));
    let mut at = epoch;
    for level in LEVELS {
        for (number, register) in SysReg::all().enumerate() {
            if readable_alone && before(level, number).is_none() {
                continue;
            }
            let half = clock::half(Some(register));
            for pattern in [PATTERN, !PATTERN] {
                side.slot(&Slot { level, number, register, pattern, at, half });
                at += 2 * half;
            }
        }
    }
    let half = clock::half(None);
    for case in &cases::all() {
        for pattern in [PATTERN, !PATTERN] {
            side.case(case, pattern, at, half);
            at += 2 * half;
        }
    }
    for pattern in [PATTERN, !PATTERN] {
        side.flood(pattern, at);
        at += 2 * FLOOD;
    }
    side.ends();
}

pub(crate) extern "C" fn main(tree: usize) -> ! {
    let epoch = clock::epoch();
    // SAFETY: a device tree is where the boot protocol says, and its second word is how long it is.
    let tree: &[u8] = unsafe {
        let bytes = with_exposed_provenance::<u32>(tree + 4).read();
        core::slice::from_raw_parts(with_exposed_provenance(tree), u32::from_be(bytes) as usize)
    };
    let asks = |word: &[u8]| tree.windows(word.len()).any(|window| window == word);
    steps::prepare();
    cases::prepare();
    check_instructions();
    probe();
    if clock::now() > epoch {
        say!("guest: FAILED: it has begun too late");
    }
    let readable_alone = asks(b"slots=readable");
    if asks(b"census=writes") {
        run(&mut Writes::default(), epoch, readable_alone);
    } else if asks(b"census=reads") {
        run(&mut Reads::default(), epoch, readable_alone);
    } else {
        say!("guest: FAILED: nothing is asked");
    }
    power_off()
}
