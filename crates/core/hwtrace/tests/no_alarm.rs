//! Events that overlap: where one order of them breaks no rule, there is no alarm.

mod common;

use common::broken;

/// Whether a trace breaks nothing as it is, and some rule where the event that overlaps another comes after that for
/// certain.
#[track_caller]
fn overlaps(trace: &str, later: &str, rule: &str) {
    assert_eq!(broken(trace), []);
    let found = broken(later);
    assert!(found.iter().any(|(name, _)| *name == rule), "{found:?}");
}

#[test]
fn a_guest_may_be_entered_while_its_root_is_made() {
    let with = |root: &str, enter: &str| {
        format!(
            "1 2 0 vmid-take vmid=7 generation=1\n{enter} 1 enter tlb=1 top=0x100 vmid=7\n{root} 0 root top=0x100 order=0 levels=1 format=arm\n"
        )
    };
    overlaps(&with("3 6", "4 5"), &with("6 7", "4 5"), "root-gone");
}

#[test]
fn a_guest_that_is_entered_while_its_root_is_made_takes_a_vmid_all_the_same() {
    let with = |taken: &str| {
        format!(
            "{taken}4 5 1 enter tlb=1 top=0x100 vmid=7\n3 6 0 root top=0x100 order=0 levels=1 format=arm\n"
        )
    };
    assert_eq!(broken(&with("1 2 0 vmid-take vmid=7 generation=1\n")), []);
    let enter = "enter tlb=1 top=0x100 vmid=7".to_string();
    assert_eq!(broken(&with("")), [("vmid-not-taken", enter)]);
}

#[test]
fn a_vmid_may_be_taken_while_a_guest_is_entered_under_it() {
    let with = |taken: &str, enter: &str| {
        format!(
            "1 2 0 root top=0x100 order=0 levels=1 format=arm\n{enter} 1 enter tlb=1 top=0x100 vmid=7\n{taken} 0 vmid-take vmid=7 generation=1\n"
        )
    };
    overlaps(&with("3 6", "4 5"), &with("6 7", "4 5"), "vmid-not-taken");
}

const ENTERED: &str = "1 2 0 root top=0x100 order=0 levels=1 format=arm
3 4 0 vmid-take vmid=7 generation=1
5 6 1 enter tlb=1 top=0x100 vmid=7
";

#[test]
fn a_vmid_may_be_given_back_while_its_guest_is_left() {
    let with =
        |leave: &str| format!("{ENTERED}11 12 0 vmid-give vmid=7\n{leave} 1 leave tlb=1 vmid=7\n");
    overlaps(&with("10 13"), &with("13 14"), "vmid-not-taken");
}

#[test]
fn a_root_may_go_while_its_guest_is_left() {
    let with = |leave: &str| {
        format!("{ENTERED}11 12 0 root-gone top=0x100\n{leave} 1 leave tlb=1 vmid=7\n")
    };
    overlaps(&with("10 13"), &with("13 14"), "root-gone");
}

#[test]
fn a_guest_may_be_entered_while_the_wait_for_its_vmid_to_be_forgotten_ends() {
    let with = |sync: &str| {
        format!(
            "{ENTERED}7 8 1 leave tlb=1 vmid=7
9 10 0 barrier orders=walks
11 12 0 tlbi-all id=1 vmid=7
13 14 0 root top=0x200 order=0 levels=1 format=arm
16 17 1 enter tlb=1 top=0x200 vmid=7
{sync} 0 tlbi-sync id=1\n"
        )
    };
    overlaps(&with("15 18"), &with("18 19"), "vmid-reused");
}

#[test]
fn a_guest_may_be_left_while_its_vmid_is_forgotten() {
    let with = |leave: &str, next: &str| {
        format!(
            "{ENTERED}9 10 0 barrier orders=walks
11 12 0 tlbi-all id=1 vmid=7
{leave} 1 leave tlb=1 vmid=7
15 16 0 tlbi-sync id=1
17 18 0 root top=0x200 order=0 levels=1 format=arm
{next} 2 enter tlb=2 top=0x200 vmid=7\n"
        )
    };
    overlaps(&with("8 13", "19 20"), &with("13 14", "19 20"), "vmid-reused");
}

#[test]
fn a_guest_may_be_left_while_what_it_used_is_freed() {
    let with = |leave: &str| {
        format!(
            "1 2 0 root top=0x100 order=0 levels=1 format=arm
3 4 0 entry table=0x100 index=0 old=0 new=0x417ff
5 6 0 barrier orders=walks
7 8 0 vmid-take vmid=7 generation=1
9 10 1 enter tlb=1 top=0x100 vmid=7
11 12 0 entry table=0x100 index=0 old=0x417ff new=0
13 14 0 barrier orders=walks
15 16 0 tlbi-all id=1 vmid=7
18 19 0 free frame=0x41 order=0
20 21 0 tlbi-sync id=1
{leave} 1 leave tlb=1 vmid=7\n"
        )
    };
    overlaps(&with("17 22"), &with("22 23"), "frame-freed");
}

