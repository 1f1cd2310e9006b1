//! What the machine does because manuals allow it, and what it leaves to others when it is not told to.

use std::sync::Arc;

use mayfly_machine::walk::Cause;
use mayfly_machine::{Arena, Hardware, Rigour, Tlbs};
use mayfly_platform::address::{Gfn, Pfn};
use mayfly_platform::sync::AtomicU32;
use mayfly_platform::tlb::{Entries, Scope, Span, Tlb, Vmid};
use mayfly_platform::{Host, Platform};
use mayfly_stage2::{Arm, Ept, Format, Leaf, Level, Npt, Permissions, Sv39x4};

use crate::tables::Table;

const ALL: Permissions = Permissions::all();
const READ: Permissions = Permissions::READ;
const WRITE: Permissions = Permissions::WRITE;
const VMID: Vmid = Vmid(7);
const PAGE: Gfn = Gfn::new(3);

/// TLBs that go so far.
fn tlbs(rigour: Rigour) -> Arc<Tlbs> {
    let tlbs = Arc::new(Tlbs::new(Arc::new(Host::new())));
    tlbs.set_rigour(rigour);
    tlbs
}

/// How often a store faults that the table allows, where the leaf was remembered before it did: once, or until it is
/// invalidated.
fn faults<F: Format>(rigour: Rigour) -> u32 {
    let (arena, tlbs) = (Arena::new(64).unwrap(), tlbs(rigour));
    let table = Table::<F>::new(&arena);
    let mut cpu = tlbs.cpu();
    let mut guest = cpu.enter_guest(table.top, VMID);
    table.map(PAGE, Level::PAGE, Leaf::new(Pfn::new(9), READ));
    guest.translate::<F>(&arena, PAGE, READ).unwrap();
    table.map(PAGE, Level::PAGE, Leaf::new(Pfn::new(9), ALL));
    for faults in 0..10 {
        match guest.translate::<F>(&arena, PAGE, WRITE) {
            Ok(_) => return faults,
            Err(fault) => assert_eq!(fault.cause, Cause::Permission),
        }
    }
    let _ = tlbs.issue(VMID, Scope::All);
    guest.poll();
    assert!(guest.translate::<F>(&arena, PAGE, WRITE).is_ok());
    u32::MAX
}

#[test]
fn a_leaf_by_which_an_access_has_faulted_stays_on_arm_and_riscv_and_goes_on_x86() {
    let rigour = Rigour::TRUSTS_LEAVES;
    assert_eq!([faults::<Arm<40>>(rigour), faults::<Sv39x4>(rigour)], [u32::MAX; 2]);
    assert_eq!([faults::<Ept>(rigour), faults::<Npt>(rigour)], [1; 2]);
    let kind = Rigour::all() - rigour;
    assert_eq!([faults::<Arm<40>>(kind), faults::<Sv39x4>(kind), faults::<Ept>(kind)], [0; 3]);
}

/// Whether a page that was absent is found when the table has it.
fn finds_what_was_absent<F: Format>(rigour: Rigour) -> bool {
    let (arena, tlbs) = (Arena::new(64).unwrap(), tlbs(rigour));
    let table = Table::<F>::new(&arena);
    let mut cpu = tlbs.cpu();
    let mut guest = cpu.enter_guest(table.top, VMID);
    assert_eq!(guest.translate::<F>(&arena, PAGE, READ).unwrap_err().cause, Cause::Absent);
    table.map(PAGE, Level::PAGE, Leaf::new(Pfn::new(9), READ));
    let finds = guest.translate::<F>(&arena, PAGE, READ).is_ok();
    let _ = tlbs.issue(VMID, Scope::All);
    guest.poll();
    assert!(guest.translate::<F>(&arena, PAGE, READ).is_ok());
    finds
}

