//! Rules that one order of the tickets keeps, and another breaks. Each is of a trace that was drawn.

mod common;

use common::{broken, keeps};

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

#[test]
fn a_guest_may_have_been_entered_before_its_root_is_free() {
    let trace = "1 2 2 root top=0x200 order=0 levels=2 format=ept
3 4 0 entry table=0x200 index=0 old=0x0 new=0x204087
6 7 2 free frame=0x200 order=0
5 8 2 enter tlb=2 top=0x200 vmid=2
9 10 2 root top=0x200 order=0 levels=2 format=ept
11 12 0 enter tlb=0 top=0x200 vmid=2
13 14 0 access tlb=0 vmid=2 gfn=0x0 frame=0x200 write=0
";
    keeps("stale-access", trace);
}

#[test]
fn a_barrier_may_have_come_before_the_write_that_an_invalidation_needs_it_for() {
    let trace = "1 2 0 root top=0x201 order=0 levels=2 format=arm-fwb
4 5 0 enter tlb=0 top=0x201 vmid=2
6 7 1 entry table=0x201 index=0 old=0x0 new=0x2023fd
3 9 0 barrier orders=walks
8 10 2 entry table=0x201 index=0 old=0x2023fd new=0x200003
11 12 0 tlbi-all id=1 vmid=2
13 14 0 tlbi-sync id=1
15 16 0 access tlb=0 vmid=2 gfn=0x0 frame=0x200 write=1
";
    keeps("stale-access", trace);
}

#[test]
fn an_invalidation_may_have_missed_what_another_reaches_when_the_trace_ends() {
    let trace = "1 2 2 root top=0x201 order=0 levels=2 format=riscv
3 4 2 enter tlb=2 top=0x201 vmid=1
5 6 1 entry table=0x201 index=1 old=0x0 new=0x8001f
7 8 1 entry table=0x201 index=1 old=0x8005f new=0x81001
9 10 0 barrier orders=walks
11 12 2 free frame=0x202 order=0
14 15 2 tlbi-sync id=3
16 17 0 tlbi id=4 vmid=1 first=0x0 end=0x258 stride=1 reach=any
13 19 2 tlbi id=3 vmid=1 first=0x0 end=0x4b000 stride=512 reach=leaves
18 20 1 barrier orders=walks
";
    keeps("frame-freed", trace);
}

#[test]
fn a_guest_may_use_what_another_root_has_left_under_its_vmid() {
    let trace = "1 2 2 root top=0x204 order=0 levels=1 format=ept
3 4 1 entry table=0x204 index=1 old=0x0 new=0x2011b7
5 7 1 free frame=0x201 order=0
8 9 2 enter tlb=2 top=0x204 vmid=2
6 10 2 give frame=0x201 order=0
11 12 2 root top=0x202 order=0 levels=3 format=ept
13 14 2 enter tlb=2 top=0x202 vmid=2
15 16 2 access tlb=2 vmid=2 gfn=0x1 frame=0x201 write=0
";
    keeps("stale-access", trace);
}

#[test]
fn a_root_may_have_left_what_it_had_under_its_vmid_for_another_in_its_frame() {
    let trace = "1 2 0 free frame=0x204 order=0
3 4 0 root top=0x201 order=0 levels=3 format=arm-fwb
5 6 0 enter tlb=0 top=0x201 vmid=1
7 8 1 entry table=0x201 index=0 old=0x0 new=0x20477d
9 11 2 tlbi-all id=2 vmid=1
12 13 2 tlbi-sync id=2
10 14 0 leave tlb=0 vmid=1
15 16 1 root-gone top=0x201
17 18 1 root top=0x201 order=0 levels=1 format=arm-fwb
19 20 1 enter tlb=1 top=0x201 vmid=1
21 22 1 access tlb=1 vmid=1 gfn=0x0 frame=0x0 write=0
";
    keeps("stale-access", trace);
}

