//! Guests that are entered when something is free that their root still leads to.

mod common;

use common::{MAPPED, rules};

#[test]
fn a_guest_is_entered_for_the_first_time_when_its_page_is_free() {
    let events = "
        0 free frame=0x300 order=0
        0 give frame=0x300 order=0
        1 enter tlb=1 top=0x100 vmid=7
        1 access tlb=1 vmid=7 gfn=5 frame=0x300 write=1
        1 leave tlb=1 vmid=7
    ";
    assert_eq!(rules("", &format!("{MAPPED}{events}")), ["frame-freed"]);
}

#[test]
fn a_guest_is_entered_for_the_first_time_when_its_table_is_free() {
    let events = "
        0 give frame=0x100 order=0
        0 give frame=0x200 order=0
        0 root top=0x100 order=0 levels=2 format=arm
        0 entry table=0x100 index=0 old=0 new=0x200003
        0 free frame=0x200 order=0
        0 barrier orders=walks
        0 vmid-take vmid=7 generation=1
        1 enter tlb=1 top=0x100 vmid=7
        1 leave tlb=1 vmid=7
    ";
    assert_eq!(rules("", events), ["table-freed"]);
}

#[test]
fn a_guest_is_entered_for_the_first_time_when_its_root_is_free() {
    let events = "
        0 free frame=0x100 order=0
        1 enter tlb=1 top=0x100 vmid=7
        1 leave tlb=1 vmid=7
    ";
    assert_eq!(rules("", &format!("{MAPPED}{events}")), ["table-freed"]);
}

#[test]
fn a_guest_is_entered_under_another_vmid_when_its_page_is_free() {
    let events = "
        1 enter tlb=1 top=0x100 vmid=7
        1 leave tlb=1 vmid=7
        0 free frame=0x300 order=0
        0 vmid-give vmid=7
        1 enter tlb=1 top=0x100 vmid=8
        1 leave tlb=1 vmid=8
    ";
    assert_eq!(rules("", &format!("{MAPPED}{events}")), ["frame-freed"]);
}

#[test]
fn a_guest_is_entered_again_when_its_page_is_free_and_all_of_its_vmid_invalidated() {
    let events = "
        1 enter tlb=1 top=0x100 vmid=7
        1 leave tlb=1 vmid=7
        0 free frame=0x300 order=0
        0 tlbi-all id=1 vmid=7
        0 tlbi-sync id=1
        1 enter tlb=1 top=0x100 vmid=7
        1 leave tlb=1 vmid=7
    ";
    assert_eq!(rules("", &format!("{MAPPED}{events}")), ["frame-freed"]);
}

#[test]
fn a_guest_is_entered_when_its_page_is_free_no_more_or_nowhere_mapped() {
    let entered = "1 enter tlb=1 top=0x100 vmid=7\n1 leave tlb=1 vmid=7";
    let unmapped = "
        0 free frame=0x300 order=0
        0 entry table=0x100 index=5 old=0x3007ff new=0
        0 barrier orders=walks
    ";
    assert_eq!(rules("", &format!("{MAPPED}{unmapped}{entered}")), [""; 0]);
    let mapped_again = "
        0 give frame=0x300 order=0
        0 entry table=0x100 index=5 old=0 new=0x3007ff
        0 barrier orders=walks
    ";
    assert_eq!(rules("", &format!("{MAPPED}{unmapped}{mapped_again}{entered}")), [""; 0]);
}

#[test]
fn a_guest_is_entered_when_another_root_is_where_its_own_was_free() {
    let events = "
        0 free frame=0x100 order=0
        0 give frame=0x100 order=0
        0 root top=0x100 order=0 levels=1 format=arm
        1 enter tlb=1 top=0x100 vmid=7
        1 leave tlb=1 vmid=7
    ";
    assert_eq!(rules("", &format!("{MAPPED}{events}")), [""; 0]);
}
