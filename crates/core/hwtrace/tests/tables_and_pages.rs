//! What is a table is no page of a guest, and the reverse.

mod common;

use common::{INSIDE, MAPPED, rules};

#[test]
fn a_guests_page_becomes_a_root() {
    let events = "
        1 enter tlb=1 top=0x100 vmid=7
        0 root top=0x300 order=0 levels=1 format=arm
        1 leave tlb=1 vmid=7
    ";
    assert_eq!(rules("", &format!("{MAPPED}{events}")), ["table-mapped"]);
}

#[test]
fn a_table_is_written_whose_frame_a_guest_has_since() {
    let events = "
        0 entry table=0x100 index=0 old=0 new=0x200003
        0 barrier orders=walks
        0 entry table=0x100 index=0 old=0x200003 new=0
        0 barrier orders=walks
        0 tlbi-all id=1 vmid=7
        0 tlbi-sync id=1
        0 free frame=0x200 order=0
        0 give frame=0x200 order=0
        0 entry table=0x100 index=0 old=0 new=0x201003
        0 entry table=0x201 index=0 old=0 new=0x2007ff
        0 barrier orders=walks
    ";
    assert_eq!(rules("", &format!("{INSIDE}{events}")), [""; 0]);
    let late = "0 entry table=0x200 index=3 old=0 new=0x3007ff";
    assert_eq!(rules("", &format!("{INSIDE}{events}{late}")), ["table-mapped"]);
    let late = "0 fill table=0x200 index=3 count=1 value=0x3007ff step=0";
    assert_eq!(rules("", &format!("{INSIDE}{events}{late}")), ["table-mapped"]);
}

#[test]
fn a_root_that_is_gone_is_no_root_that_is_mapped() {
    let events = "
        0 give frame=0x400 order=0
        0 root top=0x400 order=0 levels=1 format=arm
        0 root-gone top=0x400
        0 entry table=0x100 index=0 old=0 new=0x200003
        0 entry table=0x200 index=0 old=0 new=0x4007ff
        0 barrier orders=walks
    ";
    assert_eq!(rules("", &format!("{INSIDE}{events}")), [""; 0]);
}

/// A table is unlinked, and a guest has its frame afterwards, which was not freed.
fn table_is_mapped(between: &str) -> Vec<&'static str> {
    let unlinked = "
        0 entry table=0x100 index=0 old=0 new=0x200003
        0 barrier orders=walks
        0 entry table=0x100 index=0 old=0x200003 new=0
        0 barrier orders=walks
    ";
    let mapped = "
        0 entry table=0x100 index=1 old=0 new=0x201003
        0 entry table=0x201 index=0 old=0 new=0x2007ff
        0 barrier orders=walks
        0 tlbi-all id=2 vmid=7
        0 tlbi-sync id=2
    ";
    rules("", &format!("{INSIDE}{unlinked}{between}{mapped}"))
}

#[test]
fn a_table_that_was_unlinked_is_mapped() {
    assert_eq!(table_is_mapped("0 tlbi-all id=1 vmid=7\n0 tlbi-sync id=1"), [""; 0]);
    assert_eq!(table_is_mapped(""), ["table-mapped"]);
    assert_eq!(table_is_mapped("0 tlbi-all id=1 vmid=7"), ["table-mapped"]);
}
