//! Faults that come with another one, or after it. Each is found.

mod common;

use common::rules;

#[track_caller]
fn breaks(expected: &[&str], events: &str) {
    let found = rules("", events);
    assert!(expected.iter().all(|rule| found.contains(rule)), "{found:?}");
}

#[test]
fn what_is_no_root_is_entered_under_a_vmid_that_is_nobodys() {
    breaks(&["root-gone", "vmid-not-taken"], "0 enter tlb=0 top=0x201 vmid=1");
}

#[test]
fn a_tlb_is_used_outside_of_its_guest_for_a_frame_that_is_free() {
    let events = "
        2 free frame=0x200 order=0
        0 leave tlb=0 vmid=2
        0 access tlb=0 vmid=2 gfn=0x0 frame=0x200 write=1
    ";
    breaks(&["access-outside", "free-frame"], events);
}

#[test]
fn a_frame_is_given_out_twice_that_a_table_of_pages_leads_to_as_a_table() {
    let events = "
        0 root top=0x202 order=0 levels=1 format=riscv
        0 give frame=0x204 order=0
        0 entry table=0x202 index=1 old=0 new=0x81001
        0 give frame=0x204 order=0
    ";
    breaks(&["table-twice", "given-twice"], events);
}

#[test]
fn a_root_that_leads_to_itself_is_used_by_a_guest_that_does_not_have_it() {
    let events = "
        0 root top=0x204 order=0 levels=2 format=npt
        0 entry table=0x204 index=1 old=0 new=0x204007
        0 vmid-take vmid=1 generation=1
        0 enter tlb=0 top=0x204 vmid=1
        0 access tlb=0 vmid=1 gfn=0x1 frame=0x0 write=0
    ";
    breaks(&["table-twice", "stale-access"], events);
}

/// The root's other table has its place in the root, and not where it was before.
#[test]
fn a_table_of_a_root_is_filled_that_another_one_led_to_before() {
    let events = "
        0 entry table=0x203 index=1 old=0 new=0x204003
        0 root top=0x203 order=1 levels=3 format=arm
        0 give frame=0x203 order=0
        0 fill table=0x204 index=0 count=512 value=0x2043fd step=0x1000
    ";
    breaks(&["table-twice", "lost-write"], events);
}

#[test]
fn a_root_is_gone_under_a_guest_whose_vmid_another_root_has_too() {
    let events = "
        0 root top=0x200 order=0 levels=2 format=npt
        0 root top=0x201 order=0 levels=2 format=npt
        0 vmid-take vmid=1 generation=1
        0 enter tlb=2 top=0x200 vmid=1
        0 enter tlb=0 top=0x201 vmid=1
        0 root-gone top=0x200
    ";
    breaks(&["vmid-reused", "root-gone"], events);
}

#[test]
fn a_frame_is_free_before_an_invalidation_that_no_barrier_orders() {
    let events = "
        0 root top=0x203 order=0 levels=2 format=riscv
        0 entry table=0x203 index=1 old=0 new=0x804db
        0 vmid-take vmid=1 generation=1
        0 barrier orders=walks
        1 enter tlb=1 top=0x203 vmid=1
        0 entry table=0x203 index=1 old=0x804db new=0
        0 free frame=0x202 order=0
        1 tlbi-all id=1 vmid=1
        1 tlbi-sync id=1
    ";
    breaks(&["no-barrier", "frame-freed"], events);
}

#[test]
fn a_table_is_free_that_maps_itself() {
    let events = "
        0 root top=0x202 order=0 levels=1 format=npt
        0 entry table=0x202 index=0 old=0 new=0x202087
        0 vmid-take vmid=1 generation=1
        1 enter tlb=1 top=0x202 vmid=1
        0 free frame=0x202 order=0
    ";
    breaks(&["table-mapped", "table-freed", "frame-freed"], events);
}

/// The invalidation is not complete when the trace ends, and another has the frame.
#[test]
fn a_frame_is_free_and_given_out_while_it_is_mapped() {
    let events = "
        0 root top=0x202 order=0 levels=1 format=npt
        0 entry table=0x202 index=0 old=0 new=0x201087
        0 vmid-take vmid=1 generation=1
        1 enter tlb=1 top=0x202 vmid=1
        0 free frame=0x201 order=0
        0 give frame=0x201 order=0
        0 entry table=0x202 index=0 old=0x201087 new=0
        0 tlbi-all id=1 vmid=1
    ";
    breaks(&["frame-freed"], events);
}

