//! What may have come before another event or after it: what the checker goes by meanwhile, and that it does not stay in
//! doubt for longer than that.

mod common;

use common::{broken, overlaps};

#[test]
fn a_guest_may_use_a_page_that_was_unmapped_while_it_was_entered() {
    let trace = |entered: &str| {
        format!(
            "1 2 0 root top=0x100 order=0 levels=1 format=ept
3 4 0 entry table=0x100 index=0 old=0 new=0x300037
5 6 0 vmid-take vmid=7 generation=1
8 9 0 entry table=0x100 index=0 old=0x300037 new=0
{entered} 1 enter tlb=1 top=0x100 vmid=7
12 13 1 access tlb=1 vmid=7 gfn=0 frame=0x300 write=1
"
        )
    };
    overlaps(trace, ("7 10", "10 11"), "stale-access");
}

#[test]
fn a_guest_may_use_a_page_that_was_replaced_since_a_cpu_was_there_that_left_while_it_entered() {
    let trace = |others: &str| {
        format!(
            "1 2 0 root top=0x100 order=0 levels=1 format=ept
3 4 0 vmid-take vmid=7 generation=1
{others}9 10 0 entry table=0x100 index=0 old=0 new=0x300037
11 12 0 entry table=0x100 index=0 old=0x300037 new=0x400037
13 14 2 enter tlb=2 top=0x100 vmid=7
15 16 2 access tlb=2 vmid=7 gfn=0 frame=0x300 write=0
"
        )
    };
    let other = "6 7 1 leave tlb=1 vmid=7\n5 8 1 enter tlb=1 top=0x100 vmid=7\n";
    assert_eq!(broken(&trace(other)), []);
    let used = "access tlb=2 vmid=7 gfn=0 frame=0x300 write=0".to_string();
    assert_eq!(broken(&trace("")), [("stale-access", used)]);
}

#[test]
fn a_guest_may_use_a_page_of_a_table_that_was_unlinked_while_it_was_filled_anew() {
    let trace = |unlinked: &str| {
        format!(
            "1 2 0 root top=0x100 order=0 levels=2 format=ept
3 4 0 entry table=0x200 index=0 old=0 new=0x300037
5 6 0 entry table=0x100 index=0 old=0 new=0x200007
7 8 0 vmid-take vmid=7 generation=1
9 10 1 enter tlb=1 top=0x100 vmid=7
12 13 0 fill table=0x200 index=0 count=512 value=0 step=0
{unlinked} 0 entry table=0x100 index=0 old=0x200007 new=0
16 17 1 access tlb=1 vmid=7 gfn=0 frame=0x300 write=1
"
        )
    };
    overlaps(trace, ("11 14", "14 15"), "lost-write");
}

/// A table of a root that no CPU enters is free, and given out, and its frame is linked into the tree of a guest.
fn linked_again(events: &str) -> String {
    format!(
        "1 2 0 root top=0x100 order=0 levels=2 format=ept
3 4 0 root top=0x400 order=0 levels=2 format=ept
5 6 0 entry table=0x100 index=0 old=0 new=0x200007
7 8 0 vmid-take vmid=7 generation=1
9 10 1 enter tlb=1 top=0x400 vmid=7
{events}
22 23 0 entry table=0x200 index=0 old=0 new=0x300037
24 25 0 entry table=0x400 index=0 old=0x200007 new=0
26 27 1 access tlb=1 vmid=7 gfn=0 frame=0x300 write=1
"
    )
}

#[test]
fn a_table_may_be_linked_while_its_frame_is_freed_and_given_out() {
    let events = "14 15 0 entry table=0x400 index=0 old=0 new=0x200007
11 16 0 free frame=0x200 order=0
12 17 0 give frame=0x200 order=0";
    assert_eq!(broken(&linked_again(events)), []);
    let events = "12 13 0 give frame=0x200 order=0
14 15 0 entry table=0x400 index=0 old=0 new=0x200007
11 16 0 free frame=0x200 order=0";
    assert_eq!(broken(&linked_again(events)), []);
    // Where it was in no tree before.
    let nowhere = |events: &str| {
        linked_again(events).replacen(
            "table=0x100 index=0 old=0 new=0x200007",
            "table=0x100 index=0 old=0 new=0x500007",
            1,
        )
    };
    assert_eq!(broken(&nowhere(events)), []);
    let found = broken(&nowhere(&events.replacen("11 16", "16 17", 1)));
    assert!(found.iter().any(|(rule, _)| *rule == "table-freed"), "{found:?}");
}

