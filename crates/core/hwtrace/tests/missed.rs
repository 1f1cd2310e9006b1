//! Faults that only what frames, VMIDs, TLBs and other CPUs do beside the entries shows. Each is a trace that breaks no
//! rule but for one event.

mod common;

use common::{broken, in_turn};

/// Checks that `good` breaks nothing, and that with `new` in place of `old` it breaks `rule`, at a line that has `at`.
#[track_caller]
fn misses(good: &str, (old, new): (&str, &str), rule: &str, at: &str) {
    assert_eq!(broken(&in_turn(good)), []);
    assert!(good.contains(old), "there is no {old:?}");
    let found = broken(&in_turn(&good.replacen(old, new, 1)));
    let is_it = |(name, event): &(&str, String)| *name == rule && event.contains(at);
    assert!(found.iter().any(is_it), "{rule} at {at:?}: {found:?}");
}

/// A guest uses a page, by a table of its own; both go, and are used again.
const LIFE: &str = "
    0 give frame=0x100 order=0
    0 give frame=0x200 order=0
    0 give frame=0x300 order=0
    0 root top=0x100 order=0 levels=2 format=arm
    0 fill table=0x200 index=0 count=512 value=0 step=0
    0 entry table=0x100 index=0 old=0 new=0x200003
    0 entry table=0x200 index=5 old=0 new=0x3007ff
    0 vmid-take vmid=7 generation=1
    0 barrier orders=walks
    1 enter tlb=1 top=0x100 vmid=7
    1 access tlb=1 vmid=7 gfn=0x5 frame=0x300 write=1
    0 entry table=0x200 index=5 old=0x3007ff new=0
    0 barrier orders=walks
    0 tlbi id=1 vmid=7 first=0x5 end=0x6 stride=1 reach=any
    0 tlbi-sync id=1
    0 free frame=0x300 order=0
    0 give frame=0x300 order=0
    0 entry table=0x200 index=6 old=0 new=0x3007ff
    0 barrier orders=walks
    1 leave tlb=1 vmid=7
    0 entry table=0x100 index=0 old=0x200003 new=0
    0 barrier orders=walks
    0 tlbi-all id=2 vmid=7
    0 tlbi-sync id=2
    0 root-gone top=0x100
    0 vmid-give vmid=7
    0 free frame=0x200 order=0
    0 free frame=0x300 order=0
    0 free frame=0x100 order=0
";

#[test]
fn a_frame_that_is_free_is_mapped() {
    let again = "0 give frame=0x300 order=0\n    0 entry table=0x200 index=6";
    misses(LIFE, (again, "0 entry table=0x200 index=6"), "free-frame", "index=6");
}

#[test]
fn a_frame_that_is_free_is_accessed() {
    let late = "0 barrier orders=walks\n    1 leave tlb=1";
    let used = "1 access tlb=1 vmid=7 gfn=0x5 frame=0x300 write=1\n    1 leave tlb=1";
    misses(&LIFE.replacen("    0 give frame=0x300 order=0\n    0 entry table=0x200 index=6 old=0 new=0x3007ff\n", "", 1).replacen("    0 free frame=0x300 order=0\n    0 free frame=0x100", "    0 free frame=0x100", 1), (late, used), "free-frame", "access");
}

#[test]
fn a_frame_that_is_free_is_linked_as_a_table() {
    let given = "0 give frame=0x200 order=0";
    misses(LIFE, (given, "0 free frame=0x200 order=0"), "free-frame", "new=0x200003");
}

#[test]
fn a_guest_is_given_its_own_table() {
    misses(
        LIFE,
        ("index=6 old=0 new=0x3007ff", "index=6 old=0 new=0x2007ff"),
        "table-mapped",
        "index=6",
    );
}

#[test]
fn a_guest_is_given_its_own_root() {
    misses(
        LIFE,
        ("index=6 old=0 new=0x3007ff", "index=6 old=0 new=0x1007ff"),
        "table-mapped",
        "index=6",
    );
}

#[test]
fn a_page_of_a_guest_becomes_a_table() {
    let frees = "0 barrier orders=walks\n    1 leave";
    let links =
        "0 entry table=0x100 index=1 old=0 new=0x300003\n    0 barrier orders=walks\n    1 leave";
    misses(LIFE, (frees, links), "table-mapped", "new=0x300003");
}

#[test]
fn a_frame_is_given_out_twice() {
    let frees = "0 free frame=0x300 order=0\n    0 give frame=0x300";
    misses(LIFE, (frees, "0 give frame=0x300"), "given-twice", "give frame=0x300");
}

#[test]
fn a_guest_is_entered_under_a_vmid_that_no_root_has_ever_taken() {
    misses(LIFE, ("0 vmid-take vmid=7 generation=1", ""), "vmid-not-taken", "enter");
}

#[test]
fn a_generation_takes_a_vmid_that_is_not_kept() {
    let good = "
        0 root top=0x100 order=0 levels=1 format=arm
        0 vmid-take vmid=7 generation=1
        0 vmid-keep vmid=7 generation=2
        0 tlbi-everything id=1
        0 tlbi-sync id=1
        0 generation generation=2
        1 enter tlb=1 top=0x100 vmid=7
    ";
    misses(good, ("0 vmid-keep vmid=7 generation=2", ""), "vmid-not-taken", "enter");
}

