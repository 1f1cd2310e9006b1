//! Addresses that are wider than a processor's.

use std::sync::Arc;

use mayfly_machine::walk::{Cause, WalkFault};
use mayfly_machine::{Arena, Hardware, Processors};
use mayfly_platform::address::{Gfn, Pfn};
use mayfly_stage2::{Arm, Ept, Format, Leaf, Level, Npt, Permissions, Sv39x4};

use crate::tables::Table;
use crate::{ALL, READ, VMID, WRITE};

const PAGE: Gfn = Gfn::new(3);

/// A processor of the sizes of many a Cortex-A: 40 bits of physical address; and 36 of guest physical address.
fn hardware() -> Hardware {
    let processors = Processors { pa_bits: 40, ipa_bits: Some(36), ..Processors::default() };
    Hardware::with_processors(Arc::new(Arena::new(64).unwrap()), processors)
}

/// The first frame that has no address there.
const PAST: Pfn = Pfn::new(1 << (40 - 12));

/// What a walk for such an access to `gfn` comes to, of which the TLB has nothing yet, with the root in frame `top`.
fn walks<F: Format>(
    hardware: &Hardware,
    top: Pfn,
    gfn: Gfn,
    access: Permissions,
) -> Result<Pfn, WalkFault> {
    let mut cpu = hardware.tlbs().cpu();
    let mut guest = cpu.enter_guest(top, VMID);
    guest.translate::<F>(hardware.arena(), gfn, access).map(|found| found.pfn)
}

fn too_wide(level: Level) -> Result<Pfn, WalkFault> {
    Err(WalkFault { level, cause: Cause::AddressSize })
}

fn frames_past_the_processor_fault<F: Format>() {
    let hardware = hardware();
    let table = Table::<F>::new(hardware.arena());
    let walk = |access| walks::<F>(&hardware, table.top, PAGE, access);
    // The last frame that has an address, and the first that has none, whatever the leaf would allow.
    let last = Pfn::new(PAST.get() - 1);
    table.map(PAGE, Level::PAGE, Leaf::new(last, ALL));
    assert_eq!(walk(READ), Ok(last), "{}", F::NAME);
    table.map(PAGE, Level::PAGE, Leaf::new(PAST, READ));
    assert_eq!([walk(READ), walk(WRITE)], [too_wide(Level::PAGE); 2], "{}", F::NAME);
    // A table, and a block.
    table.lead(PAGE, Level::MIB2, PAST);
    assert_eq!(walk(READ), too_wide(Level::MIB2), "{}", F::NAME);
    table.map(PAGE, Level::MIB2, Leaf::new(PAST, ALL));
    assert_eq!(walk(READ), too_wide(Level::MIB2), "{}", F::NAME);
    // The root itself.
    assert_eq!(walks::<F>(&hardware, PAST, PAGE, READ), too_wide(F::TOP), "{}", F::NAME);
}

#[test]
fn a_table_or_a_leaf_past_the_physical_addresses_is_an_address_size_fault() {
    frames_past_the_processor_fault::<Arm<48>>();
    frames_past_the_processor_fault::<Ept>();
    frames_past_the_processor_fault::<Npt>();
    frames_past_the_processor_fault::<Sv39x4>();
}

#[test]
fn an_address_size_fault_is_remembered_by_no_tlb() {
    let hardware = hardware();
    let table = Table::<Arm<40>>::new(hardware.arena());
    let mut cpu = hardware.tlbs().cpu();
    let mut guest = cpu.enter_guest(table.top, VMID);
    table.map(PAGE, Level::PAGE, Leaf::new(PAST, ALL));
    let fault = guest.translate::<Arm<40>>(hardware.arena(), PAGE, READ).unwrap_err();
    assert_eq!(fault.cause, Cause::AddressSize);
    table.map(PAGE, Level::PAGE, Leaf::new(Pfn::new(9), ALL));
    assert!(guest.translate::<Arm<40>>(hardware.arena(), PAGE, READ).is_ok());
}

#[test]
fn past_the_guest_physical_addresses_there_is_nothing_whatever_the_tables_say() {
    fn check<F: Format>() {
        let hardware = hardware();
        let table = Table::<F>::new(hardware.arena());
        let (last, past) = (Gfn::new((1 << (36 - 12)) - 1), Gfn::new(1 << (36 - 12)));
        for gfn in [last, past] {
            table.map(gfn, Level::PAGE, Leaf::new(Pfn::new(9), ALL));
        }
        let walk = |gfn| walks::<F>(&hardware, table.top, gfn, READ);
        let absent = Err(WalkFault { level: F::TOP, cause: Cause::Absent });
        assert_eq!([walk(last), walk(past)], [Ok(Pfn::new(9)), absent], "{}", F::NAME);
    }
    check::<Arm<40>>();
    check::<Ept>();
    check::<Sv39x4>();
}