#[test]
fn that_there_is_nothing_is_remembered_on_riscv_alone() {
    let rigour = Rigour::KEEPS_ABSENT;
    assert!(!finds_what_was_absent::<Sv39x4>(rigour));
    assert!(finds_what_was_absent::<Sv39x4>(Rigour::all() - rigour));
    assert!(finds_what_was_absent::<Arm<48>>(rigour) && finds_what_was_absent::<Ept>(rigour));
}

#[test]
fn a_table_on_the_way_is_remembered_until_something_below_it_is_invalidated() {
    fn check<F: Format>() {
        let arena = Arena::new(64).unwrap();
        for (rigour, remembers) in [(Rigour::KEEPS_TABLES, true), (Rigour::empty(), false)] {
            let (tlbs, table) = (tlbs(rigour), Table::<F>::new(&arena));
            let mut cpu = tlbs.cpu();
            let mut guest = cpu.enter_guest(table.top, VMID);
            let (beside, end) = (Gfn::new(PAGE.get() + 1), Gfn::new(PAGE.get() + 2));
            for gfn in [PAGE, beside] {
                table.map(gfn, Level::PAGE, Leaf::new(Pfn::new(9), READ));
            }
            guest.translate::<F>(&arena, PAGE, READ).unwrap();
            table.unmap(PAGE, Level::MIB2);
            let found = guest.translate::<F>(&arena, beside, READ).is_ok();
            assert_eq!(found, remembers, "{}", F::NAME);
            let _ = tlbs.issue(VMID, Scope::Range(Span::pages(beside..end)));
            guest.poll();
            assert!(guest.translate::<F>(&arena, beside, READ).is_err());
        }
    }
    check::<Arm<40>>();
    check::<Arm<48>>();
    check::<Ept>();
    check::<Sv39x4>();
}

/// One wait of three; the others would not end here.
#[test]
fn a_wait_ends_now_and_then_for_no_reason() {
    let hardware = Hardware::new(64).unwrap();
    let word = AtomicU32::new(0);
    hardware.wait(&word, 0);
}

#[test]
fn what_is_not_named_stays_where_hints_are_followed() {
    let arena = Arena::new(1 << 12).unwrap();
    let block = Gfn::new(0x400);
    let pages = [0x200, 0x201, 0x202].map(Gfn::new);
    for (rigour, entries, stride, left) in [
        // Every other page; of the leaves of that size; the walk goes on at the table that is kept.
        (Rigour::all(), Entries::Leaves, 2, [true, true, true, true]),
        (Rigour::all(), Entries::Leaves, 1, [false, false, false, true]),
        (Rigour::all(), Entries::LeavesOfAnySize, 2, [false, true, false, false]),
        (Rigour::all(), Entries::Any, 0x200, [false, true, true, false]),
        (Rigour::empty(), Entries::Leaves, 0x200, [false; 4]),
    ] {
        let (tlbs, table) = (tlbs(rigour), Table::<Arm<48>>::new(&arena));
        let mut cpu = tlbs.cpu();
        let mut guest = cpu.enter_guest(table.top, VMID);
        table.map(block, Level::MIB2, Leaf::new(Pfn::new(0x400), READ));
        for gfn in pages {
            table.map(gfn, Level::PAGE, Leaf::new(Pfn::new(9), READ));
        }
        let all = pages.into_iter().chain([block]);
        for gfn in all.clone() {
            guest.translate::<Arm<48>>(&arena, gfn, READ).unwrap();
        }
        for gfn in pages {
            table.unmap(gfn, Level::PAGE);
        }
        table.unmap(block, Level::MIB2);
        let gfns = pages[0]..Gfn::new(0x600);
        let _ = tlbs.issue(VMID, Scope::Range(Span { gfns, stride, entries }));
        guest.poll();
        let found: Vec<_> =
            all.map(|gfn| guest.translate::<Arm<48>>(&arena, gfn, READ).is_ok()).collect();
        assert_eq!(found, left, "{entries:?}, {stride} pages apart");
    }
}
