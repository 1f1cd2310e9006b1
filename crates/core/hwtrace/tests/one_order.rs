//! Rules that one order of the tickets keeps, and another breaks. Each is of a trace that was drawn.

mod common;

use common::broken;

/// A trace does not break `rule` in one order of its tickets. It may break others.
#[track_caller]
fn keeps(rule: &str, trace: &str) {
    let found = broken(trace);
    assert!(found.iter().all(|(name, _)| *name != rule), "{found:?}");
}

#[test]
fn a_root_that_may_have_come_after_it_was_gone_is_there_when_its_frame_is_given_out() {
    let trace = "1 3 0 root-gone top=0x201
2 4 1 root top=0x201 order=0 levels=1 format=npt
5 6 0 give frame=0x201 order=0
7 8 0 enter tlb=0 top=0x201 vmid=2
";
    keeps("root-gone", trace);
}

#[test]
fn a_root_that_may_be_gone_has_no_other_in_its_tree() {
    let trace = "1 2 2 root top=0x202 order=0 levels=2 format=ept
3 4 0 give frame=0x202 order=0
6 7 1 root-gone top=0x202
5 8 2 root top=0x202 order=1 levels=2 format=ept
9 10 1 root top=0x203 order=0 levels=3 format=ept
";
    keeps("table-twice", trace);
}

#[test]
fn a_guest_may_have_been_entered_after_its_root_was_gone() {
    let trace = "1 2 0 root top=0x203 order=0 levels=1 format=ept
3 4 0 enter tlb=0 top=0x203 vmid=1
5 7 1 enter tlb=1 top=0x203 vmid=1
6 8 0 root-gone top=0x203
9 10 0 access tlb=0 vmid=1 gfn=0x1 frame=0x0 write=0
";
    keeps("stale-access", trace);
}

#[test]
fn a_vmid_may_have_been_another_roots_when_its_root_was_gone() {
    let trace = "2 3 0 entry table=0x202 index=1 old=0x0 new=0x202087
4 5 1 root top=0x200 order=0 levels=2 format=npt
6 7 1 enter tlb=1 top=0x200 vmid=1
8 9 2 entry table=0x202 index=1 old=0x202087 new=0x0
1 11 0 root-gone top=0x202
10 12 2 root top=0x202 order=0 levels=3 format=npt
13 14 1 enter tlb=1 top=0x202 vmid=1
15 16 1 entry table=0x200 index=1 old=0x0 new=0x2030e7
17 18 1 free frame=0x203 order=0
";
    keeps("frame-freed", trace);
}

#[test]
fn a_table_may_be_freed_under_a_vmid_that_another_root_has_meanwhile() {
    let trace = "1 2 0 root top=0x202 order=0 levels=1 format=arm
3 4 2 enter tlb=2 top=0x202 vmid=1
5 6 2 root top=0x203 order=0 levels=1 format=arm
8 9 2 free frame=0x202 order=0
7 10 0 enter tlb=0 top=0x203 vmid=1
";
    keeps("table-freed", trace);
    // So may a page be used.
    let trace = "1 2 0 root top=0x202 order=0 levels=1 format=npt
3 4 0 enter tlb=0 top=0x202 vmid=1
5 6 0 root top=0x201 order=0 levels=1 format=npt
8 9 0 access tlb=0 vmid=1 gfn=0x0 frame=0x201 write=0
7 10 1 enter tlb=1 top=0x201 vmid=1
";
    keeps("stale-access", trace);
}

#[test]
fn a_tlb_may_be_used_outside_of_its_guest() {
    let trace = "1 2 2 root top=0x201 order=0 levels=1 format=ept
3 5 2 enter tlb=2 top=0x201 vmid=1
4 6 2 leave tlb=2 vmid=1
7 8 0 enter tlb=0 top=0x201 vmid=1
9 10 2 access tlb=2 vmid=1 gfn=0x0 frame=0x204 write=0
";
    keeps("stale-access", trace);
}

#[test]
fn a_page_may_have_been_taken_away_after_an_invalidation_that_is_complete() {
    let trace = "2 3 1 root top=0x201 order=0 levels=1 format=npt
4 5 1 enter tlb=1 top=0x201 vmid=1
6 7 2 tlbi-sync id=2
8 9 2 entry table=0x201 index=1 old=0x0 new=0x200087
1 11 2 tlbi-all id=1 vmid=1
10 12 2 entry table=0x201 index=1 old=0x200087 new=0x202097
13 14 1 access tlb=1 vmid=1 gfn=0x1 frame=0x200 write=1
";
    keeps("stale-access", trace);
    let trace = "1 2 2 root top=0x203 order=0 levels=2 format=riscv
3 4 2 enter tlb=2 top=0x203 vmid=2
5 6 1 free frame=0x202 order=0
8 9 2 tlbi-sync id=1
10 11 1 entry table=0x203 index=1 old=0x0 new=0x8045f
12 13 1 entry table=0x203 index=1 old=0x8045f new=0x80801
7 14 2 tlbi id=1 vmid=2 first=0x200 end=0x4b200 stride=512 reach=any
";
    keeps("no-barrier", trace);
}

#[test]
fn a_guest_may_have_been_entered_after_all_of_its_vmid_was_invalidated() {
    let trace = "1 2 0 root top=0x202 order=0 levels=2 format=arm-fwb
3 4 0 enter tlb=0 top=0x202 vmid=1
5 6 0 leave tlb=0 vmid=1
7 8 2 entry table=0x202 index=0 old=0x0 new=0x2007fd
9 10 0 entry table=0x202 index=0 old=0x2007fd new=0x8
11 12 1 tlbi-all id=2 vmid=1
14 15 1 enter tlb=1 top=0x202 vmid=1
13 16 1 tlbi-sync id=2
17 18 0 free frame=0x200 order=0
";
    keeps("frame-freed", trace);
    keeps("no-barrier", trace);
}