#[test]
fn a_vmid_may_be_of_a_root_that_was_in_the_frame_before() {
    let trace = "1 2 2 root top=0x203 order=0 levels=2 format=npt
3 5 1 enter tlb=1 top=0x203 vmid=1
4 6 2 root-gone top=0x203
7 8 0 root top=0x203 order=0 levels=3 format=npt
9 10 0 enter tlb=0 top=0x203 vmid=1
11 12 0 access tlb=0 vmid=1 gfn=0x0 frame=0x203 write=0
";
    keeps("stale-access", trace);
}

#[test]
fn a_guest_may_be_entered_late_of_a_root_that_was_in_the_frame_before() {
    let trace = "1 2 2 root top=0x204 order=0 levels=2 format=riscv
4 5 2 root-gone top=0x204
6 7 1 root top=0x204 order=0 levels=3 format=riscv
8 9 0 enter tlb=0 top=0x204 vmid=2
10 11 0 access tlb=0 vmid=2 gfn=0x0 frame=0x0 write=1
3 12 2 enter tlb=2 top=0x204 vmid=2
";
    keeps("stale-access", trace);
}

#[test]
fn a_guest_may_be_left_after_all_of_its_vmid_was_invalidated() {
    let trace = "1 2 2 root top=0x204 order=0 levels=3 format=riscv
3 4 2 enter tlb=2 top=0x204 vmid=2
5 7 0 tlbi-all id=1 vmid=2
8 9 0 tlbi-sync id=1
10 11 2 entry table=0x204 index=0 old=0x0 new=0x8081f
12 13 1 entry table=0x204 index=0 old=0x8081f new=0x80401
6 14 2 leave tlb=2 vmid=2
15 16 0 enter tlb=0 top=0x204 vmid=2
17 18 0 access tlb=0 vmid=2 gfn=0x0 frame=0x0 write=0
";
    keeps("stale-access", trace);
}

#[test]
fn an_entry_that_maps_a_free_frame_may_be_gone_before_its_root() {
    let trace = "1 2 2 root top=0x204 order=0 levels=2 format=ept
3 4 1 enter tlb=1 top=0x204 vmid=2
5 6 2 free frame=0x200 order=0
7 8 1 entry table=0x204 index=0 old=0x0 new=0x2001b7
10 11 0 root-gone top=0x204
9 12 2 entry table=0x204 index=0 old=0x2001b7 new=0x8
13 14 0 tlbi id=3 vmid=2 first=0x1 end=0x2 stride=1 reach=sizes
15 16 1 free frame=0x200 order=0
";
    keeps("frame-freed", trace);
}

#[test]
fn what_a_table_may_have_had_before_is_not_what_it_has_when_it_is_a_root_again() {
    let trace = "1 2 0 entry table=0x204 index=0 old=0x0 new=0x804db
3 5 1 give frame=0x204 order=0
4 6 1 root top=0x204 order=0 levels=2 format=riscv
7 8 1 enter tlb=1 top=0x204 vmid=1
9 10 0 free frame=0x204 order=0
11 12 2 free frame=0x200 order=0
13 14 1 enter tlb=1 top=0x204 vmid=1
15 16 1 give frame=0x204 order=0
17 18 1 root top=0x204 order=0 levels=2 format=riscv
19 20 1 entry table=0x204 index=0 old=0x0 new=0x8081f
21 22 2 entry table=0x204 index=0 old=0x8081f new=0x0
";
    keeps("frame-freed", trace);
}

#[test]
fn an_entry_may_map_a_root_that_is_freed_meanwhile() {
    let trace = "1 2 0 root top=0x200 order=0 levels=3 format=npt
3 4 0 enter tlb=0 top=0x200 vmid=1
5 6 0 entry table=0x200 index=0 old=0x0 new=0x204007
7 9 1 entry table=0x204 index=0 old=0x0 new=0x202087
8 10 2 free frame=0x200 order=0
11 12 2 enter tlb=2 top=0x200 vmid=1
13 14 1 root top=0x200 order=0 levels=2 format=npt
15 16 2 access tlb=2 vmid=1 gfn=0x0 frame=0x200 write=1
";
    keeps("stale-access", trace);
}

