//! A table that is filled when it is in a tree.

mod common;

use common::{INSIDE, rules};

#[test]
fn a_table_of_a_tree_is_filled() {
    let events = "
        0 fill table=0x200 index=0 count=512 value=0x2000007ff step=0x1000
        0 entry table=0x100 index=0 old=0 new=0x200003
        0 barrier orders=walks
        0 fill table=0x200 index=0 count=512 value=0x4000007ff step=0x1000
        0 barrier orders=walks
        1 leave tlb=1 vmid=7
    ";
    assert_eq!(rules("", &format!("{INSIDE}{events}")), ["lost-write"]);
}
