//! A driver of the ITS that does as it likes: mostly as the manual says (Arm IHI 0069, chapters 5 and 12), so that what is
//! wrong is found late. Now and then its queue and its tables are in devices, where no memory is, in its own code, or in
//! each other.

use core::arch::asm;
use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::said::{UART, say, say_number};
use mayfly_guests::wild::random::Random;

pub(crate) const ITS: u64 = 0x0808_0000;
/// Both of its frames.
pub(crate) const ITS_BYTES: u64 = 0x2_0000;
const CTLR: u64 = 0x0;
const CBASER: u64 = 0x80;
const CWRITER: u64 = 0x88;
const DEVICE_TABLE: u64 = 0x100;
const COLLECTION_TABLE: u64 = 0x108;
/// `GITS_TRANSLATER`.
const TRANSLATER: u64 = 0x1_0040;

const REDISTRIBUTORS: u64 = 0x080a_0000;
const REDISTRIBUTOR_BYTES: u64 = 0x2_0000;
const PROPERTY_TABLE: u64 = 0x70;
const PENDING_TABLE: u64 = 0x78;
/// LPIs are turned off, and the table is not written yet.
const IS_BUSY: u32 = 1 << 3;

/// Where this VM's memory ends.
const MEMORY_END: u64 = 0x4400_0000;

const VALID: u64 = 1 << 63;
const ADDRESS: u64 = 0xf_ffff_ffff_f000;
/// Numbers of interrupts have 14 bits.
const NUMBER_BITS: u64 = 13;
const FIRST: u64 = 8192;
const LPIS: u64 = 128;
/// Few enough that an event that is sent is mostly one that is mapped.
const DEVICES: u64 = 2;
const EVENTS: u64 = 8;
const VCPUS: u64 = 4;

/// How many LPIs were taken, by all vCPUs; some of those that come at once are not counted.
pub(crate) static TAKEN: AtomicU64 = AtomicU64::new(0);

/// How many it has said that were taken.
static SAID: AtomicU64 = AtomicU64::new(0);

/// Says how many LPIs were taken, whenever they are twice as many.
pub(crate) fn tell() {
    let taken = TAKEN.load(Ordering::Relaxed);
    if taken > 2 * SAID.load(Ordering::Relaxed) {
        SAID.store(taken, Ordering::Relaxed);
        say(b"guest: LPIs that were taken: ");
        say_number(taken);
        say(b"\r\n");
    }
}

/// Where the queue and the tables are, if nothing else is chosen.
struct Places {
    queue: u64,
    properties: u64,
    pending: u64,
    own: u64,
    /// This guest's code.
    code: u64,
}

/// Drives the ITS, with its queue and its tables in the MiB of memory at `memory`. Interrupts are let in once, at the end:
/// their handler changes registers that this code uses. They are masked afterwards.
pub(crate) fn drive(random: &mut Random, memory: u64, code: u64) {
    // SAFETY: masks interrupts.
    unsafe { asm!("msr daifset, #2", options(nostack)) };
    let places = Places {
        queue: memory,
        properties: memory + 0x2_0000,
        pending: memory + 0x4_0000,
        own: memory + 0x8_0000,
        code,
    };
    if random.once_in(16) {
        begin(random, &places);
    }
    for _ in 0..8 {
        let enabled = u64::from(!random.once_in(4));
        store8(places.properties + random.below(LPIS), random.next() & !1 | enabled);
    }
    queue(random, &places, command);
    if random.once_in(8) {
        store32(ITS + TRANSLATER, random.next());
    }
    if random.once_in(16) {
        store32(redistributor(random.below(VCPUS)), random.below(2));
    }
    if random.once_in(32) {
        store32(ITS + CTLR, random.below(2));
    }
    // SAFETY: what is pending is taken here, whose handler changes these registers.
    unsafe {
        asm!("msr daifclr, #2", "isb", "msr daifset, #2", out("x16") _, out("x17") _, out("x18") _);
    }
}

/// Begins anew: everything is turned off, has memory, and is turned on. The devices are mapped, and a collection for each
/// vCPU.
fn begin(random: &mut Random, places: &Places) {
    store32(ITS + CTLR, wild(random, 0));
    let pages = random.below(2) * random.below(256);
    let at = place(random, places, places.queue);
    store64(ITS + CBASER, wild(random, VALID | at | pages));
    for register in [DEVICE_TABLE, COLLECTION_TABLE] {
        let table = place(random, places, places.own);
        store64(ITS + register, wild(random, VALID | table));
    }
    for vcpu in 0..VCPUS {
        let own = redistributor(vcpu);
        store32(own, 0);
        for _ in 0..random.below(1000) {
            if load32(own) & IS_BUSY == 0 {
                break;
            }
        }
        let properties = place(random, places, places.properties);
        store64(own + PROPERTY_TABLE, wild(random, properties | NUMBER_BITS));
        let is_zero = random.below(2) << 62;
        let table = place(random, places, places.pending + 0x1_0000 * vcpu);
        store64(own + PENDING_TABLE, wild(random, table | is_zero));
        store32(own, wild(random, 1));
    }
    store32(ITS + CTLR, wild(random, 1));
    let mut number = 0;
    queue(random, places, |random, places| {
        number += 1;
        let (device, vcpu) = ((number / 2 % DEVICES) << 32, number / 2 % VCPUS);
        let words = match number % 2 {
            0 => [8 | device, 7, VALID | place(random, places, places.own), 0],
            _ => [9, 0, VALID | vcpu << 16 | vcpu, 0],
        };
        words.map(|word| wild(random, word))
    });
}

