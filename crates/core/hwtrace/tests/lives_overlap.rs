//! Events that overlap the end of a frame's life, or the beginning of the next: what they are of may be the table that was
//! in the frame before, or the one that came after.

mod common;

use common::broken;

/// Whether a trace breaks nothing where one of its events is `wide`, and `rule` where the event is `late` for certain.
#[track_caller]
fn overlaps(trace: impl Fn(&str) -> String, (wide, late): (&str, &str), rule: &str) {
    assert_eq!(broken(&trace(wide)), []);
    let found = broken(&trace(late));
    assert!(found.iter().any(|(name, _)| *name == rule), "{found:?}");
}

/// The page at frame 0x400, which as a block has a frame that is free; and the one at 0x40, which as a block has tables.
const BESIDE_FREE: &str = "0x4000b7";
const BESIDE_TABLES: &str = "0x400b7";

/// A page is mapped in a table. The table is gone before the page's record is written down, and `next` has its frame in a
/// tree, where the entry would map a block.
fn mapped_late(page: &str, next: &str) -> impl Fn(&str) -> String {
    move |mapped| {
        format!(
            "1 2 0 give frame=0x401 order=0
3 4 0 free frame=0x401 order=0
5 6 0 root top=0x100 order=0 levels=2 format=ept
7 8 0 give frame=0x200 order=0
9 10 0 entry table=0x100 index=0 old=0 new=0x200007
12 13 0 entry table=0x100 index=0 old=0x200007 new=0
14 15 0 free frame=0x200 order=0
16 17 0 give frame=0x200 order=0
{next}
{mapped} 1 entry table=0x200 index=0 old=0 new={page}
"
        )
    }
}

#[test]
fn a_page_may_have_been_mapped_before_its_table_became_a_root() {
    let next = "18 19 0 root top=0x200 order=0 levels=2 format=ept";
    overlaps(mapped_late(BESIDE_FREE, next), ("11 20", "20 21"), "free-frame");
    overlaps(mapped_late(BESIDE_TABLES, next), ("11 20", "20 21"), "table-mapped");
}

#[test]
fn a_page_may_have_been_mapped_before_its_table_came_into_another_tree() {
    let next = "18 19 0 root top=0x300 order=0 levels=3 format=ept
20 21 0 entry table=0x300 index=0 old=0 new=0x200007";
    overlaps(mapped_late(BESIDE_FREE, next), ("11 22", "22 23"), "free-frame");
    overlaps(mapped_late(BESIDE_TABLES, next), ("11 22", "22 23"), "table-mapped");
}

#[test]
fn a_root_that_may_have_been_freed_before_its_frame_is_given_out_again_is_none_any_more() {
    let trace = |freed: &str| {
        format!(
            "2 4 0 root top=0x200 order=0 levels=2 format=ept
1 5 0 give frame=0x200 order=0
{freed}7 8 0 root top=0x100 order=0 levels=2 format=ept
9 10 0 give frame=0x200 order=0
11 12 0 entry table=0x100 index=0 old=0 new=0x200007
"
        )
    };
    let good = trace("3 6 0 free frame=0x200 order=0\n");
    assert_eq!(broken(&good), []);
    // Nor is anything in doubt from then on.
    let again = "entry table=0x100 index=1 old=0 new=0x200007";
    let twice = [("table-twice", again.to_string())];
    assert_eq!(broken(&format!("{good}13 14 0 {again}\n")), twice);
    let trace = trace("");
    let never_given: Vec<&str> = trace.lines().filter(|line| !line.contains("give")).collect();
    let found = broken(&never_given.join("\n"));
    assert!(found.iter().any(|(rule, _)| *rule == "table-twice"), "{found:?}");
}

#[test]
fn a_root_may_lead_to_a_frame_that_may_have_been_a_root_before() {
    let trace = |before: &str, root: &str| {
        format!(
            "1 2 0 give frame=0x200 order=0
6 7 0 free frame=0x200 order=0
8 10 0 give frame=0x200 order=0
{before} 0 root top=0x200 order=0 levels=2 format=ept
14 15 0 entry table=0x100 index=0 old=0 new=0x200007
{root} 0 root top=0x100 order=0 levels=2 format=ept
"
        )
    };
    assert_eq!(broken(&trace("3 11", "4 16")), []);
    let found = broken(&trace("12 13", "16 17"));
    assert!(found.iter().any(|(rule, _)| *rule == "table-twice"), "{found:?}");
}

