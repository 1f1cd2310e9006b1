use std::sync::Arc;

use mayfly_memslot::{AddressSpace, Flags, Gfn, Gpa, Hva, MemSlots, PAGE_SIZE, Region, SlotId};
use mayfly_platform::{Host, Platform};
use mayfly_srcu::{Config, Limits, Srcu};

pub(crate) const MAIN: AddressSpace = AddressSpace::Main;
pub(crate) const NONE: Flags = Flags::empty();
pub(crate) const LOG: Flags = Flags::LOG_DIRTY_PAGES;

pub(crate) fn domain() -> (Arc<dyn Platform>, Srcu) {
    domain_within(Limits::default())
}

fn domain_within(limits: Limits) -> (Arc<dyn Platform>, Srcu) {
    // Miri does not know `membarrier`.
    let host: Arc<dyn Platform> = Arc::new(if cfg!(miri) { Host::fenced() } else { Host::new() });
    let config = Config { limits, ..Config::default() };
    let domain = Srcu::try_new(Arc::clone(&host), config).unwrap();
    (host, domain)
}

pub(crate) fn slots() -> (Srcu, MemSlots<Hva>) {
    slots_within(Limits::default())
}

/// Slots whose domain has these bounds.
pub(crate) fn slots_within(limits: Limits) -> (Srcu, MemSlots<Hva>) {
    let (host, domain) = domain_within(limits);
    let slots = MemSlots::try_new(host, &domain).unwrap();
    (domain, slots)
}

/// Slot `index` of `pages` pages at guest frame `gfn`, backed from host page `page` on.
pub(crate) fn region(index: u16, gfn: u64, pages: u64, page: u64) -> Region<Hva> {
    Region {
        slot: SlotId::main(index),
        flags: NONE,
        gpa: Gpa::new(gfn * PAGE_SIZE),
        size: pages * PAGE_SIZE,
        backing: hva(page),
    }
}

pub(crate) fn hva(page: u64) -> Hva {
    Hva::new(page * PAGE_SIZE)
}

/// The index of the slot that has `gfn`.
pub(crate) fn found(slots: &MemSlots<Hva>, domain: &Srcu, gfn: u64) -> Option<u16> {
    let section = domain.read_lock();
    slots.load(MAIN, &section).find(Gfn::new(gfn)).map(|slot| slot.id().index)
}

pub(crate) fn generation(slots: &MemSlots<Hva>, domain: &Srcu) -> u64 {
    slots.load(MAIN, &domain.read_lock()).generation()
}
