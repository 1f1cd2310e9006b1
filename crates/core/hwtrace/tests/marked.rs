//! Bits that hardware sets in entries of tables whose format is not known yet: a table is written before it comes into a
//! tree.

mod common;

use common::{keeps, rules};

#[track_caller]
fn breaks(rule: &str, events: &str) {
    let found = rules("", events);
    assert!(found.contains(&rule), "{found:?}");
}

#[test]
fn no_hardware_marks_a_table_that_only_an_entry_of_its_own_leads_to() {
    let events = "
        1 entry table=0x200 index=1 old=0 new=0x200003
        1 entry table=0x200 index=1 old=0x200403 new=8
    ";
    breaks("lost-write", events);
}

#[test]
fn an_entry_that_leads_to_its_own_table_may_have_been_marked_before_another_is_written() {
    let trace = "1 2 1 entry table=0x204 index=1 old=0x0 new=0x204003
3 5 0 entry table=0x204 index=1 old=0x204403 new=0x8
6 7 2 entry table=0x204 index=1 old=0x8 new=0x204003
4 8 0 entry table=0x204 index=1 old=0x204003 new=0x0
";
    keeps("lost-write", trace);
}

#[test]
fn a_root_is_filled_that_an_entry_led_to_until_hardware_had_marked_it() {
    let events = "
        1 fill table=0x203 index=0 count=1 value=0x201003 step=0
        1 entry table=0x203 index=0 old=0x201403 new=0
        1 root top=0x201 order=0 levels=2 format=arm-fwb
        1 entry table=0x202 index=0 old=0 new=0x203003
        0 root top=0x202 order=0 levels=3 format=arm-fwb
        0 fill table=0x201 index=0 count=1 value=0x203003 step=0
    ";
    breaks("lost-write", events);
}

#[test]
fn a_root_is_there_twice_that_led_to_itself_until_hardware_had_marked_it() {
    let events = "
        0 entry table=0x202 index=1 old=0 new=0x202003
        0 entry table=0x202 index=1 old=0x202403 new=0
        2 root top=0x202 order=0 levels=2 format=arm
        1 root top=0x202 order=0 levels=2 format=arm
    ";
    breaks("table-twice", events);
}

/// Tables 0x200 and 0x201, of which the first leads to the second, and an entry there that comes to have other `bits`, which
/// no write has set.
fn changed(bits: u64) -> String {
    format!(
        "0 entry table=0x200 index=0 old=0 new=0x201003
        0 entry table=0x201 index=1 old=0 new=0x20377d
        0 entry table=0x201 index=1 old={:#x} new=0",
        0x0020_377d ^ bits
    )
}

/// Arm's: accessed, and writable, which in other formats is accessed.
const ACCESSED: u64 = 1 << 10;
const WRITABLE: u64 = 1 << 7;

/// What has a table in a tree of Arm's format: a root that leads to it, a root that is the table, an entry, or a fill.
const LINKS: [&str; 4] = [
    "0 root top=0x200 order=0 levels=2 format=arm",
    "0 root top=0x201 order=0 levels=1 format=arm",
    "0 root top=0x202 order=0 levels=3 format=arm
    0 entry table=0x202 index=0 old=0 new=0x200003",
    "0 root top=0x202 order=0 levels=3 format=arm
    0 fill table=0x202 index=0 count=1 value=0x200003 step=0",
];

#[test]
fn hardware_has_set_no_bit_that_it_does_not_set_in_the_format_that_a_table_comes_to_have() {
    for link in LINKS {
        let found = |bits| rules("", &format!("{}\n{link}", changed(bits)));
        assert!(found(WRITABLE).contains(&"lost-write"), "{link}");
        let is_lost = found(ACCESSED).contains(&"lost-write");
        assert_eq!(is_lost, link.contains("fill"), "{link}");
    }
}

/// A page is mapped, comes to be readable and writable, and is unmapped; the first of these is written down last. In another
/// format hardware may have changed those bits.
#[test]
fn what_may_be_a_mark_waits_for_the_write_before() {
    let trace = "2 3 1 entry table=0x201 index=1 old=0x20373d new=0x20377d
4 5 1 entry table=0x201 index=1 old=0x20377d new=0x2037fd
7 8 1 entry table=0x201 index=1 old=0x2037fd new=0x0
1 9 0 entry table=0x201 index=1 old=0x0 new=0x20373d
10 11 0 root top=0x201 order=0 levels=1 format=arm
12 13 1 entry table=0x201 index=1 old=0x0 new=0x20373d
";
    keeps("lost-write", trace);
}

#[test]
fn what_may_be_a_mark_keeps_nothing_from_coming_after_it() {
    let events = |root: &str| {
        format!(
            "{root}
            0 entry table=0x201 index=1 old=0 new=0x203037
            0 entry table=0x201 index=1 old=0x204037 new=0x204137
            0 entry table=0x201 index=1 old=0x203037 new=0"
        )
    };
    assert_eq!(rules("", &events("")), [""; 0]);
    assert_eq!(rules("", &events("0 root top=0x201 order=0 levels=1 format=ept")), [""; 0]);
}

#[test]
fn of_what_may_be_a_mark_only_that_counts_which_it_changes() {
    let trace = "2 3 0 entry table=0x201 index=1 old=0x0 new=0x20377d
4 5 0 entry table=0x201 index=1 old=0x2033fd new=0x2037fd
1 6 0 root top=0x201 order=0 levels=1 format=arm
7 8 0 entry table=0x201 index=1 old=0x20377d new=0x0
";
    keeps("lost-write", trace);
    // The format is known last.
    let events = "
        0 entry table=0x201 index=1 old=0 new=0x20377d
        0 entry table=0x201 index=1 old=0x2033fd new=0x2037fd
        0 entry table=0x201 index=1 old=0x20377d new=0
        0 root top=0x201 order=0 levels=1 format=arm
    ";
    assert_eq!(rules("", events), [""; 0]);
}

#[test]
fn what_may_have_been_a_mark_is_none_that_is_missing_when_the_format_is_known() {
    let trace = "1 2 2 entry table=0x203 index=0 old=0x0 new=0x2017fd
4 5 0 entry table=0x203 index=0 old=0x20177d new=0x8
3 6 0 entry table=0x203 index=0 old=0x2017fd new=0x20177d
7 8 1 entry table=0x203 index=0 old=0x408 new=0x2017ff
9 10 1 root top=0x203 order=0 levels=3 format=arm
";
    keeps("lost-write", trace);
}

/// In the table's format, hardware does not make the page readable by itself.
#[test]
fn what_is_no_mark_in_the_format_of_its_table_has_been_written() {
    let events = "
        0 entry table=0x201 index=1 old=0 new=0x20373d
        0 entry table=0x201 index=1 old=0x20373d new=0x20377d
        0 root top=0x201 order=0 levels=1 format=arm
        0 entry table=0x201 index=1 old=0x20377d new=0
    ";
    assert_eq!(rules("", events), [""; 0]);
}
