//! What either VM does, from its first instruction on.

use core::cell::UnsafeCell;
use core::ptr::addr_of;

use x86_64::instructions::port::Port;

use super::values::{PATTERNS, Values, shows};
use super::{found, msrs, ports, registers};
use crate::kernel::console::say;
use crate::kernel::entry::{arguments, number};
use crate::kernel::power::stop;
use crate::kernel::tried::prepare;

/// How often the second VM lets the first have the processor, unless the command line says `turns=`.
const TURNS: u64 = 10;
/// More differences are counted, and not printed.
const PRINTED: u32 = 20;
/// The ACPI's sleep control register, and what turns the machine off there.
const POWER: (u16, u8) = (0x600, 0x34);

unsafe extern "C" {
    static began_with: [u64; 16];
}

struct Pair(UnsafeCell<[Values; 2]>);

// SAFETY: there is one flow of control.
unsafe impl Sync for Pair {}

/// What was, and what is.
static VALUES: Pair = Pair(UnsafeCell::new([const { Values::new() }; 2]));

/// From `start.S`, with the address of the command line.
#[unsafe(no_mangle)]
extern "C" fn begin(line: u64) -> ! {
    prepare();
    // SAFETY: nothing else has them.
    let [before, now] = unsafe { &mut *VALUES.0.get() };
    registers::turn_on();
    let line = arguments(line);
    if line.contains("census=writes") {
        writes(before, now)
    }
    reads(before, now, number(line, "turns=").unwrap_or(TURNS));
    // SAFETY: the machine ends by it.
    unsafe { Port::<u8>::new(POWER.0).write(POWER.1) }
    say!("FAILED: it goes on");
    stop()
}

/// The first VM, which has the patterns until it is ended.
fn writes(before: &mut Values, now: &mut Values) -> ! {
    msrs::tell_written();
    let (taken, count) = msrs::tell_taking();
    let taken = &taken[..count];
    ports::write_all();
    say!("it has its patterns from now on");
    let mut printed = 0;
    for pattern in PATTERNS.into_iter().cycle() {
        registers::put(pattern, taken);
        let mut general = [pattern; 16];
        registers::read(before, &general, taken);
        registers::turn(&mut general);
        registers::read(now, &general, taken);
        differences(before, now, &mut printed);
    }
    stop()
}

/// The second VM, which lets the other have the processor so often.
fn reads(before: &mut Values, now: &mut Values, turns: u64) {
    let (listed, count) = msrs::readable();
    let listed = &listed[..count];
    // SAFETY: `start.S` has written them, and nothing does any more.
    let mut general = unsafe { addr_of!(began_with).read() };
    registers::read(before, &general, listed);
    let mut shown = tell_shown(before);
    shown += msrs::tell_read();
    found::tell();
    ports::tell_read();

    general = [0; 16];
    registers::read(before, &general, listed);
    let (mut values, mut differ, mut printed) = (0, 0, 0);
    for _ in 0..turns {
        registers::turn(&mut general);
        registers::read(now, &general, listed);
        values += now.all().len();
        differ += differences(before, now, &mut printed);
        shown += tell_shown(now);
    }
    say!(
        "of {values} values in {turns} turns, {differ} were not as before, and {shown} show the pattern of the other"
    );
}

/// How many are not as they were, which are printed at first.
fn differences(before: &Values, now: &Values, printed: &mut u32) -> u32 {
    let mut count = 0;
    for (was, is) in before.all().iter().zip(now.all()) {
        if was != is {
            count += 1;
            *printed += 1;
            if *printed <= PRINTED {
                say!(
                    "FAILED: {:?} {:#x} is {:#x}, and was {:#x}",
                    is.kind,
                    is.number,
                    is.value,
                    was.value
                );
            }
        }
    }
    count
}

/// How many show the pattern, which are printed.
fn tell_shown(values: &Values) -> u32 {
    let mut count = 0;
    for value in values.all().iter().filter(|value| shows(value.value)) {
        say!("FAILED: {:?} {:#x} shows the pattern: {:#x}", value.kind, value.number, value.value);
        count += 1;
    }
    count
}
