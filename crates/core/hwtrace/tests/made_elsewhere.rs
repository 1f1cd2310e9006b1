//! Break-before-make where another entry has the guest frames that TLBs have still.

mod common;

use common::{INSIDE, rules};

/// A table of 512 pages that a guest has, and what comes after.
fn table_goes(tlbi: &str, comes: &str) -> Vec<&'static str> {
    let events = "
        0 fill table=0x200 index=0 count=512 value=0x2000007ff step=0x1000
        0 entry table=0x100 index=0 old=0 new=0x200003
        0 barrier orders=walks
        1 access tlb=1 vmid=7 gfn=5 frame=0x200005 write=1
        0 entry table=0x100 index=0 old=0x200003 new=0
        0 barrier orders=walks
    ";
    rules(
        "",
        &format!("{INSIDE}{events}\n0 {tlbi}\n0 tlbi-sync id=1\n{comes}\n0 barrier orders=walks"),
    )
}

/// Walk caches have nothing more then, nor TLBs of page 0; and they have what they had of the others.
const ONE_PAGE: &str = "tlbi id=1 vmid=7 first=0 end=1 stride=1 reach=any";

#[test]
fn a_block_comes_for_pages_that_tlbs_have_still() {
    let comes = "0 entry table=0x100 index=0 old=0 new=0x2000007fd";
    assert_eq!(table_goes("tlbi-all id=1 vmid=7", comes), [""; 0]);
    assert_eq!(table_goes(ONE_PAGE, comes), ["break-before-make"]);
}

#[test]
fn a_table_of_other_pages_comes_for_one_whose_pages_tlbs_have_still() {
    let comes = "
        0 fill table=0x201 index=0 count=512 value=0x4000007ff step=0x1000
        0 entry table=0x100 index=0 old=0 new=0x201003
    ";
    assert_eq!(table_goes("tlbi-all id=1 vmid=7", comes), [""; 0]);
    assert_eq!(table_goes(ONE_PAGE, comes), ["break-before-make"]);
}

#[test]
fn a_page_comes_for_one_that_tlbs_have_still_of_the_table_before() {
    let comes = "
        0 entry table=0x100 index=0 old=0 new=0x201003
        0 entry table=0x201 index=5 old=0 new=0x4000057ff
    ";
    assert_eq!(table_goes("tlbi-all id=1 vmid=7", comes), [""; 0]);
    assert_eq!(table_goes(ONE_PAGE, comes), ["break-before-make"]);
}

#[test]
fn the_same_pages_come_again_by_another_table() {
    let comes = "
        0 fill table=0x201 index=0 count=512 value=0x2000007ff step=0x1000
        0 entry table=0x100 index=0 old=0 new=0x201003
    ";
    assert_eq!(table_goes(ONE_PAGE, comes), [""; 0]);
}

#[test]
fn a_table_of_other_pages_comes_at_other_guest_frames() {
    let comes = "
        0 fill table=0x201 index=0 count=512 value=0x4000007ff step=0x1000
        0 entry table=0x100 index=1 old=0 new=0x201003
    ";
    assert_eq!(table_goes(ONE_PAGE, comes), [""; 0]);
}
