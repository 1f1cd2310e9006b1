//! Tables that two entries lead to, and traces of which that is not certain.

mod common;

use common::{broken, overlaps, rules};

#[test]
fn a_root_leads_to_itself() {
    let events = "
        0 root top=0x100 order=0 levels=2 format=ept
        0 entry table=0x100 index=0 old=0 new=0x100007
    ";
    assert_eq!(rules("", events), ["table-twice"]);
}

#[test]
fn a_table_that_becomes_a_root_leads_to_one_table_twice() {
    let events = "
        0 fill table=0x100 index=0 count=2 value=0x200007 step=0
        0 root top=0x100 order=0 levels=2 format=ept
    ";
    assert_eq!(rules("", events), ["table-twice"]);
}

#[test]
fn a_table_that_comes_into_a_tree_leads_to_one_table_twice() {
    let events = "
        0 root top=0x100 order=0 levels=3 format=ept
        0 fill table=0x200 index=0 count=2 value=0x300007 step=0
        0 entry table=0x100 index=0 old=0 new=0x200007
    ";
    assert_eq!(rules("", events), ["table-twice"]);
}

/// The first of two entries that lead to one table is written while their table comes into a tree.
#[test]
fn a_table_may_lead_to_another_once_when_it_comes_into_a_tree() {
    let trace = |written: &str| {
        format!(
            "1 2 0 root top=0x100 order=0 levels=3 format=ept
3 4 0 fill table=0x200 index=0 count=2 value=0x300007 step=0
6 7 0 entry table=0x100 index=0 old=0 new=0x200007
{written} 0 entry table=0x200 index=0 old=0x300007 new=0
"
        )
    };
    overlaps(trace, ("5 8", "8 9"), "table-twice");
}

/// The same of the second.
#[test]
fn a_table_may_lead_into_another_tree_no_more_when_it_comes_into_one() {
    let trace = |written: &str| {
        format!(
            "1 2 0 root top=0x400 order=0 levels=2 format=ept
3 4 0 entry table=0x400 index=0 old=0 new=0x300007
5 6 0 root top=0x100 order=0 levels=3 format=ept
7 8 0 entry table=0x200 index=0 old=0 new=0x300007
10 11 0 entry table=0x100 index=0 old=0 new=0x200007
{written} 0 entry table=0x200 index=0 old=0x300007 new=0
"
        )
    };
    overlaps(trace, ("9 12", "12 13"), "table-twice");
}

#[test]
fn a_table_may_be_unlinked_while_a_root_is_made_that_leads_to_it() {
    let trace = |unlinked: &str| {
        format!(
            "1 2 0 root top=0x100 order=0 levels=2 format=ept
3 4 0 entry table=0x100 index=0 old=0 new=0x300007
5 6 0 entry table=0x200 index=0 old=0 new=0x300007
8 9 0 root top=0x200 order=0 levels=2 format=ept
{unlinked} 0 entry table=0x100 index=0 old=0x300007 new=0
"
        )
    };
    overlaps(trace, ("7 10", "10 11"), "table-twice");
}

#[test]
fn a_table_may_be_filled_when_the_root_that_is_made_leads_to_it_no_more() {
    let trace = |filled: &str| {
        format!(
            "1 2 0 root top=0x300 order=0 levels=2 format=ept
3 4 0 entry table=0x400 index=0 old=0 new=0x200007
6 7 0 root top=0x400 order=0 levels=2 format=ept
8 9 0 entry table=0x400 index=0 old=0x200007 new=0
{filled} 0 fill table=0x200 index=0 count=1 value=0x300037 step=0
"
        )
    };
    assert_eq!(broken(&trace("5 10")), []);
}

#[test]
fn a_root_may_lead_to_a_table_no_more_whose_own_table_is_free() {
    let trace = |unlinked: &str| {
        format!(
            "1 2 0 entry table=0x300 index=0 old=0 new=0x200007
3 4 0 free frame=0x200 order=0
5 6 0 entry table=0x100 index=0 old=0 new=0x300007
8 9 0 root top=0x100 order=0 levels=3 format=ept
{unlinked} 0 entry table=0x100 index=0 old=0x300007 new=0
"
        )
    };
    overlaps(trace, ("7 10", "10 11"), "free-frame");
}

#[test]
fn a_table_may_be_linked_whose_frame_may_have_been_given_out_since_it_was_a_root() {
    let trace = |root: &str| {
        format!(
            "1 3 0 give frame=0x100 order=0
{root} 0 root top=0x100 order=0 levels=2 format=ept
6 7 0 root top=0x200 order=0 levels=2 format=ept
8 9 0 entry table=0x200 index=0 old=0 new=0x100007
"
        )
    };
    overlaps(trace, ("2 4", "4 5"), "table-twice");
}

#[test]
fn a_guest_may_have_a_page_by_a_table_that_a_root_led_to_which_is_freed_meanwhile() {
    let trace = |freed: &str| {
        format!(
            "1 2 0 root top=0x100 order=0 levels=2 format=ept
3 4 0 entry table=0x100 index=0 old=0 new=0x300007
5 6 0 root top=0x200 order=0 levels=2 format=ept
7 8 0 vmid-take vmid=7 generation=1
9 10 0 entry table=0x300 index=0 old=0 new=0x400037
12 13 0 entry table=0x200 index=0 old=0 new=0x300007
{freed} 0 free frame=0x100 order=0
16 17 1 enter tlb=1 top=0x200 vmid=7
18 19 1 access tlb=1 vmid=7 gfn=0 frame=0x400 write=1
"
        )
    };
    overlaps(trace, ("11 14", "14 15"), "table-twice");
}

/// What an event does to a table twice, by the entry that it changes and by one below, leaves no doubt of it.
#[test]
fn a_table_is_given_out_twice_to_which_another_entry_comes_to_lead() {
    let linked = "
        0 give frame=0x200 order=0
        0 give frame=0x300 order=0
        0 root top=0x100 order=0 levels=3 format=ept
        0 entry table=0x100 index=0 old=0 new=0x300007
    ";
    let again = "0 entry table=0x100 index=0 old=0x300007 new=0x300003";
    let below = "
        0 entry table=0x200 index=0 old=0 new=0x300007
        0 entry table=0x100 index=0 old=0x300007 new=0x200007
    ";
    for moved in [again, below] {
        let events = format!("{linked}{moved}\n0 give frame=0x300 order=0");
        assert_eq!(rules("", &events), ["given-twice"]);
    }
}