#[test]
fn an_entry_may_map_its_own_table_that_is_freed_meanwhile() {
    let trace = "1 2 2 root top=0x204 order=0 levels=2 format=arm-fwb
3 4 2 enter tlb=2 top=0x204 vmid=2
5 7 2 entry table=0x204 index=0 old=0x0 new=0x2003fd
6 8 0 free frame=0x204 order=0
9 10 0 enter tlb=0 top=0x204 vmid=2
11 12 2 root top=0x204 order=0 levels=1 format=arm-fwb
13 14 0 access tlb=0 vmid=2 gfn=0x1 frame=0x201 write=1
";
    keeps("stale-access", trace);
}

#[test]
fn a_guest_may_have_been_entered_after_an_invalidation_that_two_events_complete() {
    let trace = "1 2 1 root top=0x203 order=0 levels=2 format=ept
3 4 1 enter tlb=1 top=0x203 vmid=1
5 6 1 entry table=0x203 index=0 old=0x200 new=0x203087
7 8 1 leave tlb=1 vmid=1
9 10 0 free frame=0x203 order=0
11 12 0 tlbi-all id=2 vmid=1
14 15 2 enter tlb=2 top=0x203 vmid=1
16 17 0 tlbi-sync id=6
13 18 0 tlbi-sync id=2
";
    keeps("frame-freed", trace);
}

#[test]
fn a_root_may_have_lost_its_second_table_before_it_was_gone() {
    let trace = "2 3 0 give frame=0x201 order=0
4 5 0 root top=0x201 order=1 levels=1 format=npt
1 6 2 root top=0x201 order=0 levels=1 format=npt
7 8 0 root-gone top=0x201
9 10 2 fill table=0x202 index=0 count=512 value=0x203007 step=0x0
";
    keeps("lost-write", trace);
}

#[test]
fn a_guest_may_have_been_entered_when_its_root_was_there_again() {
    let trace = "1 2 1 root top=0x200 order=0 levels=1 format=riscv
3 5 0 free frame=0x200 order=0
6 7 0 give frame=0x200 order=0
8 9 2 root top=0x200 order=0 levels=2 format=riscv
4 10 1 enter tlb=1 top=0x200 vmid=1
11 12 1 leave tlb=1 vmid=1
13 14 1 free frame=0x202 order=0
15 16 1 entry table=0x200 index=0 old=0x0 new=0x80401
17 18 2 entry table=0x200 index=0 old=0x80401 new=0x800db
";
    keeps("free-frame", trace);
}

#[test]
fn a_guest_may_have_been_entered_before_a_block_with_a_free_frame_was_mapped() {
    let trace = "1 2 1 free frame=0x200 order=0
3 5 2 root top=0x201 order=0 levels=2 format=riscv
6 7 0 entry table=0x201 index=0 old=0x0 new=0x80c1f
4 8 0 enter tlb=0 top=0x201 vmid=2
9 10 1 enter tlb=1 top=0x201 vmid=2
11 12 1 give frame=0x201 order=0
13 14 1 free frame=0x202 order=0
";
    keeps("frame-freed", trace);
}

