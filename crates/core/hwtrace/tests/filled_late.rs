//! A table that is filled when it is in a tree.

mod in_turn;

use in_turn::rules;

/// A guest that a CPU is in, of a root with two levels, and two more tables.
const INSIDE: &str = "
    0 give frame=0x100 order=0
    0 give frame=0x200 order=0
    0 give frame=0x201 order=0
    0 root top=0x100 order=0 levels=2 format=arm
    0 vmid-take vmid=7 generation=1
    1 enter tlb=1 top=0x100 vmid=7
";

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
