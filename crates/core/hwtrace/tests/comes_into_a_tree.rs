//! What comes into a tree with a table, which was written or filled before.

mod common;

use common::{INSIDE, rules};

#[test]
fn a_free_frame_comes_into_a_tree_with_the_table_that_maps_it() {
    let events = "
        0 give frame=0x300 order=0
        0 free frame=0x300 order=0
        0 entry table=0x200 index=5 old=0 new=0x3007ff
        0 entry table=0x100 index=0 old=0 new=0x200003
        0 barrier orders=walks
    ";
    assert_eq!(rules("", &format!("{INSIDE}{events}")), ["free-frame"]);
}

#[test]
fn a_free_frame_comes_into_a_tree_with_the_table_that_is_filled_with_it() {
    let events = "
        0 give frame=0x400 order=9
        0 free frame=0x400 order=9
        0 fill table=0x200 index=0 count=512 value=0x4007ff step=0x1000
        0 entry table=0x100 index=0 old=0 new=0x200003
        0 barrier orders=walks
    ";
    assert_eq!(rules("", &format!("{INSIDE}{events}")), ["free-frame"]);
}

#[test]
fn a_root_comes_into_a_tree_with_the_table_that_maps_it() {
    let events = "
        0 fill table=0x200 index=0 count=1 value=0x1007ff step=0
        0 entry table=0x100 index=0 old=0 new=0x200003
        0 barrier orders=walks
    ";
    assert_eq!(rules("", &format!("{INSIDE}{events}")), ["table-mapped"]);
}

#[test]
fn a_frame_that_was_not_cleaned_comes_into_a_tree_with_the_table_that_maps_it() {
    let events = "
        0 give frame=0x300 order=0
        0 fill table=0x200 index=0 count=1 value=0x3007ff step=0
        0 entry table=0x100 index=0 old=0 new=0x200003
        0 barrier orders=walks
    ";
    let cleaned =
        events.replacen("        0 fill", "        0 clean frame=0x300 count=1\n        0 fill", 1);
    let maintained = "caches=maintained";
    assert_eq!(rules(maintained, &format!("{INSIDE}{cleaned}")), [""; 0]);
    assert_eq!(rules(maintained, &format!("{INSIDE}{events}")), ["not-cleaned"]);
}

#[test]
fn a_free_table_comes_into_a_tree_with_the_table_that_leads_to_it() {
    let events = "
        0 give frame=0x300 order=0
        0 entry table=0x200 index=0 old=0 new=0x300003
        0 free frame=0x300 order=0
        0 entry table=0x100 index=0 old=0 new=0x200003
        0 barrier orders=walks
    ";
    let inside = INSIDE.replacen("levels=2", "levels=3", 1);
    assert_eq!(rules("", &format!("{inside}{events}")), ["free-frame"]);
}

#[test]
fn a_free_frame_comes_into_a_tree_with_the_root_that_maps_it() {
    let events = "
        0 give frame=0x100 order=0
        0 give frame=0x300 order=0
        0 fill table=0x100 index=0 count=1 value=0x3007ff step=0
        0 free frame=0x300 order=0
        0 root top=0x100 order=0 levels=1 format=arm
    ";
    assert_eq!(rules("", events), ["free-frame"]);
    let given = "0 give frame=0x300 order=0\n        0 root";
    assert_eq!(rules("", &events.replacen("0 root", given, 1)), [""; 0]);
}