#[test]
fn a_table_is_filled_whose_frame_is_free() {
    let given = "0 give frame=0x200 order=0";
    misses(LIFE, (given, "0 free frame=0x200 order=0"), "write-after-free", "fill table=0x200");
}

#[test]
fn no_barrier_orders_a_write_before_the_invalidation_of_another_cpu() {
    let other = "0 barrier orders=walks
    2 tlbi id=1 vmid=7 first=0x5 end=0x6 stride=1 reach=any
    2 tlbi-sync id=1";
    let none = other.replacen("0 barrier orders=walks\n", "", 1);
    let own = "0 tlbi id=1 vmid=7 first=0x5 end=0x6 stride=1 reach=any
    0 tlbi-sync id=1";
    let good = LIFE.replacen(&format!("0 barrier orders=walks\n    {own}"), other, 1);
    misses(&good, (other, &none), "no-barrier", "tlbi id=1");
    // A barrier of the CPU that invalidates counts as well, for it may have seen the write.
    misses(
        &good.replacen(other, &other.replacen('0', "2", 1), 1),
        (&other.replacen('0', "2", 1), &none),
        "no-barrier",
        "tlbi id=1",
    );
}

#[test]
fn a_tlb_is_used_by_a_cpu_that_has_left_the_guest() {
    let leaves = "1 leave tlb=1 vmid=7";
    let uses = "1 leave tlb=1 vmid=7\n    1 access tlb=1 vmid=7 gfn=0x6 frame=0x300 write=1";
    misses(LIFE, (leaves, uses), "access-outside", "access");
}

#[test]
fn a_frame_is_given_out_again_though_its_invalidation_is_never_complete() {
    let sync = "0 tlbi-sync id=1";
    let good = &LIFE[..LIFE.find("0 entry table=0x200 index=6").unwrap()];
    misses(good, (sync, ""), "frame-freed", "free frame=0x300");
    // As long as nobody has it, the trace may have ended too early.
    let ends = good.replacen(sync, "", 1).replacen(
        "0 free frame=0x300 order=0\n    0 give frame=0x300 order=0",
        "0 free frame=0x300 order=0",
        1,
    );
    assert_eq!(broken(&in_turn(&ends)), []);
}

#[test]
fn a_frame_is_free_that_an_entry_maps() {
    let zaps = "0 entry table=0x200 index=5 old=0x3007ff new=0";
    let good = &LIFE[..LIFE.find("0 give frame=0x300 order=0\n    0 entry").unwrap()];
    misses(good, (zaps, ""), "frame-freed", "free frame=0x300");
}

#[test]
fn another_memory_type_takes_break_before_make() {
    let access = "1 access tlb=1";
    let device = "0 entry table=0x200 index=5 old=0x3007ff new=0x3007c7
    0 entry table=0x200 index=5 old=0x3007c7 new=0x3007ff
    1 access tlb=1";
    misses(LIFE, (access, device), "break-before-make", "new=0x3007c7");
    // Also where a break comes between, and no invalidation.
    let broken = "0 entry table=0x200 index=5 old=0x3007ff new=0
    0 entry table=0x200 index=5 old=0 new=0x3007c7
    0 barrier orders=walks
    0 tlbi-all id=9 vmid=7
    0 tlbi-sync id=9
    0 entry table=0x200 index=5 old=0x3007c7 new=0
    0 barrier orders=walks
    0 tlbi-all id=10 vmid=7
    0 tlbi-sync id=10
    0 entry table=0x200 index=5 old=0 new=0x3007ff
    1 access tlb=1";
    misses(LIFE, (access, broken), "break-before-make", "new=0x3007c7");
}

#[test]
fn a_frame_may_be_freed_before_its_invalidation_where_no_cpu_is_in_the_guest() {
    // Who enters the guest before the invalidation is complete may find it.
    let good = "
        0 root top=0x100 order=0 levels=1 format=arm
        0 entry table=0x100 index=5 old=0 new=0x3007ff
        0 vmid-take vmid=7 generation=1
        0 barrier orders=walks
        1 enter tlb=1 top=0x100 vmid=7
        1 leave tlb=1 vmid=7
        0 entry table=0x100 index=5 old=0x3007ff new=0
        0 free frame=0x300 order=0
        0 barrier orders=walks
        0 tlbi-all id=1 vmid=7
        0 tlbi-sync id=1
        1 enter tlb=1 top=0x100 vmid=7
    ";
    let waits = "0 barrier orders=walks\n        0 tlbi-all id=1 vmid=7";
    let enters = "1 enter tlb=1 top=0x100 vmid=7\n        0 barrier orders=walks\n        0 tlbi-all id=1 vmid=7";
    misses(good, (waits, enters), "frame-freed", "free frame=0x300");
}

#[test]
fn a_table_is_given_out_again_though_its_invalidation_is_never_complete() {
    let sync = "0 tlbi-all id=2 vmid=7\n    0 tlbi-sync id=2";
    let unlinks = "0 entry table=0x100 index=0 old=0x200003 new=0";
    let end = LIFE.find(unlinks).unwrap();
    // The guest is inside to the end, and the table's frame is another's.
    let good = format!(
        "{}{unlinks}\n    0 barrier orders=walks\n    {sync}\n    0 free frame=0x200 order=0\n    0 give frame=0x200 order=0",
        LIFE[..end].replacen("    1 leave tlb=1 vmid=7\n", "", 1),
    );
    misses(&good, (sync, "0 tlbi-all id=2 vmid=7"), "table-freed", "free frame=0x200");
}