#[test]
fn a_table_that_was_a_root_may_be_written_before_an_entry_leads_to_it() {
    let trace = "1 2 1 root top=0x204 order=0 levels=2 format=arm-fwb
3 4 2 root top=0x202 order=0 levels=2 format=arm-fwb
5 6 2 enter tlb=2 top=0x202 vmid=1
7 8 1 entry table=0x202 index=0 old=0x0 new=0x20177d
9 10 0 entry table=0x204 index=0 old=0x0 new=0x2027fd
11 12 2 leave tlb=2 vmid=1
13 14 2 free frame=0x202 order=0
15 16 0 entry table=0x204 index=0 old=0x2027fd new=0x20177d
17 18 0 give frame=0x202 order=0
19 21 0 entry table=0x202 index=0 old=0x0 new=0x2023fd
20 22 2 entry table=0x204 index=0 old=0x20177d new=0x202003
23 24 1 tlbi id=2 vmid=1 first=0x0 end=0x1 stride=1 reach=sizes
25 26 1 tlbi-sync id=2
27 28 1 enter tlb=1 top=0x202 vmid=1
";
    keeps("frame-freed", trace);
}

#[test]
fn a_frame_may_have_been_given_out_before_it_was_free() {
    let trace = "1 2 2 root top=0x201 order=0 levels=3 format=arm-fwb
3 4 2 enter tlb=2 top=0x201 vmid=2
5 6 0 entry table=0x201 index=1 old=0x0 new=0x2043fd
7 8 1 entry table=0x201 index=1 old=0x2043fd new=0x8
9 10 1 barrier orders=walks
11 12 1 free frame=0x200 order=0
14 15 0 tlbi-everything id=1
16 17 0 free frame=0x201 order=1
13 18 1 give frame=0x201 order=0
";
    keeps("frame-freed", trace);
}

#[test]
fn a_guest_may_have_been_entered_before_an_entry_led_to_a_free_table_again() {
    let trace = "1 2 1 root top=0x200 order=0 levels=2 format=arm-fwb
3 4 2 entry table=0x200 index=0 old=0x0 new=0x2017ff
5 6 0 free frame=0x201 order=0
7 8 0 entry table=0x200 index=0 old=0x2017ff new=0x0
10 11 0 entry table=0x200 index=0 old=0x400 new=0x201003
12 13 1 give frame=0x201 order=0
14 15 0 enter tlb=0 top=0x200 vmid=1
9 16 2 enter tlb=2 top=0x200 vmid=1
";
    keeps("table-freed", trace);
}

#[test]
fn a_table_may_have_been_unlinked_before_an_invalidation_that_is_complete() {
    let trace = "1 2 1 root top=0x203 order=0 levels=2 format=arm-fwb
3 4 0 enter tlb=0 top=0x203 vmid=2
5 6 1 entry table=0x203 index=0 old=0x0 new=0x202003
7 8 1 entry table=0x203 index=0 old=0x202003 new=0x2007ff
9 11 0 entry table=0x203 index=0 old=0x2007ff new=0x0
10 12 0 tlbi-all id=2 vmid=2
13 14 0 tlbi-sync id=2
15 16 1 access tlb=1 vmid=1 gfn=0x0 frame=0x200 write=1
";
    keeps("table-mapped", trace);
}

#[test]
fn an_entry_may_have_been_invalidated_before_another_cpu_issues_one() {
    let trace = "1 2 1 root top=0x200 order=0 levels=3 format=arm
3 4 2 enter tlb=2 top=0x200 vmid=1
5 6 2 entry table=0x200 index=0 old=0x0 new=0x2037ff
7 8 0 entry table=0x200 index=0 old=0x2037ff new=0x201003
9 10 1 free frame=0x203 order=0
11 13 2 barrier orders=walks
12 14 2 tlbi-all id=1 vmid=1
15 16 2 tlbi-sync id=1
17 18 1 tlbi id=2 vmid=1 first=0x0 end=0x4b000 stride=512 reach=any
";
    keeps("no-barrier", trace);
}