/// A page is mapped while the frame of its table, which was a root, becomes a table of pages.
#[test]
fn a_page_that_may_have_been_mapped_after_its_table_was_a_root_is_no_table() {
    let trace = "1 2 0 vmid-take vmid=2 generation=1
3 4 0 give frame=0x100 order=0
5 6 0 root top=0x100 order=0 levels=3 format=ept
9 10 0 give frame=0x300 order=0
11 12 0 entry table=0x100 index=0 old=0 new=0x300007
17 18 0 give frame=0x200 order=0
19 20 0 root top=0x200 order=0 levels=3 format=ept
21 22 0 give frame=0x600 order=9
23 25 0 entry table=0x300 index=0 old=0 new=0x6000b7
33 34 0 entry table=0x300 index=0 old=0x6000b7 new=0x8
36 37 0 entry table=0x200 index=94 old=0x65e035 new=0x8
28 38 0 free frame=0x200 order=0
31 39 0 give frame=0x200 order=0
32 40 0 fill table=0x200 index=0 count=512 value=0x600035 step=0x1000
35 41 0 entry table=0x300 index=0 old=8 new=0x200007
24 42 0 entry table=0x200 index=94 old=8 new=0x65e037
43 44 0 enter tlb=5 top=0x100 vmid=2
45 46 0 access tlb=5 vmid=2 gfn=0x5e frame=0x65e write=1
";
    assert_eq!(broken(trace), []);
}

#[test]
fn a_table_that_may_have_been_filled_before_it_was_freed_is_empty_when_its_frame_is_given_out_again()
 {
    let trace = |freed: &str| {
        format!(
            "3 4 0 free frame=0x200 order=0
1 5 0 give frame=0x200 order=0
6 8 0 give frame=0x200 order=0
9 10 0 fill table=0x200 index=0 count=512 value=0x600035 step=0x1000
{freed} 0 free frame=0x200 order=0
14 15 0 give frame=0x200 order=0
16 17 0 entry table=0x200 index=9 old=0 new=0x700037
18 19 0 root top=0x100 order=0 levels=2 format=ept
20 21 0 entry table=0x100 index=0 old=0 new=0x200007
"
        )
    };
    assert_eq!(broken(&trace("7 11")), []);
}

#[test]
fn a_table_may_be_given_out_while_the_table_that_leads_to_it_comes_into_a_tree() {
    let trace = |given: &str| {
        format!(
            "1 2 0 root top=0x100 order=0 levels=3 format=arm
3 4 0 vmid-take vmid=2 generation=1
5 6 0 give frame=0x200 order=0
7 8 0 give frame=0x700 order=0
13 14 0 entry table=0x200 index=0 old=8 new=0x300003
11 16 0 entry table=0x100 index=0 old=0 new=0x200003
{given} 0 give frame=0x300 order=0
19 20 0 entry table=0x300 index=9 old=0 new=0x7007ff
21 22 0 barrier orders=walks
23 24 0 enter tlb=0 top=0x100 vmid=2
25 26 0 access tlb=0 vmid=2 gfn=9 frame=0x700 write=1
"
        )
    };
    assert_eq!(broken(&trace("12 17")), []);
}

#[test]
fn a_root_may_be_none_any_more_while_a_write_of_it_is_written_down() {
    let trace = |written: &str| {
        format!(
            "1 2 0 give frame=0x200 order=0
3 4 0 root top=0x200 order=0 levels=2 format=arm
5 6 0 give frame=0x300 order=0
7 8 0 entry table=0x200 index=0 old=0 new=0x300003
10 11 0 free frame=0x200 order=0
12 14 0 give frame=0x200 order=0
15 16 0 root top=0x200 order=0 levels=2 format=arm
13 17 0 free frame=0x200 order=0
{written} 0 entry table=0x200 index=0 old=0x300003 new=0
18 20 0 give frame=0x200 order=0
21 22 0 root top=0x200 order=0 levels=2 format=arm
"
        )
    };
    assert_eq!(broken(&trace("9 19")), []);
}

