//! What may have come before another event or after it: what the checker goes by meanwhile, and that it does not stay in
//! doubt for longer than that.

mod common;

use common::broken;

#[test]
fn a_guest_may_use_a_page_that_was_replaced_since_a_cpu_was_there_that_left_while_it_entered() {
    let trace = |others: &str| {
        format!(
            "1 2 0 root top=0x100 order=0 levels=1 format=ept
3 4 0 vmid-take vmid=7 generation=1
{others}9 10 0 entry table=0x100 index=0 old=0 new=0x300037
11 12 0 entry table=0x100 index=0 old=0x300037 new=0x400037
13 14 2 enter tlb=2 top=0x100 vmid=7
15 16 2 access tlb=2 vmid=7 gfn=0 frame=0x300 write=0
"
        )
    };
    let other = "6 7 1 leave tlb=1 vmid=7\n5 8 1 enter tlb=1 top=0x100 vmid=7\n";
    assert_eq!(broken(&trace(other)), []);
    let used = "access tlb=2 vmid=7 gfn=0 frame=0x300 write=0".to_string();
    assert_eq!(broken(&trace("")), [("stale-access", used)]);
}