/// A root goes, or another comes in its frame, while a guest is entered.
#[test]
fn a_guest_that_is_entered_anew_is_held_to_the_rules_whichever_root_it_was_in_before() {
    let with = |gone: &str| {
        format!(
            "1 2 0 root top=0x100 order=0 levels=1 format=ept
3 4 0 vmid-take vmid=7 generation=1
5 7 1 enter tlb=1 top=0x100 vmid=7
6 8 0 root-gone top=0x100
9 10 0 root top=0x100 order=0 levels=1 format=ept
11 12 1 leave tlb=1 vmid=7
13 14 1 enter tlb=1 top=0x100 vmid=7
{gone}"
        )
    };
    assert_eq!(broken(&with("")), []);
    let gone = "root-gone top=0x100".to_string();
    assert_eq!(broken(&with(&format!("15 16 0 {gone}\n"))), [("root-gone", gone)]);
}

#[test]
fn a_page_that_its_table_may_never_have_had_in_a_tree_may_be_free() {
    let trace = |mapped: &str| {
        format!(
            "1 2 0 root top=0x100 order=0 levels=2 format=ept
3 4 0 vmid-take vmid=7 generation=1
5 6 1 enter tlb=1 top=0x100 vmid=7
7 8 0 entry table=0x200 index=0 old=0 new=0x300037
10 11 0 entry table=0x100 index=0 old=0 new=0x200007
12 13 0 entry table=0x100 index=0 old=0x200007 new=0
{mapped} 0 entry table=0x200 index=0 old=0x300037 new=0
16 17 0 free frame=0x300 order=0
"
        )
    };
    overlaps(trace, ("9 14", "14 15"), "frame-freed");
}

#[test]
fn a_free_frame_may_come_back_into_the_tree_of_a_guest_that_was_left_while_it_was_entered() {
    let trace = |left: &str| {
        format!(
            "1 2 0 root top=0x100 order=0 levels=1 format=ept
3 4 0 vmid-take vmid=7 generation=1
{left} 1 leave tlb=1 vmid=7
5 8 1 enter tlb=1 top=0x100 vmid=7
10 11 0 free frame=0x300 order=0
12 13 0 entry table=0x100 index=0 old=0 new=0x300037
"
        )
    };
    assert_eq!(broken(&trace("6 7")), []);
    let again = "14 15 1 enter tlb=1 top=0x100 vmid=7\n16 17 1 leave tlb=1 vmid=7";
    let found = broken(&format!("{}{again}", trace("6 7")));
    let mapped = "entry table=0x100 index=0 old=0 new=0x300037".to_string();
    assert_eq!(found, [("free-frame", mapped)]);
}

#[test]
fn a_free_frame_may_come_back_into_the_tree_of_a_root_whose_vmid_was_forgotten() {
    let trace = "1 2 0 root top=0x100 order=0 levels=1 format=ept
3 4 0 vmid-take vmid=7 generation=1
5 6 1 enter tlb=1 top=0x100 vmid=7
7 8 1 leave tlb=1 vmid=7
9 10 0 tlbi-all id=1 vmid=7
11 12 0 tlbi-sync id=1
13 14 0 free frame=0x300 order=0
15 16 1 entry table=0x100 index=0 old=0 new=0x300037
17 18 0 root-gone top=0x100
";
    assert_eq!(broken(trace), []);
    let entered = "17 18 1 enter tlb=1 top=0x100 vmid=7\n19 20 0 root-gone";
    let found = broken(&trace.replacen("17 18 0 root-gone", entered, 1));
    assert!(found.iter().any(|(rule, _)| *rule == "free-frame"), "{found:?}");
}

/// A table that nothing is known to lead to comes to lead to itself, which is known only where that is written.
#[test]
fn a_write_that_another_one_asks_for_finds_what_that_leaves() {
    let trace = "1 2 0 entry table=0x200 index=0 old=0 new=0x300007
4 5 0 entry table=0x200 index=0 old=0x300007 new=0
3 6 0 entry table=0x200 index=0 old=0 new=0x200037
";
    assert_eq!(broken(trace), []);
}