#[test]
fn an_invalidation_that_two_events_complete_may_have_been_complete_before_a_frame_is_free() {
    let trace = "1 2 0 root top=0x203 order=0 levels=2 format=arm
3 4 0 enter tlb=0 top=0x203 vmid=2
5 6 0 entry table=0x203 index=0 old=0x0 new=0x2007ff
7 9 1 entry table=0x203 index=0 old=0x2007ff new=0x8
8 10 1 tlbi id=3 vmid=2 first=0x0 end=0x258 stride=1 reach=any
12 13 1 free frame=0x200 order=0
14 15 1 tlbi-sync id=3
11 16 1 tlbi-sync id=3
";
    keeps("table-freed", trace);
}

#[test]
fn a_free_frame_may_be_invalidated_by_what_is_not_complete_when_the_trace_ends() {
    let trace = "1 2 1 root top=0x200 order=0 levels=2 format=arm
3 4 1 enter tlb=1 top=0x200 vmid=1
5 6 0 free frame=0x201 order=0
7 8 2 entry table=0x200 index=0 old=0x400 new=0x20277d
9 11 0 entry table=0x200 index=0 old=0x20277d new=0x204003
10 12 1 tlbi-all id=2 vmid=1
13 14 1 tlbi-sync id=2
15 16 0 tlbi-everything id=3
";
    keeps("free-frame", trace);
}

#[test]
fn a_guest_may_have_been_entered_before_an_access_and_after_its_root_came() {
    let trace = "1 2 1 leave tlb=1 vmid=1
3 5 1 access tlb=1 vmid=1 gfn=0x1 frame=0x200 write=1
6 7 0 root top=0x202 order=0 levels=2 format=npt
4 8 1 enter tlb=1 top=0x202 vmid=1
9 10 1 leave tlb=1 vmid=1
11 12 1 free frame=0x204 order=0
13 14 0 entry table=0x202 index=0 old=0x0 new=0x200007
15 16 0 entry table=0x202 index=0 old=0x200007 new=0x2040e7
";
    keeps("free-frame", trace);
}

#[test]
fn a_root_may_be_freed_whose_vmid_another_has_though_it_may_have_been_left_late() {
    let trace = "1 2 2 root top=0x200 order=1 levels=1 format=arm-fwb
3 4 2 root top=0x203 order=0 levels=1 format=arm-fwb
5 6 0 enter tlb=0 top=0x203 vmid=1
7 9 0 leave tlb=0 vmid=1
8 10 0 tlbi-all id=2 vmid=1
11 12 0 tlbi-sync id=2
13 14 2 enter tlb=2 top=0x200 vmid=1
15 16 1 free frame=0x203 order=0
";
    keeps("table-freed", trace);
}

#[test]
fn a_guest_of_another_root_may_have_been_entered_and_not_left_when_its_vmid_is_invalidated() {
    let trace = "1 2 1 root top=0x202 order=0 levels=3 format=arm-fwb
3 4 1 root top=0x201 order=0 levels=1 format=arm-fwb
5 7 0 enter tlb=0 top=0x202 vmid=2
6 8 2 enter tlb=2 top=0x201 vmid=2
9 10 0 leave tlb=0 vmid=2
11 12 1 tlbi-all id=2 vmid=2
13 14 1 tlbi-sync id=2
15 16 1 enter tlb=1 top=0x201 vmid=2
17 18 1 access tlb=1 vmid=2 gfn=0x0 frame=0x0 write=1
";
    keeps("stale-access", trace);
}

#[test]
fn a_frame_may_be_used_after_all_is_invalidated_that_led_to_it_as_a_table() {
    let trace = "1 2 0 root top=0x202 order=0 levels=2 format=ept
3 4 0 enter tlb=0 top=0x202 vmid=1
5 6 1 free frame=0x202 order=0
7 8 2 root top=0x202 order=0 levels=2 format=ept
9 10 1 root-gone top=0x202
11 12 0 leave tlb=0 vmid=1
13 14 1 tlbi-all id=3 vmid=1
16 17 2 access tlb=2 vmid=1 gfn=0x0 frame=0x202 write=0
15 18 1 tlbi-sync id=3
";
    keeps("table-mapped", trace);
}