#[test]
fn a_guest_may_have_been_entered_before_all_of_its_vmid_was_invalidated() {
    let trace = "1 2 0 root top=0x203 order=0 levels=3 format=riscv
4 5 1 enter tlb=1 top=0x203 vmid=1
6 7 1 entry table=0x203 index=1 old=0x0 new=0x80801
8 9 1 free frame=0x201 order=1
10 11 2 entry table=0x203 index=1 old=0x80801 new=0x800db
12 13 1 give frame=0x202 order=0
14 15 1 entry table=0x203 index=1 old=0x800db new=0x80801
16 17 1 leave tlb=1 vmid=1
18 19 2 tlbi-all id=2 vmid=1
20 21 2 tlbi-sync id=2
3 22 2 enter tlb=2 top=0x203 vmid=1
23 24 1 barrier orders=walks
25 26 2 tlbi-everything id=3
";
    keeps("free-frame", trace);
}

#[test]
fn an_entry_that_maps_a_free_frame_may_be_gone_before_an_invalidation() {
    let trace = "1 2 1 root top=0x203 order=0 levels=3 format=npt
3 4 1 enter tlb=1 top=0x203 vmid=1
5 6 2 free frame=0x201 order=0
7 8 1 entry table=0x203 index=1 old=0x0 new=0x200085
10 11 0 tlbi-all id=1 vmid=1
12 13 1 root-gone top=0x203
9 14 0 entry table=0x203 index=1 old=0x200085 new=0x8
15 16 2 free frame=0x202 order=0
";
    keeps("frame-freed", trace);
}

#[test]
fn a_frame_may_be_free_before_it_is_mapped_and_unmapped() {
    let trace = "2 3 1 root top=0x200 order=0 levels=2 format=riscv
4 5 2 entry table=0x200 index=1 old=0x0 new=0x800db
6 7 1 enter tlb=1 top=0x200 vmid=2
8 9 0 entry table=0x200 index=1 old=0x800db new=0x80801
1 10 1 free frame=0x203 order=0
";
    keeps("frame-freed", trace);
}

#[test]
fn a_table_that_is_freed_may_have_left_its_pages_in_tlbs() {
    let trace = "1 2 0 fill table=0x200 index=0 count=2 value=0x202097 step=0x0
3 4 0 root top=0x200 order=0 levels=2 format=npt
5 6 2 enter tlb=2 top=0x200 vmid=1
8 9 2 free frame=0x200 order=0
7 10 2 free frame=0x204 order=0
11 12 1 root top=0x200 order=0 levels=1 format=npt
13 14 2 access tlb=2 vmid=1 gfn=0x0 frame=0x200 write=1
";
    keeps("stale-access", trace);
}

/// The write of an entry has the checker look for what leads to its table, which was written after the fill.
#[test]
fn a_table_is_filled_after_a_write_that_ended_before() {
    let trace = "1 2 1 entry table=0x203 index=1 old=0x0 new=0x80401
3 5 0 entry table=0x203 index=1 old=0x80401 new=0x8
6 7 2 fill table=0x203 index=0 count=512 value=0x8005f step=0x0
4 8 2 entry table=0x203 index=0 old=0x8005f new=0x80c01
9 10 2 entry table=0x203 index=1 old=0x8005f new=0x81001
";
    assert_eq!(broken(trace), []);
}

#[test]
fn a_write_that_waits_does_not_come_after_a_fill_that_it_came_before() {
    let trace = "1 2 2 entry table=0x204 index=0 old=0x0 new=0x203003
3 4 0 entry table=0x201 index=0 old=0x0 new=0x200003
5 7 0 give frame=0x204 order=0
6 8 0 root top=0x204 order=0 levels=2 format=arm
9 10 2 entry table=0x201 index=0 old=0x200403 new=0x8
11 12 1 entry table=0x204 index=0 old=0x0 new=0x201003
13 14 1 entry table=0x204 index=0 old=0x201003 new=0x8
15 16 0 fill table=0x201 index=0 count=2 value=0x203003 step=0x0
";
    keeps("lost-write", trace);
}

#[test]
fn an_entry_may_be_written_before_its_table_is_filled() {
    let trace = "2 3 1 fill table=0x202 index=0 count=512 value=0x201097 step=0x0
1 4 0 entry table=0x202 index=1 old=0x0 new=0x200007
6 7 2 entry table=0x202 index=0 old=0x201097 new=0x0
5 8 1 entry table=0x202 index=1 old=0x201097 new=0x202007
";
    assert_eq!(broken(trace), []);
}

#[test]
fn a_table_that_is_filled_late_has_what_it_leads_to_in_a_tree() {
    let trace = "2 3 2 entry table=0x201 index=1 old=0x0 new=0x202007
4 5 0 entry table=0x201 index=1 old=0x202047 new=0x8
6 7 2 root top=0x202 order=0 levels=3 format=npt
1 8 2 fill table=0x202 index=0 count=1 value=0x201007 step=0x0
";
    assert_eq!(broken(trace), []);
}

#[test]
fn a_frame_that_may_be_given_out_while_it_becomes_a_root_is_empty_when_it_is_given_out_again() {
    let trace = "1 2 2 entry table=0x204 index=0 old=0x0 new=0x2020e7
3 5 1 give frame=0x204 order=0
4 6 1 root top=0x204 order=0 levels=1 format=npt
7 8 1 give frame=0x204 order=0
9 10 0 entry table=0x204 index=0 old=0x0 new=0x202007
";
    keeps("lost-write", trace);
}