/// Puts commands into the queue where that is memory that nothing else is in, and says that there are some.
fn queue(
    random: &mut Random,
    places: &Places,
    mut command: impl FnMut(&mut Random, &Places) -> [u64; 4],
) {
    let (register, queued) = (load64(ITS + CBASER), load64(ITS + CWRITER) & 0xf_ffe0);
    let (at, bytes) = (register & ADDRESS, ((register & 0xff) + 1) << 12);
    let mut end = queued;
    for _ in 0..2 * VCPUS + random.below(12) {
        if at == places.queue {
            // The queue may be larger than the memory that is for it.
            let start = at + end % 0x2_0000;
            for (offset, word) in (0..).step_by(8).zip(command(random, places)) {
                store64(start + offset, word);
            }
        }
        end = (end + 32) % bytes;
    }
    store64(ITS + CWRITER, wild(random, end));
}

/// A command, mostly with numbers that there are.
fn command(random: &mut Random, places: &Places) -> [u64; 4] {
    let (device, event) = (random.below(DEVICES) << 32, random.below(EVENTS));
    let (collection, vcpu) = (random.below(VCPUS), random.below(VCPUS));
    let valid = u64::from(!random.once_in(8)) << 63;
    let words = match random.below(20) {
        0 => [8 | device, 7, valid | place(random, places, places.own), 0],
        2 => [9, 0, valid | vcpu << 16 | collection, 0],
        1 | 3..=6 => [0xa | device, (FIRST + random.below(LPIS)) << 32 | event, collection, 0],
        7 => [0xb | device, FIRST + random.below(LPIS), collection, 0],
        8 => [1 | device, event, collection, 0],
        9 => [0xe, 0, vcpu << 16, collection << 16],
        10 => [0xf | device, event, 0, 0],
        11 => [4 | device, event, 0, 0],
        12 => [0xc | device, event, 0, 0],
        13 => [0xd, 0, collection, 0],
        14 => [5, 0, vcpu << 16, 0],
        _ => [3 | device, event, 0, 0],
    };
    words.map(|word| wild(random, word))
}

/// `usual`, or now and then where no table should be.
fn place(random: &mut Random, places: &Places, usual: u64) -> u64 {
    if !random.once_in(16) {
        return usual;
    }
    let others = [
        places.queue,
        places.properties,
        places.pending,
        places.code,
        places.queue + (random.below(32 << 20) & !0xfff),
        ITS,
        ITS + 0x1_0000,
        REDISTRIBUTORS,
        UART,
        0x0a00_0000,
        0,
        MEMORY_END - 0x1000,
        MEMORY_END,
        1 << 39,
        ADDRESS,
    ];
    random.one_of(&others)
}

/// `value`, or now and then anything.
fn wild(random: &mut Random, value: u64) -> u64 {
    if random.once_in(128) { random.next() >> random.below(64) } else { value }
}

fn redistributor(vcpu: u64) -> u64 {
    REDISTRIBUTORS + REDISTRIBUTOR_BYTES * vcpu
}

fn load32(at: u64) -> u32 {
    // SAFETY: a register of the interrupt controller's.
    unsafe { with_exposed_provenance::<u32>(at as usize).read_volatile() }
}

fn load64(at: u64) -> u64 {
    // SAFETY: a register of the interrupt controller's.
    unsafe { with_exposed_provenance::<u64>(at as usize).read_volatile() }
}

fn store8(at: u64, value: u64) {
    // SAFETY: memory that nothing else is in.
    unsafe { with_exposed_provenance_mut::<u8>(at as usize).write_volatile(value as u8) };
}

fn store32(at: u64, value: u64) {
    // SAFETY: a register of the interrupt controller's.
    unsafe { with_exposed_provenance_mut::<u32>(at as usize).write_volatile(value as u32) };
}

fn store64(at: u64, value: u64) {
    // SAFETY: a register of the interrupt controller's, or memory that nothing else is in.
    unsafe { with_exposed_provenance_mut::<u64>(at as usize).write_volatile(value) };
}