#[test]
fn a_block_is_mapped_of_which_a_frame_is_free_before_and_another_one_after() {
    let events = "
        0 root top=0x400 order=0 levels=2 format=npt
        0 vmid-take vmid=1 generation=1
        1 enter tlb=1 top=0x400 vmid=1
        1 leave tlb=1 vmid=1
        0 free frame=0x202 order=0
        0 entry table=0x400 index=1 old=0 new=0x200087
        0 free frame=0x201 order=0
        0 vmid-take vmid=2 generation=1
        1 enter tlb=1 top=0x400 vmid=2
    ";
    breaks(&["free-frame", "frame-freed"], events);
}

#[test]
fn a_table_is_free_of_which_only_a_lost_write_is_known() {
    let events = "
        0 entry table=0x200 index=1 old=0x8005f new=0x8
        0 free frame=0x200 order=0
    ";
    breaks(&["lost-write"], events);
}

#[test]
fn a_guest_is_entered_when_its_table_is_free_and_has_become_another_one() {
    let events = "
        0 give frame=0x200 order=0
        0 root top=0x100 order=0 levels=2 format=ept
        0 entry table=0x100 index=0 old=0 new=0x200007
        0 free frame=0x200 order=0
        0 give frame=0x200 order=0
        0 root top=0x400 order=0 levels=2 format=ept
        0 entry table=0x400 index=0 old=0 new=0x200007
        0 vmid-take vmid=7 generation=1
        1 enter tlb=1 top=0x100 vmid=7
        1 leave tlb=1 vmid=7
    ";
    breaks(&["table-freed"], events);
}

#[test]
fn a_guest_is_entered_when_its_root_is_free_and_has_become_a_table() {
    let events = "
        0 give frame=0x200 order=0
        0 root top=0x200 order=0 levels=2 format=ept
        0 free frame=0x200 order=0
        0 give frame=0x200 order=0
        0 root top=0x400 order=0 levels=3 format=ept
        0 entry table=0x400 index=0 old=0 new=0x200007
        0 vmid-take vmid=7 generation=1
        1 enter tlb=1 top=0x200 vmid=7
        1 leave tlb=1 vmid=7
    ";
    breaks(&["table-freed"], events);
}

#[test]
fn a_root_is_free_that_a_block_of_its_own_tree_maps() {
    let events = "
        0 free frame=0x202 order=0
        1 root top=0x200 order=0 levels=3 format=arm
        2 fill table=0x203 index=0 count=1 value=0x201003 step=0x1000
        1 entry table=0x200 index=0 old=0x0 new=0x203003
        2 entry table=0x203 index=0 old=0x201003 new=0x20477d
        1 enter tlb=1 top=0x200 vmid=2
        2 free frame=0x200 order=0
        2 enter tlb=2 top=0x200 vmid=2
    ";
    breaks(&["frame-freed"], events);
}

#[test]
fn a_table_is_mapped_that_was_part_of_a_root_which_is_gone_before() {
    let events = "
        1 root top=0x200 order=1 levels=1 format=arm
        2 give frame=0x201 order=0
        2 root top=0x201 order=0 levels=2 format=arm
        0 root-gone top=0x200
        0 entry table=0x201 index=1 old=0x0 new=0x20077d
    ";
    breaks(&["table-mapped"], events);
}

#[test]
fn a_root_leads_to_a_table_and_maps_it() {
    let events = "
        2 entry table=0x204 index=1 old=0x0 new=0x203087
        2 entry table=0x204 index=0 old=0x0 new=0x201007
        2 root top=0x204 order=1 levels=2 format=ept
        0 entry table=0x201 index=1 old=0x0 new=0x2001b7
    ";
    breaks(&["table-mapped"], events);
}

/// The frame is in the block that is the root's first entry, and given out before the guest is entered.
#[test]
fn a_guest_is_entered_that_has_a_frame_which_was_given_out_again() {
    let events = "
        0 fill table=0x204 index=0 count=2 value=0x2000e7 step=0
        2 root top=0x204 order=0 levels=3 format=npt
        2 free frame=0x203 order=0
        2 give frame=0x203 order=0
        0 enter tlb=0 top=0x204 vmid=2
        1 root-gone top=0x204
        0 free frame=0x204 order=0
        0 give frame=0x204 order=0
        0 tlbi-everything id=2
    ";
    breaks(&["frame-freed"], events);
}

#[test]
fn a_frame_is_mapped_that_was_not_cleaned_and_becomes_a_table_at_once() {
    let events = "
        0 give frame=0x204 order=0
        2 entry table=0x202 index=0 old=0 new=0x2023fd
        2 fill table=0x201 index=0 count=2 value=0x204003 step=0x1000
        2 root top=0x201 order=1 levels=2 format=arm
    ";
    let found = rules("caches=maintained", events);
    assert!(found.contains(&"not-cleaned"), "{found:?}");
}
