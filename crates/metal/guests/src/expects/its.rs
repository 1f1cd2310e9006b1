//! LPIs, by the commands of the ITS, on the first vCPU and on the second one, if there is one.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::interrupts::{self, DISTRIBUTOR, REDISTRIBUTORS, VCPUS};
use crate::machine::{
    has_word, holds, open, read8, read32, read64, soon, vcpu, wait_for_interrupt, write8, write32,
    write64,
};
use crate::power;

const ITS: usize = 0x0808_0000;
const CTLR: usize = 0x0;
const TYPER: usize = 0x8;
const CBASER: usize = 0x80;
const CWRITER: usize = 0x88;
const CREADR: usize = 0x90;
const DEVICE_TABLE: usize = 0x100;
const COLLECTION_TABLE: usize = 0x108;
const PIDR2: usize = 0xffe8;
/// Of a redistributor.
const PROPERTY_TABLE: usize = 0x70;
const PENDING_TABLE: usize = 0x78;

const VALID: u64 = 1 << 63;
const IS_ZERO: u64 = 1 << 62;
/// Numbers of interrupts have 14 bits.
const NUMBER_BITS: u64 = 13;
/// Enabled; bit 1 is ignored.
const ENABLED: u8 = 0xa3;
const DISABLED: u8 = 0xa2;

/// Memory that nothing else is in: the queue, the table of properties, those of what is pending, and the ITS's own.
const QUEUE: usize = 0x4080_0000;
const QUEUE_BYTES: usize = 0x1000;
const PROPERTIES: usize = QUEUE + 0x1000;
const PENDING: usize = QUEUE + 0x1_0000;
const TABLES: usize = QUEUE + 0x8_0000;

const FIRST: u64 = 8192;
const DEVICE: u64 = 5 << 32;
const EVENTS: usize = 4;

/// How often each LPI was taken on each vCPU.
static TAKEN: [[AtomicU32; EVENTS]; VCPUS] =
    [const { [const { AtomicU32::new(0) }; EVENTS] }; VCPUS];

/// How many LPIs the first vCPU has taken, how many of these were more urgent than the one before, and that one's
/// properties.
static ALL: AtomicU32 = AtomicU32::new(0);
static LATE: AtomicU32 = AtomicU32::new(0);
static LAST: AtomicU32 = AtomicU32::new(0);

/// An LPI has come. Returns whether `number` is one.
pub(crate) fn taken(number: u64) -> bool {
    let Some(lpi) = number.checked_sub(FIRST) else { return false };
    // No read-modify-write: the MMU is off.
    let add = |count: &AtomicU32| {
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    };
    TAKEN[vcpu()].get(lpi as usize).into_iter().for_each(add);
    if vcpu() == 0 {
        let (last, this) = (LAST.load(Ordering::Relaxed), read8(PROPERTIES + lpi as usize));
        add(&ALL);
        if u32::from(this) < last {
            add(&LATE);
        }
        LAST.store(this.into(), Ordering::Relaxed);
    }
    true
}

fn times(vcpu: usize, lpi: usize) -> u32 {
    TAKEN[vcpu][lpi].load(Ordering::Relaxed)
}

fn redistributor(vcpu: usize) -> usize {
    REDISTRIBUTORS + 0x2_0000 * vcpu
}

/// Queues a command, and waits until it is executed; whether it is.
fn execute(words: [u64; 4]) -> bool {
    let at = read64(ITS + CWRITER) as usize;
    for (place, word) in (0..).step_by(8).zip(words) {
        write64(QUEUE + at + place, word);
    }
    let end = ((at + 32) % QUEUE_BYTES) as u64;
    write64(ITS + CWRITER, end);
    soon(|| read64(ITS + CREADR) == end)
}

fn command(words: [u64; 4]) {
    holds!(execute(words), "command {:#x} is executed", words[0] as u8);
}

fn interrupt(event: u64) {
    command([3 | DEVICE, event, 0, 0]);
}

fn set_properties(lpi: usize, byte: u8) {
    write8(PROPERTIES + lpi, byte);
}

/// What the second vCPU does: it takes LPIs until it has had two.
extern "C" fn second() -> ! {
    interrupts::enable();
    open(|| while times(1, 0) + times(1, 1) < 2 {});
    power::off()
}

