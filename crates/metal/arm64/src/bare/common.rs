//! What all processors of the machine have in common ([`Common`]). A vCPU runs on all of them.
//!
//! Each processor says what it is ([`read`]) when it comes up, and the first processor takes account of that ([`note`]),
//! of one after the other; no guest runs before the last has come.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::cache_type::CacheType;
use crate::controls::Ids;
use crate::counters::Offered;
use crate::errata::Errata;
use crate::id;
use crate::kinds::Kinds;
use crate::processor::{Common, Processor, REGISTERS};
use crate::sysreg::{self, SysReg};

static IDS: [AtomicU64; REGISTERS.len()] = [const { AtomicU64::new(0) }; REGISTERS.len()];
static ERRATA: AtomicU8 = AtomicU8::new(0);
static KINDS: AtomicU32 = AtomicU32::new(0);
static CACHES: AtomicU64 = AtomicU64::new(0);
static HCR: AtomicU64 = AtomicU64::new(0);
static COUNTERS: AtomicUsize = AtomicUsize::new(usize::MAX);
static EVENTS: [AtomicU64; 2] = [const { AtomicU64::new(u64::MAX) }; 2];

/// What this processor says of itself.
pub fn read() -> Processor {
    note_counters();
    Processor {
        ids: [
            crate::read_register!("s3_0_c0_c4_0"),
            crate::read_register!("s3_0_c0_c4_1"),
            crate::read_register!("id_aa64dfr0_el1"),
            crate::read_register!("s3_0_c0_c6_0"),
            crate::read_register!("s3_0_c0_c6_1"),
            crate::read_register!("s3_0_c0_c6_2"),
            crate::read_register!("s3_0_c0_c7_0"),
            crate::read_register!("s3_0_c0_c7_1"),
            crate::read_register!("s3_0_c0_c7_2"),
        ],
        midr: crate::read_register!("midr_el1"),
        ctr: CacheType::new(crate::read_register!("ctr_el0")),
    }
}

/// What counters this processor has: a guest has no more than it.
fn note_counters() {
    let ids = Ids { dfr0: crate::read_register!("id_aa64dfr0_el1"), ..Ids::default() };
    if ids.has_pmu() {
        let counters = crate::read_register!("pmcr_el0") >> 11 & 0x1f;
        COUNTERS.fetch_min(counters as usize, Ordering::Relaxed);
        EVENTS[0].fetch_and(crate::read_register!("pmceid0_el0"), Ordering::Relaxed);
        EVENTS[1].fetch_and(crate::read_register!("pmceid1_el0"), Ordering::Relaxed);
    }
}

/// `processor` is one of the machine's: the `first`, or another. Called by one processor.
pub fn note(first: bool, processor: &Processor) {
    let common = if first { Common::of(processor) } else { load().with(processor) };
    for (word, value) in IDS.iter().zip(common.ids) {
        word.store(value, Ordering::Relaxed);
    }
    ERRATA.store(common.errata.bits(), Ordering::Relaxed);
    KINDS.store(common.kinds.bits(), Ordering::Relaxed);
    CACHES.store(common.caches.bits(), Ordering::Relaxed);
    HCR.store(common.hcr, Ordering::Relaxed);
}

fn load() -> Common {
    Common {
        ids: core::array::from_fn(|place| IDS[place].load(Ordering::Relaxed)),
        errata: errata(),
        kinds: kinds(),
        caches: caches(),
        hcr: hcr(),
    }
}

/// The performance counters that all processors have, where they have some.
pub fn counters() -> Option<Offered> {
    let version = id::counters_version(id_register(sysreg::ID_AA64DFR0_EL1));
    let events = [0, 1].map(|half: usize| EVENTS[half].load(Ordering::Relaxed));
    let count = COUNTERS.load(Ordering::Relaxed);
    (version != 0).then_some(Offered { version, count, events })
}

/// What all processors have of an ID register that guests see something of; 0 for others.
#[inline]
pub fn id_register(register: SysReg) -> u64 {
    let place = REGISTERS.iter().position(|each| *each == register);
    place.map_or(0, |place| IDS[place].load(Ordering::Relaxed))
}

/// The errata that one of the processors has.
#[inline]
pub fn errata() -> Errata {
    Errata::from_bits(ERRATA.load(Ordering::Relaxed))
}

/// The kinds of registers that one of the processors has.
pub(super) fn kinds() -> Kinds {
    Kinds::from_bits(KINDS.load(Ordering::Relaxed))
}

/// What holds of the caches of all processors.
#[inline]
pub(super) fn caches() -> CacheType {
    CacheType::new(CACHES.load(Ordering::Relaxed))
}

/// `HCR_EL2` of guests, without what is one vCPU's or one machine's.
pub(super) fn hcr() -> u64 {
    HCR.load(Ordering::Relaxed)
}