#[test]
fn what_was_not_invalidated_when_its_root_was_gone_may_be_free() {
    let trace = "1 2 0 free frame=0x203 order=0
3 4 2 root top=0x202 order=0 levels=2 format=arm
5 7 0 entry table=0x202 index=1 old=0x8 new=0x2003fd
8 9 1 enter tlb=1 top=0x202 vmid=1
10 11 2 root-gone top=0x202
12 13 0 entry table=0x202 index=1 old=0x2003fd new=0x8
14 15 0 free frame=0x200 order=0
16 17 0 root top=0x202 order=0 levels=2 format=arm
6 18 0 enter tlb=0 top=0x202 vmid=1
19 20 2 enter tlb=2 top=0x202 vmid=1
";
    keeps("frame-freed", trace);
}

#[test]
fn what_was_not_invalidated_when_its_table_was_free_may_be_free_again() {
    let trace = "1 2 1 free frame=0x200 order=0
3 4 1 root top=0x204 order=0 levels=2 format=npt
5 6 0 enter tlb=0 top=0x204 vmid=1
7 8 0 entry table=0x204 index=1 old=0x0 new=0x2020e7
9 10 2 root-gone top=0x204
11 12 0 tlbi id=3 vmid=1 first=0x200 end=0x4b200 stride=512 reach=any
14 15 0 free frame=0x204 order=0
13 16 0 tlbi-sync id=3
17 18 0 give frame=0x204 order=0
19 20 1 free frame=0x204 order=0
";
    keeps("frame-freed", trace);
}

#[test]
fn a_page_may_be_mapped_after_its_vmid_is_another_roots() {
    let trace = "1 2 0 root top=0x202 order=0 levels=2 format=arm-fwb
3 4 2 entry table=0x202 index=0 old=0x0 new=0x2007fd
5 6 0 enter tlb=0 top=0x202 vmid=1
7 8 1 entry table=0x202 index=0 old=0x2007fd new=0x0
9 10 2 root top=0x201 order=0 levels=2 format=arm-fwb
12 13 0 entry table=0x202 index=0 old=0x0 new=0x203003
11 14 2 enter tlb=2 top=0x201 vmid=1
";
    keeps("break-before-make", trace);
}

#[test]
fn another_guest_may_have_been_entered_before_all_of_its_vmid_was_invalidated() {
    let trace = "1 2 2 root top=0x204 order=0 levels=1 format=arm
3 4 2 enter tlb=2 top=0x204 vmid=2
5 6 2 leave tlb=2 vmid=2
7 8 1 root top=0x201 order=0 levels=2 format=arm
9 12 1 enter tlb=1 top=0x201 vmid=2
10 13 2 tlbi-all id=3 vmid=2
11 14 2 tlbi-sync id=3
15 16 1 access tlb=1 vmid=2 gfn=0x0 frame=0x201 write=1
";
    keeps("stale-access", trace);
}

#[test]
fn a_cpu_may_have_gone_into_another_guest_when_a_root_is_gone() {
    let trace = "1 2 0 root top=0x203 order=0 levels=3 format=arm
3 4 1 enter tlb=1 top=0x203 vmid=1
5 6 2 root top=0x201 order=0 levels=3 format=arm
8 9 2 root-gone top=0x203
7 10 1 enter tlb=1 top=0x201 vmid=1
";
    keeps("root-gone", trace);
}

#[test]
fn an_entry_may_be_in_a_root_whose_frame_is_given_out_or_not() {
    let trace = "1 2 1 free frame=0x203 order=0
3 4 0 root top=0x204 order=0 levels=3 format=npt
5 6 0 enter tlb=0 top=0x204 vmid=1
7 8 1 entry table=0x204 index=1 old=0x0 new=0x201087
9 11 0 access tlb=0 vmid=1 gfn=0x0 frame=0x204 write=0
12 13 1 give frame=0x204 order=0
10 14 2 entry table=0x204 index=0 old=0x0 new=0x2010e7
15 16 1 entry table=0x204 index=1 old=0x0 new=0x200087
17 18 1 tlbi-everything id=3
";
    keeps("free-frame", trace);
}