fn begin(vcpus: usize) {
    holds!(read32(ITS + PIDR2) & 0xf0 == 0x30, "the ITS is one of GICv3");
    holds!(read32(ITS + CTLR) == 1 << 31, "it is off, and quiescent");
    holds!(read64(ITS + TYPER) & 1 == 1, "it has physical LPIs");
    for number in 0..vcpus {
        let own = redistributor(number);
        holds!(read64(own + 8) & 1 == 1, "redistributor {number} has LPIs");
        write64(own + PROPERTY_TABLE, PROPERTIES as u64 | NUMBER_BITS);
        write64(own + PENDING_TABLE, (PENDING + 0x1_0000 * number) as u64 | IS_ZERO);
        write32(own + CTLR, 1);
        holds!(read32(own + CTLR) & 1 == 1, "its LPIs are on");
    }
    write64(ITS + CBASER, VALID | QUEUE as u64);
    for (register, at) in [(DEVICE_TABLE, TABLES), (COLLECTION_TABLE, TABLES + 0x1_0000)] {
        write64(ITS + register, VALID | at as u64);
    }
    write32(ITS + CTLR, 1);
    (0..EVENTS).for_each(|lpi| set_properties(lpi, ENABLED));
    command([8 | DEVICE, 2, VALID | (TABLES + 0x2_0000) as u64, 0]);
    for number in 0..vcpus as u64 {
        command([9, 0, VALID | number << 16 | number, 0]);
    }
    for event in 0..EVENTS as u64 {
        let collection = if event == 1 { vcpus as u64 - 1 } else { 0 };
        command([0xa | DEVICE, (FIRST + event) << 32 | event, collection, 0]);
    }
    command([0xd, 0, 0, 0]);
    command([5, 0, 0, 0]);
}

/// Checks them, if the device tree has an ITS.
pub(crate) fn check(tree: usize) {
    if !has_word(tree, b"arm,gic-v3-its") {
        return;
    }
    let vcpus = if has_word(tree, b"cpu@1\0") { 2 } else { 1 };
    begin(vcpus);
    interrupt(0);
    holds!(times(0, 0) == 0, "an LPI waits until it is taken");
    open(|| holds!(soon(|| times(0, 0) == 1), "an LPI is taken"));
    interrupt(0);
    interrupt(0);
    open(|| holds!(soon(|| times(0, 0) == 2), "one that has come twice is taken"));
    open(|| holds!(times(0, 0) == 2, "once"));

    set_properties(0, DISABLED);
    command([0xc | DEVICE, 0, 0, 0]);
    interrupt(0);
    open(|| holds!(times(0, 0) == 2, "one that is disabled is not taken"));
    set_properties(0, ENABLED);
    command([0xd, 0, 0, 0]);
    open(|| holds!(soon(|| times(0, 0) == 3), "and is taken when it is enabled again"));

    interrupt(2);
    command([4 | DEVICE, 2, 0, 0]);
    open(|| holds!(times(0, 2) == 0, "one that is cleared is not taken"));
    interrupt(2);
    wait_for_interrupt();
    open(|| holds!(soon(|| times(0, 2) == 1), "one that is pending ends a WFI"));
    if vcpus > 1 {
        holds!(power::on(1, second) == 0, "the second vCPU begins");
        interrupt(1);
        holds!(soon(|| times(1, 1) == 1), "the second vCPU takes an LPI");
        command([1 | DEVICE, 0, 1, 0]);
        interrupt(0);
        holds!(soon(|| times(1, 0) == 1), "and one whose event has moved to it");
        holds!(soon(|| power::is_off(1)), "it is off again");
    } else {
        interrupt(1);
        open(|| holds!(soon(|| times(0, 1) == 1), "another LPI is taken"));
    }
    // What is pending is in the guest's table while LPIs are off, and is pending again from there.
    interrupt(3);
    let own = redistributor(0);
    write32(own + CTLR, 0);
    holds!(soon(|| read32(own + CTLR) & 0x9 == 0), "LPIs are turned off");
    holds!(read8(PENDING + FIRST as usize / 8) == 1 << 3, "the table has the pending one");
    open(|| holds!(times(0, 3) == 0, "which is not taken"));
    write32(own + CTLR, 1);
    open(|| holds!(soon(|| times(0, 3) == 1), "and is taken when they are on again"));
    command([0xf | DEVICE, 3, 0, 0]);
    interrupt(3);
    open(|| holds!(times(0, 3) == 1, "an event that is discarded interrupts no more"));
    storm();
}

/// All LPIs that there are, at once.
fn storm() {
    let count = 2 << (read32(DISTRIBUTOR + 4) >> 11 & 0x1f);
    let device = 6 << 32;
    let mut executed = execute([8 | device, 7, VALID | (TABLES + 0x4_0000) as u64, 0]);
    for lpi in 0..count {
        set_properties(lpi as usize, ENABLED & 7 | (lpi as u8 % 29) << 3);
        executed &= execute([0xa | device, (FIRST + lpi) << 32 | lpi, 0, 0]);
    }
    for lpi in 0..count {
        executed &= execute([3 | device, lpi, 0, 0]);
    }
    holds!(executed, "{count} events are mapped, and sent");
    ALL.store(0, Ordering::Relaxed);
    LATE.store(0, Ordering::Relaxed);
    LAST.store(0, Ordering::Relaxed);
    open(|| holds!(soon(|| u64::from(ALL.load(Ordering::Relaxed)) == count), "all are taken"));
    holds!(LATE.load(Ordering::Relaxed) == 0, "the more urgent ones first");
}