#[test]
fn of_two_completions_the_one_that_began_first_counts_though_it_is_written_down_last() {
    let with = |first: &str| {
        format!(
            "{ENTERED}7 8 0 entry table=0x100 index=0 old=0 new=0x417ff
9 10 0 entry table=0x100 index=0 old=0x417ff new=0
11 12 0 barrier orders=walks
13 14 0 tlbi-all id=1 vmid=7
17 18 0 entry table=0x100 index=0 old=0 new=0x517ff
19 20 2 barrier orders=walks
21 22 2 tlbi-all id=2 vmid=7
23 24 2 tlbi-sync id=2
{first} 0 tlbi-sync id=1\n"
        )
    };
    overlaps(&with("15 25"), &with("25 26"), "break-before-make");
}

#[test]
fn a_barrier_counts_for_a_write_that_is_written_down_after_it() {
    let with = |write: &str| {
        format!(
            "1 2 0 root top=0x100 order=0 levels=1 format=arm
3 4 0 vmid-take vmid=7 generation=1
7 8 0 barrier orders=walks
{write} 0 entry table=0x100 index=0 old=0 new=0x417ff
13 14 0 enter tlb=1 top=0x100 vmid=7\n"
        )
    };
    overlaps(&with("6 9"), &with("9 10"), "no-barrier");
}

#[test]
fn an_entry_may_have_had_one_value_twice() {
    // Absent, page, absent, page: what made it absent first is written down last.
    let trace = "1 2 0 root top=0x100 order=0 levels=1 format=arm
3 4 0 entry table=0x100 index=0 old=0 new=0x417ff
8 9 2 entry table=0x100 index=0 old=0x417ff new=0
10 11 2 entry table=0x100 index=0 old=0 new=0x517ff
7 12 1 entry table=0x100 index=0 old=0 new=0x417ff
5 13 0 entry table=0x100 index=0 old=0x417ff new=0";
    assert_eq!(broken(trace), []);
}

#[test]
fn a_frame_may_be_a_table_again_while_its_last_entry_is_written_down() {
    let trace = "1 2 0 root top=0x100 order=0 levels=2 format=ept
3 4 0 give frame=0x200 order=0
5 6 0 entry table=0x100 index=0 old=0 new=0x200007
7 8 0 entry table=0x200 index=0 old=0 new=0x41037
11 12 0 entry table=0x100 index=0 old=0x200007 new=0
13 14 0 free frame=0x200 order=0
15 16 0 give frame=0x200 order=0
17 18 0 entry table=0x200 index=0 old=0 new=0x42037
19 20 0 entry table=0x100 index=1 old=0 new=0x200007
9 21 1 entry table=0x200 index=0 old=0x41037 new=0";
    assert_eq!(broken(trace), []);
}

/// A guest is left for good, its VMID forgotten, and its page given back before its root.
const LEFT_BEHIND: &str = "1 2 0 root top=0x100 order=0 levels=1 format=ept
3 4 0 give frame=0x300 order=0
5 6 0 entry table=0x100 index=0 old=0 new=0x300037
7 8 0 vmid-take vmid=7 generation=1
9 10 1 enter tlb=1 top=0x100 vmid=7
11 12 1 leave tlb=1 vmid=7
13 14 0 tlbi-all id=1 vmid=7
15 16 0 tlbi-sync id=1
17 18 0 root top=0x400 order=0 levels=2 format=ept
19 20 0 free frame=0x300 order=0
21 22 0 give frame=0x300 order=0
23 24 0 entry table=0x400 index=0 old=0 new=0x300007
";

#[test]
fn a_page_may_become_a_table_while_a_tree_that_no_cpu_walks_maps_it() {
    assert_eq!(broken(LEFT_BEHIND), []);
    let kept = LEFT_BEHIND.replace("19 20 0 free frame=0x300 order=0\n", "");
    let kept = kept.replace("21 22 0 give frame=0x300 order=0\n", "");
    assert_eq!(
        broken(&kept),
        [("table-mapped", "entry table=0x400 index=0 old=0 new=0x300007".to_string())]
    );
    let entered = "25 26 1 enter tlb=1 top=0x100 vmid=7\n";
    let used = "27 28 1 access tlb=1 vmid=7 gfn=0 frame=0x300 write=1\n";
    let found = broken(&format!("{LEFT_BEHIND}{entered}{used}"));
    assert!(found.iter().any(|(rule, _)| *rule == "table-mapped"), "{found:?}");
}

#[test]
fn a_frame_that_is_free_may_come_back_into_the_tree_of_a_root_that_no_cpu_enters_again() {
    let with = |enter: &str| {
        format!(
            "1 2 0 give frame=0x41 order=0
3 4 0 root top=0x100 order=0 levels=1 format=arm
5 6 0 entry table=0x100 index=0 old=0 new=0x417ff
7 8 0 barrier orders=walks
9 10 0 vmid-take vmid=7 generation=1
11 12 1 enter tlb=1 top=0x100 vmid=7
13 14 1 leave tlb=1 vmid=7
15 16 1 entry table=0x100 index=0 old=0x417ff new=0x2
17 18 0 free frame=0x41 order=0
19 20 1 entry table=0x100 index=0 old=0x2 new=0x417ff
{enter}25 26 0 tlbi-all id=1 vmid=7
27 28 0 tlbi-sync id=1
29 30 0 vmid-give vmid=7
31 32 0 root-gone top=0x100
"
        )
    };
    let again = "21 22 1 enter tlb=1 top=0x100 vmid=7\n23 24 1 leave tlb=1 vmid=7\n";
    overlaps(&with(""), &with(again), "free-frame");
}