#[test]
fn a_table_may_be_given_out_before_what_it_had_is_invalidated() {
    let trace = "1 2 0 root top=0x201 order=0 levels=2 format=npt
3 4 1 entry table=0x201 index=0 old=0x0 new=0x203085
5 6 1 free frame=0x203 order=0
7 8 2 enter tlb=2 top=0x201 vmid=1
9 10 2 root-gone top=0x201
11 12 1 free frame=0x201 order=0
14 15 2 tlbi id=4 vmid=1 first=0x0 end=0x258 stride=1 reach=sizes
13 16 1 give frame=0x201 order=0
";
    keeps("frame-freed", trace);
}

#[test]
fn a_guest_may_have_been_entered_again_after_it_was_left_and_its_root_gone() {
    let trace = "1 2 0 root top=0x202 order=0 levels=3 format=riscv
3 4 0 enter tlb=0 top=0x202 vmid=1
6 7 2 root-gone top=0x202
8 9 0 root top=0x202 order=0 levels=2 format=riscv
10 11 0 enter tlb=0 top=0x202 vmid=1
5 12 0 leave tlb=0 vmid=1
13 14 1 tlbi-all id=2 vmid=1
15 16 1 tlbi-sync id=2
17 18 2 enter tlb=2 top=0x202 vmid=1
19 20 2 access tlb=2 vmid=1 gfn=0x1 frame=0x0 write=0
";
    keeps("stale-access", trace);
}

#[test]
fn a_write_that_waits_is_of_no_table_that_comes_when_its_frame_is_given_out() {
    let trace = "1 3 1 give frame=0x202 order=0
2 4 1 free frame=0x202 order=0
5 6 1 entry table=0x202 index=1 old=0x203007 new=0x0
7 8 1 give frame=0x202 order=0
9 10 0 entry table=0x202 index=0 old=0x0 new=0x2021b7
11 13 0 entry table=0x202 index=0 old=0x2021b7 new=0x8
12 14 2 entry table=0x202 index=1 old=0x0 new=0x202007
";
    keeps("lost-write", trace);
}

#[test]
fn a_write_waits_for_one_before_while_another_of_its_table_is_made() {
    let trace = "1 2 0 free frame=0x204 order=0
3 5 1 entry table=0x204 index=0 old=0x0 new=0x200003
4 6 0 give frame=0x204 order=0
7 8 0 entry table=0x204 index=0 old=0x0 new=0x200003
9 10 1 entry table=0x204 index=1 old=0x0 new=0x20377d
11 13 2 entry table=0x204 index=1 old=0x20377d new=0x2027fd
12 14 2 entry table=0x204 index=0 old=0x200003 new=0x2047ff
";
    keeps("lost-write", trace);
}

#[test]
fn a_page_may_be_unmapped_in_a_table_that_is_free_and_be_used_still() {
    let trace = "1 2 0 fill table=0x201 index=0 count=1 value=0x2031b7 step=0x1000
3 4 2 root top=0x201 order=0 levels=2 format=ept
5 6 2 enter tlb=2 top=0x201 vmid=1
7 9 1 free frame=0x201 order=0
8 10 2 entry table=0x201 index=0 old=0x2031b7 new=0x0
11 12 2 tlbi id=3 vmid=1 first=0x0 end=0x258 stride=1 reach=any
13 14 2 tlbi-sync id=3
15 16 0 root top=0x201 order=0 levels=1 format=ept
17 18 2 access tlb=2 vmid=1 gfn=0x1 frame=0x201 write=0
";
    keeps("stale-access", trace);
}