#[test]
fn a_root_may_be_none_any_more_while_an_entry_is_written_of_the_table_that_comes_after() {
    let trace = "3 4 0 root top=0x200 order=0 levels=2 format=arm
10 11 0 free frame=0x200 order=0
12 14 0 give frame=0x200 order=0
15 16 0 root top=0x200 order=0 levels=2 format=arm
13 17 0 free frame=0x200 order=0
18 20 0 entry table=0x200 index=1 old=0 new=0x400003
19 21 0 give frame=0x200 order=0
22 23 0 root top=0x200 order=0 levels=2 format=arm
";
    assert_eq!(broken(trace), []);
}

/// An entry is written while the frame of its table is given out. Afterwards that frame is a root.
#[test]
fn a_root_may_have_its_frame_from_a_table_whose_entry_led_elsewhere() {
    let trace = |written: &str| {
        format!(
            "1 2 0 root top=0x100 order=0 levels=4 format=ept
4 5 0 entry table=0x100 index=0 old=8 new=0x300107
6 7 0 give frame=0x200 order=0
{written} 0 entry table=0x200 index=206 old=8 new=0x300137
10 11 0 root top=0x200 order=0 levels=4 format=ept
"
        )
    };
    assert_eq!(broken(&trace("3 9")), []);
    let found = broken(&trace("8 9"));
    assert!(found.iter().any(|(rule, _)| *rule == "table-twice"), "{found:?}");
}

/// The same, where the frame is that of a table which comes into a tree.
#[test]
fn a_table_may_have_its_frame_from_one_whose_entry_led_elsewhere() {
    let trace = |written: &str| {
        format!(
            "1 2 0 root top=0x100 order=0 levels=3 format=ept
4 5 0 entry table=0x100 index=0 old=8 new=0x300107
6 7 0 give frame=0x200 order=0
{written} 0 entry table=0x200 index=206 old=8 new=0x300137
10 11 0 root top=0x400 order=0 levels=4 format=ept
12 13 0 entry table=0x400 index=0 old=8 new=0x200107
"
        )
    };
    assert_eq!(broken(&trace("3 9")), []);
    let found = broken(&trace("8 9"));
    assert!(found.iter().any(|(rule, _)| *rule == "table-twice"), "{found:?}");
}

/// A page is written in a table that hangs in one of no tree. That one comes into a tree late, or not at all.
#[test]
fn hardware_may_have_marked_a_page_of_a_tree_that_is_known_late() {
    let trace = "1 2 0 root top=0x100 order=0 levels=4 format=ept
4 5 0 entry table=0x200 index=0 old=8 new=0x300107
6 7 0 entry table=0x300 index=0 old=8 new=0x400107
8 9 0 entry table=0x400 index=83 old=8 new=0x253137
10 11 0 entry table=0x400 index=83 old=0x253337 new=0x253335
12 13 0 free frame=0x400 order=0
";
    let late = "3 14 0 entry table=0x100 index=0 old=8 new=0x200107\n";
    assert_eq!(broken(&format!("{trace}{late}")), []);
    let found = broken(trace);
    assert!(found.iter().any(|(rule, _)| *rule == "lost-write"), "{found:?}");
}

/// The first write is of the frame's life before. The page that takes the place of another is found all the same.
#[test]
fn a_write_that_waits_ends_with_its_table_when_the_frame_is_given_out() {
    let trace = "1 3 1 give frame=0x202 order=0
2 4 1 free frame=0x202 order=0
5 6 1 entry table=0x202 index=1 old=0x203007 new=0x0
7 8 1 give frame=0x202 order=0
9 10 0 root top=0x202 order=0 levels=1 format=arm
11 12 0 entry table=0x202 index=1 old=0x0 new=0x2037ff
13 14 0 entry table=0x202 index=1 old=0x2037ff new=0x2047ff
";
    let found = broken(trace);
    let is_it = |(name, event): &(&str, String)| {
        *name == "break-before-make" && event.contains("new=0x2047ff")
    };
    assert!(found.iter().any(is_it), "{found:?}");
}