#[test]
fn a_guest_may_have_what_is_unmapped_for_a_write_that_came_before_it_was_entered() {
    let trace = "1 2 2 fill table=0x201 index=0 count=2 value=0x2021b7 step=0x1000
3 4 0 root top=0x201 order=0 levels=3 format=ept
5 6 0 entry table=0x201 index=0 old=0x2021b7 new=0x2010b7
7 9 0 entry table=0x200 index=1 old=0x0 new=0x200007
10 11 1 enter tlb=1 top=0x201 vmid=2
8 12 0 entry table=0x201 index=0 old=0x2010b7 new=0x8
13 14 1 access tlb=1 vmid=2 gfn=0x0 frame=0x0 write=1
";
    keeps("stale-access", trace);
}

#[test]
fn a_vmid_may_be_another_roots_of_which_it_is_not_known_when_it_was_entered() {
    let trace = "1 2 2 root top=0x201 order=0 levels=1 format=ept
3 4 1 fill table=0x200 index=0 count=1 value=0x201007 step=0x1000
5 7 0 root top=0x200 order=0 levels=1 format=ept
8 9 0 entry table=0x200 index=0 old=0x201007 new=0x0
10 11 0 enter tlb=0 top=0x201 vmid=2
6 12 2 enter tlb=2 top=0x200 vmid=2
13 14 0 entry table=0x201 index=1 old=0x0 new=0x204007
15 16 2 free frame=0x204 order=0
";
    keeps("frame-freed", trace);
}

#[test]
fn a_table_may_be_free_where_no_guest_is_entered_until_all_of_its_vmid_is_invalidated() {
    let trace = "1 2 1 entry table=0x203 index=0 old=0x0 new=0x810df
3 4 1 entry table=0x203 index=0 old=0x810df new=0x8
5 6 1 root top=0x203 order=0 levels=2 format=riscv
7 8 1 enter tlb=1 top=0x203 vmid=2
9 10 2 entry table=0x203 index=0 old=0x8 new=0x81001
11 12 1 leave tlb=1 vmid=2
13 14 0 entry table=0x203 index=0 old=0x81001 new=0x0
15 16 0 free frame=0x204 order=0
17 18 2 tlbi-all id=3 vmid=2
20 21 0 enter tlb=0 top=0x203 vmid=2
22 23 1 barrier orders=walks
24 25 1 tlbi-all id=4 vmid=2
26 27 1 tlbi-sync id=4
19 28 2 tlbi-sync id=3
";
    keeps("table-freed", trace);
}

#[test]
fn a_root_that_is_free_may_be_no_table_when_another_one_in_its_frame_is_gone() {
    let trace = "1 2 0 root top=0x203 order=0 levels=1 format=ept
3 4 1 enter tlb=1 top=0x203 vmid=1
5 6 1 free frame=0x203 order=0
7 8 1 leave tlb=1 vmid=1
9 10 2 tlbi-all id=3 vmid=1
12 13 0 root top=0x203 order=0 levels=2 format=ept
14 15 0 enter tlb=0 top=0x203 vmid=1
16 17 0 root-gone top=0x203
18 19 0 access tlb=0 vmid=1 gfn=0x0 frame=0x203 write=1
11 20 2 tlbi-sync id=3
";
    keeps("table-mapped", trace);
}

#[test]
fn an_entry_may_be_in_no_table_any_more_whose_frame_is_given_out_while_it_is_freed() {
    let trace = "1 2 0 free frame=0x202 order=0
3 4 0 root top=0x204 order=0 levels=2 format=arm
5 6 0 enter tlb=0 top=0x204 vmid=2
7 8 2 entry table=0x204 index=1 old=0x0 new=0x20177d
9 10 2 root-gone top=0x204
11 13 1 free frame=0x204 order=0
12 14 1 give frame=0x204 order=0
15 16 1 tlbi id=3 vmid=2 first=0x0 end=0x258 stride=1 reach=sizes
";
    keeps("free-frame", trace);
}
